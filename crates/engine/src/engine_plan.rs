//! [`EnginePlan`]: a plan with everything that [`super::apply`] needs to carry it out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{RuntimeRegistry, plan_failures, published_outputs::PublishedOutputs};
use crate::runtime::{Granularity, PlannedResource, StackScope};
use konverge_base::{
    error::UserError,
    model::{
        ResourceId, plan::StackPlan, reference::Targets, spec::Resource, stack_status::ObjectStatus,
        state::Replacement,
    },
};
use konverge_secrets::Secrets;

/// A plan: what is shown, and what [`super::apply`] needs to execute exactly that.
pub struct EnginePlan {
    /// The plan that is shown and reviewed. Its `error` is set if a resource could not be planned.
    pub public: StackPlan,
    /// The resources that could not be planned, each with its reason; in the order of the Spec.
    pub failures: Vec<(ResourceId, UserError)>,
    /// The resources that were not planned because they depend on a failure, each with that failure.
    pub(super) waiting: Vec<(ResourceId, ResourceId)>,
    pub(super) nodes: Vec<PlanNode>,
    pub(super) targets: Targets,
    pub(super) scope: StackScope,
    /// Replacements that an earlier run started.
    pub(super) begun: BTreeMap<ResourceId, Replacement>,
    pub(super) runtimes: RuntimeRegistry,
    pub(super) secrets: Secrets,
    /// The outputs that the stack publishes once everything is applied.
    pub(super) outputs: PublishedOutputs,
    /// True if the Spec is empty although resources are recorded.
    pub(super) empties_stack: bool,
}

impl EnginePlan {
    /// The failure of a resource that stops the whole stack. A failure of Terraform does not: it only holds
    /// back its dependents and all deletions.
    pub fn refusal(&self) -> Option<UserError> {
        let mut failures = self.failures.iter();
        let (id, failure) = failures.find(|(_, failure)| plan_failures::stops_the_stack(failure))?;
        Some(plan_failures::of_resource(id, failure.clone()))
    }

    /// The health of the live objects, where the plan is only compared.
    pub fn health(&self) -> impl Iterator<Item = &ObjectStatus> {
        self.nodes.iter().filter_map(|node| node.planned.health.as_ref())
    }

    /// The expected value of a resource that references read, with `$unknown` for what only the server knows.
    /// Contains secrets in clear text: never print it.
    pub fn expected_object(&self, id: &ResourceId) -> Option<&Value> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.planned.item.id == *id)?;
        node.planned.expected.as_ref()
    }
}

pub(super) struct PlanNode {
    pub granularity: Granularity,
    /// The stage. Desired resources and deletions are counted separately.
    pub stage: usize,
    /// Indices of the nodes that must succeed before this node starts.
    pub waits: Vec<usize>,
    /// The failed resource that this node waits for, so that it is skipped.
    pub held: Option<ResourceId>,
    /// The dependencies to record.
    pub depends_on: Vec<ResourceId>,
    /// True for a deletion.
    pub is_deletion: bool,
    /// True if the resource reads values of others.
    pub refers: bool,
    /// The desired resource with unresolved references, if it may have to be planned again.
    pub wanted: Option<Resource>,
    /// True if values were unknown: the resource is planned again when they are known.
    pub provisional: bool,
    /// The plan without its changes, which are in the public plan. The changes of a replacement are recorded
    /// when it starts.
    pub planned: PlannedResource,
}
