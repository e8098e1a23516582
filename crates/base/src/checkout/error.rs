//! The reasons why a path or a program is refused.

use std::path::PathBuf;

use crate::error::{ErrorKind, UserError};

/// A path that must not be run or trusted, or a program that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum Untrusted {
    /// The path is relative.
    #[error("{what} is `{path}`, which is not an absolute path", path = display_path(path))]
    Relative {
        what: String,
        /// The path as it was configured.
        path: PathBuf,
    },
    /// The path leads into the checkout.
    #[error("{what} is `{path}`, which lies in the repository{by}", path = display_path(path), by = by(path, place))]
    Inside {
        what: String,
        /// The path as it was configured.
        path: PathBuf,
        /// The path at which the configured path enters the checkout.
        place: PathBuf,
    },
    /// The path leads below `/proc`.
    #[error("{what} is `{path}`, which lies below /proc: it names another file in every process", path = display_path(path))]
    Process {
        what: String,
        /// The path as it was configured.
        path: PathBuf,
    },
    /// The path has too many symbolic links.
    #[error("{what} is `{path}`, which has too many links", path = display_path(path))]
    TooManyLinks {
        what: String,
        /// The path as it was configured.
        path: PathBuf,
    },
    /// The program is not on the `PATH`, or only in folders from which nothing may be run.
    #[error("`{}` was not found on the PATH{}", names.join("` or `"), passed_over.as_ref().map_or_else(String::new, |path| {
        format!(" (`{}` leads into the repository and is not run)", display_path(path))
    }))]
    NotFound {
        /// The names that were searched.
        names: Vec<String>,
        /// The program with one of these names that was found, but is in the checkout and so must not be run.
        passed_over: Option<PathBuf>,
    },
}

fn display_path(path: &std::path::Path) -> String {
    path.display().to_string().escape_debug().to_string()
}

/// Returns the words that name the point where the path enters the checkout; empty if the path itself shows it.
fn by(path: &std::path::Path, place: &std::path::Path) -> String {
    if path.starts_with(place) {
        String::new()
    } else {
        format!(" (it leads to `{}`)", display_path(place))
    }
}

impl Untrusted {
    /// Returns the purpose of the path, for messages; `None` for a program that was not found.
    pub fn what(&self) -> Option<&str> {
        match self {
            Self::Relative { what, .. }
            | Self::Inside { what, .. }
            | Self::Process { what, .. }
            | Self::TooManyLinks { what, .. } => Some(what),
            Self::NotFound { .. } => None,
        }
    }
}

impl From<Untrusted> for UserError {
    fn from(error: Untrusted) -> Self {
        let failure = Self::new(ErrorKind::Config, error.to_string());
        match error {
            Untrusted::NotFound { .. } => {
                failure.hint("relative folders of the PATH and folders in the repository are not searched")
            }
            Untrusted::Relative { .. }
            | Untrusted::Inside { .. }
            | Untrusted::Process { .. }
            | Untrusted::TooManyLinks { .. } => failure.hint(
                "a branch could put a file of its own at this path: move the file outside of the checkout and give its absolute path",
            ),
        }
    }
}
