//! [`StackFolder`]: the folder of a stack, which may be missing.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::RepoPath;

/// The root, for stacks without a folder.
static ROOT: LazyLock<RepoPath> = LazyLock::new(RepoPath::root);

/// The folder of a stack in the repository; none for a Spec that was read from a file.
///
/// In a document the root is written `.`, and no folder is the empty text. Documents of earlier versions have the empty
/// text in both cases.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct StackFolder(Option<RepoPath>);

impl StackFolder {
    /// Creates the value for a stack without a folder.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Returns the folder, if there is one.
    pub fn path(&self) -> Option<&RepoPath> {
        self.0.as_ref()
    }

    /// Returns the folder for the matching of rules: the root if the stack has none.
    pub fn or_root(&self) -> &RepoPath {
        self.path().unwrap_or(&ROOT)
    }
}

impl From<RepoPath> for StackFolder {
    fn from(path: RepoPath) -> Self {
        Self(Some(path))
    }
}

impl From<String> for StackFolder {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" => Self::none(),
            "." => RepoPath::root().into(),
            path => RepoPath::from_kept(path).into(),
        }
    }
}

impl From<StackFolder> for String {
    fn from(folder: StackFolder) -> Self {
        folder.to_string()
    }
}

impl std::fmt::Display for StackFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(path) => path.fmt(f),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::state::StackState;

    #[test]
    fn the_root_is_a_folder_and_nothing_is_none() {
        for (text, path) in [("\"\"", None), ("\".\"", Some("")), ("\"a/b\"", Some("a/b"))] {
            let folder: StackFolder = serde_json::from_str(text).unwrap();
            assert_eq!(folder.path().map(RepoPath::as_str), path);
            assert_eq!(serde_json::to_string(&folder).unwrap(), text);
        }
        assert_ne!(StackFolder::from(RepoPath::root()), StackFolder::none());
    }

    /// A state of an earlier version has no folder for the root, nor for a Spec from a file.
    #[test]
    fn what_a_core_compiled_lay_at_the_root() {
        let of_file = StackState::empty("a/b".parse().unwrap(), StackFolder::none());
        let compiled = StackState {
            core: Some("0.13.2".to_owned()),
            ..of_file.clone()
        };
        for (state, lies) in [
            (of_file, StackFolder::none()),
            (compiled, RepoPath::root().into()),
        ] {
            let text = serde_json::to_string(&state).unwrap();
            assert!(text.contains("\"folder\":\"\""), "{text}");
            let read: StackState = serde_json::from_str(&text).unwrap();
            assert_eq!(read.of_this_version().folder, lies);
        }
    }
}
