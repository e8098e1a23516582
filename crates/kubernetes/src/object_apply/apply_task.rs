//! [`ApplyTask`]: the arguments of applying one object.

use serde_json::Value;

use super::super::{
    api::{clusters::Kubernetes, discovery::ResourceType},
    object::plan_item::PlanItem,
};
use konverge_base::model::{ResourceId, apply_result::Waiting, state::Recorded};
use konverge_engine::runtime::{AppliedResource, ApplySink, PlannedResource, StackScope};

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

    /// Returns the result with the last version of the live object.
    pub(super) fn applied(
        &self,
        recorded: Option<Recorded>,
        live: Option<Value>,
        waiting: Option<(Waiting, String)>,
    ) -> AppliedResource {
        let texts = live.as_ref().map(|live| self.subject.secret_texts(live));
        AppliedResource {
            sensitive: texts.unwrap_or_default(),
            live,
            waiting,
            ..AppliedResource::unread(self.id().clone(), recorded)
        }
    }
}
