//! The repository's history in the fake, read from a real repository by git.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

/// A repository's history, and the mail addresses that GitHub knows as users.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub folder: PathBuf,
    /// Logins by mail address. `LOGIN@users.noreply.github.com` needs no entry.
    pub users: BTreeMap<String, String>,
}

impl History {
    pub(super) fn git(&self, arguments: &[&str]) -> Option<String> {
        self.run(Command::new("git").arg("-C").arg(&self.folder).args(arguments))
    }

    /// Runs git as [`History::git`] does, with a separate index.
    pub(super) fn git_in(&self, index: &Path, arguments: &[&str]) -> Option<String> {
        let mut command = Command::new("git");
        command.env("GIT_INDEX_FILE", index).arg("-C").arg(&self.folder);
        self.run(command.args(arguments))
    }

    fn run(&self, command: &mut Command) -> Option<String> {
        let output = command.output().expect("git runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    }

    /// Returns the newest commit of a branch.
    pub fn tip(&self, branch: &str) -> Option<String> {
        let full = format!("refs/heads/{branch}");
        self.git(&["rev-parse", "--verify", "--quiet", &full])
    }

    /// Compares `head` with `base`: their relation, and the commits that only `head` has, the oldest first.
    pub fn compare(&self, base: &str, head: &str) -> Option<(&'static str, Vec<Value>)> {
        let ahead = self.git(&[
            "rev-list",
            "--reverse",
            "--topo-order",
            &format!("{base}..{head}"),
        ])?;
        let behind = self.git(&["rev-list", "--count", &format!("{head}..{base}")])?;
        let status = match (ahead.is_empty(), behind == "0") {
            (true, true) => "identical",
            (false, true) => "ahead",
            (true, false) => "behind",
            (false, false) => "diverged",
        };
        Some((status, ahead.lines().map(|sha| self.commit(sha)).collect()))
    }

    /// Returns the commits up to `head` that touched a path, the newest first.
    pub fn touching(&self, head: &str, path: &str) -> Option<Vec<Value>> {
        let commits = self.git(&["rev-list", head, "--", path])?;
        Some(commits.lines().map(|sha| self.commit(sha)).collect())
    }

    /// Returns the first parent of a commit.
    pub fn parent(&self, sha: &str) -> Option<String> {
        self.git(&["rev-parse", "--verify", "--quiet", &format!("{sha}^1")])
    }

    /// Returns a commit in the form of the API.
    pub fn commit(&self, sha: &str) -> Value {
        let format = "--format=%P%x00%an%x00%ae%x00%cn%x00%ce%x00%B";
        let shown = self.git(&["show", "--no-patch", format, sha]).expect("a commit");
        let parts: Vec<_> = shown.split('\0').collect();
        let [parents, author, author_email, committer, committer_email, message] = parts[..] else {
            panic!("{shown}");
        };
        let parents: Vec<_> = parents.split(' ').filter(|p| !p.is_empty()).collect();
        json!({
            "sha": sha,
            "parents": parents.iter().map(|sha| json!({"sha": sha})).collect::<Vec<_>>(),
            "commit": {
                "author": {"name": author, "email": author_email},
                "committer": {"name": committer, "email": committer_email},
                "message": message,
            },
            "author": self.user(author_email),
            "committer": self.user(committer_email),
        })
    }

    fn user(&self, email: &str) -> Value {
        let private = email.strip_suffix("@users.noreply.github.com");
        let private = private.map(|name| name.rsplit('+').next().unwrap_or(name));
        let login = match email {
            "noreply@github.com" => Some("web-flow"),
            _ => private.or(self.users.get(email).map(String::as_str)),
        };
        login.map_or(Value::Null, |login| json!({"login": login}))
    }
}
