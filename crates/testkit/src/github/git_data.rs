//! Commits, branches and pull requests that are created through the API. The fake creates them in the real repository
//! by git.

use serde_json::{Value, json};

use super::{
    answers::{Answer, invalid, not_found, pull_json},
    history::History,
    world::{Pull, World},
};

impl History {
    /// Returns a commit in the form of the Git database API.
    fn git_commit(&self, sha: &str) -> Option<Value> {
        let tree = self.git(&["rev-parse", "--verify", "--quiet", &format!("{sha}^{{tree}}")])?;
        let message = self.git(&["show", "--no-patch", "--format=%B", sha])?;
        Some(json!({"sha": sha, "message": message, "tree": {"sha": tree}}))
    }

    /// Creates a tree with other files, in a separate index.
    fn make_tree(&self, body: &Value) -> Option<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let index = folder.path().join("index");
        self.git_in(&index, &["read-tree", body["base_tree"].as_str()?])?;
        for entry in body["tree"].as_array()? {
            let file = folder.path().join("content");
            std::fs::write(&file, entry["content"].as_str()?).expect("a file");
            let blob = self.git(&["hash-object", "-w", file.to_str()?])?;
            let (mode, path) = (entry["mode"].as_str()?, entry["path"].as_str()?);
            self.git_in(
                &index,
                &[
                    "update-index",
                    "--add",
                    "--cacheinfo",
                    &format!("{mode},{blob},{path}"),
                ],
            )?;
        }
        self.git_in(&index, &["write-tree"])
    }

    fn make_commit(&self, body: &Value) -> Option<String> {
        let mut arguments = vec![
            "-c",
            "user.name=konverge",
            "-c",
            "user.email=app@users.noreply.github.com",
            "commit-tree",
        ];
        arguments.extend([body["tree"].as_str()?, "-m", body["message"].as_str()?]);
        for parent in body["parents"].as_array()? {
            arguments.extend(["-p", parent.as_str()?]);
        }
        self.git(&arguments)
    }

    /// Returns true if `old` is an ancestor of `new`.
    fn is_ancestor(&self, old: &str, new: &str) -> bool {
        self.git(&["merge-base", "--is-ancestor", old, new]).is_some()
    }
}

impl World {
    pub(super) fn git_data(&mut self, method: &str, rest: &[&str], body: &Value) -> Option<Answer> {
        let history = self.history.clone()?;
        Some(match (method, rest) {
            ("GET", ["commits", sha]) => history
                .git_commit(sha)
                .map_or_else(not_found, |found| (200, found)),
            ("POST", ["trees"]) => match history.make_tree(body) {
                Some(tree) => (201, json!({"sha": tree})),
                None => invalid("the tree cannot be made"),
            },
            ("POST", ["commits"]) => match history.make_commit(body) {
                Some(commit) => (201, json!({"sha": commit})),
                None => invalid("the commit cannot be made"),
            },
            ("POST", ["refs"]) => {
                let (name, sha) = (body["ref"].as_str()?, body["sha"].as_str()?);
                match history.tip(name.strip_prefix("refs/heads/")?) {
                    Some(_) => invalid("Reference already exists"),
                    None => {
                        history.git(&["update-ref", name, sha])?;
                        (201, json!({"ref": name, "object": {"sha": sha}}))
                    }
                }
            }
            ("PATCH", ["refs", name]) => {
                let (name, sha) = (name.replace("%2F", "/"), body["sha"].as_str()?);
                let name = name.strip_prefix("heads/")?.to_owned();
                let Some(tip) = history.tip(&name) else {
                    return Some(invalid("Reference does not exist"));
                };
                if body["force"] != true && !history.is_ancestor(&tip, sha) {
                    return Some(invalid("Update is not a fast forward"));
                }
                history.git(&["update-ref", &format!("refs/heads/{name}"), sha])?;
                for pull in self
                    .pulls
                    .iter_mut()
                    .filter(|pull| pull.branch == name && pull.state() == "open")
                {
                    pull.head = sha.to_owned();
                }
                (
                    200,
                    json!({"ref": format!("refs/heads/{name}"), "object": {"sha": sha}}),
                )
            }
            _ => return None,
        })
    }

    pub(super) fn open_pull(&mut self, body: &Value) -> Option<Answer> {
        let (branch, base) = (body["head"].as_str()?, body["base"].as_str()?);
        let open = |pull: &&Pull| pull.branch == branch && pull.base == base && pull.state() == "open";
        if self.pulls.iter().any(|pull| open(&pull)) {
            return Some(invalid("A pull request already exists for acme:topic."));
        }
        let Some(tip) = self.tip(branch) else {
            return Some(invalid("head is invalid"));
        };
        let number = self.id();
        let mut pull = Pull::open(number, tip);
        pull.branch = branch.to_owned();
        pull.base = base.to_owned();
        pull.title = body["title"].as_str().unwrap_or_default().to_owned();
        pull.body = body["body"].as_str().unwrap_or_default().to_owned();
        let answer = pull_json(&pull);
        self.pulls.push(pull);
        Some((201, answer))
    }

    pub(super) fn edit_pull(&mut self, number: u64, body: &Value) -> Answer {
        let Some(pull) = self.pulls.iter_mut().find(|pull| pull.number == number) else {
            return not_found();
        };
        for (key, field) in [("title", &mut pull.title), ("body", &mut pull.body)] {
            if let Some(text) = body[key].as_str() {
                *field = text.to_owned();
            }
        }
        (200, pull_json(pull))
    }

    /// Marks a pull request to be merged as soon as the rules allow it.
    pub(super) fn merge_when_ready(&mut self, id: &str) -> Answer {
        match self
            .pulls
            .iter_mut()
            .find(|pull| format!("PR_{}", pull.number) == id)
        {
            Some(pull) if self.allows_auto_merge => {
                pull.auto_merge = true;
                (
                    200,
                    json!({"data": {"enablePullRequestAutoMerge": {"clientMutationId": null}}}),
                )
            }
            _ => (
                200,
                json!({"data": {"enablePullRequestAutoMerge": null}, "errors": [{"message": "Auto merge is not allowed for this repository"}]}),
            ),
        }
    }
}
