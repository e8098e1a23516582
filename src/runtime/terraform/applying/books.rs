//! The books of stacks under way: opened once, changed by whichever segment has news, written through at once.

use std::collections::HashMap;

use crate::{
    error::Failure,
    model::{ResourceId, StackId},
    runtime::{
        ApplySink, Scope,
        terraform::{
            Terraform,
            book::{self, Book},
            error::TerraformError,
            holding::Holding,
        },
    },
};

/// Each with the number of its users: several segments of a stack may be applied at once.
#[derive(Default)]
pub(in crate::runtime::terraform) struct Books(tokio::sync::Mutex<HashMap<StackId, (usize, Book)>>);

impl Books {
    pub(super) async fn enter(&self, runtime: &Terraform, scope: &Scope) -> Result<(), TerraformError> {
        let mut all = self.0.lock().await;
        if let Some((users, _)) = all.get_mut(&scope.stack) {
            *users += 1;
            return Ok(());
        }
        let book = Book::open(&scope.data, runtime.options.key.as_deref())?;
        all.insert(scope.stack.clone(), (1, book));
        Ok(())
    }

    pub(super) async fn leave(&self, stack: &StackId) {
        let mut all = self.0.lock().await;
        if let Some((users, _)) = all.get_mut(stack) {
            *users -= 1;
            if *users == 0 {
                all.remove(stack);
            }
        }
    }

    /// Changes a stack's book, and writes it through if it is another one then.
    pub(super) async fn change(
        &self,
        runtime: &Terraform,
        stack: &StackId,
        sink: &dyn ApplySink,
        change: impl FnOnce(&mut Book),
    ) -> Result<(), Failure> {
        let mut all = self.0.lock().await;
        let Some((_, book)) = all.get_mut(stack) else {
            return Ok(());
        };
        let before = book.clone();
        change(book);
        if *book == before {
            return Ok(());
        }
        let sealed = book.sealed(runtime.options.key.as_deref())?;
        sink.runtime_data(book::STATE, sealed).await
    }

    /// What a stack's book holds of a resource.
    pub(super) async fn held(&self, stack: &StackId, id: &ResourceId) -> Option<Holding> {
        let books = self.0.lock().await;
        let (_, book) = books.get(stack)?;
        book.resources.get(id).cloned()
    }
}
