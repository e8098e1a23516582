//! The errors of the state, each with a hint how to recover.

use super::Holder;
use crate::store::{Key, StoreError};
use konverge_base::{
    error::{ErrorKind, SharedError, UserError, chain},
    model::StackId,
};

/// Errors of reading, writing or locking the state.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum StateError {
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document is truncated, was edited or is not a Konverge document.
    #[error("`{key}` is damaged")]
    Damaged {
        key: String,
        #[source]
        why: SharedError,
    },
    /// The document has no mark of a key that this run knows, although documents are marked.
    #[error("`{key}` is not used")]
    Unmarked {
        key: String,
        #[source]
        why: SharedError,
    },
    /// A newer version of Konverge wrote the document.
    #[error("`{key}` has format version {version}, which this version of Konverge does not support")]
    Future {
        key: String,
        /// The version of the document's format.
        version: u64,
    },
    /// The document belongs to another repository.
    #[error("`{key}` belongs to repository `{theirs}`, not to `{ours}`")]
    Foreign {
        key: String,
        /// The repository of the document.
        theirs: String,
        /// This repository.
        ours: String,
    },
    /// The document cannot be decrypted, or it must be encrypted and there is no key.
    #[error("{what}")]
    Sealed {
        /// The key of the document, or a description of the value.
        what: String,
        #[source]
        why: SharedError,
    },
    /// A key service failed.
    #[error("{what}")]
    KeyService {
        /// The key of the data key's document.
        what: String,
        #[source]
        why: SharedError,
    },
    /// Another holder did not release the lease in time.
    #[error(
        "stack `{stack}` is being applied by {}, lease {}: {}",
        holder.writer, holder.id, holder.renewal_text()
    )]
    Held { stack: StackId, holder: Box<Holder> },
    /// The run was asked to stop while it waited for an earlier holder to notice that its lease was taken
    /// over.
    #[error("stack `{0}` was not started: the run was interrupted while it took over the lease")]
    Stopped(StackId),
    /// This run lost the lease that it held.
    #[error("the lease of stack `{stack}` is lost: {why}; nothing more was written")]
    Lost {
        stack: StackId,
        /// The way in which this run noticed the loss.
        why: String,
    },
    /// The index records a state that is no longer in the store.
    #[error(
        "the state of stack `{stack}` is gone: serial {serial} was written, and {}",
        newest.map_or("the store holds no serial of the stack".to_owned(), |newest| format!("the newest in the store is {newest}"))
    )]
    Vanished {
        stack: StackId,
        /// The serial in the index.
        serial: u64,
        /// The newest serial in the store.
        newest: Option<u64>,
    },
    /// There is no such serial, lease id or stack.
    #[error("{0}")]
    Missing(String),
}

impl StateError {
    pub(super) fn damaged(key: &Key, why: impl Into<SharedError>) -> Self {
        Self::Damaged {
            key: key.to_string(),
            why: why.into(),
        }
    }
}

