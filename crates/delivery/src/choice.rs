//! [`DeliveryChoice`]: decides who applies the Kubernetes objects of a stack: Konverge, or a delivery controller.

use std::{collections::BTreeMap, sync::Arc};

use konverge_base::{
    error::UserError,
    interrupt::Interrupt,
    model::{ClusterName, StackId, state::StackState},
};
use konverge_cloud::RegistryLogin;
use konverge_config::{Config, DeliveryTool};
use konverge_engine::{RuntimeRegistry, runtime::Runtime};
use konverge_kubernetes::Kubernetes;
use konverge_secrets::Secrets;

use super::{
    controller::DeliveryTarget,
    end::{NO_OBJECTS, OTHER_RULE, check_released},
    record::DeliveryRecord,
    runtime::DeliveredObjects,
};

/// The inputs that decide who applies the objects of a stack.
pub struct DeliveryChoice<'a> {
    /// The environment of the run, with the login of the registry.
    pub env: &'a BTreeMap<String, String>,
    /// Ends waits for the registry and the controller when the run is interrupted.
    pub interrupt: Interrupt,
    /// The configuration, with the registry and the names of controllers.
    pub config: &'a Config,
    /// The registry of secrets, for masking.
    pub secrets: &'a Secrets,
    /// The stack that is planned.
    pub stack: &'a StackId,
    /// The controller in the rule for the stack.
    pub rule: Option<DeliveryTool>,
    /// True if the Spec has objects.
    pub has_objects: bool,
    /// True if the plan is applied.
    pub is_apply: bool,
    /// The recorded state of the stack.
    pub state: &'a StackState,
    /// The cluster of the stack.
    pub cluster: Option<&'a ClusterName>,
    /// The cluster that the objects of the Spec name, if they name one.
    pub named: Option<ClusterName>,
}

/// The runtimes of a stack, with a warning for a plan that is not applied.
pub struct ChosenRuntimes {
    /// The runtimes for the plan.
    pub runtimes: RuntimeRegistry,
    /// The problem of the delivery, if there is one.
    pub warning: Option<DeliveryWarning>,
}

/// The problem of a delivery in a plan that is not applied.
pub enum DeliveryWarning {
    /// An apply would stop with this error.
    Stops(UserError),
    /// The last delivery is unhealthy; the text is the message of the controller.
    Unwell(String),
}

impl DeliveryChoice<'_> {
    /// Returns the runtimes. If a controller delivers the stack, it replaces the Kubernetes runtime. Nothing is
    /// written.
    ///
    /// # Errors
    /// The plan is applied, but the controller would not deliver the stack, or another controller still delivers it.
    pub async fn runtimes(
        &self,
        runtimes: RuntimeRegistry,
        kubernetes: Option<Kubernetes>,
    ) -> Result<ChosenRuntimes, UserError> {
        let before = DeliveryRecord::read(&self.state.runtime)?;
        // An artifact must not be empty. If the Spec has no objects, Konverge deletes the remaining ones as for any
        // stack.
        let tool = self.rule.filter(|_| self.has_objects);
        let (checked, runtime): (_, Arc<dyn Runtime>) = match (kubernetes, tool, before) {
            (Some(kubernetes), Some(tool), before) => {
                let target = DeliveryTarget::new(self.config, tool, self.stack, self.cluster);
                let login = RegistryLogin::find(self.env, &target.reference()?.host);
                let planner = match &before {
                    Some(before) => kubernetes.managed_by(before.target.field_manager()),
                    None => kubernetes.clone(),
                };
                let delivered = DeliveredObjects {
                    planner,
                    kubernetes: kubernetes.managed_by(target.field_manager()),
                    ours: kubernetes,
                    stack: self.stack.clone(),
                    target,
                    cluster: self.named.as_ref().or(self.cluster).cloned(),
                    before,
                    login,
                    secrets: self.secrets.clone(),
                    interrupt: self.interrupt.clone(),
                };
                (delivered.check().await, Arc::new(delivered))
            }
            (Some(kubernetes), None, Some(before)) => {
                let why = self.rule.map_or(OTHER_RULE, |_| NO_OBJECTS);
                let released = check_released(&kubernetes, self.stack, &before, why).await;
                // The plan uses the controller's field manager; an approved apply makes Konverge the manager of the
                // fields again.
                let runtime = kubernetes.managed_by(before.target.field_manager());
                (released.map(|()| None), Arc::new(runtime))
            }
            (None, ..) | (Some(_), None, None) => {
                return Ok(ChosenRuntimes {
                    runtimes,
                    warning: None,
                });
            }
        };
        let warning = match checked {
            Err(refusal) if self.is_apply => return Err(refusal),
            Err(refusal) => Some(DeliveryWarning::Stops(refusal)),
            Ok(Some(says)) if !self.is_apply => Some(DeliveryWarning::Unwell(says)),
            Ok(_) => None,
        };
        Ok(ChosenRuntimes {
            runtimes: runtimes.with(runtime),
            warning,
        })
    }
}
