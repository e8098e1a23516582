//! Changes of the code by machine (`konverge set`): attributes of stacks get other values in their files, the Specs before
//! and after decide, and the edits are written into the checkout or become a pull request.

mod code_editor;
mod dispatch;
mod drift_comment;
mod drift_lookup;
mod edit_file;
mod prepared_edits;
mod pull_request;
mod written_files;

pub use code_editor::{CodeChange, CodeEditor, EditKind, EditPlace, EditedFile, EditedLine};
pub use dispatch::{DispatchedEdit, read_dispatch};
pub use drift_comment::tell_drift_issue;
pub use drift_lookup::find_drift;
pub use edit_file::read_edits;
pub use prepared_edits::{EditTarget, PreparedEdits, SetRequest, UpdatedGolden, WantedEdit, prepare};
pub use pull_request::{Proposal, ProposalResult, forge, propose};
pub use written_files::write;
