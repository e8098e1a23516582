//! [`DeliveryChoice`]: who applies the Kubernetes objects of a stack in a plan: Konverge, or a controller.

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
    runtime::{DeliveredObjects, Delivery},
};

/// The facts that decide who applies the objects of a stack.
pub struct DeliveryChoice<'a> {
    /// The environment of the run, with the login of the registry.
    pub env: &'a BTreeMap<String, String>,
    /// Ends what waits for the registry and the controller.
    pub interrupt: Interrupt,
    /// The configuration, with the registry and the names of controllers.
    pub config: &'a Config,
    /// What must be masked.
    pub secrets: &'a Secrets,
    /// The stack.
    pub stack: &'a StackId,
    /// The controller of the stack's rule.
    pub rule: Option<DeliveryTool>,
    /// True if the Spec has objects.
    pub has_objects: bool,
    /// True if the plan is applied.
    pub is_apply: bool,
    /// The recorded state of the stack.
    pub state: &'a StackState,
    /// The cluster of the stack.
    pub cluster: Option<&'a ClusterName>,
    /// The cluster that its objects name, if they name one.
    pub named: Option<ClusterName>,
}

/// The runtimes of a stack, and what a plan that is not applied says of them.
pub struct ChosenRuntimes {
    /// The runtimes.
    pub runtimes: RuntimeRegistry,
    /// What is wrong with the delivery.
    pub warning: Option<DeliveryWarning>,
}

/// What is wrong with a delivery that is planned, and not applied.
pub enum DeliveryWarning {
    /// An apply would stop.
    Stops(UserError),
    /// The last delivery is not well, and this is what the controller says.
    Unwell(String),
}

impl DeliveryChoice<'_> {
    /// The runtimes, with the controller in the place of the Kubernetes runtime if one delivers the stack. Nothing is
    /// written.
    ///
    /// # Errors
    /// The plan is applied, and the controller would not deliver the stack, or another one still does.
    pub async fn runtimes(
        &self,
        runtimes: RuntimeRegistry,
        kubernetes: Option<Kubernetes>,
    ) -> Result<ChosenRuntimes, UserError> {
        let before = DeliveryRecord::read(&self.state.runtime)?;
        // An artifact is not empty: the objects that are left are deleted as those of every stack.
        let tool = self.rule.filter(|_| self.has_objects);
        let Some(kubernetes) = kubernetes.filter(|_| before.is_some() || tool.is_some()) else {
            return Ok(ChosenRuntimes {
                runtimes,
                warning: None,
            });
        };
        let (checked, runtime): (_, Arc<dyn Runtime>) = match (tool, before) {
            (Some(tool), before) => {
                let target = DeliveryTarget::new(self.config, tool, self.stack, self.cluster);
                let login = RegistryLogin::find(self.env, &target.reference()?.host);
                let delivery = Delivery {
                    stack: self.stack.clone(),
                    target,
                    cluster: self.named.as_ref().or(self.cluster).cloned(),
                    before,
                    login,
                    secrets: self.secrets.clone(),
                    interrupt: self.interrupt.clone(),
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
            (None, None) => {
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
