//! What GitHub says of people, each thing asked once a run: who may do what, who approved what, who is in which team.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
};

use tokio::sync::Mutex;

use crate::github::{Approval, Client, GithubError, Permission};

/// Answers by question. Questions of one kind wait for each other, as GitHub asks of its clients.
struct Once<K, V>(Mutex<BTreeMap<K, V>>);

impl<K: Ord, V: Clone> Once<K, V> {
    fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    async fn ask(
        &self,
        question: K,
        answer: impl Future<Output = Result<V, GithubError>>,
    ) -> Result<V, GithubError> {
        let mut known = self.0.lock().await;
        if let Some(answer) = known.get(&question) {
            return Ok(answer.clone());
        }
        let answer = answer.await?;
        known.insert(question, answer.clone());
        Ok(answer)
    }
}

/// The people of a run's repository. Without a client nobody is known.
pub(super) struct People {
    client: Option<Client>,
    permissions: Once<String, Permission>,
    protected: Once<String, bool>,
    approvals: Once<u64, Vec<Approval>>,
    members: Once<(String, String), Option<bool>>,
    runs: Once<(u64, String), Vec<String>>,
}

impl People {
    pub fn new(client: Option<Client>) -> Self {
        Self {
            client,
            permissions: Once::new(),
            protected: Once::new(),
            approvals: Once::new(),
            members: Once::new(),
            runs: Once::new(),
        }
    }

    /// What somebody may do in the repository.
    pub async fn permission(&self, user: &str) -> Result<Permission, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Permission::None);
        };
        self.permissions
            .ask(user.to_owned(), client.permission(user))
            .await
    }

    /// Whether GitHub protects a branch; `None` if it can not be asked.
    pub async fn is_protected(&self, branch: &str) -> Option<bool> {
        let client = self.client.as_ref()?;
        let answer = self.protected.ask(branch.to_owned(), client.is_protected(branch));
        answer.await.ok()
    }

    /// Who approves a pull request, and which head of it.
    pub async fn approvals(&self, pull: u64) -> Result<Vec<Approval>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        self.approvals.ask(pull, client.approvals(pull)).await
    }

    /// Who let a run go on in an environment.
    pub async fn let_run_go_on(&self, run: u64, environment: &str) -> Result<Vec<String>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        let answer = client.run_approvers(run, environment);
        self.runs.ask((run, environment.to_owned()), answer).await
    }

    /// Which of these people are in these teams (`org/team`). A team that may not be looked into is left out.
    pub async fn teams<'a>(
        &self,
        teams: impl IntoIterator<Item = &'a str>,
        people: &BTreeSet<String>,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let mut found = BTreeMap::new();
        for name in teams {
            if let Some(members) = self.members(name, people).await {
                found.insert(name.to_owned(), members);
            }
        }
        found
    }

    async fn members(&self, name: &str, people: &BTreeSet<String>) -> Option<BTreeSet<String>> {
        let client = self.client.as_ref()?;
        let (org, team) = name.split_once('/')?;
        let mut members = BTreeSet::new();
        for person in people {
            let asked = async { Ok(client.is_team_member(org, team, person).await.ok()) };
            let answer = self.members.ask((name.to_owned(), person.clone()), asked).await;
            if answer.ok().flatten()? {
                members.insert(person.clone());
            }
        }
        Some(members)
    }
}
