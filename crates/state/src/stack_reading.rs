//! [`StackReading`]: the documents of one stack from one listing, for display. A run that writes must take
//! the lease instead.

use super::{
    Holder, StateError, StateStore, Versioned,
    keys::{self, RowKeys},
    state_store::versioned,
};
use konverge_base::model::StackId;

/// The stored serials and documents of a stack.
pub struct StackReading {
    /// The kept serials, the newest first.
    pub serials: Vec<u64>,
    /// The documents. An error if the newest one or its journal cannot be read, because then the lease is
    /// unknown as well.
    pub documents: Result<StackDocuments, StateError>,
}

/// The documents of a stack, for display.
pub struct StackDocuments {
    /// The newest serial as it was written, without the journal. `None` if nothing was written.
    pub written: Option<Versioned>,
    /// The newest state with its journal merged in, as [`StateStore::load`] returns it.
    pub newest: Result<Option<Versioned>, StateError>,
    /// The holder of the lease.
    pub holder: Result<Option<Holder>, StateError>,
}

impl StateStore {
    /// Reads a stack: one LIST and one GET, and one more GET for each journal entry and each lease that a run left
    /// behind.
    ///
    /// # Errors
    /// The listing fails.
    pub async fn inspect(&self, stack: &StackId) -> Result<StackReading, StateError> {
        let newest_first = |rows: &RowKeys| rows.states.iter().rev().copied().collect();
        let reading = match self.read(stack).await {
            Ok(reading) => reading,
            Err(error) => {
                let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
                return Ok(StackReading {
                    serials: newest_first(&rows),
                    documents: Err(error),
                });
            }
        };
        let serials = newest_first(&reading.rows);
        let holder = self.holder_of(stack, &reading).await;
        // Both are shown: what the last run wrote, and what is valid now.
        let written = reading.document.clone();
        let newest = self.require_document(stack, reading).await;
        Ok(StackReading {
            serials,
            documents: Ok(StackDocuments {
                written: written.map(|(header, document)| versioned(header, document)),
                newest: newest.map(|reading| reading.merge(stack)),
                holder,
            }),
        })
    }
}
