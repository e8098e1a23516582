//! Each shape that the fake GitHub serves beside a real Gitea's answer to the same question, where the two APIs mean to
//! be equal: of the fields that Konverge reads the type, whether it is there, the word, the form of a time. What
//! differs is listed, with where GitHub documents its side; the fake itself is held against GitHub's description at
//! each answer.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::Stage,
    gitea_jobs::JobStage,
    gitea_stage::{KONFIG, commit_as},
    github::{DispatchableWorkflow, Token},
};

/// The known differences: a situation (`*` stands for any text), a field, what it is at GitHub and at Gitea, why, and
/// the page below `docs.github.com/en/rest` that has GitHub's side.
const DIFFERENCES: &str = "
a pull request: * | node_id | text | absent | for GraphQL, which Gitea has not | pulls/pulls#get-a-pull-request
a pull request: * | merge_commit_sha | commit | null | the test merge, which Gitea has not | pulls/pulls#get-a-pull-request
the pull requests of a commit | | list | object | Gitea knows one | commits/commits#list-pull-requests-associated-with-a-commit
a review: * | node_id | text | absent | for GraphQL, which Gitea has not | pulls/reviews#list-reviews-for-a-pull-request
a review: comments | state | `COMMENTED` | `COMMENT` | Gitea has what was asked for | pulls/reviews#list-reviews-for-a-pull-request
a review: asks for changes | state | `CHANGES_REQUESTED` | `REQUEST_CHANGES` | Gitea has what was asked for | pulls/reviews#list-reviews-for-a-pull-request
an issue: * | pull_request | absent | null | of pull requests alone | issues/issues#list-repository-issues
a status: * | state | `*` | absent | Gitea calls it `status` | commits/statuses#list-commit-statuses-for-a-reference
a status: * | status | absent | `*` | GitHub calls it `state` | commits/statuses#list-commit-statuses-for-a-reference
a status: * | description | null | no text | what was not given | commits/statuses#create-a-commit-status
a status: * | target_url | null | no text | what was not given | commits/statuses#create-a-commit-status
a branch | commit/sha | commit | absent | Gitea calls it `id` | branches/branches#get-a-branch
a branch | commit/id | absent | commit | GitHub calls it `sha` | branches/branches#get-a-branch
a comparison | status | `ahead` | absent | Gitea does not say which contains the other | commits/commits#compare-two-commits
a commit of git | message | text | absent | Gitea answers with a commit of its lists | git/commits#get-a-commit-object
a commit of git | tree/sha | commit | absent | Gitea answers with a commit of its lists | git/commits#get-a-commit-object
a stranger's permission | permission | `none` | `read` | the fake's repository is private, Gitea's is public | collaborators/collaborators#get-repository-permissions-for-a-user
";

/// Returns true if a text is as a known difference says.
fn is_like(known: &str, text: &str) -> bool {
    match known.split_once('*') {
        Some((start, end)) => text.starts_with(start) && text.ends_with(end),
        None => known == text,
    }
}

/// The fields of which the word counts.
const WORDS: &[&str] = &["state", "status", "conclusion", "event", "permission"];

const PULL: &[&str] = &[
    "number",
    "state",
    "user/login",
    "title",
    "body",
    "html_url",
    "node_id",
    "merged_at",
    "merge_commit_sha",
    "head/ref",
    "head/sha",
    "head/repo/full_name",
    "base/ref",
    "base/repo/full_name",
];
const REVIEW: &[&str] = &[
    "user/login",
    "state",
    "commit_id",
    "submitted_at",
    "body",
    "node_id",
];
const COMMENT: &[&str] = &["id", "body", "user/login", "html_url", "created_at", "updated_at"];
const ISSUE: &[&str] = &[
    "number",
    "title",
    "body",
    "state",
    "user/login",
    "html_url",
    "created_at",
    "labels",
    "labels/0/name",
    "pull_request",
];
const STATUS: &[&str] = &["context", "state", "status", "description", "target_url"];
const COMMIT: &[&str] = &[
    "sha",
    "parents/0/sha",
    "commit/author/name",
    "commit/author/email",
    "commit/committer/name",
    "commit/committer/email",
    "commit/message",
    "author",
    "author/login",
    "committer",
];
const RUN: &[&str] = &[
    "id",
    "status",
    "conclusion",
    "html_url",
    "event",
    "head_branch",
    "run_attempt",
    "display_title",
];

