//! The event that started the run: its commits, and whether it comes from outside the repository.

use std::{collections::BTreeMap, fs};

use serde_json::Value;

use super::{error::GithubError, runner::Runner};
use konverge_base::model::CommitId;

/// An event that Konverge handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GithubEvent {
    /// A pull request was opened, updated or closed.
    PullRequest(PullRequestEvent),
    /// Commits were pushed to a branch.
    Push(PushEvent),
    /// A merge queue asks whether a group may be merged.
    MergeGroup {
        /// The group's parent, which may be another group.
        base: CommitId,
        /// The group's head.
        head: CommitId,
        /// The target branch.
        base_branch: String,
        /// The repository's default branch.
        default_branch: String,
        /// The last pull request of the group, from the name of its ref.
        pull_request: Option<u64>,
    },
    /// A schedule.
    Schedule {
        /// The cron expression.
        cron: String,
    },
    /// The workflow was started manually.
    WorkflowDispatch {
        /// The inputs.
        inputs: BTreeMap<String, String>,
        /// The ref that was chosen; it may be any branch.
        ref_name: String,
        /// The default branch of the repository.
        default_branch: String,
    },
    /// Another workflow ended: this is how the preview of a fork is published.
    WorkflowRun(WorkflowRunEvent),
    /// A call through the API.
    RepositoryDispatch {
        /// The event type.
        action: String,
        /// The client payload.
        payload: Value,
    },
}

/// A pull request as its event shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestEvent {
    /// `opened`, `synchronize`, `edited`, `closed`, …
    pub action: String,
    /// True if an edit changed the target branch.
    pub base_changed: bool,
    /// Number of the pull request.
    pub number: u64,
    /// The author.
    pub author: String,
    /// The tip of the base branch at the time of the event; the merge commit may be newer.
    pub base: CommitId,
    /// The target branch.
    pub base_branch: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// The head, which identifies the change.
    pub head: CommitId,
    /// The source branch.
    pub head_branch: String,
    /// The test merge of head into base (`GITHUB_SHA`), if the event has one: the content to preview.
    pub merge_commit: Option<CommitId>,
    /// True if the head is in another repository: no secrets, a read-only token.
    pub from_fork: bool,
    /// True if Dependabot started the run: as restricted as a fork.
    pub dependabot: bool,
    /// True if it was merged (with `closed`).
    pub merged: bool,
}

impl PullRequestEvent {
    /// Returns true if its runs have as few permissions as those of a fork.
    pub fn is_from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// The target branch, unless it is the default branch.
    pub fn elsewhere(&self) -> Option<&str> {
        other_branch(&self.base_branch, &self.default_branch)
    }

    /// Why there is nothing to preview; `None` if there is something.
    pub fn nothing_to_preview(&self) -> Option<&'static str> {
        match self.action.as_str() {
            "closed" => Some("the pull request is closed: nothing to preview"),
            "edited" if !self.base_changed => {
                Some("only the title or description was edited: the last preview is still valid")
            }
            _ => None,
        }
    }
}

/// Commits that were pushed to a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEvent {
    /// The ref that was pushed, in full.
    pub ref_name: String,
    /// The tip before; `None` for a new branch. After a forced push it may be unreachable.
    pub before: Option<CommitId>,
    /// The tip after; `None` if the branch was deleted.
    pub after: Option<CommitId>,
    /// True if the history was rewritten.
    pub forced: bool,
    /// The repository's default branch.
    pub default_branch: String,
}

impl PushEvent {
    /// Returns true for the default branch.
    pub fn is_default_branch(&self) -> bool {
        self.ref_name.strip_prefix("refs/heads/") == Some(&self.default_branch)
    }
}

/// Another workflow that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunEvent {
    /// The id of its run.
    pub run_id: u64,
    /// The event that started it.
    pub event: String,
    /// Its conclusion.
    pub conclusion: String,
    /// The commit it ran for.
    pub head: CommitId,
    /// The branch it ran for.
    pub head_branch: String,
    /// `owner/name` of the repository with that commit; empty if it was deleted.
    pub head_repository: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// True if `head_repository` is another repository.
    pub from_fork: bool,
    /// True if Dependabot started it, whose runs have as few permissions as a fork's.
    pub dependabot: bool,
}

