//! The contributors of commits: who wrote them, who is named in them, and who pushed them. Author and
//! committer are claims of the commit itself; only GitHub knows who pushed it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{
    client::{Client, PAGE, TokenPermission, User},
    error::GithubError,
    pull_requests::encoded,
};
use konverge_base::model::CommitId;

const CONTENTS: TokenPermission = TokenPermission("contents: read");

/// The maximum number of pages, of a hundred commits each. With more commits the contributors are unknown.
const MOST_PAGES: usize = 10;

/// GitHub's own login, as the committer of its merges.
const GITHUB: &str = "web-flow";

/// A commit and the people it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The commit.
    pub commit: CommitId,
    /// The parents; several parents mean a merge.
    pub parents: Vec<CommitId>,
    /// The logins of its author, committer and co-authors, as far as GitHub knows their addresses.
    pub people: BTreeSet<String>,
}

/// One update of a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BranchUpdate {
    /// The tip before; `None` for a new branch.
    pub before: Option<CommitId>,
    /// The tip after.
    pub after: CommitId,
    /// Who updated it; `None` for a deleted account.
    pub actor: Option<String>,
    /// True if GitHub merged a pull request: the actor pressed the button and contributed no code.
    pub is_merge: bool,
}

#[derive(Deserialize)]
struct Raw {
    sha: String,
    #[serde(default)]
    parents: Vec<Parent>,
    commit: Text,
    author: Option<User>,
    committer: Option<User>,
}

#[derive(Deserialize)]
struct Parent {
    sha: String,
}

#[derive(Deserialize)]
struct Text {
    author: Option<Person>,
    committer: Option<Person>,
    message: String,
}

#[derive(Deserialize)]
struct Person {
    email: Option<String>,
}

impl Client {
    /// The commits in `head` that are not in `base`.
    ///
    /// # Errors
    /// Errors of GitHub; too many commits.
    pub async fn contributions_between(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<Vec<Contribution>, GithubError> {
        #[derive(Deserialize)]
        struct Comparison {
            commits: Vec<Raw>,
        }
        let path = |page| self.path(&format!("/compare/{base}...{head}?per_page={PAGE}&page={page}"));
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = path(page);
            let Comparison { commits } = self.get(&path, CONTENTS).await?;
            let last = commits.len() < PAGE;
            all.extend(commits);
            if last {
                return contributions(&path, all);
            }
        }
        Err(too_many(&path(1)))
    }

    /// The commits up to `head` that changed a folder, the newest first.
    ///
    /// # Errors
    /// Errors of GitHub; too many commits.
    pub async fn contributions_to_folder(
        &self,
        head: &CommitId,
        folder: &str,
    ) -> Result<Vec<Contribution>, GithubError> {
        let path = |page| {
            self.path(&format!(
                "/commits?sha={head}&path={}&per_page={PAGE}&page={page}",
                encoded(folder)
            ))
        };
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = path(page);
            let commits: Vec<Raw> = self.get(&path, CONTENTS).await?;
            let last = commits.len() < PAGE;
            all.extend(commits);
            if last {
                return contributions(&path, all);
            }
        }
        Err(too_many(&path(1)))
    }

    /// The commits of a pull request; GitHub lists 250 of them.
    ///
    /// # Errors
    /// Errors of GitHub; more commits than it lists.
    pub async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>, GithubError> {
        const LISTED: usize = 250;
        let path = self.path(&format!("/pulls/{number}/commits?per_page={PAGE}"));
        let commits: Vec<Raw> = self.list(&path, TokenPermission("pull-requests: read")).await?;
        if commits.len() >= LISTED {
            return Err(too_many(&path));
        }
        contributions(&path, commits)
    }

    /// The latest updates of a branch, the newest first, until `until` says that they are enough.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn movements(
        &self,
        branch: &str,
        until: impl Fn(&[BranchUpdate]) -> bool,
    ) -> Result<Vec<BranchUpdate>, GithubError> {
        #[derive(Deserialize)]
        struct Activity {
            before: String,
            after: String,
            activity_type: String,
            actor: Option<User>,
        }
        let mut next = Some(self.path(&format!(
            "/activity?ref={}&per_page={PAGE}",
            encoded(&format!("refs/heads/{branch}"))
        )));
        let mut movements = Vec::new();
        for _ in 0..MOST_PAGES {
            let Some(path) = next.take() else { break };
            let (page, following): (Vec<Activity>, _) = self.page(&path, CONTENTS).await?;
            movements.extend(page.into_iter().filter_map(|activity| {
                Some(BranchUpdate {
                    before: activity
                        .before
                        .parse()
                        .ok()
                        .filter(|_| !is_zero(&activity.before)),
                    // A deleted branch has no tip.
                    after: activity
                        .after
                        .parse()
                        .ok()
                        .filter(|_| !is_zero(&activity.after))?,
                    actor: activity.actor.map(|user| user.login),
                    is_merge: matches!(activity.activity_type.as_str(), "pr_merge" | "merge_queue_merge"),
                })
            }));
            if until(&movements) {
                break;
            }
            next = following;
        }
        Ok(movements)
    }
}

