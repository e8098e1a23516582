//! Finds the stacks that the command line names, at the head or only in the states.

use std::{collections::BTreeMap, path::Path};

use crate::{ComparedRevisions, RunContext, StackSelector, StateBackend, Target, renamed_stacks};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{StackFolder, StackId, state::StackState},
};
use konverge_state::{IndexEntry, IndexedStates, Proven};

/// The sources in which named stacks are looked up.
pub(crate) struct NamedStacks<'a> {
    /// The run that needs the stacks.
    pub run: &'a RunContext,
    /// The repository's root.
    pub root: &'a Path,
    /// The head has the stacks.
    pub revisions: &'a ComparedRevisions,
    /// The states; `None` to look only at the files.
    pub backend: Option<&'a StateBackend>,
    /// True if a project name or a glob also selects stacks that only the state has. A full identity always does.
    pub recorded: bool,
}

impl NamedStacks<'_> {
    /// Returns the selected stacks, sorted by folder. Stacks that are missing at the head are planned for destruction.
    ///
    /// # Errors
    /// A selector matches no stack; errors of the store.
    pub(crate) async fn find(&self, selectors: &[StackSelector]) -> Result<Vec<Target>, UserError> {
        let wants_recorded = self.recorded && selectors.iter().any(|selector| !self.is_at_head(selector));
        let gone = match self.backend.filter(|_| wants_recorded) {
            Some(backend) => self.recorded_alone(backend).await?,
            None => Vec::new(),
        };
        let mut targets = BTreeMap::new();
        for selector in selectors {
            // The key below has the identity, too: stacks of the states may share a folder, and a Spec from a file has
            // none.
            let found = self.find_one(selector, &gone).await?;
            targets.extend(
                found
                    .into_iter()
                    .map(|target| ((target.folder().clone(), target.id.clone()), target)),
            );
        }
        Ok(targets.into_values().collect())
    }

    async fn find_one(
        &self,
        selector: &StackSelector,
        gone: &[(StackId, StackFolder)],
    ) -> Result<Vec<Target>, UserError> {
        let gone = gone
            .iter()
            .filter(|(id, folder)| selector.matches_recorded(id, folder.or_root()));
        let mut found: Vec<_> = gone
            .map(|(id, folder)| Target::forgotten(id.clone(), folder.clone()))
            .collect();
        let head = &self.revisions.head;
        let unknown = match head.find_stacks(self.run, self.root, std::slice::from_ref(selector)) {
            Ok(stacks) => {
                found.extend(stacks.iter().map(|stack| self.revisions.target(stack)));
                return Ok(found);
            }
            Err(unknown) => unknown,
        };
        if found.is_empty() {
            let (Some(id), Some(backend)) = (selector.identity(), self.backend) else {
                return Err(unknown);
            };
            let prior = backend.states.load(&id).await?.ok_or(unknown)?;
            found.push(Target::forgotten(id, prior.state.folder));
        }
        Ok(found)
    }

    /// Returns true if a selector is the identity of a stack at the head. Then it selects no other stack.
    fn is_at_head(&self, selector: &StackSelector) -> bool {
        let id = selector.identity();
        id.is_some_and(|id| self.revisions.head.layout.stack(&id).is_some())
    }

    /// Returns the stacks that only the states have, each with the folder that it was applied from.
    async fn recorded_alone(&self, backend: &StateBackend) -> Result<Vec<(StackId, StackFolder)>, UserError> {
        let layout = &self.revisions.head.layout;
        let known = backend.states.known().await?;
        let renamed = renamed_stacks::renamed_stacks(backend, layout, known).await?;
        let is_gone =
            |id: &StackId| layout.stack(id).is_none() && !renamed.values().any(|earlier| earlier == id);
        let entries = known.entries.iter();
        let gone = entries.filter(|(id, entry)| entry.is_known() && is_gone(id));
        Ok(gone
            .map(|(id, entry)| (id.clone(), entry.folder.clone()))
            .collect())
    }
}

/// Reads the state of a stack. `None` also if the state cannot be read: planning the stack reports that error.
pub async fn recorded_state(backend: &StateBackend, id: &StackId) -> Option<StackState> {
    let prior = backend.states.load(id).await.ok().flatten();
    prior.map(|prior| prior.state)
}

/// Returns the target of a stack that only the states have. Its folder comes from its state, because the rules for the
/// stack depend on the folder.
pub fn forgotten(id: &StackId, entry: &IndexEntry, prior: Option<&StackState>) -> Target {
    let folder = prior.map_or(&entry.folder, |prior| &prior.folder);
    Target::forgotten(id.clone(), folder.clone())
}

/// Returns the stacks that a selector matches outside of a monorepo, where only the states have stacks.
///
/// # Errors
/// The selector matches no stack; errors of the store.
pub(crate) async fn recorded(
    backend: &StateBackend,
    known: &Proven<IndexedStates>,
    selector: &StackSelector,
) -> Result<Vec<Target>, UserError> {
    if let Some(id) = selector.identity()
        && let Some(prior) = backend.states.load(&id).await?
    {
        return Ok(vec![Target::forgotten(id, prior.state.folder)]);
    }
    let entries = known.entries.iter().filter(|(_, entry)| entry.is_known());
    let found: Vec<_> = entries
        .filter(|(id, entry)| selector.matches_recorded(id, entry.folder.or_root()))
        .map(|(id, entry)| Target::forgotten(id.clone(), entry.folder.clone()))
        .collect();
    if found.is_empty() {
        Err(UserError::new(
            ErrorKind::Usage,
            format!(
                "no state is recorded for a stack `{}`",
                selector.as_str().escape_debug()
            ),
        )
        .hint("run `konverge state list` to see the stacks that were applied"))
    } else {
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{backend, id, record, state};

    #[tokio::test]
    async fn outside_of_a_repository_the_states_have_the_stacks() {
        let backend = backend();
        record(&backend, state("shop/dev", &["web"])).await;
        record(&backend, state("shop/prod", &["web"])).await;
        record(&backend, state("pay/prod", &["web"])).await;
        let known = backend.states.known().await.unwrap();
        let find = async |text: &str| {
            let selector: StackSelector = text.parse().unwrap();
            let found = recorded(&backend, known, &selector).await?;
            Ok::<_, UserError>(
                found
                    .into_iter()
                    .map(|target| target.id.to_string())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(find("shop/prod").await.unwrap(), ["shop/prod"]);
        assert_eq!(find("shop").await.unwrap(), ["shop/dev", "shop/prod"]);
        let unknown = find("shop/none\u{1b}").await.unwrap_err();
        assert_eq!(unknown.kind, ErrorKind::Usage);
        assert!(!unknown.message.contains('\u{1b}'), "{unknown}");
    }

    /// The rules for a stack depend on its folder, and the index may be older than the state.
    #[tokio::test]
    async fn a_stack_that_only_the_state_has_is_in_the_folder_of_its_state() {
        let backend = backend();
        record(&backend, state("shop/prod", &["web"])).await;
        let entry = &backend.states.known().await.unwrap().entries[&id("shop/prod")];
        let of_index = forgotten(&id("shop/prod"), entry, None);
        assert_eq!(of_index.folder().as_str(), "appops/shop/prod");
        let newer = state("shop/moved", &[]);
        assert_eq!(
            forgotten(&id("shop/prod"), entry, Some(&newer)).folder().as_str(),
            "appops/shop/moved"
        );
        assert!(recorded_state(&backend, &id("shop/none")).await.is_none());
    }
}
