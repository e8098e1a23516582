//! Facts about people from the forge, each requested once per run: permissions, approvals, team members.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
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
    error::{ErrorKind, UserError, chain},
    model::CommitId,
};
use konverge_forge::{
    Forge, ForgeError, ForgeKind, Permission, PreviewComment, ReviewApproval, RunApproval,
    StickyComments as _, Unsupported,
};
use konverge_policy::Teams;

/// Returns an error unless the forge names the reviewers of the job's environment.
pub(crate) async fn require_run_approval(job: &Job, client: &dyn Forge) -> Result<(), UserError> {
    // Without the name of the environment its reviewers approve nothing, so they need not be known.
    let Some(environment) = &job.options.environment else {
        return Ok(());
    };
    let approvers = client
        .environments()?
        .run_approvals(job.runner.info().run_id, environment)
        .await?;
    if approvers.is_empty() {
        Err(nobody_approved(environment))
    } else {
        Ok(())
    }
}

/// Returns an error unless the user who started the run, and so approves its digests, may push. On some forges other
/// users can start a run.
pub(crate) async fn require_push_permission(client: &dyn Forge, login: &str) -> Result<(), UserError> {
    if client.starters_may_push() || client.permission(login).await? >= Permission::Write {
        return Ok(());
    }
    let what = format!(
        "{} started this run, and is not known to be allowed to push: these digests are not approved",
        login.escape_debug()
    );
    Err(UserError::new(ErrorKind::Policy, what).hint(
        "a user who may push must start the run, and the job needs a token that can read the permissions of that user",
    ))
}

fn nobody_approved(environment: &str) -> UserError {
    UserError::new(
        ErrorKind::Policy,
        format!(
            "nobody approved this run in the environment `{}`, so these digests are not approved",
            environment.escape_debug()
        ),
    )
    .hint("give the job that `environment:`, with required reviewers")
    .hint(BY_HAND)
}

/// A cache of facts. Requests of one kind are sent one after another, as GitHub asks its clients to do.
struct LookupCache<K, V>(Mutex<BTreeMap<K, V>>);

impl<K, V> Default for LookupCache<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord, V: Clone> LookupCache<K, V> {
    async fn ask(
        &self,
        question: K,
        answer: impl Future<Output = Result<V, ForgeError>>,
    ) -> Result<V, ForgeError> {
        // The lock is held during the request, so that two stacks never send the same request.
        let mut known = self.0.lock().await;
        if let Some(answer) = known.get(&question) {
            return Ok(answer.clone());
        }
        let answer = answer.await?;
        known.insert(question, answer.clone());
        Ok(answer)
    }

    /// Returns the known answer, or that of the forge; without a forge the default.
    async fn ask_forge(
        &self,
        question: K,
        asked: Option<impl Future<Output = Result<V, ForgeError>>>,
    ) -> Result<V, ForgeError>
    where
        V: Default,
    {
        let answer = async {
            match asked {
                Some(asked) => asked.await,
                None => Ok(V::default()),
            }
        };
        self.ask(question, answer).await
    }
}

/// Facts about the people of a repository. Without a client, no person is known.
#[derive(Default)]
pub(crate) struct Reviewers {
    client: Option<Arc<dyn Forge>>,
    permissions: LookupCache<String, Permission>,
    approvals: LookupCache<u64, Vec<ReviewApproval>>,
    comments: LookupCache<u64, Vec<PreviewComment>>,
    members: LookupCache<(String, String), Result<bool, String>>,
    edited: LookupCache<String, Option<String>>,
    runs: LookupCache<(u64, String), Vec<RunApproval>>,
    behind_pulls: LookupCache<u64, Contributors>,
    before: LookupCache<(Option<CommitId>, String), RangeStart>,
    behind_commits: LookupCache<(Option<CommitId>, CommitId), Contributors>,
}

impl Reviewers {
    pub(crate) fn new(client: Option<Arc<dyn Forge>>) -> Self {
        Self {
            client,
            ..Self::default()
        }
    }

    /// Returns true if every user who can start a run may also push. Also true without a client.
    pub(crate) fn starters_may_push(&self) -> bool {
        self.client
            .as_ref()
            .is_none_or(|client| client.starters_may_push())
    }

    /// Returns an error if the forge reads CODEOWNERS in another way than GitHub.
    pub(crate) fn code_owners(&self) -> Result<(), Unsupported> {
        self.client.as_ref().map_or(Ok(()), |client| client.code_owners())
    }

    /// Returns the kind of the forge, for messages.
    pub(crate) fn forge(&self) -> ForgeKind {
        self.client
            .as_ref()
            .map_or(ForgeKind::Github, |client| client.kind())
    }

    /// Returns an error if the forge does not record who pushed.
    pub(crate) fn knows_pushers(&self) -> Result<(), Unsupported> {
        self.client
            .as_ref()
            .map_or(Ok(()), |client| client.branch_activity().map(drop))
    }

    /// Returns the permission of a user in the repository.
    pub(crate) async fn permission(&self, user: &str) -> Result<Permission, ForgeError> {
        let asked = self.client.as_ref().map(|client| client.permission(user));
        self.permissions.ask_forge(user.to_owned(), asked).await
    }

