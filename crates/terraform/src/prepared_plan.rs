//! [`PreparedPlan`]: a saved plan that is kept until its apply.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::{
    installation::ModuleFolder, module::ProviderUsers, module_resource::ModuleResource,
    providers::ProviderRef, renamed::CreatedResource,
};
use konverge_base::model::{
    ResourceId, StackId,
    plan::Action,
    state::{Recorded, Replacement},
};

/// A saved plan that is kept until its apply.
pub(super) struct PreparedPlan {
    pub(super) stack: StackId,
    pub(super) workspace: ModuleFolder,
    pub(super) ready: Vec<Ready>,
    pub(super) users: ProviderUsers,
    pub(super) hashes: BTreeMap<ProviderRef, Vec<String>>,
    /// The name of the plan, which its resources have as their preparation.
    pub(super) token: String,
}

/// One resource of a saved plan.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) subject: ModuleResource,
    pub(super) action: Action,
    /// True if `terraform apply` changes the resource.
    pub(super) touched: bool,
    pub(super) recorded: Option<Recorded>,
    /// The planned object, with `$unknown` markers.
    pub(super) expected: Option<Value>,
    /// The mask of sensitive values of the planned object.
    pub(super) sensitive: Value,
    /// True if the resource waits for values of other resources.
    pub(super) provisional: bool,
    /// The replacement that is planned, or the earlier one that is completed.
    pub(super) replacement: Option<Replacement>,
    /// For a deletion: the created resource that is the same object.
    pub(super) same_object: Option<ResourceId>,
}

impl Ready {
    /// Returns true if `terraform apply` will create an object for the resource.
    pub(super) fn makes(&self) -> bool {
        self.touched && matches!(self.action, Action::Create | Action::Replace)
    }
}

impl PreparedPlan {
    /// Returns true if the plan is for exactly these resources, and all values are known.
    pub(super) fn is_applicable(&self, ids: &[ResourceId]) -> bool {
        self.ready
            .iter()
            .all(|r| !r.provisional && (!r.touched || ids.contains(r.subject.id())))
    }

    /// Returns the resources that are created where none existed.
    pub(super) fn created(&self) -> impl Iterator<Item = CreatedResource> {
        let created = self
            .ready
            .iter()
            .filter(|ready| ready.makes() && ready.subject.holding.is_none());
        created.filter_map(|ready| {
            Some(CreatedResource {
                subject: ready.subject.clone(),
                expected: ready.expected.clone()?,
            })
        })
    }

    /// Returns true if another plan is for the same resources of the same stack.
    pub(super) fn is_for_the_same(&self, other: &Self) -> bool {
        let ids = |p: &Self| -> Vec<ResourceId> {
            p.ready.iter().map(|r: &Ready| r.subject.id().clone()).collect()
        };
        self.stack == other.stack && ids(self) == ids(other)
    }
}

/// Returns the indexes of resources by address.
pub(super) fn by_address(ready: &[Ready]) -> HashMap<String, usize> {
    ready
        .iter()
        .enumerate()
        .map(|(index, r)| (r.subject.address.to_string(), index))
        .collect()
}
