//! The event that started the run: which commits to compare, and whom to trust.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{error::GithubError, runner::Runner};
use crate::model::CommitId;

/// An event that Konverge handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GithubEvent {
    /// A pull request was opened, updated, or closed.
    PullRequest(PullRequestEvent),
    /// Commits arrived on a branch.
    Push(PushEvent),
    /// A merge queue wants to know whether a group may go in.
    MergeGroup {
        /// The group's parent, which may be another group.
        base: CommitId,
        /// The group's head.
        head: CommitId,
        /// The branch it would go to.
        base_branch: String,
        /// The repository's default branch.
        default_branch: String,
        /// The pull request at the group's end, as its ref names it.
        pull_request: Option<u64>,
    },
    /// The clock.
    Schedule {
        /// The cron line.
        cron: String,
    },
    /// Somebody started the workflow by hand.
    WorkflowDispatch {
        /// The inputs given.
        inputs: BTreeMap<String, String>,
        /// The ref it was started on: any branch may be chosen.
        ref_name: String,
        /// The repository's default branch.
        default_branch: String,
    },
    /// Another workflow ended: how a fork's preview is posted.
    WorkflowRun(WorkflowRunEvent),
    /// A call from outside.
    RepositoryDispatch {
        /// Its type.
        action: String,
        /// What came with it.
        payload: Value,
    },
}

/// A pull request as its event shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestEvent {
    /// `opened`, `synchronize`, `edited`, `closed`, …
    pub action: String,
    /// Whether an edit made it go to another branch.
    pub base_changed: bool,
    /// Its number.
    pub number: u64,
    /// Who opened it.
    pub author: String,
    /// The base branch's tip when the event fired; the merge commit may be newer.
    pub base: CommitId,
    /// The branch it goes to.
    pub base_branch: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// The head: its identity.
    pub head: CommitId,
    /// The branch it comes from.
    pub head_branch: String,
    /// The trial merge of head into base (`GITHUB_SHA`), if the event has one: the content to preview.
    pub merge_commit: Option<CommitId>,
    /// Whether the head lies in another repository: no secrets, a read-only token.
    pub from_fork: bool,
    /// Started by Dependabot: as restricted as a fork.
    pub dependabot: bool,
    /// Whether it was merged (with `closed`).
    pub merged: bool,
}

impl PullRequestEvent {
    /// Whether its runs may write as little as a stranger's.
    pub fn is_from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// The branch it goes to, where that is not the default one.
    pub fn elsewhere(&self) -> Option<&str> {
        other_branch(&self.base_branch, &self.default_branch)
    }

    /// Why there is nothing to preview, if there is not.
    pub fn nothing_to_preview(&self) -> Option<&'static str> {
        match self.action.as_str() {
            "closed" => Some("the pull request is closed: nothing to preview"),
            "edited" if !self.base_changed => {
                Some("title or text were edited, not the branch it goes to: the last preview holds")
            }
            _ => None,
        }
    }
}

/// Commits that arrived on a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEvent {
    /// The full ref.
    pub ref_name: String,
    /// The tip before; `None` for a new branch. After a forced push it may be unreachable.
    pub before: Option<CommitId>,
    /// The tip now; `None` if the branch was deleted.
    pub after: Option<CommitId>,
    /// Whether history was rewritten.
    pub forced: bool,
    /// The repository's default branch.
    pub default_branch: String,
}

impl PushEvent {
    /// Whether it went to the default branch.
    pub fn is_default_branch(&self) -> bool {
        self.ref_name.strip_prefix("refs/heads/") == Some(&self.default_branch)
    }
}

/// Another workflow that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunEvent {
    /// Its run.
    pub run_id: u64,
    /// The event that had started it.
    pub event: String,
    /// How it ended.
    pub conclusion: String,
    /// The commit it ran for.
    pub head: CommitId,
    /// The branch it ran for.
    pub head_branch: String,
    /// `owner/name` that holds that commit; empty if it is gone.
    pub head_repository: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// Whether that is another repository.
    pub from_fork: bool,
    /// Started by Dependabot, whose runs may write as little as a fork's.
    pub dependabot: bool,
}

impl WorkflowRunEvent {
    /// Whether the run was of what comes from outside, so that it could tell nobody.
    pub fn from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Refuses a checkout of a fork's code in this job, which is privileged: whatever the job runs from its working tree
    /// would then be the stranger's. Konverge itself reads a fork's commits from git and compiles them in the sandbox.
    /// `common` is the best common ancestor of what is checked out and the run's head.
    ///
    /// # Errors
    /// The refusal: it is that head itself, so what is checked out holds it.
    pub fn refuse_checkout_on(&self, common: &CommitId) -> Result<(), GithubError> {
        if !self.from_outside() || self.head != *common {
            return Ok(());
        }
        Err(GithubError::Runner {
            message: format!(
                "the working tree holds {}, a fork's commit or Dependabot's, in a job with this repository's secrets",
                self.head.short()
            ),
            hint: "check out the default branch (leave `ref:` out of actions/checkout); Konverge fetches that commit by itself, as data".to_owned(),
        })
    }
}

const DEPENDABOT: &str = "dependabot[bot]";

const ZERO: &str = "0000000000000000000000000000000000000000";

impl GithubEvent {
    /// Reads an event. `pull_request_target` is refused: it hands a stranger's code the repository's secrets.
    ///
    /// # Errors
    /// A payload without what its event must have; an event that is refused or unknown.
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
                message: "the event pull_request_target is refused: it would run a stranger's code with this repository's secrets and write access".to_owned(),
                hint: "use `on: pull_request:`; a fork's pull request is previewed by a second workflow on `workflow_run`, see docs/security.md".to_owned(),
            }),
            other => Err(GithubError::Runner {
                message: format!("the event `{}` is not one that Konverge handles", other.escape_debug()),
                hint: "handled are pull_request, push, merge_group, schedule, workflow_dispatch, workflow_run and repository_dispatch".to_owned(),
            }),
        }
    }

    /// Whether the job may hold secrets and write access although what it looks at may be a stranger's.
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
    // After closing, the runner's commit is the base branch's; before, it is the trial merge.
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
        // A head whose repository is gone was in a fork.
        from_fork: home != Some(&base_repository),
        // Somebody who starts the run again gives it no more rights than it had.
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

/// The first branch, if it is not the default one.
pub fn other_branch<'a>(branch: &'a str, default: &str) -> Option<&'a str> {
    (branch != default).then_some(branch)
}

fn branch(name: &str) -> String {
    name.strip_prefix("refs/heads/").unwrap_or(name).to_owned()
}

/// `refs/heads/gh-readonly-queue/main/pr-12-<sha>` → 12. The branch's own name may hold anything.
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
