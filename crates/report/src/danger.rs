//! [`Danger`]: how dangerous a change is, which decides what is shown first.

use crate::{diff, labels};
use konverge_base::model::plan::{Action, ResourcePlan};

/// The danger of a change, the most dangerous level first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Danger {
    /// The change deletes or replaces a resource, or may have to.
    Grave,
    /// The change modifies a live resource.
    Change,
    /// The change takes over a live resource and modifies it.
    TakeOver,
}

impl Danger {
    /// Returns how dangerous a change is; `None` if it changes no live resource.
    pub(crate) fn of_resource(resource: &ResourcePlan) -> Option<Self> {
        let changes_a_value = || {
            resource
                .changes
                .iter()
                .any(|change| diff::is_own(resource, change))
        };
        match resource.action {
            _ if labels::is_grave(resource) || !resource.immutable.is_empty() => Some(Self::Grave),
            Action::Update | Action::Run | Action::Unknown | Action::Replace | Action::Delete => {
                Some(Self::Change)
            }
            Action::Adopt if changes_a_value() => Some(Self::TakeOver),
            Action::Create | Action::Adopt | Action::Forget | Action::Unchanged => None,
        }
    }
}
