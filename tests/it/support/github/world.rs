//! What the fake knows, and its routes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::history::History;
use crate::support::git::Repository;

/// A token: who it writes as, and what it may.
#[derive(Debug, Clone)]
pub struct Token {
    pub login: &'static str,
    /// `pull_requests` → `write`; a key that is missing is none.
    pub permissions: BTreeMap<&'static str, &'static str>,
}

#[derive(Debug, Clone)]
pub struct Comment {
    pub id: u64,
    pub issue: u64,
    pub login: String,
    pub body: String,
    /// When it was written last, as in RFC 3339.
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
    /// The branch it comes from.
    pub branch: String,
    /// The branch it goes to.
    pub base: String,
    pub merged_at: Option<String>,
    pub merge_commit: Option<String>,
    /// Closed without a merge.
    pub closed: bool,
    pub head_repository: Option<String>,
}

impl Pull {
    /// One that is open, from the branch `topic` of `acme/konfig` into `main`.
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
        }
    }

    fn state(&self) -> &'static str {
        match self.merged_at.is_some() || self.closed {
            true => "closed",
            false => "open",
        }
    }

    /// Whether `?state=` and `?head=owner:branch` mean it. GitHub takes no notice of a `head` without an owner.
    fn is_asked_for(&self, query: &BTreeMap<String, String>) -> bool {
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

const HERE: &str = "acme/konfig";

/// A GitHub with one repository, `acme/konfig`.
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
    /// The repository, whose branches GitHub has.
    pub history: Option<History>,
    /// Who moved which branch, the oldest first.
    pub activity: Vec<Value>,
    /// Where there is no repository: the commits of `main`, the oldest first.
    pub main: Vec<String>,
    /// Who let a run go on in its environment.
    pub run_approvals: Vec<Value>,
    /// Runs of workflows, by id.
    pub runs: BTreeMap<u64, Value>,
    last: u64,
    clock: u64,
}

type Answer = (u16, Value);

impl World {
    /// A repository whose GITHUB_TOKEN is `ghs_token`, with the permissions of a preview and an apply job.
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

    /// One that has the branches of a real repository.
    pub fn of(repository: &Repository) -> Self {
        Self {
            history: Some(History {
                folder: repository.path().to_owned(),
                ..History::default()
            }),
            ..Self::new()
        }
    }

    /// Somebody moved a branch.
    pub fn moved(&mut self, branch: &str, before: Option<&str>, after: &str, kind: &str, actor: &str) {
        let zeros = "0".repeat(40);
        self.activity.push(json!({
            "id": self.activity.len(), "before": before.unwrap_or(&zeros), "after": after,
            "ref": format!("refs/heads/{branch}"), "activity_type": kind, "actor": {"login": actor},
        }));
    }

