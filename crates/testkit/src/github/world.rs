//! The state of the fake.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{history::History, installed_app::InstalledApp};
use crate::git::Repository;

/// A token: the account that writes with it, and its permissions.
#[derive(Debug, Clone)]
pub struct Token {
    pub login: &'static str,
    /// Permissions, such as `pull_requests` → `write`. A missing key means no permission.
    pub permissions: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Clone)]
pub struct Comment {
    pub id: u64,
    pub issue: u64,
    pub login: String,
    pub body: String,
    /// The time of the last write, in RFC 3339.
    pub updated: String,
}

#[derive(Debug, Clone)]
pub struct Issue {
    pub number: u64,
    pub login: String,
    pub title: String,
    pub body: String,
    pub labels: Vec<String>,
    pub state: String,
}

#[derive(Debug, Clone)]
pub struct Pull {
    pub number: u64,
    pub head: String,
    /// The source branch.
    pub branch: String,
    /// The target branch.
    pub base: String,
    pub merged_at: Option<String>,
    pub merge_commit: Option<String>,
    /// True if it was closed without a merge.
    pub closed: bool,
    pub head_repository: Option<String>,
    pub title: String,
    pub body: String,
    /// True if somebody enabled auto-merge.
    pub auto_merge: bool,
}

impl Pull {
    /// Creates an open pull request from the branch `topic` of `acme/konfig` into `main`.
    pub fn open(number: u64, head: impl Into<String>) -> Self {
        Self {
            number,
            head: head.into(),
            branch: "topic".into(),
            base: "main".into(),
            merged_at: None,
            merge_commit: None,
            closed: false,
            head_repository: Some(HERE.into()),
            title: String::new(),
            body: String::new(),
            auto_merge: false,
        }
    }

    pub(super) fn state(&self) -> &'static str {
        if self.merged_at.is_some() || self.closed {
            "closed"
        } else {
            "open"
        }
    }

    /// Returns true if `?state=` and `?head=owner:branch` match it. GitHub ignores a `head` without an owner.
    pub(super) fn is_asked_for(&self, query: &BTreeMap<String, String>) -> bool {
        let state = query.get("state").map_or("open", String::as_str);
        let owner = self
            .head_repository
            .as_ref()
            .and_then(|name| name.split('/').next());
        let head = query.get("head").and_then(|head| head.split_once(':'));
        (state == "all" || state == self.state())
            && head.is_none_or(|head| owner.is_some_and(|owner| head == (owner, &self.branch)))
    }
}

/// A workflow with `workflow_dispatch`.
#[derive(Debug, Clone)]
pub struct DispatchableWorkflow {
    /// The result of its runs; `None` while they run.
    pub conclusion: Option<&'static str>,
    /// True if its `run-name` has the inputs.
    pub names_inputs: bool,
    /// The number of requests for a new run that GitHub answers as if the run did not exist.
    pub shown_late: u64,
}

pub(super) const HERE: &str = "acme/konfig";

/// The state of a GitHub with one repository, `acme/konfig`.
#[derive(Debug, Clone, Default)]
pub struct World {
    pub tokens: BTreeMap<&'static str, Token>,
    pub comments: Vec<Comment>,
    pub issues: Vec<Issue>,
    pub statuses: Vec<(String, Value)>,
    pub checks: Vec<Value>,
    pub pulls: Vec<Pull>,
    pub commit_pulls: BTreeMap<String, Vec<u64>>,
    pub reviews: Vec<(u64, Value)>,
    pub collaborators: BTreeMap<String, &'static str>,
    pub teams: BTreeMap<String, Vec<String>>,
    pub deployments: Vec<Value>,
    pub deployment_statuses: Vec<(u64, Value)>,
    pub protected: Vec<String>,
    /// The repository with GitHub's branches.
    pub history: Option<History>,
    /// The activity log of branches, the oldest first.
    pub activity: Vec<Value>,
    /// The commits of `main` if there is no repository, the oldest first.
    pub main: Vec<String>,
    /// The approvals of runs that waited in an environment.
    pub run_approvals: Vec<Value>,
    /// The repository setting "Allow auto-merge".
    pub allows_auto_merge: bool,
    /// The workflows that may be dispatched, by file.
    pub workflows: BTreeMap<String, DispatchableWorkflow>,
    /// The dispatched workflows: file and request.
    pub dispatched: Vec<(String, Value)>,
    /// The workflow runs, by id.
    pub runs: BTreeMap<u64, Value>,
    /// The App that logs in with its key.
    pub app: Option<InstalledApp>,
    last: u64,
    clock: u64,
}

impl World {
    /// Creates a repository whose GITHUB_TOKEN is `ghs_token`, with the permissions of a preview and an apply job.
    pub fn new() -> Self {
        let all = ["pull_requests", "issues", "statuses", "checks", "deployments"];
        let mut permissions: BTreeMap<_, _> = all.into_iter().map(|key| (key, "write")).collect();
        permissions.extend([("contents", "read"), ("metadata", "read"), ("actions", "read")]);
        let token = Token {
            login: "github-actions[bot]",
            permissions,
        };
        Self {
            tokens: BTreeMap::from([("ghs_token", token)]),
            protected: vec!["main".into()],
            last: 1000,
            ..Self::default()
        }
    }

    /// Creates a state with the branches of a real repository.
    pub fn of(repository: &Repository) -> Self {
        Self {
            history: Some(History {
                folder: repository.path().to_owned(),
                ..History::default()
            }),
            ..Self::new()
        }
    }

    /// Records that somebody moved a branch.
    pub fn moved(&mut self, branch: &str, before: Option<&str>, after: &str, kind: &str, actor: &str) {
        let zeros = "0".repeat(40);
        self.activity.push(json!({
            "id": self.activity.len(), "before": before.unwrap_or(&zeros), "after": after,
            "ref": format!("refs/heads/{branch}"), "activity_type": kind, "actor": {"login": actor},
        }));
    }

    /// Returns the commits of a pull request, the oldest first.
    pub(super) fn commits_of(&self, pull: &Pull) -> Vec<Value> {
        let Some(history) = &self.history else {
            return Vec::new();
        };
        let merged = pull
            .merge_commit
            .as_ref()
            .and_then(|commit| history.parent(commit));
        let base = merged.or_else(|| self.tip(&pull.base));
        let compared = base.and_then(|base| history.compare(&base, &pull.head));
        compared.map(|(_, commits)| commits).unwrap_or_default()
    }

    /// Returns the newest commit of a branch.
    pub(super) fn tip(&self, branch: &str) -> Option<String> {
        match &self.history {
            Some(history) => history.tip(branch),
            None => self.main.last().filter(|_| branch == "main").cloned(),
        }
    }

    /// Adds the token `ghs_app` of an App that writes under its own name, with the permissions of `ghs_token`.
    pub fn with_app(mut self, login: &'static str) -> Self {
        let permissions = self.tokens["ghs_token"].permissions.clone();
        self.tokens.insert("ghs_app", Token { login, permissions });
        self
    }

    pub fn id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns a timestamp later than all before it.
    pub fn tick(&mut self) -> String {
        self.clock += 1;
        format!(
            "2026-11-21T{:02}:{:02}:{:02}Z",
            8 + self.clock / 3600,
            self.clock / 60 % 60,
            self.clock % 60
        )
    }

    pub fn comment(&mut self, issue: u64, login: &str, body: &str) -> u64 {
        let id = self.id();
        let updated = self.tick();
        self.comments.push(Comment {
            id,
            issue,
            login: login.into(),
            body: body.into(),
            updated,
        });
        id
    }
}
