//! The interface to the repository. The implementation compiles and plans; this crate only renders the results.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use konverge_base::{
    error::UserError,
    model::{RepoPath, ResourceId, StackId, lint::Diagnostic},
};

/// The effect of an edit of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileImpact {
    /// The number of stacks that an edit of the file affects.
    pub stacks: usize,
    /// The number of these stacks that are in production.
    pub production: usize,
    /// The number of these stacks that are checked and shown: the nearest ones.
    pub checked: usize,
}

/// A view that a command shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditorView {
    /// The stacks that an edit of a file affects, with the chain of imports to each.
    Chain,
    /// The compiled Specs of the stacks of a file, with secrets masked.
    Spec,
    /// The changes that an apply of these stacks would make. Nothing is written.
    Preview,
}

/// A text that was written to a file for the editor to open. Only this user can read the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownText {
    /// The file that contains the text.
    pub file: PathBuf,
    /// The content of the file.
    pub text: String,
}

/// A resource of a Spec that the text in an editor mentions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    /// The id of the resource.
    pub id: ResourceId,
    /// The stack that has the resource.
    pub stack: StackId,
    /// The description of the resource as lines of plain text, with secrets masked.
    pub lines: Vec<String>,
}

/// A repository that is open in an editor. Methods may block: the server calls all of them on separate threads,
/// except [`EditorWorkspace::open`], [`EditorWorkspace::refresh`] and [`EditorWorkspace::impact`].
#[async_trait(?Send)]
pub trait EditorWorkspace: Send + Sync {
    /// Opens the repository that contains a folder. Before this call, and after an error, the workspace is empty.
    ///
    /// # Errors
    /// There is no repository, or it cannot be read.
    fn open(&self, folder: &Path) -> Result<(), UserError>;

    /// Returns the root of the opened repository.
    fn root(&self) -> Option<PathBuf>;

    /// Reads the files that were saved since the last call. Returns false if there are none.
    ///
    /// # Errors
    /// The repository cannot be read. The earlier content stays.
    fn refresh(&self) -> Result<bool, UserError>;

    /// Returns the effect of an edit of a saved file; `None` for a file that git ignores or that does not exist.
    ///
    /// # Errors
    /// The file cannot be analyzed.
    fn impact(&self, file: &RepoPath) -> Result<Option<FileImpact>, UserError>;

    /// Returns the saved text of a file.
    fn saved_text(&self, file: &RepoPath) -> Option<String>;

    /// Returns the findings of `konverge check` in these files and in the stacks that use them.
    ///
    /// # Errors
    /// KCL is not available, or the run is interrupted.
    async fn check(&self, files: &[RepoPath]) -> Result<Vec<Diagnostic>, UserError>;

    /// Shows a view for a file.
    ///
    /// # Errors
    /// No stack uses the file, a stack cannot be opened, or the text cannot be written.
    async fn show(&self, view: EditorView, file: &RepoPath) -> Result<ShownText, UserError>;

    /// Finds the resource that a text mentions in the Specs of the stacks that use a file; `None` if none of them
    /// has the resource.
    ///
    /// # Errors
    /// No stack compiles.
    async fn resource(&self, file: &RepoPath, mention: &str) -> Result<Option<ResourceView>, UserError>;
}
