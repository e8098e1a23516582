//! The repository as the server needs it. The implementation compiles and plans; this crate only renders its answers.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use konverge_base::{
    error::UserError,
    model::{RepoPath, ResourceId, StackId, lint::Diagnostic},
};

/// Reach of an edit of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileImpact {
    /// The number of stacks that an edit of the file affects.
    pub stacks: usize,
    /// Number of them in production.
    pub production: usize,
    /// Number of them that are checked and shown: the nearest.
    pub checked: usize,
}

/// View that a command shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditorView {
    /// The stacks that an edit of a file affects, with the chain of imports to each.
    Chain,
    /// The compiled Specs of the stacks of a file, masked.
    Spec,
    /// The changes that an apply of these stacks would make. Nothing is written.
    Preview,
}

/// A text that was written into a file of this user, for the editor to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownText {
    /// The file.
    pub file: PathBuf,
    /// Its content.
    pub text: String,
}

/// A resource of a Spec that a text mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    /// Its id.
    pub id: ResourceId,
    /// The stack whose Spec has it.
    pub stack: StackId,
    /// Description of the resource, line by line: plain text, masked.
    pub lines: Vec<String>,
}

/// A repository that an editor shows. The calls may block: the server makes all but [`EditorWorkspace::open`],
/// [`EditorWorkspace::refresh`] and [`EditorWorkspace::impact`] on threads of their own.
#[async_trait(?Send)]
pub trait EditorWorkspace: Send + Sync {
    /// Opens the repository that contains a folder. Until then, and after an error, it is empty.
    ///
    /// # Errors
    /// There is no repository, or it cannot be read.
    fn open(&self, folder: &Path) -> Result<(), UserError>;

    /// The root of the opened repository.
    fn root(&self) -> Option<PathBuf>;

    /// Reads what was saved since the last call. Returns false if nothing was.
    ///
    /// # Errors
    /// The repository cannot be read. What was read before stays.
    fn refresh(&self) -> Result<bool, UserError>;

    /// Returns the reach of an edit of a saved file; `None` for a file that git ignores or that does not exist.
    ///
    /// # Errors
    /// The file cannot be analyzed.
    fn impact(&self, file: &RepoPath) -> Result<Option<FileImpact>, UserError>;

    /// The saved text of a file.
    fn saved_text(&self, file: &RepoPath) -> Option<String>;

    /// Returns the findings of `konverge check` for these files and the stacks that are made of them.
    ///
    /// # Errors
    /// The core is not available, or the run is interrupted.
    async fn check(&self, files: &[RepoPath]) -> Result<Vec<Diagnostic>, UserError>;

    /// Shows a view for a file.
    ///
    /// # Errors
    /// No stack is made of the file, a stack cannot be opened, or the text cannot be written.
    async fn show(&self, view: EditorView, file: &RepoPath) -> Result<ShownText, UserError>;

    /// The resource that a text mentions, by the Specs of the stacks of a file; `None` if none of them has it.
    ///
    /// # Errors
    /// No stack compiles.
    async fn resource(&self, file: &RepoPath, mention: &str) -> Result<Option<ResourceView>, UserError>;
}
