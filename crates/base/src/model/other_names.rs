//! [`OtherNames`]: the names of a stack besides its current identity and folder.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{RepoPath, StackId};

/// The other names of a stack: those in its files, those before the change, and those that its state recorded.
///
/// A guard (a policy set, an approval, a limit, a freeze, a workflow hook) that names one of them applies to the stack
/// as well. A permission that names one of them does not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct OtherNames {
    /// The other identities.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ids: BTreeSet<StackId>,
    /// The other folders.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub folders: BTreeSet<RepoPath>,
}

impl OtherNames {
    /// Returns true if there are no other names.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.folders.is_empty()
    }

    /// Adds the names of another list.
    pub fn extend(&mut self, other: &Self) {
        self.ids.extend(other.ids.iter().cloned());
        self.folders.extend(other.folders.iter().cloned());
    }

    /// Returns true if `other` contains all of these names.
    pub fn is_within(&self, other: &Self) -> bool {
        self.ids.is_subset(&other.ids) && self.folders.is_subset(&other.folders)
    }

    /// Removes the current identity and folder from the names. The root is removed as well, because a glob that matches
    /// it matches every folder.
    #[must_use]
    pub fn besides(mut self, id: &StackId, folder: &RepoPath) -> Self {
        self.ids.remove(id);
        self.folders.retain(|other| other != folder && !other.is_root());
        self
    }

    /// Returns each name as text, to be matched by a glob.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let ids = self.ids.iter().map(StackId::as_str);
        ids.chain(self.folders.iter().map(RepoPath::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_names_and_the_root_are_no_other_names() {
        let folder = |path: &str| RepoPath::normalize(path).unwrap();
        let (id, place): (StackId, _) = ("shop/prod".parse().unwrap(), folder("appops/shop/prod"));
        let names = OtherNames {
            ids: [id.clone(), "store/prod".parse().unwrap()].into(),
            folders: [place.clone(), RepoPath::root(), folder("apps/store/prod")].into(),
        };
        let others = names.clone().besides(&id, &place);
        assert_eq!(
            others.iter().collect::<Vec<_>>(),
            ["store/prod", "apps/store/prod"]
        );
        assert!(others.is_within(&names) && !names.is_within(&others));
        let written = serde_json::to_string(&OtherNames::default()).unwrap();
        assert_eq!(written, "{}");
    }
}
