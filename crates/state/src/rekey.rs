//! Encrypts and marks documents again for the current recipients.
//!
//! A document cannot be overwritten. The newest state of a stack gets a successor. An earlier state is
//! replaced with the help of a copy below `rekey/`, which readers find while the document itself is missing.
//! After a kill the copy remains, and the next run finishes the replacement.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    LeaseOptions, StateError, StateStore,
    document_format::{self, CreateResult, Header, OutgoingDocument},
    keys::{self, RowKeys},
};
use crate::store::Key;
use konverge_base::model::StackId;

/// Number of newest serials that are never replaced, so that the write of a lost lease's holder collides with
/// them.
const NEWEST: usize = 2;

/// The protection of a document: who can decrypt it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sealing {
    /// The document is not encrypted.
    Plain,
    /// The document was encrypted by a version that did not record the recipients.
    Unknown,
    /// The document is encrypted, but has no mark of a key that this run knows.
    Unmarked,
    /// The recipients of the document, sorted.
    Recipients(Vec<String>),
}

impl StateStore {
    /// Encrypts every state of a stack to the current recipients. Returns the number of documents that were
    /// written; 0 if all were already encrypted to them.
    ///
    /// # Errors
    /// An earlier run was killed during an apply, another run holds the lease, a document cannot be
    /// decrypted, or the store fails.
    pub async fn reseal(&self, stack: &StackId, options: &LeaseOptions) -> Result<usize, StateError> {
        let mut written = 0;
        loop {
            let (newest, _) = self.outdated(stack).await?;
            if newest.is_empty() {
                break;
            }
            let lease = self.acquire(stack, options.clone()).await?;
            let pending = lease.prior().map(|prior| prior.pending.len());
            let recorded = match pending {
                Some(0) => lease.record_resealed().await,
                None => Ok(0),
                Some(_) => Err(StateError::Missing(format!(
                    "a run of stack `{stack}` ended in the middle; apply it first, so that its outcome is known"
                ))),
            };
            lease.release().await?;
            recorded?;
            written += 1;
            // Each round writes a new state and moves one old state out of the newest ones, so after these
            // rounds all newest ones are new.
            if pending.is_none() || written > NEWEST {
                break;
            }
        }
        let (_, earlier) = self.outdated(stack).await?;
        if !earlier.is_empty() {
            let lease = self.acquire(stack, options.clone()).await?;
            let mut result = Ok(());
            for serial in earlier {
                result = match lease.check() {
                    Ok(()) => self.replace(&keys::state(stack, serial)).await,
                    Err(error) => Err(error),
                };
                if result.is_err() {
                    break;
                }
                written += 1;
            }
            lease.release().await?;
            result?;
        }
        Ok(written)
    }

    /// Encrypts the key of the short hashes to the current recipients. Returns true if that was needed.
    ///
    /// # Errors
    /// The key cannot be decrypted, or the store fails.
    pub async fn reseal_hash_key(&self) -> Result<bool, StateError> {
        let key = keys::hash_key();
        let is_outdated = match self.store.get(&key).await? {
            Some(bytes) => !self.envelopes.is_current(&key, &bytes)?,
            None => false,
        };
        if is_outdated {
            self.replace(&key).await?;
        }
        Ok(is_outdated)
    }

    /// Marks the documents that are not encrypted for the current recipients. Reviews and requests are
    /// replaced under their own keys. The freeze, the rollouts, the drift history and the index get a
    /// successor of their newest document. A document that is already marked for these recipients, or has no
    /// valid mark, stays unchanged. Returns the number of documents that were written.
    ///
    /// # Errors
    /// The store fails.
    pub async fn mark_again(&self) -> Result<usize, StateError> {
        let mut written = 0;
        for folder in ["reviews", "portal"] {
            for key in self.store.list(&Key::from_components(&[folder])).await? {
                if let Some(bytes) = self.store.get(&key).await?
                    && self.is_outdated(&key, &bytes)?
                {
                    self.replace(&key).await?;
                    written += 1;
                }
            }
        }
        let mut rows = BTreeSet::from(["freeze", "looks"].map(|folder| Key::from_components(&[folder])));
        for key in self.store.list(&Key::from_components(&["rollouts"])).await? {
            let row = key
                .as_str()
                .rsplit_once('/')
                .map(|(row, _)| Key::from_listing(row));
            rows.extend(row);
        }
        for row in rows {
            written += usize::from(self.mark_row(&row).await?);
        }
        Ok(written + usize::from(self.mark_index().await?))
    }

