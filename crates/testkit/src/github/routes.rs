//! The routes of the fake: which permissions a token needs, and what a request changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    answers::{
        Answer, check_json, comment_json, deployment_json, forbidden, not_found, pull_json, review_json,
        status_json, too_long,
    },
    world::{HERE, Pull, Token, World},
};

impl World {
    /// Carries out a request; `None` for a route that the fake does not know.
    pub fn route(
        &mut self,
        token: &str,
        method: &str,
        route: &str,
        query: &BTreeMap<String, String>,
        body: &Value,
    ) -> Option<Answer> {
        let parts: Vec<&str> = route.trim_start_matches('/').split('/').collect();
        if let Some(answer) = self.of_app(token, method, &parts, body) {
            return Some(answer);
        }
        let Some(token) = self.tokens.get(token).cloned() else {
            return Some((401, json!({"message": "Bad credentials"})));
        };
        let rest = match parts.as_slice() {
            ["graphql"] => {
                if body["query"]
                    .as_str()
                    .is_some_and(|query| query.contains("enablePullRequestAutoMerge"))
                {
                    return Some(self.merge_when_ready(body["variables"]["id"].as_str()?));
                }
                if let Some(id) = body["variables"]["id"].as_str() {
                    let mut reviews = self.reviews.iter().map(|(_, review)| review);
                    let review = reviews.find(|review| review["node_id"] == id);
                    let editor = review.map(|review| json!({"editor": review["editor"]}));
                    return Some((200, json!({"data": {"node": editor}})));
                }
                return Some((200, json!({"data": {"viewer": {"login": token.login}}})));
            }
            ["user"] => {
                return Some(if token.login.ends_with("[bot]") {
                    forbidden("")
                } else {
                    (200, json!({"login": token.login}))
                });
            }
            ["orgs", org, "teams", team, "members"] => return Some(self.members(&token, org, team)),
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
                let since = query.get("since").cloned().unwrap_or_default();
                (
                    200,
                    self.comments
                        .iter()
                        .filter(|c| c.issue == issue && c.updated >= since)
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
                // GitHub lists the newest first.
                let of = |(at, _): &&(String, Value)| at == sha;
                let newest = self.statuses.iter().rev().filter(of);
                (200, newest.map(|(_, status)| status_json(status)).collect())
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
                    (200, check_json(check))
                }
            },
            ("GET", ["commits", sha, "check-runs"]) => {
                let name = query.get("check_name").cloned().unwrap_or_default();
                let runs: Vec<_> = self
                    .checks
                    .iter()
                    .filter(|c| c["head_sha"] == *sha && c["name"] == name)
                    .map(check_json)
                    .collect();
                (200, json!({"total_count": runs.len(), "check_runs": runs}))
            }
            ("GET", ["commits", sha, "pulls"]) => {
                // A fork's commit is not a commit of this repository: GitHub returns `[]` for such a head.
                let numbers = self.commit_pulls.get(*sha).cloned().unwrap_or_default();
                let brought = |p: &&Pull| {
                    numbers.contains(&p.number)
                        || p.head == *sha && p.head_repository.as_deref() == Some(HERE)
                };
                (200, self.pulls.iter().filter(brought).map(pull_json).collect())
            }
            ("GET", ["pulls"]) => {
                // GitHub lists the newest first.
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
            ("POST", ["pulls"]) => self.open_pull(body)?,
            ("PATCH", ["pulls", pull]) => self.edit_pull(number(pull), body),
            (_, ["git", rest @ ..]) => self.git_data(method, rest, body)?,
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
                // GitHub lists the newest first.
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
                        .map(|(_, review)| review_json(review))
                        .collect(),
                )
            }
            // An App is not a user: GitHub refuses with `name[bot] is not a user`.
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
                self.tip(&branch.replace("%2F", "/"))
                    .map_or_else(not_found, |sha| (200, answer(sha)))
            }
            ("GET", ["actions", "runs", _, "approvals"]) => {
                (200, self.run_approvals.iter().cloned().collect())
            }
            ("POST", ["actions", "workflows", file, "dispatches"]) => self.dispatch(file, body),
            ("GET", ["actions", "workflows", file, "runs"]) => self.runs_of(file, query),
            ("GET", ["actions", "runs", run]) => self.run(number(run)),
            ("GET", ["deployments"]) => {
                let wanted = |d: &&Value| {
                    ["sha", "environment", "task"]
                        .iter()
                        .all(|key| query.get(*key).is_none_or(|v| d[*key] == v.as_str()))
                };
                let found = self.deployments.iter().filter(wanted);
                (200, found.map(deployment_json).collect())
            }
            ("POST", ["deployments"]) => {
                let mut made = body.clone();
                made["id"] = json!(self.id());
                made["sha"] = made["ref"].clone();
                let answer = deployment_json(&made);
                self.deployments.push(made);
                (201, answer)
            }
            ("GET", ["deployments", id, "statuses"]) => {
                let of = self
                    .deployment_statuses
                    .iter()
                    .filter(|(of, _)| *of == number(id));
                // GitHub lists the newest first.
                (200, of.rev().map(|(_, status)| deployment_json(status)).collect())
            }
            ("POST", ["deployments", id, "statuses"]) => {
                let mut status = body.clone();
                status["id"] = json!(self.id());
                let answer = deployment_json(&status);
                self.deployment_statuses.push((number(id), status));
                (201, answer)
            }
            _ => return None,
        })
    }
}

/// Returns the permissions of a route. Any one of them is enough.
fn needs(method: &str, rest: &[&str]) -> Option<&'static [&'static str]> {
    Some(match rest {
        ["issues", _, "comments"] | ["issues", "comments", _] => &["issues", "pull_requests"],
        ["issues", ..] => &["issues"],
        ["statuses", _] | ["commits", _, "statuses"] => &["statuses"],
        ["check-runs", ..] | ["commits", _, "check-runs"] => &["checks"],
        ["pulls", ..] | ["commits", _, "pulls"] => &["pull_requests"],
        [] | ["collaborators", _, "permission"] => &["metadata"],
        ["branches", _] | ["compare", _] | ["commits"] | ["activity"] => &["contents"],
        ["git", ..] => &["contents"],
        ["deployments", ..] => &["deployments"],
        ["actions", ..] => &["actions"],
        _ => {
            let _ = method;
            return None;
        }
    })
}
