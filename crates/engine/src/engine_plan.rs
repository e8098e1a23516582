//! [`EnginePlan`]: a plan with everything that [`super::apply`] needs to carry it out.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{RuntimeRegistry, published_outputs::PublishedOutputs};
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
    /// The first of these failures that stops the whole stack. A failure of Terraform does not stop the stack: it only
    /// holds back the dependents of its resource and all deletions.
    pub refusal: Option<UserError>,
    /// The resources that were not planned because they depend on a failed resource, each with that resource.
    pub(super) waiting: Vec<(ResourceId, ResourceId)>,
    pub(super) nodes: Vec<PlanNode>,
    pub(super) targets: Targets,
    pub(super) scope: StackScope,
    /// The replacements that an earlier run started and did not complete.
    pub(super) begun: BTreeMap<ResourceId, Replacement>,
    pub(super) runtimes: RuntimeRegistry,
    pub(super) secrets: Secrets,
    /// The outputs that the stack publishes once everything is applied.
    pub(super) outputs: PublishedOutputs,
    /// True if the Spec is empty although resources are recorded.
    pub(super) empties_stack: bool,
}

impl EnginePlan {
    /// Returns the health of the live objects. Empty unless the plan is a drift check.
    pub fn health(&self) -> impl Iterator<Item = &ObjectStatus> {
        self.nodes.iter().filter_map(|node| node.planned.health.as_ref())
    }

    /// Returns the expected value of a resource that references read, with `$unknown` for values that only the server
    /// knows. It contains secrets in clear text: never print it.
    pub fn expected_object(&self, id: &ResourceId) -> Option<&Value> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node.planned.item.id == *id)?;
        node.planned.expected.as_ref()
    }
}

pub(super) struct PlanNode {
    pub granularity: Granularity,
    /// The stage of the node, from 0. Stages of desired resources and of deletions are counted separately.
    pub stage: usize,
    /// Indices of the nodes that must succeed before this node starts.
    pub waits: Vec<usize>,
    /// The failed resource that this node depends on, if the node is skipped.
    pub held: Option<ResourceId>,
    /// The dependencies to record in the state.
    pub depends_on: Vec<ResourceId>,
    /// True for a deletion.
    pub is_deletion: bool,
    /// True if the resource reads values of other resources.
    pub refers: bool,
    /// The desired resource with unresolved references; `None` if it need not be planned again.
    pub wanted: Option<Resource>,
    /// True if values of the plan are unknown. The resource is planned again during the apply, when they are known.
    pub provisional: bool,
    /// The runtime's plan, without its changes: those are in the public plan. Only a replacement keeps a copy, because
    /// the state records its changes when it starts.
    pub planned: PlannedResource,
}
