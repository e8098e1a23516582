//! Implements the runtime trait by the modules of this crate.

use std::collections::BTreeSet;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    api::clusters::Kubernetes,
    object::object_ref,
    object_apply,
    object_apply::missing_objects,
    plan,
    plan::{observe, same_cluster},
};
use konverge_base::{
    error::UserError,
    model::{
        ClusterName, ResourceId,
        spec::{Resource, RuntimeKind},
        state::Recorded,
    },
};
use konverge_engine::runtime::{
    ApplySink, Granularity, Item, ObservedObject, PlanFailure, PlannedResource, Runtime, StackScope,
};

#[async_trait]
impl Runtime for Kubernetes {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Kubernetes
    }

    fn granularity(&self) -> Granularity {
        Granularity::Resource
    }

    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        let discovery = self.cluster(cluster)?.discovery().await?;
        let scopes = object_ref::Scopes::from_resources(Some(&*discovery), &resources)?;
        resources
            .into_iter()
            .map(|resource| Ok((resource.id.clone(), object_ref::prepare(resource, &scopes)?)))
            .collect()
    }

    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        observe::observe(self, scope, items).await
    }

    async fn find_missing(&self, items: &[Item], earlier: &[Recorded]) -> Result<Vec<ResourceId>, UserError> {
        missing_objects::find_missing(self, items, earlier).await
    }

    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        same_cluster::to_remember(self, scope, clusters).await
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        let planned = plan::plan(self, scope, items).await?.into_iter();
        Ok(planned
            .map(|planned| planned.map_err(PlanFailure::from))
            .collect())
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        for planned in planned {
            object_apply::apply(self, scope, planned, sink).await?;
        }
        Ok(())
    }
}
