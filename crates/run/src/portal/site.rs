//! [`Site`]: the target of the pages, a folder or a store.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
};
use konverge_portal::site_path;

/// The manifest file, which lists the content of the site.
pub(super) const MANIFEST: &str = "portal.json";

/// An error while reading or writing a site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A file cannot be read or written.
    #[error("`{path}`")]
    File {
        /// The path of the file.
        path: String,
        /// The error of the system.
        #[source]
        why: std::io::Error,
    },
    /// The folder holds files that the portal did not write.
    #[error("the folder `{0}` holds files that are not the portal's")]
    Foreign(String),
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] konverge_state::store::StoreError),
}

impl From<SiteError> for UserError {
    fn from(error: SiteError) -> Self {
        match error {
            SiteError::Store(error) => error.into(),
            SiteError::Foreign(_) => Self::new(ErrorKind::Usage, error.to_string()).hint(
                "name an empty or a new folder with `--out DIR`, or one that `konverge portal build` wrote",
            ),
            SiteError::File { .. } => Self::from_error(ErrorKind::Usage, error)
                .hint("check the permissions of the folder, and that no link stands in it"),
        }
    }
}

/// A target for the pages. Paths are relative, in the form of [`site_path`].
#[async_trait]
pub trait Site: Send + Sync {
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, SiteError>;

    /// Writes a file, and replaces an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), SiteError>;

    /// Deletes a file. A missing file is not an error.
    ///
    /// # Errors
    /// The file cannot be deleted.
    async fn delete(&self, path: &str) -> Result<(), SiteError>;
}

/// A site in a folder. Links in the folder are never followed.
pub struct FolderSite {
    root: PathBuf,
}

impl FolderSite {
    /// Opens a folder that is new, empty, or one that the portal wrote.
    ///
    /// # Errors
    /// The folder cannot be created or read, or holds other files.
    pub fn open(root: &Path) -> Result<Self, SiteError> {
        let failed = |why| SiteError::File {
            path: root.display().to_string(),
            why,
        };
        std::fs::create_dir_all(root).map_err(failed)?;
        let is_empty = std::fs::read_dir(root).map_err(failed)?.next().is_none();
        if !is_empty && !root.join(MANIFEST).is_file() {
            return Err(SiteError::Foreign(root.display().to_string()));
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    fn failed(&self, path: &str, why: std::io::Error) -> SiteError {
        SiteError::File {
            path: self.root.join(path).display().to_string(),
            why,
        }
    }
}

#[async_trait]
impl Site for FolderSite {
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, SiteError> {
        checkout::read(&self.root, Path::new(path)).map_err(|why| self.failed(path, why))
    }

    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), SiteError> {
        checkout::write(&self.root, Path::new(path), &content, Existing::Replace)
            .map(|_| ())
            .map_err(|why| self.failed(path, why))
    }

    async fn delete(&self, path: &str) -> Result<(), SiteError> {
        if !site_path::is_own(path) || self.read(path).await?.is_none() {
            return Ok(());
        }
        let file = self.root.join(path);
        std::fs::remove_file(&file).map_err(|why| self.failed(path, why))?;
        // Removes the folder of a deleted stack. This fails on purpose if the folder is not empty.
        let _ = file
            .parent()
            .filter(|folder| *folder != self.root)
            .map(std::fs::remove_dir);
        Ok(())
    }
}