    /// Returns the approvals of a pull request, each with the approved head.
    pub(crate) async fn approvals(&self, pull: u64) -> Result<Vec<ReviewApproval>, ForgeError> {
        let asked = self.client.as_ref().map(|client| client.approvals(pull));
        self.approvals.ask_forge(pull, asked).await
    }

    /// Returns the comments that show the previews of a pull request.
    pub(crate) async fn preview_comments(&self, pull: u64) -> Result<Vec<PreviewComment>, ForgeError> {
        let asked = self.client.as_ref().map(|client| client.preview_comments(pull));
        self.comments.ask_forge(pull, asked).await
    }

    /// Returns the people who approved a run in an environment.
    pub(crate) async fn run_approvals(
        &self,
        run: u64,
        environment: &str,
    ) -> Result<Vec<RunApproval>, ForgeError> {
        let asked = self
            .client
            .as_ref()
            .map(|client| async move { client.environments()?.run_approvals(run, environment).await });
        self.runs.ask_forge((run, environment.to_owned()), asked).await
    }

    /// Returns the contributors to a pull request.
    pub(crate) async fn pull_contributors(&self, pull: u64) -> Result<Contributors, ForgeError> {
        let asked = self.client.as_deref();
        let asked = asked.map(|client| contributors::of_pull_request(client, pull));
        self.behind_pulls.ask_forge(pull, asked).await
    }

    /// Returns the start of the commits that the digest of a stack's plan covers.
    pub(crate) async fn before(
        &self,
        since: Option<&CommitId>,
        head: &CommitId,
        folder: &str,
    ) -> Result<RangeStart, ForgeError> {
        let question = (since.cloned(), folder.to_owned());
        let asked = self.client.as_deref();
        let asked = asked.map(|client| contributors::before(client, since, head, folder));
        self.before.ask_forge(question, asked).await
    }

    /// Returns the contributors to a stack's commits, from the last applied commit up to `head`.
    pub(crate) async fn commit_contributors(
        &self,
        branch: &str,
        since: Option<&CommitId>,
        head: &CommitId,
        folder: &str,
    ) -> Result<Contributors, ForgeError> {
        let before = self.before(since, head, folder).await?;
        let question = (before.commit.clone(), head.clone());
        let answer = async {
            match &self.client {
                Some(client) => contributors::of_commits(client.as_ref(), branch, before, head).await,
                // Without a client the contributors are unknown, so every user may be one.
                None => Ok(Contributors {
                    unknown: Some(head.clone()),
                    ..Contributors::default()
                }),
            }
        };
        self.behind_commits.ask(question, answer).await
    }

    /// Returns the user who last edited the text of a review.
    pub(crate) async fn review_editor(&self, review: &ReviewApproval) -> Result<Option<String>, ForgeError> {
        let asked = self
            .client
            .as_ref()
            .map(|client| async move { client.review_edits()?.review_editor(review).await });
        self.edited.ask_forge(review.node.clone(), asked).await
    }

    /// Returns which of these people are members of these teams (`org/team`), and the teams that cannot be read.
    pub(crate) async fn teams<'a>(
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
        let (org, team) = name.split_once('/').ok_or("it is not the name of a team")?;
        let mut members = BTreeSet::new();
        for person in people {
            let asked = async {
                Ok(match &self.client {
                    Some(client) => {
                        let answer = client.is_team_member(org, team, person).await;
                        answer.map_err(|error| chain(&error))
                    }
                    None => Err("there is no token".to_owned()),
                })
            };
            let answer = self.members.ask((name.to_owned(), person.clone()), asked).await;
            if answer.map_err(|error| chain(&error))?? {
                members.insert(person.clone());
            }
        }
        Ok(members)
    }
}

