//! Shell completions: names of stacks, clusters, revisions and contexts. Errors are silent: then nothing is suggested.

use std::{collections::BTreeMap, time::Duration};

use super::{
    init,
    selected_stacks::{self, SelectedStacks},
};
use konverge_base::model::RepoPath;
use konverge_repo::git::Repository;
use konverge_run::{KeyUse, OpenRequest, RunContext, Selection, state};

/// The time limit for a completion, because a person is waiting. A store that takes longer gives no suggestions.
const PATIENCE: Duration = Duration::from_secs(2);

/// One word that the shell offers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Suggestion {
    /// The word that the shell offers.
    pub word: String,
    /// An explanation of the word, for a shell that can show it.
    pub help: String,
}

impl Suggestion {
    /// Creates a suggestion; `None` for a name with anything but plain characters. Names come from files and branches
    /// of other people, and a shell puts the word on its command line unescaped.
    fn new(word: impl Into<String>, help: impl Into<String>) -> Option<Self> {
        let word = word.into();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/@+-".contains(c);
        let is_safe = !word.is_empty() && !word.starts_with('-') && word.chars().all(is_plain);
        let help: String = help.into().chars().filter(|c| !c.is_control()).collect();
        is_safe.then_some(Self { word, help })
    }
}

/// Suggests the stacks of the working tree: identities, or folders if no identity begins with the typed text.
pub async fn stacks(run: &RunContext, typed: &str) -> Vec<Suggestion> {
    offer_stacks(stacks_of_worktree(run).await, typed)
}

/// Suggests the stacks of the working tree, and those that only the states know.
pub async fn recorded_stacks(run: &RunContext, typed: &str) -> Vec<Suggestion> {
    let mut known = stacks_of_worktree(run).await;
    let recorded = async {
        let (backend, _) = state::open(run, KeyUse::Look).await.ok()?;
        state::list(&backend).await.ok()
    };
    if let Ok(Some(rows)) = tokio::time::timeout(PATIENCE, recorded).await {
        for row in rows {
            known
                .entry(row.stack.to_string())
                .or_insert_with(|| row.entry.folder.or_root().clone());
        }
    }
    offer_stacks(known, typed)
}

async fn worktree(run: &RunContext) -> Option<SelectedStacks> {
    let request = OpenRequest {
        selection: Selection::All,
        ..OpenRequest::default()
    };
    selected_stacks::open(run, &request).await.ok()
}

async fn stacks_of_worktree(run: &RunContext) -> BTreeMap<String, RepoPath> {
    let stacks = worktree(run).await.map(|selected| selected.stacks);
    let stacks = stacks.unwrap_or_default().into_iter();
    stacks.map(|stack| (stack.id.to_string(), stack.folder)).collect()
}

fn offer_stacks(stacks: BTreeMap<String, RepoPath>, typed: &str) -> Vec<Suggestion> {
    let by_identity = stacks
        .iter()
        .filter_map(|(id, folder)| Suggestion::new(id.clone(), folder.as_str()));
    let found = beginning(by_identity, typed);
    if !found.is_empty() {
        return found;
    }
    let by_folder = stacks
        .iter()
        .filter_map(|(id, folder)| Suggestion::new(folder.as_str(), id.clone()));
    beginning(by_folder, typed)
}

/// Suggests the clusters of `konverge.yaml` in the working tree.
pub async fn clusters(run: &RunContext, typed: &str) -> Vec<Suggestion> {
    let selected = worktree(run).await;
    let clusters = selected
        .iter()
        .flat_map(|selected| selected.workspace.config.clusters.keys());
    beginning(
        clusters.filter_map(|name| Suggestion::new(name.as_str(), "cluster")),
        typed,
    )
}

/// Suggests branches and tags.
pub fn revisions(run: &RunContext, typed: &str) -> Vec<Suggestion> {
    let names = Repository::discover(&run.dir).and_then(|repository| repository.branches_and_tags());
    let names = names.unwrap_or_default().into_iter();
    beginning(names.filter_map(|name| Suggestion::new(name, "")), typed)
}

/// Suggests the contexts of the kubeconfig that kubectl would use.
pub fn contexts(run: &RunContext, typed: &str) -> Vec<Suggestion> {
    let names = init::kubeconfig_contexts(run).into_iter();
    beginning(names.filter_map(|name| Suggestion::new(name, "")), typed)
}

/// Suggests the versions of the KCL core that can be installed.
pub fn cores(typed: &str) -> Vec<Suggestion> {
    let versions = konverge_kcl::versions().into_iter();
    beginning(versions.filter_map(|version| Suggestion::new(version, "")), typed)
}

fn beginning(all: impl Iterator<Item = Suggestion>, typed: &str) -> Vec<Suggestion> {
    all.filter(|suggestion| suggestion.word.starts_with(typed))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_offered() {
        for plain in ["storefront/dev", "feature/x_1", "v0.12.2", "a@b"] {
            assert!(Suggestion::new(plain, "").is_some(), "{plain}");
        }
        for hostile in ["", "$(touch x)", "a;b", "a b", "`id`", "--yes", "a\u{1b}[0m", "*"] {
            assert!(Suggestion::new(hostile, "").is_none(), "{hostile}");
        }
    }

    #[test]
    fn a_folder_is_offered_where_no_identity_begins_so() {
        let stacks: BTreeMap<String, RepoPath> = ["dev", "prod"]
            .map(|name| {
                let folder = RepoPath::normalize(&format!("appops/shop/{name}")).expect("a plain path");
                (format!("shop/{name}"), folder)
            })
            .into();
        let words = |typed: &str| -> Vec<String> {
            let offered = offer_stacks(stacks.clone(), typed).into_iter();
            offered.map(|suggestion| suggestion.word).collect()
        };
        assert_eq!(words("sh"), ["shop/dev", "shop/prod"]);
        assert_eq!(words("appops/shop/p"), ["appops/shop/prod"]);
        assert!(words("x").is_empty());
    }
}
