//! The last saved state of the files, with the workers that compile it.

use std::{path::PathBuf, sync::Arc};

use konverge_run::{AnalysisCache, OpenRevision, RunContext, compiler::Compilers};

/// The saved state. Work on another thread keeps its own copy, so a later save does not change it.
#[derive(Clone)]
pub(super) struct SavedState {
    /// The context, in the opened folder.
    pub(super) run: RunContext,
    /// The root of the repository.
    pub(super) root: PathBuf,
    /// The cached analysis with which revisions are opened.
    pub(super) known: Arc<AnalysisCache>,
    /// The working tree at the last save.
    pub(super) head: Arc<OpenRevision>,
    /// The compilers. Their workers live as long as the configuration does not change.
    pub(super) compilers: Arc<Compilers>,
}