    /// The commits of a pull request, the oldest first.
    fn commits_of(&self, pull: &Pull) -> Vec<Value> {
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

    /// The newest commit of a branch.
    fn tip(&self, branch: &str) -> Option<String> {
        match &self.history {
            Some(history) => history.tip(branch),
            None => self.main.last().filter(|_| branch == "main").cloned(),
        }
    }

    /// The token `ghs_app` of an App, which writes under a name of its own; it may do what `ghs_token` may.
    pub fn with_app(mut self, login: &'static str) -> Self {
        let permissions = self.tokens["ghs_token"].permissions.clone();
        self.tokens.insert("ghs_app", Token { login, permissions });
        self
    }

    pub fn id(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A moment after all before it.
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

    /// `None` for a route that the fake does not know.
    pub fn route(
        &mut self,
        token: &str,
        method: &str,
        route: &str,
        query: &BTreeMap<String, String>,
        body: &Value,
    ) -> Option<Answer> {
        let Some(token) = self.tokens.get(token).cloned() else {
            return Some((401, json!({"message": "Bad credentials"})));
        };
        let parts: Vec<&str> = route.trim_start_matches('/').split('/').collect();
        let rest = match parts.as_slice() {
            ["graphql"] => {
                return Some((200, json!({"data": {"viewer": {"login": token.login}}})));
            }
            ["user"] => {
                return Some(if token.login.ends_with("[bot]") {
                    forbidden("")
                } else {
                    (200, json!({"login": token.login}))
                });
            }
            ["orgs", org, "teams", team, "memberships", user] => {
                return Some(self.membership(&token, org, team, user));
            }
            ["repos", "acme", "konfig", rest @ ..] => rest,
            ["repos", ..] => return Some((404, json!({"message": "Not Found"}))),
            _ => return None,
        };
        let needs = needs(method, rest)?;
        let level = if method == "GET" { "read" } else { "write" };
        let may = needs.iter().any(|need| {
            token
                .permissions
                .get(need)
                .is_some_and(|have| *have == "write" || *have == level)
        });
        if !may {
            return Some(forbidden(
                &needs
                    .iter()
                    .map(|n| format!("{n}={level}"))
                    .collect::<Vec<_>>()
                    .join("; "),
            ));
        }
        self.repository(&token, method, rest, query, body)
    }

    fn repository(
        &mut self,
        token: &Token,
        method: &str,
        rest: &[&str],
        query: &BTreeMap<String, String>,
        body: &Value,
    ) -> Option<Answer> {
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        let now = self.tick();
        Some(match (method, rest) {
            ("GET", []) => (200, json!({"full_name": HERE, "default_branch": "main"})),
            ("GET", ["issues", issue, "comments"]) => {
                let issue = number(issue);
                (
                    200,
                    self.comments
                        .iter()
                        .filter(|c| c.issue == issue)
                        .map(comment_json)
                        .collect(),
                )
            }
            ("POST", ["issues", issue, "comments"]) => match too_long(body) {
                Some(refusal) => refusal,
                None => {
                    let id = self.comment(
                        number(issue),
                        token.login,
                        body["body"].as_str().unwrap_or_default(),
                    );
                    (201, comment_json(self.comments.iter().find(|c| c.id == id)?))
                }
            },
            ("GET", ["issues", "comments", id]) => {
                let found = self.comments.iter().find(|c| c.id == number(id));
                found.map_or_else(not_found, |c| (200, comment_json(c)))
            }
            ("PATCH", ["issues", "comments", id]) => match (
                too_long(body),
                self.comments.iter_mut().find(|c| c.id == number(id)),
            ) {
                (Some(refusal), _) => refusal,
                (None, None) => not_found(),
                (None, Some(comment)) => {
                    comment.body = body["body"].as_str().unwrap_or_default().to_owned();
                    comment.updated = now;
                    (200, comment_json(comment))
                }
            },
            ("DELETE", ["issues", "comments", id]) => {
                let before = self.comments.len();
                self.comments.retain(|c| c.id != number(id));
                if self.comments.len() < before {
                    (204, Value::Null)
                } else {
                    not_found()
                }
            }
            ("GET", ["issues"]) => self.list_issues(query),
            ("POST", ["issues"]) => self.open_issue(token, body),
            ("PATCH", ["issues", issue]) => self.edit_issue(number(issue), body),
            ("POST", ["statuses", sha]) => self.status(sha, body),
            ("GET", ["commits", sha, "statuses"]) => {
                // The newest first.
                let of = |(at, _): &&(String, Value)| at == sha;
                let newest = self.statuses.iter().rev().filter(of);
                (200, newest.map(|(_, status)| status.clone()).collect())
            }
            ("POST", ["check-runs"]) => self.check(body),
            ("PATCH", ["check-runs", id]) => match self.checks.iter_mut().find(|c| c["id"] == number(id)) {
                None => not_found(),
                Some(check) => {
                    let new = body["output"]["annotations"]
                        .as_array()
                        .cloned()
                        .unwrap_or_default();
                    if let Some(all) = check["output"]["annotations"].as_array_mut() {
                        all.extend(new);
                    }
                    (200, check.clone())
                }
            },
            ("GET", ["commits", sha, "check-runs"]) => {
                let name = query.get("check_name").cloned().unwrap_or_default();
                let runs: Vec<_> = self
                    .checks
                    .iter()
                    .filter(|c| c["head_sha"] == *sha && c["name"] == name)
                    .cloned()
                    .collect();
                (200, json!({"total_count": runs.len(), "check_runs": runs}))
            }
            ("GET", ["commits", sha, "pulls"]) => {
                // What a fork holds is no commit of this repository: of its head GitHub answers `[]`.
                let numbers = self.commit_pulls.get(*sha).cloned().unwrap_or_default();
                let brought = |p: &&Pull| {
                    numbers.contains(&p.number)
                        || p.head == *sha && p.head_repository.as_deref() == Some(HERE)
                };
                (200, self.pulls.iter().filter(brought).map(pull_json).collect())
            }
            ("GET", ["pulls"]) => {
                // The newest first.
                let wanted = self.pulls.iter().rev().filter(|p| p.is_asked_for(query));
                (200, wanted.map(pull_json).collect())
            }
            ("GET", ["compare", sides]) => {
                let (base, head) = sides.split_once("...")?;
                let compared = match &self.history {
                    Some(history) => history.compare(base, head),
                    None => {
                        let at = self.main.iter().position(|commit| commit == base);
                        let after = &self.main[at.map_or(self.main.len(), |at| at + 1)..];
                        let status = if after.is_empty() { "identical" } else { "ahead" };
                        Some((status, after.iter().map(|sha| json!({"sha": sha})).collect()))
                    }
                };
                compared.map_or_else(not_found, |(status, commits)| {
                    (
                        200,
                        json!({"status": status, "total_commits": commits.len(), "commits": commits}),
                    )
                })
            }
            ("GET", ["pulls", pull]) => {
                let found = self.pulls.iter().find(|p| p.number == number(pull));
                found.map_or_else(not_found, |p| (200, pull_json(p)))
            }
            ("GET", ["pulls", pull, "commits"]) => {
                let found = self.pulls.iter().find(|p| p.number == number(pull));
                found.map_or_else(not_found, |pull| (200, self.commits_of(pull).into()))
            }
            ("GET", ["commits"]) => {
                let (sha, path) = (query.get("sha")?, query.get("path")?);
                let found = self
                    .history
                    .as_ref()
                    .and_then(|history| history.touching(sha, path));
                found.map_or_else(not_found, |commits| (200, commits.into()))
            }
            ("GET", ["activity"]) => {
                // The newest first.
                let wanted = |a: &&Value| query.get("ref").is_none_or(|name| a["ref"] == name.as_str());
                (200, self.activity.iter().rev().filter(wanted).cloned().collect())
            }
            ("GET", ["pulls", pull, "reviews"]) => {
                let pull = number(pull);
                (
                    200,
                    self.reviews
                        .iter()
                        .filter(|(p, _)| *p == pull)
                        .map(|(_, r)| r.clone())
                        .collect(),
                )
            }
            // An App is no user: `name[bot] is not a user`.
            ("GET", ["collaborators", user, "permission"]) if user.ends_with("%5Bbot%5D") => not_found(),
            ("GET", ["collaborators", user, "permission"]) => {
                let permission = self.collaborators.get(*user).copied().unwrap_or("none");
                (
                    200,
                    json!({"permission": permission, "role_name": permission, "user": {"login": user}}),
                )
            }
            ("GET", ["branches", branch]) => {
                let protected = self.protected.iter().any(|b| b == branch);
                let answer = |sha| json!({"name": branch, "commit": {"sha": sha}, "protected": protected});
                self.tip(branch).map_or_else(not_found, |sha| (200, answer(sha)))
            }
            ("GET", ["actions", "runs", _, "approvals"]) => {
                (200, self.run_approvals.iter().cloned().collect())
            }
            ("GET", ["actions", "runs", run]) => {
                let found = self.runs.get(&number(run)).cloned();
                found.map_or_else(not_found, |run| (200, run))
            }
            ("GET", ["deployments"]) => {
                let wanted = |d: &&Value| {
                    ["sha", "environment"]
                        .iter()
                        .all(|key| query.get(*key).is_none_or(|v| d[*key] == v.as_str()))
                };
                (200, self.deployments.iter().filter(wanted).cloned().collect())
            }
            ("POST", ["deployments"]) => {
                let mut made = body.clone();
                made["id"] = json!(self.id());
                made["sha"] = made["ref"].clone();
                self.deployments.push(made.clone());
                (201, made)
            }
            ("POST", ["deployments", id, "statuses"]) => {
                self.deployment_statuses.push((number(id), body.clone()));
                (201, json!({"id": self.id()}))
            }
            _ => return None,
        })
    }

    fn membership(&self, token: &Token, org: &str, team: &str, user: &str) -> Answer {
        if !token.permissions.contains_key("members") {
            return forbidden("members=read");
        }
        match self.teams.get(&format!("{org}/{team}")) {
            Some(members) if members.iter().any(|m| m == user) => {
                (200, json!({"state": "active", "role": "member"}))
            }
            _ => not_found(),
        }
    }

    fn list_issues(&self, query: &BTreeMap<String, String>) -> Answer {
        let label = query.get("labels").cloned().unwrap_or_default();
        let all = query.get("state").is_some_and(|s| s == "all");
        let wanted = |i: &&Issue| i.labels.contains(&label) && (all || i.state == "open");
        (200, self.issues.iter().filter(wanted).map(issue_json).collect())
    }

    fn open_issue(&mut self, token: &Token, body: &Value) -> Answer {
        if let Some(refusal) = too_long(body) {
            return refusal;
        }
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        let labels = body["labels"].as_array().into_iter().flatten();
        let issue = Issue {
            number: self.id(),
            login: token.login.into(),
            title: text("title"),
            body: text("body"),
            labels: labels.filter_map(|l| l.as_str().map(str::to_owned)).collect(),
            state: "open".into(),
        };
        let answer = issue_json(&issue);
        self.issues.push(issue);
        (201, answer)
    }

    fn edit_issue(&mut self, number: u64, body: &Value) -> Answer {
        let Some(issue) = self.issues.iter_mut().find(|i| i.number == number) else {
            return not_found();
        };
        for (key, field) in [
            ("title", &mut issue.title),
            ("body", &mut issue.body),
            ("state", &mut issue.state),
        ] {
            if let Some(text) = body[key].as_str() {
                *field = text.to_owned();
            }
        }
        (200, issue_json(issue))
    }

    fn status(&mut self, sha: &str, body: &Value) -> Answer {
        let description = body["description"].as_str().unwrap_or_default();
        if description.encode_utf16().count() > 140 {
            return invalid("description is too long (maximum is 140 characters)");
        }
        self.statuses.push((sha.to_owned(), body.clone()));
        (201, body.clone())
    }

    fn check(&mut self, body: &Value) -> Answer {
        for key in ["summary", "text"] {
            if body["output"][key]
                .as_str()
                .is_some_and(|text| text.len() > 65_535)
            {
                return invalid(&format!("{key} exceeds a maximum bytesize of 65535"));
            }
        }
        if body["output"]["annotations"]
            .as_array()
            .is_some_and(|a| a.len() > 50)
        {
            return invalid("no more than 50 annotations");
        }
        let mut made = body.clone();
        let id = self.id();
        made["id"] = json!(id);
        made["html_url"] = json!(format!("https://github.com/acme/konfig/runs/{id}"));
        self.checks.push(made.clone());
        (201, made)
    }
}

/// The permissions, any of which allows a route.
fn needs(method: &str, rest: &[&str]) -> Option<&'static [&'static str]> {
    Some(match rest {
        ["issues", _, "comments"] | ["issues", "comments", _] => &["issues", "pull_requests"],
        ["issues", ..] => &["issues"],
        ["statuses", _] | ["commits", _, "statuses"] => &["statuses"],
        ["check-runs", ..] | ["commits", _, "check-runs"] => &["checks"],
        ["pulls", ..] | ["commits", _, "pulls"] => &["pull_requests"],
        [] | ["collaborators", _, "permission"] => &["metadata"],
        ["branches", _] | ["compare", _] | ["commits"] | ["activity"] => &["contents"],
        ["deployments", ..] => &["deployments"],
        ["actions", ..] => &["actions"],
        _ => {
            let _ = method;
            return None;
        }
    })
}

fn forbidden(needs: &str) -> Answer {
    let mut body = json!({"message": "Resource not accessible by integration"});
    if !needs.is_empty() {
        body["x-needs"] = json!(needs);
    }
    (403, body)
}

fn not_found() -> Answer {
    (404, json!({"message": "Not Found"}))
}

fn invalid(message: &str) -> Answer {
    (
        422,
        json!({"message": "Validation Failed", "errors": [{"message": message, "code": "custom"}]}),
    )
}

/// 65,536 characters, as documented.
fn too_long(body: &Value) -> Option<Answer> {
    let long = body["body"]
        .as_str()
        .is_some_and(|text| text.chars().count() > 65_536);
    long.then(|| invalid("Body is too long (maximum is 65536 characters)"))
}

fn comment_json(comment: &Comment) -> Value {
    json!({
        "id": comment.id, "body": comment.body, "user": {"login": comment.login},
        "html_url": format!("https://github.com/acme/konfig/pull/{}#issuecomment-{}", comment.issue, comment.id),
        "created_at": "2026-11-01T10:00:00Z", "updated_at": comment.updated,
    })
}

fn issue_json(issue: &Issue) -> Value {
    let labels: Vec<_> = issue.labels.iter().map(|name| json!({"name": name})).collect();
    json!({
        "number": issue.number, "title": issue.title, "body": issue.body, "state": issue.state, "labels": labels,
        "user": {"login": issue.login}, "html_url": format!("https://github.com/acme/konfig/issues/{}", issue.number),
        "created_at": "2026-11-01T10:00:00Z",
    })
}

fn pull_json(pull: &Pull) -> Value {
    json!({
        "number": pull.number, "state": pull.state(), "user": {"login": "ada"},
        "merged_at": pull.merged_at, "merge_commit_sha": pull.merge_commit,
        "head": {"ref": pull.branch, "sha": pull.head, "repo": pull.head_repository.as_ref().map(|name| json!({"full_name": name}))},
        "base": {"ref": pull.base, "sha": "0".repeat(40), "repo": {"full_name": HERE}},
    })
}
