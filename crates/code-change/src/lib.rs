//! Changes the code by machine (`konverge set`): gives attributes of stacks other values in their files, compares the
//! Specs before and after, and writes the files into the checkout or makes a pull request of them.

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