/// What stands in a field.
fn kind(answer: &Value, field: &str) -> String {
    let pointer = if field.is_empty() {
        String::new()
    } else {
        format!("/{field}")
    };
    let Some(value) = answer.pointer(&pointer) else {
        return "absent".to_owned();
    };
    let name = field.rsplit('/').next().unwrap_or_default();
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_u64() => "number".to_owned(),
        Value::Number(_) => "other number".to_owned(),
        Value::Array(_) => "list".to_owned(),
        Value::Object(_) => "object".to_owned(),
        Value::String(text) if WORDS.contains(&name) => format!("`{text}`"),
        Value::String(text) if text.is_empty() => "no text".to_owned(),
        Value::String(text) if text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            "commit".to_owned()
        }
        Value::String(text) if text.parse::<jiff::Timestamp>().is_ok() => {
            let zone = if text.ends_with('Z') { "Z" } else { "another zone" };
            format!("time, {zone}")
        }
        Value::String(text) if text.starts_with("http") => "address".to_owned(),
        Value::String(_) => "text".to_owned(),
    }
}

/// Both forges in the same situation.
struct Both {
    github: Stage,
    gitea: JobStage,
    http: reqwest::Client,
    /// Situation, field, what it is at GitHub and at Gitea.
    differences: Vec<[String; 4]>,
}

impl Both {
    async fn github(&self, method: Method, path: &str, body: &Value) -> Value {
        self.github_as("ghs_token", method, path, body).await
    }

