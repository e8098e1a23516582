//! Updates the state document while Terraform works.
//!
//! Terraform writes its state (a file in memory) after each resource. The file is read several times a second
//! and stored in the state of the stack, so that completed resources are recorded even if this run is killed.
//! OpenTofu writes its state at most every 20 seconds (the minimum of `TF_STATE_PERSIST_INTERVAL`), and after
//! each resource once it is interrupted. Until it does, the reported ids are recorded, and the next run
//! imports these objects. When Terraform has ended, its last state is stored, even if the store failed
//! before.

use std::time::{Duration, Instant};

use super::plan_execution::Application;
use crate::{
    error::{TerraformError, of_file},
    resource_state::{self, ResourceState},
    state_document::TerraformState,
};
use konverge_base::{
    error::UserError,
    model::plan::Action,
    retry::{RetryDecision, RetryPolicy},
};
use konverge_engine::runtime::RecordFailure;

/// The minimum time between two writes of the document. Together with the tick and the write itself, results
/// must be stored within two seconds.
const BETWEEN_WRITES: Duration = Duration::from_millis(500);
/// Terraform writes its state right after it reported a resource complete; after this time it has done so.
const WRITTEN_AFTER: Duration = Duration::from_millis(400);

/// The retry policy of the last write, on top of the store's own retries.
const LAST_WRITE: RetryPolicy = RetryPolicy {
    attempts: 20,
    first: Duration::from_millis(500),
    longest: Duration::from_secs(5),
    total: Duration::from_secs(60),
};

impl Application<'_> {
    /// Stores the document if it is time, and reports completed resources.
    pub(super) async fn sync(&mut self) {
        if self.lost.is_some() || self.written.elapsed() < BETWEEN_WRITES {
            return;
        }
        // Taken before the state is read: only a resource that was complete by then is certain to be in it.
        let (before, written) = (Instant::now(), self.stamp);
        if let Err(failure) = self.write().await {
            self.lost = Some(failure);
            return;
        }
        self.written = Instant::now();
        // OpenTofu does not write after each resource: only a write that follows the report contains the
        // resource.
        let each_time = self.writes_each_time || self.stamp != written;
        let complete = |index: usize| {
            let complete = self.progress.standings[index].complete;
            each_time && complete.is_some_and(|since| before.duration_since(since) > WRITTEN_AFTER)
        };
        let complete: Vec<_> = (0..self.prepared.ready.len()).filter(|&i| complete(i)).collect();
        for index in complete {
            let state = self.resource_state(index).await;
            let ready = &self.prepared.ready[index];
            // The state must show the result: an entry after a creation or update, none after a deletion.
            let visible = (ready.action == Action::Delete) == state.is_none();
            if visible && !self.ended.contains(&index) {
                let applied = self.applied(index, state.as_ref());
                self.end(index, Ok(applied)).await;
            }
        }
    }

    /// Updates the document from Terraform's current state, and stores it.
    async fn write(&mut self) -> Result<(), UserError> {
        self.bring_up().await?;
        let stack = &self.scope.stack;
        let books = &self.runtime.books;
        Ok(books.store(self.runtime.key(), stack, self.sink).await?)
    }

    /// Stores Terraform's last state after it exited. If the store is not available, this is retried for
    /// about as long as the lease is valid.
    pub(super) async fn write_last(&mut self) -> Result<(), UserError> {
        self.bring_up().await?;
        let (runtime, stack) = (self.runtime, &self.scope.stack);
        let earlier = std::mem::take(&mut self.earlier);
        // An object that this run did not create may still exist from an earlier run, so its earlier record
        // is restored.
        let not_made = |book: &mut TerraformState| {
            for (ready, standing) in self.prepared.ready.iter().zip(&self.progress.standings) {
                let id = ready.subject.id();
                let is_known = book.resources.contains_key(id) || book.in_flight.contains_key(id);
                let failed = standing.complete.is_none() && !is_known;
                if ready.makes() && (failed || !standing.was_started()) {
                    match earlier.get(id) {
                        Some(flight) => book.in_flight.insert(id.clone(), flight.clone()),
                        None => book.in_flight.remove(id),
                    };
                }
            }
        };
        runtime.books.change(stack, not_made).await;
        let again = |failure: &RecordFailure| {
            if failure.may_retry {
                RetryDecision::Retry
            } else {
                RetryDecision::GiveUp
            }
        };
        let store = || runtime.books.store(runtime.key(), stack, self.sink);
        Ok(LAST_WRITE.run(again, store).await?)
    }

    /// Updates the document from Terraform's current state.
    async fn bring_up(&mut self) -> Result<(), TerraformError> {
        let stamp = self.prepared.workspace.state.stamp().map_err(of_file)?;
        let mut entries = None;
        if self.stamp != Some(stamp) {
            let text = self.prepared.workspace.state.read().map_err(of_file)?;
            // Terraform may be writing: an incomplete text is ignored, and the file is read again at the next
            // tick.
            entries = resource_state::read_document(&text);
            if entries.is_some() {
                self.stamp = Some(stamp);
            }
        }
        let ready = &self.prepared.ready;
        let progress = &self.progress;
        let change = |book: &mut TerraformState| {
            for (ready, standing) in ready.iter().zip(&progress.standings) {
                let (subject, id) = (&ready.subject, ready.subject.id());
                match entries.as_ref().map(|entries| entries.get(&subject.address)) {
                    Some(Some(entry)) => {
                        book.resources.insert(id.clone(), subject.holding_of(entry));
                    }
                    Some(None) => {
                        book.resources.remove(id);
                    }
                    None => {}
                }
                // An operation that was in flight before this run stays so until its outcome is known.
                let known = book.resources.contains_key(id) && !ready.makes();
                if standing.was_started() || known {
                    book.in_flight.remove(id);
                }
            }
            let in_flight = progress.in_flight(ready, |id| book.resources.get(id));
            book.in_flight.extend(in_flight);
            for (ready, standing) in ready.iter().zip(&progress.standings) {
                let id = ready.subject.id();
                if standing.complete.is_some() && !book.in_flight.contains_key(id) {
                    book.begun.remove(id);
                }
            }
        };
        self.runtime.books.change(&self.scope.stack, change).await;
        Ok(())
    }

    pub(super) async fn resource_state(&self, index: usize) -> Option<ResourceState> {
        let id = self.prepared.ready[index].subject.id();
        self.runtime.books.resource_state(&self.scope.stack, id).await
    }
}
