//! [`StackReading`]: what is stored of one stack, from one listing. For who shows it; a run that writes takes the lease.

use super::{
    Holder, StateError, StateStore, Versioned,
    keys::{self, RowKeys},
    state_store::{STALE_LISTINGS, versioned},
};
use konverge_base::model::StackId;

/// What is stored of a stack.
pub struct StackReading {
    /// The kept serials, the newest first.
    pub serials: Vec<u64>,
    /// The newest serial as it was written, without any journal. `None` if it cannot be read, or nothing was written.
    pub document: Option<Versioned>,
    /// The newest state with its journal merged in, as [`StateStore::load`] returns it.
    pub newest: Result<Option<Versioned>, StateError>,
    /// The holder of the lease.
    pub holder: Result<Option<Holder>, StateError>,
}

impl StateStore {
    /// Reads a stack: one LIST and one GET, and one more GET for each journal entry and each lease that a run left behind.
    ///
    /// # Errors
    /// The listing fails.
    pub async fn inspect(&self, stack: &StackId) -> Result<StackReading, StateError> {
        let mut serials = Vec::new();
        for _ in 0..STALE_LISTINGS {
            let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
            serials = rows.states.iter().rev().copied().collect();
            let reading = match self.read_rows(stack, rows).await {
                // The clean-up of another run made the listing outdated.
                Ok(None) => continue,
                Ok(Some(reading)) => reading,
                Err(error) => return Ok(self.unreadable(stack, serials, error).await),
            };
            let holder = self.holder_of(stack, &reading).await;
            let document = reading.document.as_ref();
            return Ok(StackReading {
                serials,
                document: document.map(|(header, document)| versioned(header.clone(), document.clone())),
                newest: self
                    .require_document(stack, reading)
                    .await
                    .map(|reading| reading.merge(stack)),
                holder,
            });
        }
        let changing = StateError::Missing(format!(
            "the documents of stack `{stack}` changed while they were read, {STALE_LISTINGS} times; try again"
        ));
        Ok(self.unreadable(stack, serials, changing).await)
    }

    async fn unreadable(&self, stack: &StackId, serials: Vec<u64>, error: StateError) -> StackReading {
        StackReading {
            serials,
            document: None,
            newest: Err(error),
            holder: self.holder(stack).await,
        }
    }
}
