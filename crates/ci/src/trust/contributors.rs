//! The contributors to the commits of a plan, whose own approval does not count.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::CommitId;
use konverge_forge::{BranchUpdate, Contribution, Forge, ForgeError, PullRequest};

/// The contributors to some commits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Contributors {
    /// The logins of everyone who wrote, committed or pushed one of the commits, or is named as a co-author.
    pub people: BTreeSet<String>,
    /// A commit for which the forge does not name who pushed it, if there is one.
    pub unknown: Option<CommitId>,
}

impl Contributors {
    /// Returns true if a user contributed.
    pub(crate) fn contains(&self, login: &str) -> bool {
        self.people.iter().any(|known| known.eq_ignore_ascii_case(login))
    }

    /// Finds the contributors to commits that end in `head`. `movements` are the updates of the branch that contains
    /// them.
    pub(crate) fn from_commits(
        head: &CommitId,
        commits: &[Contribution],
        movements: &[BranchUpdate],
    ) -> Self {
        let range: BTreeSet<&CommitId> = commits.iter().map(|commit| &commit.commit).collect();
        let mut to: BTreeMap<&CommitId, Vec<&BranchUpdate>> = BTreeMap::new();
        for movement in movements {
            to.entry(&movement.after).or_default().push(movement);
        }
        // A commit that was also pushed may contain code of its own, so every update to it must be a merge by the
        // button.
        let by_button = |commit: &CommitId| {
            let movements = to.get(commit).map_or(&[][..], Vec::as_slice);
            !movements.is_empty() && movements.iter().all(|movement| movement.is_merge)
        };
        let mut people = BTreeSet::new();
        for commit in commits {
            // GitHub created this merge commit when somebody pressed the merge button, and names that person as its
            // author. A merge commit contributes no code.
            if !(commit.parents.len() > 1 && by_button(&commit.commit)) {
                people.extend(commit.people.iter().cloned());
            }
            let pushes = to.get(&commit.commit).into_iter().flatten();
            let pushes = pushes.filter(|movement| !movement.is_merge);
            people.extend(pushes.filter_map(|movement| movement.actor.clone()));
        }
        Self {
            people,
            unknown: first_unknown(head, &range, &to),
        }
    }

    /// Finds the contributors to a pull request. Without `movements` it is unknown who pushed it. A deleted branch may
    /// have no movements any more, which is no error.
    fn from_pull_request(
        pull: &PullRequest,
        commits: &[Contribution],
        movements: Option<&[BranchUpdate]>,
    ) -> Self {
        let mut found = Self::from_commits(&pull.head, commits, movements.unwrap_or_default());
        found.people.insert(pull.author.clone());
        // A deleted branch has no movements, which is no error. Only a fork or an unsupported forge gives none at all.
        found.unknown = movements.is_none().then(|| pull.head.clone());
        found
    }
}

/// Returns the newest commit of the range that no known update of the branch has as its tip. Follows the updates back
/// from the head.
fn first_unknown(
    head: &CommitId,
    range: &BTreeSet<&CommitId>,
    to: &BTreeMap<&CommitId, Vec<&BranchUpdate>>,
) -> Option<CommitId> {
    let mut seen = BTreeSet::new();
    let mut tips = vec![head];
    while let Some(tip) = tips.pop() {
        if !range.contains(tip) || !seen.insert(tip) {
            continue;
        }
        match to.get(tip) {
            None => return Some(tip.clone()),
            Some(movements) => tips.extend(movements.iter().filter_map(|movement| movement.before.as_ref())),
        }
    }
    None
}

/// Finds the contributors to a pull request: its author, and those of its commits.
pub(crate) async fn of_pull_request(client: &dyn Forge, number: u64) -> Result<Contributors, ForgeError> {
    let pull = client.pull_request(number).await?;
    let commits = client.contributions_to_pull_request(number).await?;
    // It is unknown who pushed to the branch of a fork. A maintainer may push there too, with other names in the
    // commits.
    let movements = if pull.from_fork {
        None
    } else {
        movements(client, &pull.head_branch, &pull.head, &commits).await?
    };
    Ok(Contributors::from_pull_request(
        &pull,
        &commits,
        movements.as_deref(),
    ))
}

/// Returns the updates of a branch that brought these commits; `None` if the forge does not record who updates a
/// branch.
async fn movements(
    client: &dyn Forge,
    branch: &str,
    head: &CommitId,
    commits: &[Contribution],
) -> Result<Option<Vec<BranchUpdate>>, ForgeError> {
    let Ok(activity) = client.branch_activity() else {
        return Ok(None);
    };
    let enough = |movements: &[BranchUpdate]| {
        Contributors::from_commits(head, commits, movements)
            .unknown
            .is_none()
    };
    activity.movements(branch, &enough).await.map(Some)
}

/// The start of the commit range that a plan digest covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RangeStart {
    /// The commit before the range; `None` if the range starts with the first commit of the repository.
    pub commit: Option<CommitId>,
    /// The first commit of the repository, if the range starts with it, because it has no parent to compare with.
    pub root: Option<Contribution>,
}