    async fn github_as(&self, token: &str, method: Method, path: &str, body: &Value) -> Value {
        let address = format!("{}{path}", self.github.github.api_url());
        let mut request = self
            .http
            .request(method, address)
            .header("user-agent", "the test")
            .bearer_auth(token);
        if !body.is_null() {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default()
    }

    async fn gitea(&self, method: Method, path: &str, body: &Value) -> Value {
        let stage = &self.gitea.stage;
        stage
            .gitea
            .send(&stage.bot.token, method, path, body.clone())
            .await
            .body
    }

    /// Reads a path of the repository at both; `{}` in it is the situation's own at each.
    async fn read(&mut self, what: &str, path: &str, own: (&str, &str), at: &str, fields: &[&str]) {
        let path = |own: &str| format!("/repos/{KONFIG}{}", path.replace("{}", own));
        let github = self.github(Method::GET, &path(own.0), &Value::Null).await;
        let gitea = self.gitea(Method::GET, &path(own.1), &Value::Null).await;
        self.compare(what, (&github, &gitea), at, fields);
    }

    fn compare(&mut self, what: &str, (github, gitea): (&Value, &Value), at: &str, fields: &[&str]) {
        let part = |answer: &Value| answer.pointer(at).cloned();
        let (Some(github), Some(gitea)) = (part(github), part(gitea)) else {
            panic!("{what}: there is no {at} in {github} and {gitea}");
        };
        for field in fields {
            let (github, gitea) = (kind(&github, field), kind(&gitea, field));
            if github != gitea {
                self.differences
                    .push([what.to_owned(), (*field).to_owned(), github, gitea]);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn what_the_fake_answers_is_what_gitea_answers_or_a_known_difference() {
    let mut both = Both {
        github: Stage::small("").await,
        gitea: JobStage::start("").await,
        http: reqwest::Client::new(),
        differences: Vec::new(),
    };
    let gitea = &both.gitea.stage.gitea;
    let (ada, bob, eve) = (
        both.gitea.stage.ada.clone(),
        both.gitea.stage.bob.clone(),
        both.gitea.stage.eve.clone(),
    );
    let repo = format!("/repos/{KONFIG}");

    both.github.github.world(|world| {
        let users = &mut world.history.as_mut().unwrap().users;
        users.insert("bob@acme.example".into(), "bob".into());
    });

    // Pull requests: one that is open, one that was merged, one that was closed.
    let mut heads = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    for (number, branch) in [(1, "open"), (2, "merged"), (3, "closed")] {
        both.github.monorepo.checkout("main").branch(branch);
        let text = format!("{branch}\n");
        both.github.monorepo.write(&format!("notes/{branch}.md"), &text);
        commit_as(&both.github.monorepo, "bob", branch);
        both.github.opened(number, branch, "opened", KONFIG);
        both.github.github.world(|world| {
            let pull = world.pulls.last_mut().unwrap();
            (pull.title, pull.body) = (format!("Merge {branch}"), "Please.".to_owned());
        });
        let (theirs, head) = both
            .gitea
            .stage
            .opened(&bob, branch, &format!("notes/{branch}.md"), &text)
            .await;
        heads.insert(branch, (both.github.monorepo.rev(branch), head));
        numbers.insert(branch, (number.to_string(), theirs.to_string()));
    }
    both.github.press_merge(2, "merged");
    let (_, merged) = &numbers["merged"];
    let merge = gitea.merge(&ada, KONFIG, merged.parse().unwrap(), "merge").await;
    both.github.github.world(|world| world.pulls[2].closed = true);
    let closed = format!("{repo}/pulls/{}", numbers["closed"].1);
    gitea
        .call(&ada.token, Method::PATCH, &closed, json!({"state": "closed"}))
        .await;
    for branch in ["open", "merged", "closed"] {
        let (ours, theirs) = numbers[branch].clone();
        let own = (ours.as_str(), theirs.as_str());
        both.read(&format!("a pull request: {branch}"), "/pulls/{}", own, "", PULL)
            .await;
    }
    both.read(
        "the pull requests",
        "/pulls?state=all&sort=updated&direction=desc",
        ("", ""),
        "/0",
        &["number", "user/login", "head/sha"],
    )
    .await;
    let main = both.github.monorepo.rev("main");
    let github = both
        .github(Method::GET, &format!("{repo}/commits/{main}/pulls"), &Value::Null)
        .await;
    let theirs = both
        .gitea(Method::GET, &format!("{repo}/commits/{merge}/pull"), &Value::Null)
        .await;
    both.compare("the pull requests of a commit", (&github, &theirs), "", &[""]);
    both.compare(
        "the pull requests of a commit",
        (&github[0], &theirs),
        "",
        &["number", "merge_commit_sha"],
    );

    // Reviews.
    let (_, open) = numbers["open"].clone();
    let number: u64 = open.parse().unwrap();
    let head = heads["open"].0.clone();
    let gitea = &both.gitea.stage.gitea;
    for (at, (who, login, ours, theirs)) in [
        (&ada, "ada", "APPROVED", "APPROVED"),
        (&eve, "eve", "COMMENTED", "COMMENT"),
        (&bob, "bob", "CHANGES_REQUESTED", "REQUEST_CHANGES"),
    ]
    .into_iter()
    .enumerate()
    {
        both.github.approved_saying(1, login, &head, "words");
        both.github
            .github
            .world(|world| world.reviews[at].1["state"] = json!(ours));
        // Nobody reviews their own.
        let who = if login == "bob" {
            &both.gitea.stage.bot
        } else {
            who
        };
        gitea.review(who, KONFIG, number, theirs, "words").await;
    }
    let own = ("1", open.as_str());
    for (at, what) in ["approves", "comments", "asks for changes"].iter().enumerate() {
        let what = format!("a review: {what}");
        both.read(&what, "/pulls/{}/reviews", own, &format!("/{at}"), REVIEW)
            .await;
    }
    both.read(
        "the commits of a pull request",
        "/pulls/{}/commits",
        own,
        "/0",
        COMMIT,
    )
    .await;

    // Comments and issues.
    let (ours, theirs) = (
        format!("{repo}/issues/1/comments"),
        format!("{repo}/issues/{open}/comments"),
    );
    let words = json!({"body": "words"});
    let github = both.github(Method::POST, &ours, &words).await;
    let gitea = both.gitea(Method::POST, &theirs, &words).await;
    both.compare("a new comment", (&github, &gitea), "", COMMENT);
    both.read("a comment", "/issues/{}/comments", own, "/0", COMMENT)
        .await;
    let label = json!({"name": "konverge-drift", "color": "#d73a4a"});
    let label = both.gitea(Method::POST, &format!("{repo}/labels"), &label).await;
    let issues = format!("{repo}/issues");
    let mut issue = json!({"title": "It drifted", "body": "words", "labels": ["konverge-drift"]});
    let github = both.github(Method::POST, &issues, &issue).await;
    issue["labels"] = json!([label["id"]]);
    let gitea = both.gitea(Method::POST, &issues, &issue).await;
    both.compare("an issue: new", (&github, &gitea), "", ISSUE);
    both.read(
        "an issue: of a list",
        "/issues?state=open&labels=konverge-drift",
        ("", ""),
        "/0",
        ISSUE,
    )
    .await;
    let closed = json!({"state": "closed"});
    let github = both
        .github(Method::PATCH, &format!("{issues}/{}", github["number"]), &closed)
        .await;
    let gitea = both
        .gitea(Method::PATCH, &format!("{issues}/{}", gitea["number"]), &closed)
        .await;
    both.compare("an issue: closed", (&github, &gitea), "", &["state", "number"]);

    // Statuses.
    let (ours, theirs) = heads["open"].clone();
    for (state, more) in [
        ("pending", json!({})),
        (
            "success",
            json!({"description": "words", "target_url": "https://ci.acme.example/1"}),
        ),
        ("failure", json!({"description": ""})),
        ("error", json!({})),
    ] {
        let mut status = more;
        status["state"] = json!(state);
        status["context"] = json!("konverge/preview");
        let github = both
            .github(Method::POST, &format!("{repo}/statuses/{ours}"), &status)
            .await;
        let gitea = both
            .gitea(Method::POST, &format!("{repo}/statuses/{theirs}"), &status)
            .await;
        both.compare(&format!("a status: {state}"), (&github, &gitea), "", STATUS);
    }
    let own = (ours.as_str(), theirs.as_str());
    both.read("a status: of a list", "/commits/{}/statuses", own, "/0", STATUS)
        .await;

    // The repository, its branches and commits.
    both.read(
        "the repository",
        "",
        ("", ""),
        "",
        &["full_name", "default_branch"],
    )
    .await;
    both.github
        .github
        .world(|world| world.protected = vec!["main".into()]);
    let branch = ["name", "protected", "commit/sha", "commit/id"];
    both.read("a branch", "/branches/main", ("", ""), "", &branch)
        .await;
    both.read(
        "a commit of a list",
        "/commits?sha=main&path=notes",
        ("", ""),
        "/0",
        COMMIT,
    )
    .await;
    let first = (
        both.github.monorepo.rev("main^1"),
        both.gitea.stage.fetched_main(),
    );
    let first = (first.0, both.gitea.stage.konfig.rev(&format!("{}^1", first.1)));
    let own = (format!("{}...{main}", first.0), format!("{}...{merge}", first.1));
    let comparison = ["status", "total_commits", "commits", "commits/0/sha"];
    both.read("a comparison", "/compare/{}", (&own.0, &own.1), "", &comparison)
        .await;
    let git_commit = ["sha", "message", "tree/sha"];
    both.read(
        "a commit of git",
        "/git/commits/{}",
        (&main, &merge),
        "",
        &git_commit,
    )
    .await;

    // People.
    both.github.github.world(|world| {
        let permissions = world.tokens["ghs_token"].permissions.clone();
        let login = "konverge";
        world.tokens.insert("ghp_of_a_user", Token { login, permissions });
    });
    let ours = both
        .github_as("ghp_of_a_user", Method::GET, "/user", &Value::Null)
        .await;
    let theirs = both.gitea(Method::GET, "/user", &Value::Null).await;
    both.compare("the user", (&ours, &theirs), "", &["login"]);
    let gitea = &both.gitea.stage.gitea;
    for permission in ["admin", "write", "read"] {
        let login = format!("of-{permission}");
        let user = gitea.user(&login).await;
        gitea.collaborator(&ada, KONFIG, &user, permission).await;
        both.github
            .github
            .world(|world| world.collaborators.insert(login, permission));
    }
    for permission in ["admin", "write", "read"] {
        let path = format!("/collaborators/of-{permission}/permission");
        let what = format!("a permission: {permission}");
        both.read(
            &what,
            &path,
            ("", ""),
            "",
            &["permission", "role_name", "user/login"],
        )
        .await;
    }
    both.gitea.stage.gitea.user("stranger").await;
    let stranger = "/collaborators/stranger/permission";
    both.read(
        "a stranger's permission",
        stranger,
        ("", ""),
        "",
        &["permission", "role_name"],
    )
    .await;

    // Runs.
    both.github.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("actions", "write");
        let workflow = DispatchableWorkflow {
            conclusion: Some("success"),
            names_inputs: false,
            shown_late: 0,
        };
        world.workflows.insert("konverge.yml".into(), workflow);
    });
    let dispatch = json!({"ref": "main", "inputs": {}, "return_run_details": true});
    let dispatches = format!("{repo}/actions/workflows/konverge.yml/dispatches");
    // A parameter of the query at Gitea.
    let started = both.github(Method::POST, &dispatches, &dispatch).await;
    let theirs = both
        .gitea(
            Method::POST,
            &format!("{dispatches}?return_run_details=true"),
            &dispatch,
        )
        .await;
    both.compare(
        "a started workflow",
        (&started, &theirs),
        "",
        &["workflow_run_id", "html_url", "run_url"],
    );
    let run = (
        started["workflow_run_id"].to_string(),
        theirs["workflow_run_id"].to_string(),
    );
    // The jobs of the pull requests come first.
    loop {
        let task = both.gitea.any_task().await;
        both.gitea.end(&task, true).await;
        if task.text("event_name") == "workflow_dispatch" {
            break;
        }
    }
    both.read("a run", "/actions/runs/{}", (&run.0, &run.1), "", RUN)
        .await;
    let runs = "/actions/workflows/konverge.yml/runs?event=workflow_dispatch&branch=main";
    let github = both
        .github(Method::GET, &format!("{repo}{runs}"), &Value::Null)
        .await;
    // Gitea lists those of all workflows.
    let runs = format!("{repo}/actions/runs?event=workflow_dispatch&branch=main");
    let gitea = both.gitea(Method::GET, &runs, &Value::Null).await;
    both.compare("a run of a list", (&github, &gitea), "/workflow_runs/0", RUN);

    // What is not there.
    both.read("no pull request", "/pulls/999", ("", ""), "", &["message"])
        .await;

    let known: Vec<Vec<_>> = DIFFERENCES
        .lines()
        .skip(1)
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let mut seen = vec![false; known.len()];
    let mut unknown = Vec::new();
    for found in &both.differences {
        let is_known = |known: &Vec<&str>| known.iter().zip(found).all(|(known, text)| is_like(known, text));
        match known.iter().position(is_known) {
            Some(at) => seen[at] = true,
            None => unknown.push(found.join(" | ")),
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
    for (known, seen) in known.iter().zip(seen) {
        assert_eq!(known.len(), 6, "{known:?}");
        assert!(seen, "they do not differ any more: {known:?}");
    }
}
