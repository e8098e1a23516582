//! The Terraform states of stacks during their apply. A state is opened once, changed by each batch with new
//! results, and stored through the sink.

use std::collections::HashMap;

use crate::{
    StateEncryption,
    error::TerraformError,
    resource_state::ResourceState,
    state_document::{self, TerraformState},
};
use konverge_base::{
    error::UserError,
    model::{ResourceId, StackId},
};
use konverge_engine::runtime::{ApplySink, RecordFailure, StackScope};

/// The open states by stack. Several batches of a stack may be applied concurrently, and write the same
/// state.
#[derive(Default)]
pub(super) struct OpenStates(tokio::sync::Mutex<HashMap<StackId, Open>>);

struct Open {
    /// The number of running batches.
    users: usize,
    book: TerraformState,
    /// True if the store has the current content.
    stored: bool,
}

impl OpenStates {
    pub(super) async fn enter(
        &self,
        key: Option<&dyn StateEncryption>,
        scope: &StackScope,
    ) -> Result<(), TerraformError> {
        let mut all = self.0.lock().await;
        if let Some(open) = all.get_mut(&scope.stack) {
            open.users += 1;
            return Ok(());
        }
        let open = Open {
            users: 1,
            book: TerraformState::open(&scope.data, key)?,
            stored: true,
        };
        all.insert(scope.stack.clone(), open);
        Ok(())
    }

    pub(super) async fn leave(&self, stack: &StackId) {
        let mut all = self.0.lock().await;
        if let Some(open) = all.get_mut(stack) {
            open.users -= 1;
            if open.users == 0 {
                all.remove(stack);
            }
        }
    }

    /// Changes the state of a stack in memory, without storing it.
    pub(super) async fn change(&self, stack: &StackId, change: impl FnOnce(&mut TerraformState)) {
        let mut all = self.0.lock().await;
        if let Some(open) = all.get_mut(stack) {
            let before = open.book.clone();
            change(&mut open.book);
            open.stored &= open.book == before;
        }
    }

    /// Stores the state of a stack, unless the store already has it. A failed call can be repeated.
    pub(super) async fn store(
        &self,
        key: Option<&dyn StateEncryption>,
        stack: &StackId,
        sink: &dyn ApplySink,
    ) -> Result<(), RecordFailure> {
        let mut all = self.0.lock().await;
        let Some(open) = all.get_mut(stack).filter(|open| !open.stored) else {
            return Ok(());
        };
        // The lock is held during the write, so that no other batch stores an older document after this one.
        let sealed = open.book.seal(key).map_err(UserError::from)?;
        sink.runtime_data(state_document::STATE, sealed).await?;
        open.stored = true;
        Ok(())
    }

    /// Returns the recorded state of a resource.
    pub(super) async fn resource_state(&self, stack: &StackId, id: &ResourceId) -> Option<ResourceState> {
        let books = self.0.lock().await;
        books.get(stack)?.book.resources.get(id).cloned()
    }
}
