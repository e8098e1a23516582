//! The contributors of commits. A commit only claims its author and committer; GitHub alone knows who pushed it.

use async_trait::async_trait;
use serde::Deserialize;

use super::client::{Client, PAGE};
use konverge_forge::{BranchActivity, BranchUpdate, ForgeKind, Result};
use konverge_rest::{CommitNames, TokenPermission, User, encoded};

const CONTENTS: TokenPermission = TokenPermission("contents: read");

/// The maximum number of pages with 100 commits each. If there are more, the contributors are unknown.
pub(super) const MOST_PAGES: usize = 10;

/// The names of people in commits at GitHub. The committer of its merges is `web-flow`. A private address is
/// `ID+LOGIN@users.noreply…`, also with the host of a GitHub Enterprise Server.
pub(super) const NAMES: CommitNames = CommitNames {
    forge: ForgeKind::Github,
    itself: Some("web-flow"),
    private_address: login_of_address,
};

#[async_trait]
impl BranchActivity for Client {
    async fn movements(
        &self,
        branch: &str,
        until: &(dyn for<'a> Fn(&'a [BranchUpdate]) -> bool + Send + Sync),
    ) -> Result<Vec<BranchUpdate>> {
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
            let (page, following): (Vec<Activity>, _) = self.rest.page(&path, CONTENTS).await?;
            movements.extend(page.into_iter().filter_map(|activity| {
                Some(BranchUpdate {
                    before: activity
                        .before
                        .parse()
                        .ok()
                        .filter(|_| !is_zero(&activity.before)),
                    // The deletion of a branch leaves no tip.
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

fn login_of_address(address: &str) -> Option<&str> {
    let (name, host) = address.split_once('@')?;
    host.starts_with("users.noreply.")
        .then(|| name.split_once('+').map_or(name, |(_, login)| login))
}

#[cfg(test)]
mod tests {
    use konverge_rest::ListedCommit;
    use serde_json::json;

    use super::*;

    #[test]
    fn author_committer_and_co_authors_are_known_by_their_logins() {
        let raw: Vec<ListedCommit> = serde_json::from_value(json!([
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
        let found = NAMES.read("/x", raw).unwrap();
        let people = |at: usize| found[at].people.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(people(0), ["ada", "bob", "eve"]);
        assert_eq!((found[0].parents.len(), found[1].parents.len()), (2, 0));
        assert_eq!(people(1), ["ada", "bob"]);
    }

    /// A commit claims its addresses, so that only an address of GitHub's own names an account.
    #[test]
    fn only_a_private_address_names_a_login() {
        for (address, login) in [
            ("17+eve@users.noreply.github.com", Some("eve")),
            ("eve@users.noreply.github.com", Some("eve")),
            ("17+eve@users.noreply.ghes.example", Some("eve")),
            ("eve@users.noreply", None),
            ("eve@example.com", None),
            ("17+eve@noreply.github.com", None),
            ("eve", None),
            ("users.noreply.github.com", None),
        ] {
            assert_eq!(login_of_address(address), login, "{address}");
        }
    }

    #[test]
    fn only_zeros_stand_for_no_commit() {
        assert!(is_zero(&"0".repeat(40)));
        assert!(!is_zero(&format!("{}1", "0".repeat(39))));
    }
}
