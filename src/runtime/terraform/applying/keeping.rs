//! Keeps the book while Terraform works.
//!
//! Terraform writes its state (a file in memory) after each resource. It is read several times a second and written
//! through to the stack's state, so that whatever ends this run, what was reported complete is remembered. OpenTofu
//! writes its state every 20 seconds at the earliest (`TF_STATE_PERSIST_INTERVAL` can not be less), and after each
//! resource once it is interrupted: until then the ids that it reports are remembered, and the next run imports them.

use std::time::{Duration, Instant};

use super::Application;
use crate::{
    error::Failure,
    model::plan::Action,
    runtime::terraform::{
        book::Book,
        error::TerraformError,
        holding::{self, Holding},
        memory::Stamp,
    },
};

/// The least time between two writes of the book. With the tick and the write itself it must stay below two seconds.
const BETWEEN_WRITES: Duration = Duration::from_millis(500);
/// Terraform writes its state right after it reported a resource complete; after this long it has.
const WRITTEN_AFTER: Duration = Duration::from_millis(400);

/// What was written last.
pub(super) struct Kept {
    written: Instant,
    /// Of the state that the book was brought up to.
    stamp: Option<Stamp>,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self {
            written: Instant::now(),
            stamp: None,
        }
    }
}

impl Application<'_> {
    /// Writes the book if it is time, and ends what is complete.
    pub(super) async fn look(&mut self) {
        if self.lost.is_some() || self.kept.written.elapsed() < BETWEEN_WRITES {
            return;
        }
        let (before, written) = (Instant::now(), self.kept.stamp);
        if let Err(failure) = self.write().await {
            self.lost = Some(failure);
            return;
        }
        self.kept.written = Instant::now();
        // OpenTofu writes when it likes: only a write that came after the report has it in.
        let each_time = self.writes_each_time || self.kept.stamp != written;
        let complete = |index: usize| {
            let complete = self.progress.complete(index);
            each_time && complete.is_some_and(|since| before.duration_since(since) > WRITTEN_AFTER)
        };
        let complete: Vec<_> = (0..self.prepared.ready.len()).filter(|&i| complete(i)).collect();
        for index in complete {
            let state = self.held(index).await;
            let ready = &self.prepared.ready[index];
            let visible = (ready.action == Action::Delete) == state.is_none();
            if visible && !self.ended.contains(&index) {
                let applied = self.applied(index, state.as_ref());
                if let Err(failure) = self.end(index, Ok(applied)).await {
                    self.lost = Some(failure);
                    return;
                }
            }
        }
    }

    /// Brings the book up to what Terraform's state says now.
    pub(super) async fn write(&mut self) -> Result<(), Failure> {
        let files = |error: std::io::Error| TerraformError::Files(error.to_string());
        let stamp = self.prepared.workspace.state.stamp().map_err(files)?;
        let mut entries = None;
        if self.kept.stamp != Some(stamp) {
            let text = self.prepared.workspace.state.read().map_err(files)?;
            entries = holding::read_document(&text);
            if entries.is_some() {
                self.kept.stamp = Some(stamp);
            }
        }
        let ready = &self.prepared.ready;
        let progress = &self.progress;
        let change = |book: &mut Book| {
            for (index, subject) in ready.iter().map(|ready| &ready.subject).enumerate() {
                let id = subject.id();
                match entries.as_ref().map(|entries| entries.get(&subject.address)) {
                    Some(Some(entry)) => {
                        book.resources.insert(id.clone(), subject.holding_of(entry));
                    }
                    Some(None) => {
                        book.resources.remove(id);
                    }
                    None => {}
                }
                // What an earlier run left in flight stays so until something is known of it.
                if progress.begun(index) || book.resources.contains_key(id) {
                    book.in_flight.remove(id);
                }
            }
            let in_flight = progress.in_flight(ready, |id| book.resources.get(id));
            book.in_flight.extend(in_flight);
            for (index, ready) in ready.iter().enumerate() {
                let id = ready.subject.id();
                if progress.complete(index).is_some() && !book.in_flight.contains_key(id) {
                    book.begun.remove(id);
                }
            }
        };
        let stack = &self.scope.stack;
        self.runtime
            .books
            .change(self.runtime, stack, self.sink, change)
            .await
    }

    pub(super) async fn held(&self, index: usize) -> Option<Holding> {
        let id = self.prepared.ready[index].subject.id();
        self.runtime.books.held(&self.scope.stack, id).await
    }
}
