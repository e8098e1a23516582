//! Writes of issues, statuses and check runs: what GitHub accepts, and how it refuses.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    answers::{Answer, check_json, forbidden, invalid, issue_json, not_found, status_json, too_long},
    world::{Issue, Token, World},
};

impl World {
    pub(super) fn membership(&self, token: &Token, org: &str, team: &str, user: &str) -> Answer {
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

    pub(super) fn members(&self, token: &Token, org: &str, team: &str) -> Answer {
        match self.teams.get(&format!("{org}/{team}")) {
            _ if !token.permissions.contains_key("members") => forbidden("members=read"),
            Some(members) => {
                let members = members.iter().map(|login| json!({"login": login}));
                (200, members.collect())
            }
            None => not_found(),
        }
    }

    pub(super) fn list_issues(&self, query: &BTreeMap<String, String>) -> Answer {
        let label = query.get("labels").cloned().unwrap_or_default();
        let all = query.get("state").is_some_and(|s| s == "all");
        let wanted = |i: &&Issue| i.labels.contains(&label) && (all || i.state == "open");
        (200, self.issues.iter().filter(wanted).map(issue_json).collect())
    }

    pub(super) fn open_issue(&mut self, token: &Token, body: &Value) -> Answer {
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

    pub(super) fn edit_issue(&mut self, number: u64, body: &Value) -> Answer {
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

    pub(super) fn status(&mut self, sha: &str, body: &Value) -> Answer {
        let description = body["description"].as_str().unwrap_or_default();
        if description.encode_utf16().count() > 140 {
            return invalid("description is too long (maximum is 140 characters)");
        }
        self.statuses.push((sha.to_owned(), body.clone()));
        (201, status_json(body))
    }

    pub(super) fn check(&mut self, body: &Value) -> Answer {
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
        let answer = check_json(&made);
        self.checks.push(made);
        (201, answer)
    }
}
