//! The state of the fake GitLab, and its responses, which have the form of the examples in GitLab's reference.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::git::Repository;

/// The path of the project.
pub const HERE: &str = "acme/platform/konfig";

/// The account of Konverge's token.
pub const BOT: &str = "project_7_bot_1f2e";

/// The id of the project.
const ID: u64 = 7;

/// A merge request.
#[derive(Debug, Clone)]
pub struct MergeRequest {
    pub iid: u64,
    pub author: &'static str,
    pub branch: String,
    pub target: String,
    pub source_project: Option<u64>,
    pub state: &'static str,
    pub merged_at: Option<&'static str>,
    pub merge_commit: Option<String>,
    pub squash_commit: Option<String>,
    pub title: String,
    pub description: String,
    /// The head commits and when GitLab got them, the oldest first.
    pub versions: Vec<(String, String)>,
    /// The users who approved, with the times. Older servers return no time.
    pub approvals: Vec<(&'static str, Option<&'static str>)>,
    pub auto_merge: bool,
}

impl MergeRequest {
    /// Creates an open merge request of this project into `main`, by `ada`.
    pub fn open(iid: u64, branch: &str, head: &str) -> Self {
        Self {
            iid,
            author: "ada",
            branch: branch.to_owned(),
            target: "main".to_owned(),
            source_project: Some(ID),
            state: "opened",
            merged_at: None,
            merge_commit: None,
            squash_commit: None,
            title: String::new(),
            description: String::new(),
            versions: vec![(head.to_owned(), "2026-11-29T10:00:00.000Z".to_owned())],
            approvals: Vec::new(),
            auto_merge: false,
        }
    }

    fn json(&self, server: &str) -> Value {
        json!({
            "id": 1000 + self.iid, "iid": self.iid, "project_id": ID, "title": self.title, "description": self.description,
            "state": self.state, "merged_at": self.merged_at, "target_branch": self.target, "source_branch": self.branch,
            "author": user(self.author), "source_project_id": self.source_project, "target_project_id": ID,
            "sha": self.versions.last().map(|(head, _)| head), "merge_commit_sha": self.merge_commit,
            "squash_commit_sha": self.squash_commit, "labels": [],
            "web_url": format!("{server}/{HERE}/-/merge_requests/{}", self.iid),
        })
    }
}

/// A note, or a comment, on a merge request or an issue.
#[derive(Debug, Clone)]
pub struct Note {
    pub id: u64,
    /// The kind of the parent: `merge_requests` or `issues`.
    pub on: String,
    pub iid: u64,
    pub author: String,
    pub body: String,
    pub system: bool,
}

impl Note {
    fn json(&self) -> Value {
        json!({
            "id": self.id, "body": self.body, "attachment": null, "author": user(&self.author), "system": self.system,
            "created_at": "2026-11-29T10:00:00.000Z", "updated_at": "2026-11-29T10:00:00.000Z",
            "project_id": ID, "resolvable": false, "confidential": false, "internal": false,
        })
    }
}

/// An issue.
#[derive(Debug, Clone)]
pub struct Issue {
    pub iid: u64,
    pub author: String,
    pub title: String,
    pub description: String,
    pub labels: Vec<String>,
    pub state: &'static str,
}

impl Issue {
    fn json(&self, server: &str) -> Value {
        json!({
            "id": 2000 + self.iid, "iid": self.iid, "project_id": ID, "title": self.title, "description": self.description,
            "state": self.state, "labels": self.labels, "author": user(&self.author), "created_at": "2026-11-29T10:00:00.000Z",
            "web_url": format!("{server}/{HERE}/-/issues/{}", self.iid),
        })
    }
}