impl From<StateError> for UserError {
    fn from(error: StateError) -> Self {
        // The store's error already has its kind and its hints.
        if let StateError::Store(error) = error {
            return error.into();
        }
        let text = chain(&error);
        match &error {
            StateError::Damaged { key, .. } => {
                let failure = UserError::new(ErrorKind::State, text);
                match stack_of(key) {
                    Some(stack) => failure
                        .hint(format!("`konverge state history {stack}` lists the serials that can be read"))
                        .hint(format!(
                            "restore one of these serials: `konverge state pull {stack} --serial N > good.json`, then `konverge state push {stack} good.json --over-damaged`"
                        )),
                    None if key.starts_with("freeze/") => failure.hint(
                        "run `konverge unfreeze --reason TEXT` to let applies run, or `konverge freeze --reason TEXT` to stop applies: it is unknown whether applies are frozen",
                    ),
                    None => failure.hint("`konverge state doctor` says which documents are damaged"),
                }
            }
            StateError::Unmarked { .. } => UserError::new(ErrorKind::State, text)
                .hint("if the document was written before documents were marked: set `state.accept_unmarked_until` to read it, and run `konverge state rekey` to mark it")
                .hint("otherwise look into the access log of the store to find out who wrote the document"),
            StateError::Future { .. } => {
                UserError::new(ErrorKind::State, text).hint("update konverge to the version that wrote it or later")
            }
            StateError::Foreign { .. } => UserError::new(ErrorKind::State, text)
                .hint("give this repository a store or prefix of its own: `state.url` in konverge.yaml")
                .hint("if it is the same repository under a new URL, set `state.id` in konverge.yaml to the id above"),
            StateError::Sealed { .. } => UserError::new(ErrorKind::State, text)
                .hint("set KONVERGE_AGE_IDENTITY to the age identity (AGE-SECRET-KEY-1…) or passphrase of this store"),
            StateError::KeyService { .. } => UserError::new(ErrorKind::State, text)
                .hint("nothing was changed: run the command again when a key service of `state.encrypt_to` answers and this run may use its key")
                .hint("the first run creates the data key, and needs the right to encrypt; `konverge state rekey` creates it too")
                .hint("a key that is new in `state.encrypt_to` needs `konverge state rekey` while an earlier one is still listed")
                .hint("if an age recipient is listed, too, set KONVERGE_AGE_IDENTITY to its identity: it decrypts what was encrypted to it"),
            StateError::Held { stack, holder } => UserError::new(ErrorKind::LeaseHeld, text)
                .hint("wait for that run, or apply again later: nothing was changed")
                .hint(holder.way_out(stack)),
            StateError::Lost { stack, .. } => UserError::new(ErrorKind::State, text)
                .hint(format!("run `konverge apply {stack}` again: it checks what was done and continues")),
            StateError::Stopped(_) => UserError::new(ErrorKind::Interrupted, text)
                .hint("run the command again: the lease expires by itself"),
            StateError::Vanished {
                stack,
                newest: Some(newest),
                ..
            } => UserError::new(ErrorKind::State, text)
                .hint("nothing was changed: resources that the missing serials recorded may still exist")
                .hint("restore the missing documents below `stacks/` from a backup or the bucket's versions")
                .hint(format!(
                    "to continue from serial {newest}: `konverge state pull {stack} --serial {newest} > FILE`, then `konverge state push {stack} FILE`"
                )),
            StateError::Vanished { stack, .. } => UserError::new(ErrorKind::State, text)
                .hint("nothing was created: the objects of the stack may still exist, and would be created twice")
                .hint(format!(
                    "restore the documents below `stacks/` from a backup or the bucket's versions, or put a pulled state back: `konverge state push {stack} FILE`"
                ))
                .hint(format!(
                    "if all its objects are gone too: `konverge state forget {stack} --yes`; the next apply then creates them"
                )),
            StateError::Store(_) | StateError::Missing(_) => UserError::new(ErrorKind::State, text),
        }
    }
}

/// Returns the stack in a key.
fn stack_of(key: &str) -> Option<String> {
    let rest = key.strip_prefix("stacks/")?;
    let component = rest.split('/').next()?;
    Some(Key::from_listing(component).last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_document_of_a_stack_is_followed_by_the_commands_for_that_stack() {
        let hints = |key: &str| {
            let error = StateError::Damaged {
                key: key.to_owned(),
                why: "it was cut".into(),
            };
            UserError::from(error).hints
        };
        let of_stack = hints("stacks/shop%2Fprod/state/0000000003");
        assert_eq!(of_stack.len(), 2);
        assert!(
            of_stack[0].contains("`konverge state history shop/prod`"),
            "{of_stack:?}"
        );
        assert!(of_stack[1].contains("`konverge state push shop/prod good.json --over-damaged`"));
        let of_index = hints("index/delta/0000000003-ab");
        assert_eq!(of_index.len(), 1);
        assert!(of_index[0].contains("`konverge state doctor`"), "{of_index:?}");
        let of_freeze = hints("freeze/0000000003");
        assert!(
            of_freeze[0].contains("`konverge unfreeze --reason TEXT`"),
            "{of_freeze:?}"
        );
    }
}