impl WorkflowRunEvent {
    /// Returns true if that run was for a fork or Dependabot. It could not publish its preview.
    pub fn from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Refuses a checkout of a fork's code in this privileged job: everything that the job runs from its
    /// working tree would be the fork's. Konverge itself reads a fork's commits from git and compiles them in
    /// the sandbox. `common` is the best common ancestor of what is checked out and the run's head.
    ///
    /// # Errors
    /// What is checked out contains the run's head: `common` is that head itself.
    pub fn refuse_checkout_on(&self, common: &CommitId) -> Result<(), GithubError> {
        if !self.from_outside() || self.head != *common {
            return Ok(());
        }
        Err(GithubError::Runner {
            message: format!(
                "the working tree contains {}, a commit from a fork or Dependabot, in a job with the secrets of this repository",
                self.head.short()
            ),
            hint: "check out the default branch (leave `ref:` out of actions/checkout); Konverge fetches that commit by itself, as data".to_owned(),
        })
    }
}

const DEPENDABOT: &str = "dependabot[bot]";

const ZERO: &str = "0000000000000000000000000000000000000000";

impl Runner {
    /// Parses the payload of the event.
    ///
    /// # Errors
    /// An unreadable payload; an event that Konverge does not handle or refuses.
    pub fn event(&self) -> Result<GithubEvent, GithubError> {
        let unreadable = |why: String| GithubError::Runner {
            message: format!(
                "the event's payload {} cannot be read: {why}",
                self.event_path.display()
            ),
            hint: "in a `container:` job mount the folder that GITHUB_EVENT_PATH names".to_owned(),
        };
        let text = fs::read_to_string(&self.event_path).map_err(|error| unreadable(error.to_string()))?;
        let payload: Value = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        GithubEvent::parse(&self.event_name, &payload, self)
    }
}

impl GithubEvent {
    /// Parses an event. `pull_request_target` is refused, because it gives the secrets of the repository to
    /// code from forks.
    ///
    /// # Errors
    /// A payload without mandatory fields; an event that is refused or unknown.
    pub fn parse(name: &str, payload: &Value, runner: &Runner) -> Result<Self, GithubError> {
        let p = Payload(payload);
        match name {
            "pull_request" => pull_request(&p, runner).map(Self::PullRequest),
            "push" => Ok(Self::Push(PushEvent {
                ref_name: p.text("/ref")?,
                before: p.commit_or_zero("/before")?,
                after: p.commit_or_zero("/after")?,
                forced: payload["forced"].as_bool().unwrap_or(false),
                default_branch: p.text("/repository/default_branch")?,
            })),
            "merge_group" => {
                let head_ref = p.text("/merge_group/head_ref")?;
                Ok(Self::MergeGroup {
                    base: p.commit("/merge_group/base_sha")?,
                    head: p.commit("/merge_group/head_sha")?,
                    base_branch: branch(&p.text("/merge_group/base_ref")?),
                    default_branch: p.text("/repository/default_branch")?,
                    pull_request: queued_pull_request(&head_ref),
                })
            }
            "schedule" => Ok(Self::Schedule {
                cron: payload["schedule"].as_str().unwrap_or_default().to_owned(),
            }),
            "workflow_dispatch" => Ok(Self::WorkflowDispatch {
                inputs: inputs(payload),
                ref_name: p.text("/ref")?,
                default_branch: p.text("/repository/default_branch")?,
            }),
            "workflow_run" => Ok(Self::WorkflowRun(WorkflowRunEvent {
                run_id: payload["workflow_run"]["id"].as_u64().unwrap_or(0),
                event: p.text("/workflow_run/event")?,
                conclusion: payload["workflow_run"]["conclusion"].as_str().unwrap_or_default().to_owned(),
                head: p.commit("/workflow_run/head_sha")?,
                head_branch: payload["workflow_run"]["head_branch"].as_str().unwrap_or_default().to_owned(),
                head_repository: p.text("/workflow_run/head_repository/full_name").unwrap_or_default(),
                default_branch: p.text("/repository/default_branch")?,
                from_fork: p.text("/workflow_run/head_repository/full_name").ok() != Some(runner.repository.clone()),
                dependabot: p.text("/workflow_run/actor/login").is_ok_and(|actor| actor == DEPENDABOT),
            })),
            "repository_dispatch" => Ok(Self::RepositoryDispatch {
                action: p.text("/action")?,
                payload: payload["client_payload"].clone(),
            }),
            "pull_request_target" => Err(GithubError::Runner {
                message: "the event pull_request_target is refused: it would run code from outside with the secrets and write access of this repository".to_owned(),
                hint: "use `on: pull_request:`; a fork's pull request is previewed by a second workflow on `workflow_run`, see docs/security.md".to_owned(),
            }),
            other => Err(GithubError::Runner {
                message: format!("Konverge does not handle the event `{}`", other.escape_debug()),
                hint: "handled are pull_request, push, merge_group, schedule, workflow_dispatch, workflow_run and repository_dispatch".to_owned(),
            }),
        }
    }

