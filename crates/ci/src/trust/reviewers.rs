//! Facts from GitHub about people, each queried once per run: permissions, approvals, team members.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
};

use tokio::sync::Mutex;

use crate::{
    job::Job,
    trust::{
        authority::BY_HAND,
        contributors::{self, Contributors, RangeStart},
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::CommitId,
};
use konverge_github::{Client, GithubError, Permission, PreviewComment, ReviewApproval, RunApproval};
use konverge_policy::Teams;

/// Returns an error unless the reviewers of the job's environment are known.
pub(crate) async fn require_run_approval(job: &Job) -> Result<(), UserError> {
    // Without its name nothing is granted to them.
    let Some(environment) = &job.options.environment else {
        return Ok(());
    };
    let approvers = match &job.client {
        Some(client) => client.run_approvals(job.runner.run_id, environment).await?,
        None => Vec::new(),
    };
    if approvers.is_empty() {
        return Err(UserError::new(
            ErrorKind::Policy,
            format!(
                "nobody approved this run in the environment `{}`, so these digests are not approved",
                environment.escape_debug()
            ),
        )
        .hint("give the job that `environment:`, with required reviewers")
        .hint(BY_HAND));
    }
    Ok(())
}

/// Answers by question. Questions of one kind are sent one after another, as GitHub asks of its clients.
struct AnswerCache<K, V>(Mutex<BTreeMap<K, V>>);

impl<K: Ord, V: Clone> AnswerCache<K, V> {
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
pub(crate) struct Reviewers {
    client: Option<Client>,
    permissions: AnswerCache<String, Permission>,
    approvals: AnswerCache<u64, Vec<ReviewApproval>>,
    comments: AnswerCache<u64, Vec<PreviewComment>>,
    members: AnswerCache<(String, String), Result<bool, String>>,
    edited: AnswerCache<String, Option<String>>,
    runs: AnswerCache<(u64, String), Vec<RunApproval>>,
    behind_pulls: AnswerCache<u64, Contributors>,
    before: AnswerCache<(Option<CommitId>, String), RangeStart>,
    behind_commits: AnswerCache<(Option<CommitId>, CommitId), Contributors>,
}

impl Reviewers {
    pub fn new(client: Option<Client>) -> Self {
        Self {
            client,
            permissions: AnswerCache::new(),
            approvals: AnswerCache::new(),
            comments: AnswerCache::new(),
            members: AnswerCache::new(),
            edited: AnswerCache::new(),
            runs: AnswerCache::new(),
            behind_pulls: AnswerCache::new(),
            before: AnswerCache::new(),
            behind_commits: AnswerCache::new(),
        }
    }

    /// The permission of a user in the repository.
    pub async fn permission(&self, user: &str) -> Result<Permission, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Permission::None);
        };
        self.permissions
            .ask(user.to_owned(), client.permission(user))
            .await
    }

    /// The approvals of a pull request, with the approved heads.
    pub async fn approvals(&self, pull: u64) -> Result<Vec<ReviewApproval>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        self.approvals.ask(pull, client.approvals(pull)).await
    }

    /// The comments that show the previews of a pull request.
    pub async fn preview_comments(&self, pull: u64) -> Result<Vec<PreviewComment>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        self.comments.ask(pull, client.preview_comments(pull)).await
    }

    /// Who approved a run in an environment.
    pub async fn let_run_go_on(&self, run: u64, environment: &str) -> Result<Vec<RunApproval>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Vec::new());
        };
        let answer = client.run_approvals(run, environment);
        self.runs.ask((run, environment.to_owned()), answer).await
    }

    /// The contributors of a pull request.
    pub async fn behind_pull(&self, pull: u64) -> Result<Contributors, GithubError> {
        let Some(client) = &self.client else {
            return Ok(Contributors::default());
        };
        let answer = contributors::of_pull_request(client, pull);
        self.behind_pulls.ask(pull, answer).await
    }

    /// The start of the commits that a stack's digest covers.
    pub async fn before(
        &self,
        since: Option<&CommitId>,
        head: &CommitId,
        folder: &str,
    ) -> Result<RangeStart, GithubError> {
        let Some(client) = &self.client else {
            return Ok(RangeStart::default());
        };
        let question = (since.cloned(), folder.to_owned());
        let answer = contributors::before(client, since, head, folder);
        self.before.ask(question, answer).await
    }

    /// The contributors of a stack's commits up to `head` since the last applied commit.
    pub async fn behind_commits(
        &self,
        branch: &str,
        since: Option<&CommitId>,
        head: &CommitId,
        folder: &str,
    ) -> Result<Contributors, GithubError> {
        let Some(client) = &self.client else {
            // Nobody is known, so everybody may be a contributor.
            return Ok(Contributors {
                unknown: Some(head.clone()),
                ..Contributors::default()
            });
        };
        let before = self.before(since, head, folder).await?;
        let question = (before.commit.clone(), head.clone());
        let answer = contributors::of_commits(client, branch, before, head);
        self.behind_commits.ask(question, answer).await
    }

    /// Whoever edited the text of a review last.
    pub async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>, GithubError> {
        let Some(client) = &self.client else {
            return Ok(None);
        };
        let answer = client.review_editor(review);
        self.edited.ask(review.node.clone(), answer).await
    }

    /// Which of these people are members of these teams (`org/team`), and which teams cannot be read.
    pub async fn teams<'a>(
        &self,
        teams: impl IntoIterator<Item = &'a str>,
        people: &BTreeSet<String>,
    ) -> Teams {
        let mut found = Teams::default();
        for name in teams {
            match self.members(name, people).await {
                Ok(members) => drop(found.members.insert(name.to_owned(), members)),
                Err(why) => drop(found.unreadable.insert(name.to_owned(), why)),
            }
        }
        found
    }

    async fn members(&self, name: &str, people: &BTreeSet<String>) -> Result<BTreeSet<String>, String> {
        let client = self.client.as_ref().ok_or("there is no token")?;
        let (org, team) = name.split_once('/').ok_or("it is not the name of a team")?;
        let mut members = BTreeSet::new();
        for person in people {
            let asked = async {
                let answer = client.is_team_member(org, team, person).await;
                Ok(answer.map_err(|error| error.to_string()))
            };
            let answer = self.members.ask((name.to_owned(), person.clone()), asked).await;
            if answer.map_err(|error| error.to_string())?? {
                members.insert(person.clone());
            }
        }
        Ok(members)
    }
}
