//! [`StackSelector`]: a command-line argument that selects stacks. All commands use it.

use std::str::FromStr;

use globset::Glob;

use super::{Layout, path_glob};
use konverge_base::model::{
    RepoPath, StackId,
    stack::{NamedBy, Stack},
};

/// An argument that selects stacks: an identity, a stack's folder, a folder above stacks, a project's name, or a glob
/// for identities and folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StackSelector {
    text: String,
    glob: Option<Glob>,
}

/// The error for an argument that cannot select stacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The argument is empty.
    #[error("a stack, a project, a folder or a glob is missing")]
    Empty,
    /// The glob is invalid.
    #[error("the glob cannot be read: {0}")]
    Glob(String),
}

impl FromStr for StackSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        if text.is_empty() {
            return Err(InvalidSelector::Empty);
        }
        let is_glob = text.contains(['*', '?', '[', '{']);
        let glob = is_glob.then(|| path_glob(text.trim_end_matches('/'))).transpose();
        Ok(Self {
            text: text.to_owned(),
            glob: glob.map_err(|error| InvalidSelector::Glob(error.kind().to_string()))?,
        })
    }
}

impl StackSelector {
    /// Returns the argument as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the argument as an identity, if it is a valid one.
    pub fn identity(&self) -> Option<StackId> {
        self.text.parse().ok()
    }