    /// Returns true if the job may have secrets and write access although the content may come from outside.
    pub fn is_privileged(&self) -> bool {
        match self {
            Self::PullRequest(pr) => !pr.is_from_outside(),
            _ => true,
        }
    }
}

fn pull_request(p: &Payload<'_>, runner: &Runner) -> Result<PullRequestEvent, GithubError> {
    let head = p.commit("/pull_request/head/sha")?;
    let action = p.text("/action")?;
    let home =
        p.0.pointer("/pull_request/head/repo/full_name")
            .and_then(Value::as_str);
    let base_repository = p
        .text("/pull_request/base/repo/full_name")
        .unwrap_or_else(|_| runner.repository.clone());
    // For a closed pull request, GITHUB_SHA is a commit of the base branch; otherwise it is the test merge.
    let trial = action != "closed" && runner.ref_name.starts_with("refs/pull/") && runner.sha != head;
    Ok(PullRequestEvent {
        base_changed: action == "edited" && p.0.pointer("/changes/base").is_some(),
        number: p.number("/pull_request/number")?,
        author: p.text("/pull_request/user/login").unwrap_or_default(),
        base: p.commit("/pull_request/base/sha")?,
        base_branch: p.text("/pull_request/base/ref")?,
        default_branch: p.text("/repository/default_branch")?,
        head_branch: p.text("/pull_request/head/ref")?,
        merge_commit: trial.then(|| runner.sha.clone()),
        // A head whose repository is deleted was in a fork.
        from_fork: home != Some(&base_repository),
        // A re-run by another user gives it no more permissions.
        dependabot: runner.actor == DEPENDABOT
            || p.text("/sender/login").is_ok_and(|login| login == DEPENDABOT),
        merged: p
            .0
            .pointer("/pull_request/merged")
            .and_then(Value::as_bool)
            .unwrap_or(false),
        action,
        head,
    })
}

/// Returns `branch` unless it is the default branch.
pub fn other_branch<'a>(branch: &'a str, default: &str) -> Option<&'a str> {
    (branch != default).then_some(branch)
}

fn branch(name: &str) -> String {
    name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
}

/// `refs/heads/gh-readonly-queue/main/pr-12-<sha>` → 12. The name of the branch may contain anything.
fn queued_pull_request(head_ref: &str) -> Option<u64> {
    let last = head_ref.rsplit('/').next()?;
    let (number, sha) = last.strip_prefix("pr-")?.split_once('-')?;
    (sha.len() == 40).then(|| number.parse().ok())?
}

fn inputs(payload: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    payload["inputs"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

struct Payload<'a>(&'a Value);

impl Payload<'_> {
    fn text(&self, path: &str) -> Result<String, GithubError> {
        self.at(path, |value| value.as_str().map(str::to_owned))
    }

    fn number(&self, path: &str) -> Result<u64, GithubError> {
        self.at(path, Value::as_u64)
    }

    fn commit(&self, path: &str) -> Result<CommitId, GithubError> {
        self.at(path, |value| value.as_str()?.parse().ok())
    }

    fn commit_or_zero(&self, path: &str) -> Result<Option<CommitId>, GithubError> {
        let text = self.text(path)?;
        if text == ZERO {
            Ok(None)
        } else {
            self.commit(path).map(Some)
        }
    }

    fn at<T>(&self, path: &str, read: impl Fn(&Value) -> Option<T>) -> Result<T, GithubError> {
        self.0
            .pointer(path)
            .and_then(read)
            .ok_or_else(|| GithubError::Runner {
                message: format!(
                    "the event's payload has no usable `{}`",
                    path.trim_start_matches('/').replace('/', ".")
                ),
                hint: "is GITHUB_EVENT_NAME the event that GITHUB_EVENT_PATH holds?".to_owned(),
            })
    }
}
