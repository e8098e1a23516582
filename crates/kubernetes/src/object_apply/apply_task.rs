//! [`ApplyTask`]: the arguments of applying one object.

use super::super::{
    api::{clusters::Kubernetes, discovery::ResourceType},
    object::plan_item::PlanItem,
};
use konverge_base::model::ResourceId;
use konverge_engine::runtime::{ApplySink, PlannedResource, StackScope};

/// Arguments that every step of applying one object shares.
#[derive(Clone, Copy)]
pub(super) struct ApplyTask<'a> {
    pub runtime: &'a Kubernetes,
    pub scope: &'a StackScope,
    pub subject: &'a PlanItem,
    pub of: &'a ResourceType,
    pub planned: &'a PlannedResource,
    pub sink: &'a dyn ApplySink,
}

impl<'a> ApplyTask<'a> {
    pub(super) fn id(&self) -> &'a ResourceId {
        &self.planned.item.id
    }
}