/// Responses of GitHub for tests. A missing entry is treated as without a client: nobody is known.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct KnownPeople {
    pub permissions: Vec<(&'static str, Permission)>,
    /// The approvals of pull requests: number, reviewer, head.
    pub approvals: Vec<(u64, &'static str, CommitId)>,
    /// Further approving reviews, by the number of the pull request.
    pub reviews: Vec<(u64, ReviewApproval)>,
    /// The comments of previews, by the number of the pull request.
    pub comments: Vec<(u64, PreviewComment)>,
    /// The teams and who is in them.
    pub teams: Vec<(&'static str, &'static str, bool)>,
    /// The ids of reviews whose text was edited, and by whom.
    pub edited: Vec<(&'static str, &'static str)>,
    /// The users who approved run 1 in the environment `production`.
    pub approved_run: Vec<&'static str>,
    /// The contributors to a pull request; the last field is true if it came from a fork.
    pub pulls: Vec<(u64, Vec<&'static str>, bool)>,
    /// The contributors to the commits from `since` to a head; the last field is true if somebody is unknown.
    pub commits: Vec<(CommitId, CommitId, Vec<&'static str>, bool)>,
}

#[cfg(test)]
impl Reviewers {
    /// These people, without a client.
    pub(crate) fn knowing(known: KnownPeople, folder: &str) -> Self {
        fn cache<K: Ord, V>(answers: impl IntoIterator<Item = (K, V)>) -> LookupCache<K, V> {
            LookupCache(Mutex::new(answers.into_iter().collect()))
        }
        let people = |logins: Vec<&str>, unknown: Option<CommitId>| Contributors {
            people: logins.into_iter().map(str::to_owned).collect(),
            unknown,
        };
        let mut approvals: BTreeMap<u64, Vec<ReviewApproval>> = BTreeMap::new();
        for (pull, reviewer, commit) in known.approvals {
            approvals.entry(pull).or_default().push(ReviewApproval {
                reviewer: reviewer.to_owned(),
                commit,
                given: None,
                said: String::new(),
                node: format!("{pull} {reviewer}"),
            });
        }
        for (pull, review) in known.reviews {
            approvals.entry(pull).or_default().push(review);
        }
        let mut comments: BTreeMap<u64, Vec<PreviewComment>> = BTreeMap::new();
        for (pull, comment) in known.comments {
            comments.entry(pull).or_default().push(comment);
        }
        let run_approvals = known.approved_run.into_iter().map(|login| RunApproval {
            reviewer: login.to_owned(),
            said: format!("{login} says so"),
        });
        let starts = known.commits.iter().map(|(since, ..)| {
            let start = RangeStart {
                commit: Some(since.clone()),
                root: None,
            };
            ((Some(since.clone()), folder.to_owned()), start)
        });
        Self {
            permissions: cache(
                known
                    .permissions
                    .into_iter()
                    .map(|(login, may)| (login.to_owned(), may)),
            ),
            approvals: cache(approvals),
            comments: cache(comments),
            members: cache(
                known
                    .teams
                    .into_iter()
                    .map(|(team, login, is_in)| ((team.to_owned(), login.to_owned()), Ok(is_in))),
            ),
            edited: cache(
                known
                    .edited
                    .into_iter()
                    .map(|(review, editor)| (review.to_owned(), Some(editor.to_owned()))),
            ),
            runs: cache([((1, "production".to_owned()), run_approvals.collect())]),
            behind_pulls: cache(known.pulls.into_iter().map(|(number, logins, from_fork)| {
                let head = || "a".repeat(40).parse().expect("a commit id");
                (number, people(logins, from_fork.then(head)))
            })),
            before: cache(starts.collect::<Vec<_>>()),
            behind_commits: cache(
                known
                    .commits
                    .into_iter()
                    .map(|(since, head, logins, is_unknown)| {
                        let unknown = is_unknown.then(|| head.clone());
                        ((Some(since), head), people(logins, unknown))
                    }),
            ),
            ..Self::new(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_question_is_asked_once_and_an_error_is_no_answer() {
        let cache: LookupCache<u8, u8> = LookupCache::default();
        let error = || ForgeError::Runner {
            message: "no".to_owned(),
            hint: String::new(),
        };
        assert!(cache.ask(1, async { Err(error()) }).await.is_err());
        assert_eq!(cache.ask(1, async { Ok(2) }).await.unwrap(), 2);
        assert_eq!(cache.ask(1, async { Ok(3) }).await.unwrap(), 2);
        assert_eq!(cache.ask(2, async { Ok(3) }).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn without_a_token_nobody_may_anything_and_every_author_is_unknown() {
        let nobody = Reviewers::new(None);
        let head: CommitId = "f".repeat(40).parse().unwrap();
        assert_eq!(nobody.permission("ada").await.unwrap(), Permission::None);
        assert!(nobody.approvals(7).await.unwrap().is_empty());
        assert!(nobody.run_approvals(1, "production").await.unwrap().is_empty());
        let behind = nobody
            .commit_contributors("main", None, &head, "apps/shop")
            .await
            .unwrap();
        assert_eq!(behind.unknown, Some(head));
        let teams = nobody
            .teams(["acme/sre", "ada"], &BTreeSet::from(["ada".to_owned()]))
            .await;
        assert!(teams.members.is_empty());
        assert_eq!(teams.unreadable["acme/sre"], "there is no token");
        assert_eq!(teams.unreadable["ada"], "it is not the name of a team");
    }

    #[tokio::test]
    async fn a_team_has_those_of_the_people_that_are_in_it() {
        let known = KnownPeople {
            teams: vec![("acme/sre", "ada", true), ("acme/sre", "bob", false)],
            ..KnownPeople::default()
        };
        let people = Reviewers::knowing(known, "");
        let asked = |logins: &[&str]| {
            logins
                .iter()
                .map(|login| (*login).to_owned())
                .collect::<BTreeSet<_>>()
        };
        let teams = people.teams(["acme/sre"], &asked(&["ada", "bob"])).await;
        assert_eq!(teams.members["acme/sre"], asked(&["ada"]));
        // Of one of them it is not known: then nobody is in it.
        let teams = people.teams(["acme/sre"], &asked(&["ada", "eve"])).await;
        assert!(teams.members.is_empty() && teams.unreadable.contains_key("acme/sre"));
    }
}
