//! Finds stacks whose identity differs from the recorded one, because other folders got or lost the same names, or
//! because `konverge.yaml` names them. The record moves to the new identity; live objects are not deleted or recreated.

use std::collections::{BTreeMap, HashMap};

use tokio::sync::OnceCell;

use crate::StateBackend;
use konverge_base::{
    error::UserError,
    model::{RepoPath, StackId, stack::Stack},
};
use konverge_repo::konfig::Layout;
use konverge_state::{IndexedStates, Proven};

/// The recorded identities that stacks continue, by the present identity of the stack.
#[derive(Default)]
pub struct Renamed(OnceCell<BTreeMap<StackId, StackId>>);

impl Renamed {
    /// Returns the recorded identity that a stack of a layout continues, if it differs from the present one.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn earlier(
        &self,
        backend: &StateBackend,
        layout: &Layout,
        stack: &StackId,
    ) -> Result<Option<StackId>, UserError> {
        let renamed = self.0.get_or_try_init(|| async {
            renamed_stacks(backend, layout, backend.states.known().await?).await
        });
        Ok(renamed.await?.get(stack).cloned())
    }
}

/// Returns each stack of a layout that continues another recorded identity, with that identity.
///
/// # Errors
/// Errors of the store.
pub async fn renamed_stacks(
    backend: &StateBackend,
    layout: &Layout,
    known: &Proven<IndexedStates>,
) -> Result<BTreeMap<StackId, StackId>, UserError> {
    // An entry without resources and digest comes from a run that has only begun, so the stack is not recorded yet.
    let is_recorded = |id: &StackId| {
        let entry = known.entries.get(id);
        entry.is_some_and(|entry| {
            entry.is_known() && (entry.resources > 0 || entry.settled_digest().is_some())
        })
    };
    let new: HashMap<&RepoPath, &Stack> = layout
        .stacks
        .iter()
        .filter(|stack| !is_recorded(&stack.id))
        .map(|stack| (&stack.folder, stack))
        .collect();
    let mut renamed = BTreeMap::new();
    if new.is_empty() {
        return Ok(renamed);
    }
    let gone = known
        .entries
        .iter()
        .filter(|(id, entry)| entry.is_known() && layout.stack(id).is_none());
    for (id, entry) in gone {
        let Some(stack) = new.get(entry.folder.or_root()) else {
            continue;
        };
        // The index may be behind, so the state decides whether the present identity is recorded.
        let own = backend.states.load(&stack.id).await?;
        if own.is_some_and(|own| !own.state.is_blank()) {
            continue;
        }
        let named_by = match backend.states.load(id).await? {
            // A Spec from a file is recorded without a folder, so no stack of the repository continues it.
            Some(prior) if prior.state.folder.path().is_none() => continue,
            Some(prior) => prior.state.named_by,
            None => continue,
        };
        if stack.continues(id, named_by) {
            renamed.insert(stack.id.clone(), id.clone());
        }
    }
    Ok(renamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{backend, id, record, stack, state};
    use konverge_base::model::stack::NamedBy;

    /// `shop/new` is in the folder that `shop/old` was applied from.
    fn layout(named_by: NamedBy) -> Layout {
        let stack = Stack {
            folder: stack("shop/old").folder,
            named_by,
            ..stack("shop/new")
        };
        Layout {
            stacks: vec![stack],
            ..Layout::default()
        }
    }

    async fn renamed(backend: &StateBackend, layout: &Layout) -> BTreeMap<StackId, StackId> {
        let known = backend.states.known().await.unwrap();
        renamed_stacks(backend, layout, known).await.unwrap()
    }

    /// Else the objects of the old identity would be deleted and made again.
    #[tokio::test]
    async fn a_stack_that_konverge_yaml_names_anew_continues_its_record() {
        let backend = backend();
        record(&backend, state("shop/old", &["web"])).await;
        let found = renamed(&backend, &layout(NamedBy::Config)).await;
        assert_eq!(found, [(id("shop/new"), id("shop/old"))].into());
        let earlier = Renamed::default();
        let layout = layout(NamedBy::Config);
        let of = async |name: &str| earlier.earlier(&backend, &layout, &id(name)).await.unwrap();
        assert_eq!(
            (of("shop/new").await, of("shop/other").await),
            (Some(id("shop/old")), None)
        );
    }

    #[tokio::test]
    async fn another_name_in_the_same_folder_is_another_stack() {
        let backend = backend();
        record(&backend, state("shop/old", &["web"])).await;
        assert!(renamed(&backend, &layout(NamedBy::Names)).await.is_empty());
    }

    #[tokio::test]
    async fn a_recorded_stack_continues_no_other_and_a_spec_of_a_file_is_continued_by_none() {
        let recorded = backend();
        record(&recorded, state("shop/old", &["web"])).await;
        record(&recorded, state("shop/new", &["api"])).await;
        assert!(renamed(&recorded, &layout(NamedBy::Config)).await.is_empty());
        let of_file = backend();
        let mut state = state("shop/old", &["web"]);
        state.folder = konverge_base::model::StackFolder::none();
        record(&of_file, state).await;
        // The index has no folder for it, as for a stack in the root.
        let mut layout = layout(NamedBy::Config);
        layout.stacks[0].folder = RepoPath::root();
        assert!(renamed(&of_file, &layout).await.is_empty());
    }
}
