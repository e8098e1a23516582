//! The `state` use cases: reading the recorded state, and a few commands that change it by hand. Each change holds the
//! stack's lease and writes a new serial, so that it is visible in the history and can be undone.

mod doctor;
mod edit;
mod import;
mod import_target;
mod import_workspace;
mod outputs;
mod read;
mod rekey;
mod rollback;

pub use doctor::{IndexCheck, StateFinding, doctor};
pub use edit::move_waiting;
pub use edit::{NewestDocument, forget, move_to, push, rebind, unlock};
pub(crate) use import::split_query;
pub use import::{Imported, LeftOut, import};
pub use import_target::ImportRequest;
pub use import_workspace::{ImportedWorkspace, import_workspace};
pub use outputs::{OutputReader, OutputRow, StackOutputs, outputs};
pub use read::{
    PulledState, StateRow, diff, list, mask_recorded, open, readable, resolve_stack, show, unknown,
};
pub use rekey::{Rekeyed, WantedDataKey, rekey};
pub use rollback::{RollbackBase, rollback, rollback_under};
