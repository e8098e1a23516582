//! [`DeliveryChoice`]: who applies the Kubernetes objects of a stack in a plan: Konverge, or a controller.

use std::sync::Arc;

use konverge_base::{
    error::UserError,
    interrupt::Interrupt,
    model::{ClusterName, StackId, state::StackState},
    secrets::Secrets,
};
use konverge_cloud::RegistryLogin;
use konverge_config::{Config, DeliveryTool};
use konverge_engine::{RuntimeRegistry, runtime::Runtime};
use konverge_kubernetes::Kubernetes;

use super::{
    controller::DeliveryTarget,
    end::{NO_OBJECTS, OTHER_RULE, check_released},
    record::DeliveryRecord,
    runtime::{DeliveredObjects, Delivery},
};
use crate::RunContext;

/// The facts that decide who applies the objects of a stack.
pub(crate) struct DeliveryChoice<'a> {
    pub run: &'a RunContext,
    pub config: &'a Config,
    pub secrets: &'a Secrets,
    pub stack: &'a StackId,
    /// The controller of the stack's rule.
    pub rule: Option<DeliveryTool>,
    /// True if the Spec has objects.
    pub has_objects: bool,
    /// True if the plan is applied.
    pub is_apply: bool,
    pub state: &'a StackState,
    /// The cluster of the stack.
    pub cluster: Option<&'a ClusterName>,
    /// The cluster that its objects name, if they name one.
    pub named: Option<ClusterName>,
}

impl DeliveryChoice<'_> {
    /// The runtimes, with the controller in the place of the Kubernetes runtime if one delivers the stack. Nothing is
    /// written.
    ///
    /// # Errors
    /// The plan is applied, and the controller would not deliver the stack, or another one still does.
    pub(crate) async fn runtimes(
        &self,
        runtimes: RuntimeRegistry,
        kubernetes: Option<Kubernetes>,
    ) -> Result<RuntimeRegistry, UserError> {
        let before = DeliveryRecord::read(&self.state.runtime)?;
        // An artifact is not empty: the objects that are left are deleted as those of every stack.
        let tool = self.rule.filter(|_| self.has_objects);
        let Some(kubernetes) = kubernetes.filter(|_| before.is_some() || tool.is_some()) else {
            return Ok(runtimes);
        };
        let (checked, runtime): (_, Arc<dyn Runtime>) = match (tool, before) {
            (Some(tool), before) => {
                let target = DeliveryTarget::new(self.config, tool, self.stack, self.cluster);
                let login = RegistryLogin::find(&self.run.env, &target.reference()?.host);
                let delivery = Delivery {
                    stack: self.stack.clone(),
                    target,
                    cluster: self.named.as_ref().or(self.cluster).cloned(),
                    before,
                    login,
                    secrets: self.secrets.clone(),
                    interrupt: Interrupt::new(self.run.cancel.clone()),
                };
                let delivered = DeliveredObjects::new(&kubernetes, delivery);
                (delivered.check().await, Arc::new(delivered))
            }
            (None, Some(before)) => {
                let why = self.rule.map_or(OTHER_RULE, |_| NO_OBJECTS);
                let released = check_released(&kubernetes, self.stack, &before, why).await;
                // An apply makes Konverge the manager of its fields again, after its approval.
                let runtime = kubernetes.managed_by(before.target.field_manager());
                (released.map(|()| None), Arc::new(runtime))
            }
            (None, None) => return Ok(runtimes),
        };
        match checked {
            Err(refusal) if self.is_apply => return Err(refusal),
            Err(refusal) => {
                let what = format!("an apply of {} would stop", self.stack);
                self.run.warn(&what, refusal);
            }
            Ok(Some(says)) if !self.is_apply => {
                let note = format!("{}: the last delivery is not healthy: {says}", self.stack);
                self.run.notes.warning(&note);
            }
            Ok(_) => {}
        }
        Ok(runtimes.with(runtime))
    }
}