/// The state of a GitLab with one project, `acme/platform/konfig`.
#[derive(Debug, Clone)]
pub struct World {
    /// The repository in which git looks up commits.
    repository: PathBuf,
    pub version: &'static str,
    /// Accounts by token, and whether the token has the scope `api`.
    pub tokens: BTreeMap<&'static str, (&'static str, bool)>,
    /// The login and the state of each account. Its id is its position.
    pub users: Vec<(&'static str, &'static str)>,
    /// The access level of the members of the project.
    pub members: BTreeMap<&'static str, u32>,
    /// The direct members of groups.
    pub groups: BTreeMap<&'static str, Vec<&'static str>>,
    pub merge_requests: Vec<MergeRequest>,
    pub notes: Vec<Note>,
    pub issues: Vec<Issue>,
    /// Commits with their statuses as GitLab lists them, the oldest first.
    pub statuses: Vec<(String, Value)>,
    /// The role that may start a pipeline with variables.
    pub variables_role: &'static str,
    /// The older form of `variables_role`, which an API request may still set.
    pub restricts_variables: Option<bool>,
    /// Status and starter of pipelines.
    pub pipelines: BTreeMap<u64, (&'static str, &'static str)>,
    /// The commits of pipelines, if a test sets them.
    pub pipeline_commits: BTreeMap<u64, String>,
    /// The status of jobs.
    pub jobs: BTreeMap<u64, &'static str>,
    /// Pipeline, id and name of jobs, the newest last. A retry is another job of the same name.
    pub pipeline_jobs: Vec<(u64, u64, String)>,
    /// Pipeline schedules, with the number of their variables; `None` if the caller may not see them.
    pub schedules: BTreeMap<u64, Option<usize>>,
    /// The bodies of the requests that started a pipeline.
    pub started: Vec<Value>,
    /// True if a merge needs a successful pipeline.
    pub needs_pipeline: bool,
    pub server: String,
}

type Answer = (u16, Value);

impl World {
    /// Creates a state with the branches of a repository.
    pub fn of(repository: &Repository) -> Self {
        Self {
            repository: repository.path().to_owned(),
            version: "19.5.0",
            tokens: BTreeMap::from([("glpat-bot", (BOT, true)), ("glpat-reader", ("reader", false))]),
            users: vec![
                ("ada", "active"),
                ("bob", "active"),
                ("eve", "active"),
                (BOT, "active"),
                ("reader", "active"),
            ],
            members: BTreeMap::from([("ada", 40), ("bob", 30), ("eve", 20), (BOT, 40)]),
            groups: BTreeMap::new(),
            merge_requests: Vec::new(),
            notes: Vec::new(),
            issues: Vec::new(),
            statuses: Vec::new(),
            variables_role: "no_one_allowed",
            restricts_variables: Some(true),
            pipelines: BTreeMap::new(),
            pipeline_commits: BTreeMap::new(),
            jobs: BTreeMap::new(),
            pipeline_jobs: Vec::new(),
            schedules: BTreeMap::new(),
            started: Vec::new(),
            needs_pipeline: false,
            server: "https://gitlab.example.com".to_owned(),
        }
    }