    /// Writes the newest document of a numbered sequence again, under the next number.
    async fn mark_row(&self, row: &Key) -> Result<bool, StateError> {
        let numbers = self.numbers(row).await?;
        for number in numbers.iter().rev() {
            let key = row.child(&keys::number(*number));
            let Some(bytes) = self.store.get(&key).await? else {
                continue;
            };
            if !self.is_ours(&key, &bytes)? {
                continue;
            }
            if self.envelopes.is_current(&key, &bytes)? {
                return Ok(false);
            }
            let next = row.child(&keys::number(numbers.last().unwrap_or(number) + 1));
            let letter = self.written_again(&key, &next, &bytes, |_| Ok(()))?;
            let created = document_format::put(&*self.store, &next, &letter).await?;
            return Ok(matches!(created, CreateResult::Ours));
        }
        Ok(false)
    }

    /// Returns true if a document is readable, but not marked for the current recipients.
    fn is_outdated(&self, key: &Key, bytes: &[u8]) -> Result<bool, StateError> {
        Ok(self.is_ours(key, bytes)? && !self.envelopes.is_current(key, bytes)?)
    }

    /// Returns true for a document of this repository with the mark of a known key.
    fn is_ours(&self, key: &Key, bytes: &[u8]) -> Result<bool, StateError> {
        let Ok(header) = self.envelopes.header(key, bytes) else {
            return Ok(false);
        };
        match self.envelopes.read_marked::<Value>(&header.kind, key, bytes) {
            Ok(read) => Ok(read.is_some()),
            Err(StateError::Damaged { .. } | StateError::Foreign { .. } | StateError::Future { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Finishes the replacements that a killed run left.
    ///
    /// # Errors
    /// The store fails.
    pub async fn finish_resealing(&self) -> Result<(), StateError> {
        for copy in self.store.list(&copies()).await? {
            let key = Key::from_listing(copy.last());
            let Some(bytes) = self.store.get(&copy).await? else {
                continue;
            };
            match self.store.get(&key).await? {
                None => {
                    self.store.create(&key, bytes).await?;
                    self.store.delete(&copy).await?;
                }
                Some(there) if there == bytes => self.store.delete(&copy).await?,
                // The killed run had written the copy but not deleted the document. The document stays, and
                // the next `replace` deletes this copy and makes a new one.
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Lists the recipients of a stack's states: one entry for each readable serial.
    ///
    /// # Errors
    /// The store fails.
    pub async fn sealings(&self, stack: &StackId) -> Result<Vec<Sealing>, StateError> {
        let mut sealings = Vec::new();
        for serial in self.rows(stack).await?.states {
            let key = keys::state(stack, serial);
            if let Some(bytes) = self.get_or_copy(&key).await?
                && let Ok(header) = self.envelopes.header(&key, &bytes)
            {
                let is_unmarked = header.sealed
                    && self.envelopes.seal_documents
                    && self.envelopes.is_marked(&key, &bytes) == Some(false);
                sealings.push(if is_unmarked {
                    Sealing::Unmarked
                } else {
                    sealing(header)
                });
            }
        }
        Ok(sealings)
    }

    /// Reads a document, or its copy while the document is being replaced.
    pub(super) async fn get_or_copy(&self, key: &Key) -> Result<Option<bytes::Bytes>, StateError> {
        match self.store.get(key).await? {
            Some(bytes) => Ok(Some(bytes)),
            None => match self.store.get(&copy_of(key)).await? {
                Some(bytes) => Ok(Some(bytes)),
                // The replacement may have ended between the two reads, so the document itself is read again.
                None => Ok(self.store.get(key).await?),
            },
        }
    }

    /// Returns the serials that are not encrypted to the current recipients: first those among the newest,
    /// then earlier ones.
    async fn outdated(&self, stack: &StackId) -> Result<(Vec<u64>, Vec<u64>), StateError> {
        let serials = self.rows(stack).await?.states;
        let first_of_newest = serials.len().saturating_sub(NEWEST);
        let (mut newest, mut earlier) = (Vec::new(), Vec::new());
        for (at, serial) in serials.into_iter().enumerate() {
            let key = keys::state(stack, serial);
            let Some(bytes) = self.get_or_copy(&key).await? else {
                continue;
            };
            if self.envelopes.is_current(&key, &bytes)? {
                continue;
            }
            if at >= first_of_newest {
                newest.push(serial)
            } else {
                earlier.push(serial)
            }
        }
        Ok((newest, earlier))
    }

    async fn rows(&self, stack: &StackId) -> Result<RowKeys, StateError> {
        Ok(RowKeys::parse(&self.store.list(&keys::stack(stack)).await?))
    }

    /// Returns the document for the key `to`, encrypted and marked for the current recipients.
    fn written_again(
        &self,
        from: &Key,
        to: &Key,
        bytes: &[u8],
        change: impl FnOnce(&mut Value) -> Result<(), StateError>,
    ) -> Result<OutgoingDocument, StateError> {
        let Header { nonce, time, .. } = self.envelopes.header(from, bytes)?;
        let bytes = self.envelopes.reseal(from, to, bytes, change)?;
        Ok(OutgoingDocument { nonce, time, bytes })
    }

    /// Replaces a document by the same one, encrypted to the current recipients.
    async fn replace(&self, key: &Key) -> Result<(), StateError> {
        let Some(bytes) = self.store.get(key).await? else {
            return Ok(());
        };
        // The data of runtimes is encrypted separately, even if documents are not.
        let reseal_runtime = |body: &mut Value| match (body.pointer_mut("/state/runtime"), self.sealer()) {
            (Some(runtime), Some(sealer)) => sealer.reseal_values(runtime),
            _ => Ok(()),
        };
        let letter = self.written_again(key, key, &bytes, reseal_runtime)?;
        let copy = copy_of(key);
        // The copy of a killed run may be encrypted to other recipients, so it is made again.
        self.store.delete(&copy).await?;
        if let CreateResult::Theirs(_) = document_format::put(&*self.store, &copy, &letter).await? {
            return Err(taken(key));
        }
        // From here until the document is created again, readers find the copy. After a kill the copy
        // remains, and the next run finishes the replacement.
        self.store.delete(key).await?;
        match document_format::put(&*self.store, key, &letter).await? {
            CreateResult::Ours => Ok(self.store.delete(&copy).await?),
            CreateResult::Theirs(_) => Err(taken(key)),
        }
    }
}

fn sealing(header: Header) -> Sealing {
    match (header.sealed, header.recipients.is_empty()) {
        (false, _) => Sealing::Plain,
        (true, true) => Sealing::Unknown,
        (true, false) => Sealing::Recipients(header.recipients),
    }
}

fn copies() -> Key {
    Key::from_components(&["rekey"])
}

fn copy_of(key: &Key) -> Key {
    copies().child(key.as_str())
}

fn taken(key: &Key) -> StateError {
    StateError::Missing(format!(
        "`{key}` is being replaced by another run; run `konverge state rekey` again when that has ended"
    ))
}

#[cfg(test)]
#[path = "rekey_tests.rs"]
mod tests;