    /// Returns the selected stacks, sorted by folder, for a user in the folder `here`. The first of these that selects
    /// a stack counts: a folder relative to `here`, an identity, a folder relative to the root, a glob, a project.
    pub fn select<'a>(&self, layout: &'a Layout, here: &RepoPath) -> Vec<&'a Stack> {
        let below = |folder: Option<RepoPath>| -> Vec<&'a Stack> {
            let is_below = |stack: &&Stack| {
                folder
                    .as_ref()
                    .is_some_and(|folder| stack.folder.is_within(folder))
            };
            layout.stacks.iter().filter(is_below).collect()
        };
        let by_identity = || -> Vec<&'a Stack> {
            let is_meant = |stack: &&Stack| stack.id.as_str() == self.text;
            layout.stacks.iter().filter(is_meant).collect()
        };
        let ways: [&dyn Fn() -> Vec<&'a Stack>; 5] = [
            &|| {
                if here.is_root() {
                    Vec::new()
                } else {
                    below(here.join(&self.text))
                }
            },
            &by_identity,
            &|| below(RepoPath::normalize(&self.text)),
            &|| self.by_glob(layout, here),
            &|| self.by_project(layout),
        ];
        let found = ways.iter().map(|way| way()).find(|found| !found.is_empty());
        found.unwrap_or_default()
    }

    /// Returns the stacks whose names form this identity, but that have another identity because it would not be
    /// unique.
    pub fn select_ambiguous<'a>(&self, layout: &'a Layout) -> Vec<&'a Stack> {
        let is_meant = |stack: &&Stack| stack.names.as_str() == self.text;
        layout.stacks.iter().filter(is_meant).collect()
    }

    /// Returns true if the argument, as a glob or as the name of a project, selects a stack that only its state has.
    pub fn matches_recorded(&self, id: &StackId, folder: &RepoPath) -> bool {
        match &self.glob {
            Some(glob) => {
                let matcher = glob.compile_matcher();
                let mut folders = folder.ancestors().filter(|above| !above.is_root());
                matcher.is_match(id.as_str()) || folders.any(|above| matcher.is_match(above.as_str()))
            }
            None => self.is_project_of(id),
        }
    }

    fn by_glob<'a>(&self, layout: &'a Layout, here: &RepoPath) -> Vec<&'a Stack> {
        let Some(matcher) = self.glob.as_ref().map(Glob::compile_matcher) else {
            return Vec::new();
        };
        let is_meant = |stack: &&Stack| {
            let relative = |path: &RepoPath| {
                let path = path.relative_to(here).filter(|path| !path.is_empty());
                path.is_some_and(|path| matcher.is_match(path))
            };
            let mut folders = stack.folder.ancestors().filter(|above| !above.is_root());
            matcher.is_match(stack.id.as_str())
                || folders.any(|folder| matcher.is_match(folder.as_str()) || relative(&folder))
        };
        layout.stacks.iter().filter(is_meant).collect()
    }

    fn by_project<'a>(&self, layout: &'a Layout) -> Vec<&'a Stack> {
        let is_meant = |stack: &&Stack| {
            self.is_project_of(&stack.names)
                || (stack.named_by == NamedBy::Config && self.is_project_of(&stack.id))
        };
        layout.stacks.iter().filter(is_meant).collect()
    }

    /// Returns true if the argument is the `project` or `tenant/project` of a stack.
    fn is_project_of(&self, id: &StackId) -> bool {
        let (whole, _) = id.as_str().rsplit_once('/').unwrap_or_default();
        self.text == id.project() || self.text == whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::stack::CompileSetup;

    fn layout() -> Layout {
        let stack = |id: &str, names: &str, folder: &str, named_by: NamedBy| {
            let folder = RepoPath::normalize(folder).unwrap();
            Stack {
                id: id.parse().unwrap(),
                names: names.parse().unwrap(),
                earlier_names: None,
                named_by,
                project_folder: folder.parent().unwrap(),
                manifest: folder.child("stack.yaml"),
                folder,
                compile: Ok(CompileSetup::default()),
                cluster: None,
                kubeconfig: None,
                reads: std::collections::BTreeMap::new(),
            }
        };
        let own = |id: &str, folder: &str| stack(id, id, folder, NamedBy::Names);
        let mut layout = Layout {
            stacks: vec![
                own("storefront/dev", "appops/storefront/dev"),
                own("storefront/prod", "appops/storefront/prod"),
                own("acme/orders/dev", "appops/orders/dev"),
                stack(
                    "examples/a/prod",
                    "sample/prod",
                    "examples/a/prod",
                    NamedBy::Folder,
                ),
                stack(
                    "examples/b/prod",
                    "sample/prod",
                    "examples/b/prod",
                    NamedBy::Folder,
                ),
                stack("web/prod", "sample/prod", "examples/c/prod", NamedBy::Config),
            ],
            ..Layout::default()
        };
        layout.stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
        layout
    }

    fn selected(word: &str, here: &str) -> Vec<String> {
        let here = RepoPath::normalize(here).unwrap();
        let layout = layout();
        let found = word.parse::<StackSelector>().unwrap();
        let found = found.select(&layout, &here);
        found.iter().map(|stack| stack.id.to_string()).collect()
    }

    #[test]
    fn a_word_is_an_identity_a_folder_a_project_or_a_glob() {
        for (word, here, expected) in [
            ("storefront/dev", "", &["storefront/dev"][..]),
            ("appops/storefront/dev", "", &["storefront/dev"]),
            ("appops/storefront/dev/", "", &["storefront/dev"]),
            ("dev", "appops/storefront", &["storefront/dev"]),
            (".", "appops/storefront", &["storefront/dev", "storefront/prod"]),
            ("../orders", "appops/storefront", &["acme/orders/dev"]),
            (
                "appops",
                "",
                &["acme/orders/dev", "storefront/dev", "storefront/prod"],
            ),
            ("storefront", "", &["storefront/dev", "storefront/prod"]),
            ("storefront", "examples", &["storefront/dev", "storefront/prod"]),
            ("orders", "", &["acme/orders/dev"]),
            ("acme/orders", "", &["acme/orders/dev"]),
            ("sample", "", &["examples/a/prod", "examples/b/prod", "web/prod"]),
            ("web", "", &["web/prod"]),
            ("storefront/*", "", &["storefront/dev", "storefront/prod"]),
            ("*/prod", "", &["storefront/prod", "web/prod"]),
            (
                "**/prod",
                "",
                &[
                    "storefront/prod",
                    "examples/a/prod",
                    "examples/b/prod",
                    "web/prod",
                ],
            ),
            ("appops/*/dev", "", &["acme/orders/dev", "storefront/dev"]),
            (
                "appops/*",
                "",
                &["acme/orders/dev", "storefront/dev", "storefront/prod"],
            ),
            ("store*", "appops", &["storefront/dev", "storefront/prod"]),
            ("{storefront,web}/prod", "", &["storefront/prod", "web/prod"]),
            ("sample/prod", "", &[]),
            (
                "*",
                "nowhere",
                &[
                    "acme/orders/dev",
                    "storefront/dev",
                    "storefront/prod",
                    "examples/a/prod",
                    "examples/b/prod",
                    "web/prod",
                ],
            ),
            ("storefront/*/x", "", &[]),
            ("front", "", &[]),
        ] {
            assert_eq!(selected(word, here), expected, "{word} in `{here}`");
        }
        let ambiguous: StackSelector = "sample/prod".parse().unwrap();
        assert_eq!(ambiguous.select_ambiguous(&layout()).len(), 3);
    }

    #[test]
    fn what_only_a_state_knows_is_meant_by_its_project_or_a_glob() {
        let (id, folder) = (
            "acme/shop/dev".parse().unwrap(),
            RepoPath::normalize("appops/shop/dev").unwrap(),
        );
        let is_meant = |word: &str| {
            word.parse::<StackSelector>()
                .unwrap()
                .matches_recorded(&id, &folder)
        };
        for word in ["shop", "acme/shop", "acme/*/*", "**/dev", "appops/*"] {
            assert!(is_meant(word), "{word}");
        }
        for word in ["sho", "*/dev", "other/*"] {
            assert!(!is_meant(word), "{word}");
        }
    }

    #[test]
    fn a_word_that_names_nothing_is_refused() {
        assert_eq!("".parse::<StackSelector>(), Err(InvalidSelector::Empty));
        let wrong = "shop/[".parse::<StackSelector>().unwrap_err();
        assert!(wrong.to_string().contains("glob"), "{wrong}");
    }
}