fn is_zero(sha: &str) -> bool {
    sha.bytes().all(|byte| byte == b'0')
}

fn too_many(path: &str) -> GithubError {
    GithubError::Malformed {
        operation: format!("GET {}", path.split('?').next().unwrap_or_default()),
        cause: "too many commits to read, so their authors are unknown".to_owned(),
    }
}

fn contributions(path: &str, raw: Vec<Raw>) -> Result<Vec<Contribution>, GithubError> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    for commit in &raw {
        for (person, user) in [
            (&commit.commit.author, &commit.author),
            (&commit.commit.committer, &commit.committer),
        ] {
            if let (Some(email), Some(user)) = (person.as_ref().and_then(|p| p.email.as_ref()), user) {
                known.insert(email.to_lowercase(), user.login.clone());
            }
        }
    }
    raw.into_iter()
        .map(|raw| {
            let committer = raw.committer.filter(|user| user.login != GITHUB);
            let named = raw.author.into_iter().chain(committer).map(|user| user.login);
            let co_authors = co_authors(&raw.commit.message);
            let co_authors = co_authors.filter_map(|email| login(&email, &known));
            let id = |sha: &str| {
                sha.parse()
                    .map_err(|error: konverge_base::model::InvalidId| GithubError::Malformed {
                        operation: format!("GET {path}"),
                        cause: error.to_string(),
                    })
            };
            let parents = raw.parents.iter().map(|parent| id(&parent.sha));
            Ok(Contribution {
                people: named.chain(co_authors).collect(),
                parents: parents.collect::<Result<_, _>>()?,
                commit: id(&raw.sha)?,
            })
        })
        .collect()
}

/// The addresses in the lines `Co-authored-by: NAME <ADDRESS>` of a message, in lower case.
fn co_authors(message: &str) -> impl Iterator<Item = String> {
    message.lines().filter_map(|line| {
        let (key, value) = line.trim().split_once(':')?;
        let (_, rest) = value.split_once('<')?;
        let (email, _) = rest.split_once('>')?;
        key.trim()
            .eq_ignore_ascii_case("co-authored-by")
            .then(|| email.trim().to_lowercase())
    })
}

/// The login of an address: what GitHub reports in these commits, or GitHub's own form
/// (`ID+LOGIN@users.noreply…`).
fn login(email: &str, known: &BTreeMap<String, String>) -> Option<String> {
    if let Some(login) = known.get(email) {
        return Some(login.clone()).filter(|login| login != GITHUB);
    }
    let (name, host) = email.split_once('@')?;
    // A GitHub Enterprise Server has its own host: `users.noreply.HOST`.
    host.starts_with("users.noreply.")
        .then(|| name.split_once('+').map_or(name, |(_, login)| login).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn author_committer_and_co_authors_are_known_by_their_logins() {
        let raw: Vec<Raw> = serde_json::from_value(json!([
            {"sha": "a".repeat(40), "parents": [{"sha": "b".repeat(40)}, {"sha": "c".repeat(40)}],
             "commit": {"author": {"email": "Ada@acme.example"}, "committer": {"email": "noreply@github.com"},
                        "message": "One\n\nCo-authored-by: Eve <17+eve@users.noreply.github.com>\nco-Authored-By: B <bob@acme.example>\nCo-authored-by: nobody <x@y.example>"},
             "author": {"login": "ada"}, "committer": {"login": "web-flow"}},
            {"sha": "d".repeat(40),
             "commit": {"author": {"email": "bob@acme.example"}, "committer": {"email": "mallory@acme.example"},
                        "message": "Two <dev@acme.example>\nCo-authored-by: Ada <ada@acme.example>"},
             "author": {"login": "bob"}, "committer": null},
        ]))
        .unwrap();
        let found = contributions("/x", raw).unwrap();
        let people = |at: usize| found[at].people.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(people(0), ["ada", "bob", "eve"]);
        assert_eq!((found[0].parents.len(), found[1].parents.len()), (2, 0));
        assert_eq!(people(1), ["ada", "bob"]);
    }
}