/// Returns the start of the range: the last applied commit, or else the commit before the first change of the stack's
/// folder.
pub(crate) async fn before(
    client: &dyn Forge,
    since: Option<&CommitId>,
    head: &CommitId,
    folder: &str,
) -> Result<RangeStart, ForgeError> {
    if let Some(since) = since {
        return Ok(RangeStart {
            commit: Some(since.clone()),
            root: None,
        });
    }
    let first = client.contributions_to_folder(head, folder).await?.pop();
    Ok(match first {
        None => RangeStart::default(),
        Some(first) => RangeStart {
            commit: first.parents.first().cloned(),
            root: first.parents.is_empty().then_some(first),
        },
    })
}

/// Finds the contributors to the commits up to `head`.
pub(crate) async fn of_commits(
    client: &dyn Forge,
    branch: &str,
    before: RangeStart,
    head: &CommitId,
) -> Result<Contributors, ForgeError> {
    let since = before
        .commit
        .or(before.root.as_ref().map(|root| root.commit.clone()));
    let mut commits: Vec<_> = before.root.into_iter().collect();
    if let Some(since) = since {
        commits.extend(client.contributions_between(&since, head).await?);
    }
    let movements = movements(client, branch, head, &commits).await?;
    // If the updates are unknown, the head counts as a commit that an unknown user pushed.
    Ok(Contributors::from_commits(
        head,
        &commits,
        movements.as_deref().unwrap_or_default(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: char) -> CommitId {
        name.to_string().repeat(40).parse().unwrap()
    }

    fn commit(name: char, is_merge: bool, people: &[&str]) -> Contribution {
        Contribution {
            commit: id(name),
            parents: if is_merge {
                vec![id('0'), id('1')]
            } else {
                vec![id('0')]
            },
            people: people.iter().map(|login| (*login).to_owned()).collect(),
        }
    }

    fn moved(before: char, after: char, actor: &str, is_merge: bool) -> BranchUpdate {
        BranchUpdate {
            before: Some(id(before)),
            after: id(after),
            actor: Some(actor.to_owned()),
            is_merge,
        }
    }

    fn people(contributors: &Contributors) -> Vec<&str> {
        contributors.people.iter().map(String::as_str).collect()
    }

    #[test]
    fn who_wrote_or_pushed_stands_behind_and_who_pressed_the_button_does_not() {
        // a was applied; b came with a pull request that bob merged as c; mallory pushed d with ada's name in
        // it.
        let commits = [
            commit('b', false, &["ada"]),
            commit('c', true, &["bob"]),
            commit('d', false, &["ada"]),
        ];
        let movements = [moved('c', 'd', "mallory", false), moved('a', 'c', "bob", true)];
        let found = Contributors::from_commits(&id('d'), &commits, &movements);
        assert_eq!((people(&found), &found.unknown), (vec!["ada", "mallory"], &None));
        assert!(found.contains("Mallory") && !found.contains("bob"));
        // The button may squash: that commit has one parent, and its authors wrote it.
        let squashed = [commit('b', false, &["ada"])];
        let found = Contributors::from_commits(&id('b'), &squashed, &[moved('a', 'b', "bob", true)]);
        assert_eq!((people(&found), &found.unknown), (vec!["ada"], &None));
        // A merge commit that somebody created and pushed may contain anything.
        let movements = [moved('a', 'd', "mallory", false)];
        let found = Contributors::from_commits(&id('d'), &commits, &movements);
        assert_eq!(people(&found), ["ada", "bob", "mallory"]);
    }

    #[test]
    fn without_updates_of_its_branch_nobody_is_known_to_have_pushed_a_pull_request() {
        let pull = PullRequest {
            number: 7,
            author: "ada".to_owned(),
            head: id('b'),
            head_branch: "topic".to_owned(),
            base_branch: "main".to_owned(),
            merge_commit: None,
            merged: false,
            open: true,
            from_fork: false,
        };
        let commits = [commit('b', false, &["eve"])];
        let found = Contributors::from_pull_request(&pull, &commits, None);
        assert_eq!(
            (people(&found), &found.unknown),
            (vec!["ada", "eve"], &Some(id('b')))
        );
        // The branch was deleted.
        let found = Contributors::from_pull_request(&pull, &commits, Some(&[]));
        assert_eq!((people(&found), &found.unknown), (vec!["ada", "eve"], &None));
        let pushed = [moved('a', 'b', "mallory", false)];
        let found = Contributors::from_pull_request(&pull, &commits, Some(&pushed));
        assert_eq!(
            (people(&found), &found.unknown),
            (vec!["ada", "eve", "mallory"], &None)
        );
    }

    #[test]
    fn a_push_that_nobody_told_of_is_named() {
        let commits = [commit('b', false, &[]), commit('c', false, &[])];
        let last = [moved('b', 'c', "ada", false)];
        assert_eq!(
            Contributors::from_commits(&id('c'), &commits, &last).unknown,
            Some(id('b'))
        );
        assert_eq!(
            Contributors::from_commits(&id('c'), &commits, &[]).unknown,
            Some(id('c'))
        );
        let all = [moved('b', 'c', "ada", false), moved('a', 'b', "bob", false)];
        assert_eq!(Contributors::from_commits(&id('c'), &commits, &all).unknown, None);
        // Nothing came since: the plan contains only drift.
        assert_eq!(
            Contributors::from_commits(&id('a'), &[], &[]),
            Contributors::default()
        );
    }
}
