//! The errors of a layout as a whole.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::file_source::SourceError,
};

/// The error for an unusable layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The repository is not a Konfig monorepo.
    #[error("there is no `kcl.mod` in this repository: it is not a KCL monorepo")]
    NoModule,
    /// A file of the layout is missing in the object database.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<LayoutError> for UserError {
    fn from(error: LayoutError) -> Self {
        let failure = UserError::from_error(ErrorKind::Layout, error.clone());
        match error {
            LayoutError::NoModule => failure
                .hint("write the file `kcl.mod` at the repository's root, with `[package]` and a `name`; or name another folder: `--repo DIR`")
                .hint("a file that git does not know is not read: `git add kcl.mod`"),
            LayoutError::Source(_) => failure.hint("`git fsck` shows what the repository lacks"),
        }
    }
}
