//! Implements the runtime trait for [`Terraform`]. Each step has its own file.

use async_trait::async_trait;

use super::{context::Terraform, module_resource, plan, plan_apply, refresh};
use konverge_base::{
    error::UserError,
    model::{
        ClusterName, ResourceId,
        spec::{Resource, RuntimeKind},
    },
};
use konverge_engine::runtime::{
    ApplySink, Granularity, Item, ObservedObject, PlanFailure, PlannedResource, Runtime, StackScope,
};

#[async_trait]
impl Runtime for Terraform {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Terraform
    }

    fn granularity(&self) -> Granularity {
        Granularity::Segment
    }

    async fn prepare(
        &self,
        _: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        resources
            .into_iter()
            .map(|resource| {
                module_resource::parse_desired(&resource)?;
                Ok((resource.id.clone(), resource))
            })
            .collect()
    }

    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        Ok(refresh::observe(self, scope, items).await?)
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        let answers = plan::plan(self, scope, items).await;
        Ok(answers
            .into_iter()
            .map(|answer| answer.map_err(PlanFailure::from))
            .collect())
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        plan_apply::apply(self, scope, planned, sink).await
    }
}
