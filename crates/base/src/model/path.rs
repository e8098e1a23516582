//! [`RepoPath`]: a path relative to the root of the repository, with `/` and without `.` or `..`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// A normalized path relative to the root of the repository. The root itself is the empty path. Cheap to
/// clone: a revision has tens of thousands of paths, and two revisions share nearly all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RepoPath(Arc<str>);

impl RepoPath {
    /// Returns the root of the repository: the empty path.
    pub fn root() -> Self {
        Self::default()
    }

    /// Normalizes a path that is relative to the root: resolves `.` and `..`, removes double and trailing
    /// slashes. Returns `None` if the path leaves the repository or is absolute.
    pub fn normalize(path: &str) -> Option<Self> {
        if path.starts_with('/') {
            return None;
        }
        Self::root().join(path)
    }

    /// Creates a path from a text that was normalized before it was stored.
    pub fn from_kept(text: &str) -> Self {
        Self(text.into())
    }

    /// Joins a relative path and normalizes the result. Returns `None` if the result leaves the repository or
    /// `path` is absolute.
    pub fn join(&self, path: &str) -> Option<Self> {
        if path.starts_with('/') {
            return None;
        }
        let mut parts: Vec<&str> = self.0.split('/').filter(|p| !p.is_empty()).collect();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop()?;
                }
                name => parts.push(name),
            }
        }
        Some(Self(parts.join("/").into()))
    }

    /// Returns the path of a child. `name` is one component, as git stores it.
    pub fn child(&self, name: &str) -> Self {
        let mut text = String::with_capacity(self.0.len() + 1 + name.len());
        if !self.0.is_empty() {
            text.push_str(&self.0);
            text.push('/');
        }
        text.push_str(name);
        Self(text.into())
    }

    /// Returns the folder of this path; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.0.is_empty() {
            return None;
        }
        Some(
            self.0
                .rsplit_once('/')
                .map_or_else(Self::root, |(parent, _)| Self(parent.into())),
        )
    }

    /// Returns this folder and all folders above it, the nearest first and the root last.
    pub fn ancestors(&self) -> impl Iterator<Item = RepoPath> + use<> {
        std::iter::successors(Some(self.clone()), RepoPath::parent)
    }

    /// Returns the last component; empty for the root.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns true for the root of the repository.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if this path is `folder` or lies below it.
    pub fn is_within(&self, folder: &RepoPath) -> bool {
        folder.0.is_empty()
            || self.0 == folder.0
            || (self.0.starts_with(&*folder.0) && self.0.as_bytes().get(folder.0.len()) == Some(&b'/'))
    }

    /// Returns this path relative to a folder above it; `None` if this path is not in that folder.
    pub fn relative_to(&self, folder: &RepoPath) -> Option<&str> {
        self.is_within(folder)
            .then(|| self.0[folder.0.len()..].trim_start_matches('/'))
    }

    /// Returns the relative path from a folder to this path.
    pub fn path_from(&self, folder: &RepoPath) -> String {
        let shared = folder
            .ancestors()
            .find(|above| self.is_within(above))
            .unwrap_or_default();
        let up = folder.relative_to(&shared).unwrap_or_default();
        let up = up.split('/').filter(|part| !part.is_empty()).map(|_| "..");
        let down = self.relative_to(&shared).unwrap_or_default();
        let parts: Vec<_> = up.chain(Some(down).filter(|down| !down.is_empty())).collect();
        if parts.is_empty() {
            ".".to_owned()
        } else {
            parts.join("/")
        }
    }

    /// Returns the text, `""` for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for RepoPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<std::path::Path> for RepoPath {
    fn as_ref(&self) -> &std::path::Path {
        std::path::Path::new(self.as_str())
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "." } else { &self.0 })
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::normalize(text).expect("a path of the test")
    }

    #[test]
    fn joins_and_stays_inside() {
        assert_eq!(path("a/b").join("../base/base.k"), Some(path("a/base/base.k")));
        assert_eq!(path("a").join("../../x"), None);
        assert_eq!(path("a").join("/etc/passwd"), None);
        assert_eq!(RepoPath::normalize("../x"), None);
    }

    #[test]
    fn within_compares_components() {
        assert!(path("a/dev/main.k").is_within(&path("a/dev")));
        assert!(!path("a/dev2/main.k").is_within(&path("a/dev")));
        assert!(path("a").is_within(&RepoPath::root()));
    }

    #[test]
    fn a_relative_path_leads_back() {
        for (from, to, relative) in [
            ("a/b/c", "", "../../.."),
            ("a/b", "a/b", "."),
            ("a/b", "a/c/d.k", "../c/d.k"),
            ("", "a", "a"),
            ("a", "a/b/c", "b/c"),
        ] {
            assert_eq!(path(to).path_from(&path(from)), relative);
            assert_eq!(path(from).join(relative), Some(path(to)));
        }
        assert_eq!(path("a/b.k").relative_to(&path("a")), Some("b.k"));
        assert_eq!(path("ab").relative_to(&path("a")), None);
    }

    #[test]
    fn ancestors_end_at_the_root() {
        let all: Vec<_> = path("a/b").ancestors().map(|p| p.as_str().to_owned()).collect();
        assert_eq!(all, ["a/b", "a", ""]);
    }
}