    pub(super) fn route(
        &mut self,
        token: &str,
        method: &str,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Option<Answer> {
        let Some((login, may_write)) = self.tokens.get(token).copied() else {
            return Some((401, json!({"message": "401 Unauthorized"})));
        };
        if method != "GET" && !may_write {
            let error = json!({
                "error": "insufficient_scope", "error_description": "The request requires higher privileges than provided by the access token.",
                "scope": "api",
            });
            return Some((403, error));
        }
        let asked = |name: &str| {
            let found = query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        match (method, parts) {
            ("GET", ["version"]) => {
                ok(json!({"version": self.version, "revision": "abc", "enterprise": true}))
            }
            ("GET", ["user"]) => {
                let mut account = user(login);
                account["bot"] = json!(login == BOT);
                account["commit_email"] = json!(address(login));
                ok(account)
            }
            ("GET", ["users"]) => {
                let named = self
                    .users
                    .iter()
                    .enumerate()
                    .filter(|(_, (name, _))| Some(*name) == asked("username"));
                ok(named
                    .map(|(id, (name, state))| json!({"id": id, "username": name, "name": name, "state": state}))
                    .collect())
            }
            ("GET", ["groups", path]) if self.groups.contains_key(path) => {
                ok(json!({"id": 3, "name": path, "path": path, "full_path": path}))
            }
            ("GET", ["groups", _]) => not_found("Group"),
            ("GET", ["groups", path, "members", id]) => {
                let (name, state) = *self.users.get(id.parse::<usize>().ok()?)?;
                let members = self.groups.get(path);
                if members.is_some_and(|members| members.contains(&name)) {
                    ok(member(name, state, 30))
                } else {
                    not_found("Not found")
                }
            }
            (_, ["projects", project, rest @ ..]) if *project == HERE || *project == ID.to_string() => {
                self.project(login, method, rest, query, body)
            }
            ("GET", ["projects", "99"]) => ok(json!({"id": 99, "path_with_namespace": "eve/konfig"})),
            ("GET", ["projects", ..]) => not_found("Project"),
            _ => None,
        }
    }

    fn project(
        &mut self,
        login: &str,
        method: &str,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Option<Answer> {
        match (method, parts) {
            ("GET", []) => ok(json!({
                "id": ID, "path_with_namespace": HERE, "default_branch": "main", "web_url": format!("{}/{HERE}", self.server),
                "only_allow_merge_if_pipeline_succeeds": self.needs_pipeline,
                "ci_pipeline_variables_minimum_override_role": self.variables_role,
                "restrict_user_defined_variables": self.restricts_variables,
            })),
            ("GET", ["members", "all", id]) => {
                let (name, state) = *self.users.get(id.parse::<usize>().ok()?)?;
                match self.members.get(name) {
                    Some(level) => ok(member(name, state, *level)),
                    None => not_found("Not found"),
                }
            }
            (_, ["merge_requests", iid, "notes", note @ ..]) => {
                self.notes(login, method, ("merge_requests", iid), note, body)
            }
            (_, ["issues", iid, "notes", note @ ..]) => {
                self.notes(login, method, ("issues", iid), note, body)
            }
            (_, ["merge_requests", rest @ ..]) => self.merge_requests(method, rest, query, body),
            (_, ["issues", rest @ ..]) => self.issues(login, method, rest, query, body),
            ("POST", ["statuses", sha]) => Some(self.set_status(login, sha, body)),
            ("GET", ["pipelines"]) => ok(self
                .pipelines
                .keys()
                .rev()
                .map(|id| {
                    let mut listed = self.pipeline(*id).unwrap();
                    let fields = listed.as_object_mut().unwrap();
                    fields.retain(|key, _| !["user", "name"].contains(&key.as_str()));
                    listed
                })
                .collect()),
            ("GET", ["pipelines", id]) => match self.pipeline(id.parse().ok()?) {
                Some(pipeline) => ok(pipeline),
                None => not_found("Not found"),
            },
            ("GET", ["pipelines", id, "jobs"]) => {
                let id: u64 = id.parse().ok()?;
                let with_retried = query
                    .iter()
                    .any(|(key, value)| key == "include_retried" && value == "true");
                let of = self.pipeline_jobs.iter().filter(|(of, ..)| *of == id);
                let is_newest = |job: &&(u64, u64, String)| {
                    let mut later = self.pipeline_jobs.iter();
                    with_retried || !later.any(|one| (one.0, &one.2) == (job.0, &job.2) && one.1 > job.1)
                };
                ok(of
                    .filter(is_newest)
                    .rev()
                    .map(|(_, id, name)| json!({"id": id, "name": name, "status": "running"}))
                    .collect())
            }
            ("GET", ["pipeline_schedules"]) => ok(self
                .schedules
                .keys()
                .map(|id| json!({"id": id, "description": "Nightly", "active": true}))
                .collect()),
            ("GET", ["pipeline_schedules", id]) => match self.schedules.get(&id.parse().ok()?) {
                Some(Some(variables)) => ok(json!({
                    "id": id.parse::<u64>().ok()?, "description": "Nightly",
                    "variables": vec![json!({"key": "CI_COMMIT_SHA", "value": "x", "variable_type": "env_var"}); *variables],
                })),
                Some(None) => ok(json!({"id": id.parse::<u64>().ok()?, "description": "Nightly"})),
                None => not_found("Pipeline Schedule"),
            },
            ("GET", ["jobs", id]) => match self.jobs.get(&id.parse().ok()?) {
                Some(status) => ok(json!({"id": 1, "status": status, "name": "konverge-apply"})),
                None => not_found("Not found"),
            },
            ("POST", ["pipeline"]) => {
                let id = self.pipelines.keys().max().unwrap_or(&400) + 1;
                self.pipelines.insert(id, ("created", BOT));
                self.started.push(body.clone());
                let mut made = self.pipeline(id)?;
                made.as_object_mut()?.remove("name");
                Some((201, made))
            }
            (_, ["repository", rest @ ..]) => self.repository(method, rest, query, body),
            _ => None,
        }
    }

    fn pipeline(&self, id: u64) -> Option<Value> {
        let (status, starter) = self.pipelines.get(&id)?;
        Some(json!({
            "id": id, "iid": id, "project_id": ID, "status": status, "source": "api", "ref": "main", "name": format!("pipeline {id}"),
            "sha": "0".repeat(40), "user": user(starter), "web_url": format!("{}/{HERE}/-/pipelines/{id}", self.server),
        }))
    }

    fn notes(
        &mut self,
        login: &str,
        method: &str,
        (on, iid): (&str, &str),
        note: &[&str],
        body: &Value,
    ) -> Option<Answer> {
        let iid: u64 = iid.parse().ok()?;
        let is_there = match on {
            "issues" => self.issues.iter().any(|issue| issue.iid == iid),
            _ => self.merge_requests.iter().any(|one| one.iid == iid),
        };
        if !is_there {
            return not_found("Not found");
        }
        let at = note.first().and_then(|id| {
            let id: u64 = id.parse().ok()?;
            let mut notes = self.notes.iter();
            notes.position(|note| note.id == id && note.on == on && note.iid == iid)
        });
        match (method, at) {
            ("GET", _) => ok(self
                .notes
                .iter()
                .filter(|note| note.on == on && note.iid == iid)
                .map(Note::json)
                .collect()),
            ("POST", _) => {
                if let Some(refused) = too_long(body, "note") {
                    return Some(refused);
                }
                let id = self.notes.iter().map(|note| note.id).max().unwrap_or(300) + 1;
                self.notes.push(Note {
                    id,
                    on: on.to_owned(),
                    iid,
                    author: login.to_owned(),
                    body: obeyed(&body["body"]),
                    system: false,
                });
                Some((201, self.notes.last()?.json()))
            }
            ("PUT", Some(at)) => {
                self.notes[at].body = obeyed(&body["body"]);
                ok(self.notes[at].json())
            }
            ("DELETE", Some(at)) => {
                self.notes.remove(at);
                Some((204, Value::Null))
            }
            _ => not_found("Not found"),
        }
    }

    fn merge_requests(
        &mut self,
        method: &str,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Option<Answer> {
        let asked = |name: &str| {
            let found = query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let server = self.server.clone();
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        match (method, parts) {
            ("GET", []) => {
                let iids: Vec<&str> = query
                    .iter()
                    .filter(|(key, _)| key == "iids[]")
                    .map(|(_, iid)| iid.as_str())
                    .collect();
                let is_meant = |one: &&MergeRequest| {
                    asked("source_branch").is_none_or(|branch| branch == one.branch)
                        && asked("state").is_none_or(|state| state == "all" || state == one.state)
                        && (iids.is_empty() || iids.contains(&one.iid.to_string().as_str()))
                };
                ok(self
                    .merge_requests
                    .iter()
                    .filter(is_meant)
                    .map(|one| one.json(&server))
                    .collect())
            }
            ("POST", []) => {
                let branch = text("source_branch");
                if self
                    .merge_requests
                    .iter()
                    .any(|one| one.branch == branch && one.state == "opened")
                {
                    return Some((
                        409,
                        json!({"message": ["Another open merge request already exists for this source branch: !1"]}),
                    ));
                }
                let iid = self.merge_requests.iter().map(|one| one.iid).max().unwrap_or(0) + 1;
                let head = self.git(&["rev-parse", &format!("refs/heads/{branch}")])?;
                let mut made = MergeRequest::open(iid, &branch, &head);
                (made.title, made.description) = (text("title"), obeyed(&body["description"]));
                self.merge_requests.push(made);
                Some((201, self.merge_requests.last()?.json(&server)))
            }
            (_, [iid, rest @ ..]) => {
                let iid: u64 = iid.parse().ok()?;
                let Some(at) = self.merge_requests.iter().position(|one| one.iid == iid) else {
                    return not_found("Not found");
                };
                let head = self.merge_requests[at].versions.last()?.0.clone();
                let one = &mut self.merge_requests[at];
                match (method, rest) {
                    ("GET", []) => ok(one.json(&server)),
                    ("PUT", []) => {
                        (one.title, one.description) = (text("title"), obeyed(&body["description"]));
                        ok(one.json(&server))
                    }
                    ("PUT", ["merge"]) if text("sha") != head => Some((
                        409,
                        json!({"message": "SHA does not match HEAD of source branch"}),
                    )),
                    ("PUT", ["merge"]) => {
                        one.auto_merge = body["auto_merge"] == true;
                        ok(one.json(&server))
                    }
                    ("GET", ["approvals"]) => {
                        let given = one.approvals.iter().map(|(name, at)| match at {
                            Some(at) => json!({"user": user(name), "approved_at": at}),
                            None => json!({"user": user(name)}),
                        });
                        ok(json!({"approved": true, "approved_by": given.collect::<Vec<_>>()}))
                    }
                    ("GET", ["versions"]) => {
                        let versions = one.versions.iter().enumerate().rev();
                        ok(versions
                            .map(|(id, (head, at))| json!({"id": id, "head_commit_sha": head, "created_at": at, "state": "collected"}))
                            .collect())
                    }
                    ("GET", ["commits"]) => {
                        let commits = self.commits(&format!("main..{head}"), None);
                        let without_parents = |mut commit: Value| {
                            commit["parent_ids"] = json!([]);
                            commit
                        };
                        ok(commits.into_iter().map(without_parents).collect())
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn issues(
        &mut self,
        login: &str,
        method: &str,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Option<Answer> {
        let server = self.server.clone();
        let text = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        match (method, parts) {
            ("GET", []) => {
                let label = query
                    .iter()
                    .find(|(key, _)| key == "labels")
                    .map(|(_, label)| label);
                let has = |issue: &&Issue| label.is_none_or(|label| issue.labels.contains(label));
                ok(self
                    .issues
                    .iter()
                    .filter(has)
                    .map(|issue| issue.json(&server))
                    .collect())
            }
            ("POST", []) => {
                // GitLab ignores labels from accounts that may not set labels.
                let may_label = self.members.get(login).is_some_and(|level| *level >= 15);
                let labels = text("labels")
                    .split(',')
                    .map(str::to_owned)
                    .filter(|_| may_label)
                    .collect();
                self.issues.push(Issue {
                    iid: self.issues.len() as u64 + 1,
                    author: login.to_owned(),
                    title: text("title"),
                    description: obeyed(&body["description"]),
                    labels,
                    state: "opened",
                });
                Some((201, self.issues.last()?.json(&server)))
            }
            ("PUT", [iid]) => {
                let iid: u64 = iid.parse().ok()?;
                let Some(issue) = self.issues.iter_mut().find(|issue| issue.iid == iid) else {
                    return not_found("Not found");
                };
                match body["state_event"].as_str() {
                    Some("close") => issue.state = "closed",
                    Some("reopen") => issue.state = "opened",
                    _ => {}
                }
                if body["description"].is_string() {
                    (issue.title, issue.description) = (text("title"), obeyed(&body["description"]));
                }
                ok(issue.json(&server))
            }
            _ => None,
        }
    }

    /// Sets a status. It belongs to the named pipeline, or else to the newest pipeline of the commit.
    fn set_status(&mut self, login: &str, sha: &str, body: &Value) -> Answer {
        let mut of_commit = self.pipeline_commits.iter().rev();
        let pipeline = match body["pipeline_id"].as_u64() {
            Some(named) if self.pipeline_commits.get(&named).is_some_and(|at| at == sha) => Some(named),
            Some(_) => return (404, json!({"message": "404 Pipeline Not Found"})),
            None => of_commit.find(|(_, at)| *at == sha).map(|(id, _)| *id),
        };
        let is_of_name = |(at, status): &&mut (String, Value)| {
            let ended = ["success", "failed", "canceled"].contains(&status["status"].as_str().unwrap());
            let is_there = at == sha && status["pipeline_id"] == json!(pipeline);
            is_there && status["name"] == body["name"] && !ended
        };
        let id = self.statuses.len();
        match self.statuses.iter_mut().rfind(is_of_name) {
            Some((_, known)) if known["status"] == body["state"] => {
                let said = format!(
                    "Cannot transition status via :enqueue from :{} (Reason(s): Status cannot transition via \"enqueue\")",
                    body["state"].as_str().unwrap()
                );
                (400, json!({"message": said}))
            }
            Some((_, known)) => {
                known["status"] = body["state"].clone();
                known["description"] = body["description"].clone();
                known["target_url"] = body["target_url"].clone();
                (201, known.clone())
            }
            None => {
                let status = json!({
                    "id": id, "sha": sha, "name": body["name"], "status": body["state"], "description": body["description"],
                    "target_url": body["target_url"], "author": user(login), "pipeline_id": pipeline,
                });
                self.statuses.push((sha.to_owned(), status.clone()));
                (201, status)
            }
        }
    }

    fn repository(
        &mut self,
        method: &str,
        parts: &[&str],
        query: &[(String, String)],
        body: &Value,
    ) -> Option<Answer> {
        let asked = |name: &str| {
            let found = query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str())
        };
        let server = self.server.clone();
        match (method, parts) {
            ("GET", ["branches", name]) => {
                match self.git(&["rev-parse", "--verify", &format!("refs/heads/{name}")]) {
                    Some(tip) => ok(
                        json!({"name": name, "protected": *name == "main", "default": *name == "main", "commit": self.commit(&tip)?}),
                    ),
                    None => not_found("Branch"),
                }
            }
            ("GET", ["merge_base"]) => {
                let refs: Vec<&str> = query.iter().map(|(_, sha)| sha.as_str()).collect();
                if let Some(unknown) = refs.iter().find(|sha| self.commit(sha).is_none()) {
                    return Some((400, json!({"message": format!("Could not find ref: {unknown}")})));
                }
                match self.git(&["merge-base", refs[0], refs[1]]) {
                    Some(base) => ok(self.commit(&base)?),
                    None => not_found("Merge Base"),
                }
            }
            // An unknown range gives an empty list.
            ("GET", ["commits"]) => ok(Value::Array(self.commits(asked("ref_name")?, asked("path")))),
            ("POST", ["commits"]) => Some(self.make_commit(body)),
            ("GET", ["commits", sha]) => match self.commit(sha) {
                Some(commit) => ok(commit),
                None => not_found("Commit"),
            },
            ("GET", ["commits", sha, "diff"]) => {
                let changed =
                    self.git(&["diff-tree", "--no-commit-id", "--name-only", "-r", "--root", sha])?;
                ok(changed
                    .lines()
                    .map(|path| json!({"old_path": path, "new_path": path, "diff": ""}))
                    .collect())
            }
            ("GET", ["commits", sha, "merge_requests"]) => {
                let is_of = |one: &&MergeRequest| {
                    one.merge_commit.as_deref() == Some(sha)
                        || one.squash_commit.as_deref() == Some(sha)
                        || one.versions.iter().any(|(head, _)| head == sha)
                };
                ok(self
                    .merge_requests
                    .iter()
                    .filter(is_of)
                    .map(|one| one.json(&server))
                    .collect())
            }
            ("GET", ["commits", sha, "statuses"]) => {
                let mut of: Vec<_> = self
                    .statuses
                    .iter()
                    .filter(|(at, _)| at == sha)
                    .map(|(_, status)| status.clone())
                    .collect();
                if asked("sort") == Some("desc") {
                    of.reverse();
                }
                ok(Value::Array(of))
            }
            ("GET", ["files", path]) => {
                let at = asked("ref")?;
                match self.git(&["show", &format!("{at}:{path}")]) {
                    Some(_) => {
                        let content = self.raw(&["show", &format!("{at}:{path}")])?;
                        let last = self.git(&["log", "-1", "--format=%H", at, "--", path])?;
                        ok(json!({
                            "file_name": path, "file_path": path, "encoding": "base64", "content": STANDARD.encode(content),
                            "ref": at, "last_commit_id": last,
                        }))
                    }
                    None => not_found("File"),
                }
            }
            _ => None,
        }
    }

    /// Commits files to the tip of a branch, or to a new branch.
    fn make_commit(&self, body: &Value) -> Answer {
        let refused = |message: &str| (400, json!({"message": message}));
        let branch = body["branch"].as_str().unwrap();
        let full = format!("refs/heads/{branch}");
        let tip = self.git(&["rev-parse", "--verify", &full]);
        let parent = match (body["start_sha"].as_str(), tip) {
            (Some(_), Some(_)) => {
                return refused(&format!(
                    "A branch called '{branch}' already exists. Switch to that branch in order to make changes"
                ));
            }
            (Some(start), None) => start.to_owned(),
            (None, Some(tip)) => tip,
            (None, None) => return refused("You can only create or edit files when you are on a branch"),
        };
        let index = tempfile::NamedTempFile::new().unwrap();
        let env = [("GIT_INDEX_FILE", index.path().to_str().unwrap())];
        self.git_with(&["read-tree", &parent], &env, None).unwrap();
        for action in body["actions"].as_array().unwrap() {
            let path = action["file_path"].as_str().unwrap();
            let is_there = self
                .git(&["cat-file", "-e", &format!("{parent}:{path}")])
                .is_some();
            if is_there == (action["action"] == "create") {
                return refused("A file with this name already exists, or doesn't");
            }
            let last = self.git(&["log", "-1", "--format=%H", &parent, "--", path]);
            if is_there && action["last_commit_id"].as_str() != last.as_deref() {
                return refused(
                    "You are attempting to update a file that has changed since you started editing it.",
                );
            }
            let content = STANDARD.decode(action["content"].as_str().unwrap()).unwrap();
            let blob = self
                .git_with(&["hash-object", "-w", "--stdin"], &[], Some(&content))
                .unwrap();
            let entry = format!("100644,{blob},{path}");
            self.git_with(&["update-index", "--add", "--cacheinfo", &entry], &env, None)
                .unwrap();
        }
        let tree = self.git_with(&["write-tree"], &env, None).unwrap();
        let who = address(BOT);
        let person = [
            ("GIT_AUTHOR_NAME", BOT),
            ("GIT_AUTHOR_EMAIL", who.as_str()),
            // GitLab is the committer of commits that it creates for a user.
            ("GIT_COMMITTER_NAME", "GitLab"),
            ("GIT_COMMITTER_EMAIL", "noreply@gitlab.example.com"),
        ];
        let message = body["commit_message"].as_str().unwrap();
        let made = self.git_with(
            &["commit-tree", "-p", &parent, "-m", message, &tree],
            &person,
            None,
        );
        let made = made.unwrap();
        self.git(&["update-ref", &full, &made]).unwrap();
        (201, self.commit(&made).unwrap())
    }

    /// Returns a commit; `None` if it does not exist.
    fn commit(&self, sha: &str) -> Option<Value> {
        self.commits(sha, None).into_iter().next()
    }

    /// Returns the commits of a revision or a range, the newest first.
    fn commits(&self, range: &str, path: Option<&str>) -> Vec<Value> {
        let format = "--format=%H%x1f%P%x1f%ae%x1f%ce%x1f%B%x1e";
        let mut arguments = vec!["log", format, range, "--"];
        arguments.extend(path);
        let text = self.git(&arguments).unwrap_or_default();
        let commits = text
            .split('\u{1e}')
            .map(str::trim_start)
            .filter(|one| !one.is_empty());
        commits
            .map(|one| {
                let fields: Vec<_> = one.splitn(5, '\u{1f}').collect();
                let parents: Vec<_> = fields[1].split_whitespace().collect();
                json!({
                    "id": fields[0], "short_id": &fields[0][..8], "parent_ids": parents, "author_email": fields[2],
                    "committer_email": fields[3], "message": fields[4], "title": fields[4].lines().next(),
                })
            })
            .collect()
    }

    fn git(&self, arguments: &[&str]) -> Option<String> {
        self.git_with(arguments, &[], None)
    }

    fn raw(&self, arguments: &[&str]) -> Option<Vec<u8>> {
        run(&self.repository, arguments, &[], None)
    }

    fn git_with(&self, arguments: &[&str], env: &[(&str, &str)], input: Option<&[u8]>) -> Option<String> {
        let output = run(&self.repository, arguments, env, input)?;
        Some(String::from_utf8_lossy(&output).trim().to_owned())
    }
}

/// Runs git; `None` if it fails.
fn run(folder: &Path, arguments: &[&str], env: &[(&str, &str)], input: Option<&[u8]>) -> Option<Vec<u8>> {
    use std::io::Write as _;
    let mut git = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    git.stdin
        .take()
        .unwrap()
        .write_all(input.unwrap_or_default())
        .unwrap();
    let output = git.wait_with_output().unwrap();
    output.status.success().then_some(output.stdout)
}

fn ok(value: Value) -> Option<Answer> {
    Some((200, value))
}

fn not_found(what: &str) -> Option<Answer> {
    Some((404, json!({"message": format!("404 {what} Not Found")})))
}

fn user(name: &str) -> Value {
    json!({"id": 1, "username": name, "name": name, "state": "active"})
}

fn member(name: &str, state: &str, level: u32) -> Value {
    json!({"id": 1, "username": name, "name": name, "state": state, "access_level": level, "expires_at": null})
}

/// Returns the mail address in the commits of an account.
fn address(login: &str) -> String {
    format!("{login}@noreply.gitlab.example.com")
}

/// Returns the text that GitLab stores: without line breaks at its end.
///
/// # Panics
/// A line is a quick action, which GitLab would carry out.
fn obeyed(text: &Value) -> String {
    let text = text.as_str().unwrap_or_default();
    let command = text.replace('\r', "");
    let command = command.lines().find(|line| line.starts_with('/'));
    assert_eq!(command, None, "GitLab would obey");
    text.trim_end().to_owned()
}

fn too_long(body: &Value, field: &str) -> Option<Answer> {
    let long = body["body"]
        .as_str()
        .is_some_and(|text| text.chars().count() > 1_000_000);
    long.then(|| {
        let said = json!({"message": {field: ["is too long (maximum is 1000000 characters)"]}});
        (400, said)
    })
}
