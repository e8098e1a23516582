//! What can go wrong with the state, and the way back.

use super::Holder;
use crate::{
    error::{ErrorKind, UserError},
    model::StackId,
    store::StoreError,
};

/// The state cannot be read, written or held.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A document is truncated, edited or not one of ours.
    #[error("`{key}` is damaged: {why}")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// A newer Konverge wrote it.
    #[error("`{key}` is of format {version}, which this Konverge does not know")]
    Future {
        /// The key.
        key: String,
        /// Its format's number.
        version: u64,
    },
    /// It belongs to another repository.
    #[error("`{key}` belongs to repository `{theirs}`, not to `{ours}`")]
    Foreign {
        /// The key.
        key: String,
        /// Whose it is.
        theirs: String,
        /// Who asked.
        ours: String,
    },
    /// It is encrypted and cannot be opened, or must be encrypted and there is no key.
    #[error("{what}: {why}")]
    Sealed {
        /// The key in the store, or what was to be encrypted.
        what: String,
        /// The reason.
        why: String,
    },
    /// Somebody else holds the lease and did not let go in time.
    #[error(
        "stack `{stack}` is being applied by {}, lease {}: {}",
        holder.writer, holder.id, holder.life()
    )]
    Held {
        /// The stack.
        stack: StackId,
        /// Who.
        holder: Box<Holder>,
    },
    /// The run was asked to stop while it waited for an earlier holder to notice that its lease was taken over.
    #[error("stack `{0}` was not begun: the run was asked to stop while it took the lease over")]
    Stopped(StackId),
    /// We held the lease and do not any more.
    #[error("the lease of stack `{stack}` is lost: {why}; nothing more was written")]
    Lost {
        /// The stack.
        stack: StackId,
        /// How it was noticed.
        why: String,
    },
    /// The index says that a state was written, and no document of it is there.
    #[error(
        "the state of stack `{stack}` is gone: serial {serial} was written, and the store holds no serial of it"
    )]
    Vanished {
        /// The stack.
        stack: StackId,
        /// The serial that the index names.
        serial: u64,
    },
    /// A serial, lease id or stack that is not there.
    #[error("{0}")]
    Missing(String),
}

impl From<StateError> for UserError {
    fn from(error: StateError) -> Self {
        let text = error.to_string();
        match error {
            StateError::Store(error) => error.into(),
            StateError::Damaged { key, .. } => {
                let failure = UserError::new(ErrorKind::State, text);
                match stack_of(&key) {
                    Some(stack) => failure
                        .hint(format!("`konverge state history {stack}` lists the serials that can be read"))
                        .hint(format!(
                            "`konverge state pull {stack} --serial N > good.json`, then `konverge state push {stack} good.json --over-damaged` puts one of them back"
                        )),
                    None => failure.hint("`konverge state doctor` says which documents are damaged"),
                }
            }
            StateError::Future { .. } => {
                UserError::new(ErrorKind::State, text).hint("update konverge to the version that wrote it or later")
            }
            StateError::Foreign { .. } => UserError::new(ErrorKind::State, text)
                .hint("give this repository a store or prefix of its own: `state.url` in konverge.yaml")
                .hint("if it is the same repository under a new URL, set `state.id` in konverge.yaml to the id above"),
            StateError::Sealed { .. } => UserError::new(ErrorKind::State, text)
                .hint("set KONVERGE_AGE_IDENTITY to the age identity (AGE-SECRET-KEY-1…) or passphrase of this store"),
            StateError::Held { stack, holder } => UserError::new(ErrorKind::LeaseHeld, text)
                .hint("wait for that run, or apply again later: nothing was touched")
                .hint(holder.way_out(&stack)),
            StateError::Lost { stack, .. } => UserError::new(ErrorKind::State, text)
                .hint(format!("run `konverge apply {stack}` again: it looks at what was done and goes on from there")),
            StateError::Stopped(_) => UserError::new(ErrorKind::Interrupted, text)
                .hint("run it again: the lease expires by itself"),
            StateError::Vanished { stack, .. } => UserError::new(ErrorKind::State, text)
                .hint("nothing is created: what the stack made still exists, and would be made a second time")
                .hint(format!(
                    "restore the documents below `stacks/` from a backup or the bucket's versions, or put a pulled state back: `konverge state push {stack} FILE`"
                ))
                .hint(format!(
                    "if everything that the stack made is gone too: `konverge state forget {stack} --yes`, then it starts anew"
                )),
            StateError::Missing(_) => UserError::new(ErrorKind::State, text),
        }
    }
}

/// The stack that a key belongs to.
fn stack_of(key: &str) -> Option<String> {
    let rest = key.strip_prefix("stacks/")?;
    let component = rest.split('/').next()?;
    Some(crate::store::Key::from_listing(component).last())
}
