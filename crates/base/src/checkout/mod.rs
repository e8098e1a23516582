//! The checkout of a run. The author of a change chooses the files in it, including links.
//!
//! Two rules follow, and each is implemented in one place. Nothing that is run or trusted may come from the
//! checkout ([`Checkout::trust`], [`Checkout::find`]). Nothing that is written into it may follow a link
//! ([`write()`]).

mod error;
mod executable;
mod links;
mod read;
mod write;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use self::links::PathTarget;

pub use self::{
    error::Untrusted,
    executable::Executable,
    read::read,
    write::{Existing, WrittenFile, write},
};
use crate::variables;

/// The root of the checkout, and the folders of the `PATH` outside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkout {
    /// The root with all links resolved; `None` outside a repository.
    root: Option<PathBuf>,
    search_path: OsString,
}

impl Checkout {
    /// Creates a checkout, with the value of `PATH` in which programs are searched.
    pub fn new(root: Option<&Path>, search_path: Option<&OsStr>) -> Self {
        let root = root.map(|root| root.canonicalize().unwrap_or_else(|_| root.to_owned()));
        let mut checkout = Self {
            root,
            search_path: OsString::new(),
        };
        let folders = std::env::split_paths(search_path.unwrap_or_default());
        let trusted = folders.filter(|folder| checkout.leads(folder) == PathTarget::Outside);
        // Joining cannot fail: a folder that came from a split `PATH` contains no separator.
        checkout.search_path = std::env::join_paths(trusted).unwrap_or_default();
        checkout
    }

    /// Creates a checkout with the `PATH` of this process.
    pub fn of_process(root: Option<&Path>) -> Self {
        Self::new(root, std::env::var_os(variables::PATH).as_deref())
    }

    /// Returns an error if a path leads into the checkout or below `/proc`, also through symbolic links, or if it
    /// is not absolute. `what` names the setting in the error.
    ///
    /// # Errors
    /// See [`Untrusted`].
    pub fn trust(&self, what: &str, path: &Path) -> Result<(), Untrusted> {
        let (what, path) = (what.to_owned(), path.to_owned());
        Err(match self.leads(&path) {
            PathTarget::Outside => return Ok(()),
            PathTarget::Nowhere => Untrusted::Relative { what, path },
            PathTarget::Inside(place) => Untrusted::Inside { what, path, place },
            PathTarget::Process => Untrusted::Process { what, path },
            PathTarget::TooFar => Untrusted::TooManyLinks { what, path },
        })
    }

    /// Returns the `PATH` without folders that are relative, in the checkout or below `/proc`.
    pub fn search_path(&self) -> &OsStr {
        &self.search_path
    }

    fn leads(&self, path: &Path) -> PathTarget {
        links::follow(path, self.root.as_deref())
    }
}

impl Default for Checkout {
    /// Creates a checkout without a repository, with the `PATH` of this process.
    fn default() -> Self {
        Self::of_process(None)
    }
}
