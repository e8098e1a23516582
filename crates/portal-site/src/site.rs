//! [`Site`]: where the pages are written, a folder or a store.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
};
use konverge_portal::site_path;

/// The file that lists the content of the site.
pub(super) const MANIFEST: &str = "portal.json";

/// The error of a site.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// A file cannot be read or written.
    #[error("`{path}`")]
    File {
        /// The file.
        path: String,
        /// The error of the system.
        #[source]
        why: std::io::Error,
    },
    /// The folder holds other files.
    #[error("the folder `{0}` holds files that are not the portal's")]
    Foreign(String),
    /// The store refused.
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

/// A place for the pages. Paths are relative and of the form of [`site_path`].
#[async_trait]
pub trait Site: Send + Sync {
    /// A file, if it exists.
    ///
    /// # Errors
    /// It cannot be read.
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, SiteError>;

    /// Writes a file, whatever it held.
    ///
    /// # Errors
    /// It cannot be written.
    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), SiteError>;

    /// Deletes a file. A missing file is not an error.
    ///
    /// # Errors
    /// It cannot be deleted.
    async fn delete(&self, path: &str) -> Result<(), SiteError>;
}

/// A folder. No link in it is followed.
pub struct FolderSite {
    root: PathBuf,
}

impl FolderSite {
    /// Opens a folder that is new, empty, or one that the portal wrote.
    ///
    /// # Errors
    /// It cannot be created or read; it holds other files.
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
        // This removes the folder of a stack that is gone. It fails for a folder that is not empty.
        let _ = file
            .parent()
            .filter(|folder| *folder != self.root)
            .map(std::fs::remove_dir);
        Ok(())
    }
}
