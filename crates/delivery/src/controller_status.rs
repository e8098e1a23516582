//! [`ControllerStatus`]: the current status of the controller that delivers a stack.

use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId, StackId,
        health::Health,
        plan::{Action, ChangeOrigin, FieldChange, ResourcePlan},
        spec::RuntimeKind,
        stack_status::ObjectStatus,
        state::StackState,
    },
};
use konverge_kubernetes::Kubernetes;

use super::{progress::DeliveryProgress, record::DeliveryRecord};

/// The status of the controller, compared with the last delivery of the stack.
pub struct ControllerStatus {
    /// The id of the Application or the OCIRepository.
    id: ResourceId,
    cluster: Option<ClusterName>,
    /// The digest of the last delivery.
    digest: String,
    progress: DeliveryProgress,
}

impl ControllerStatus {
    /// Reads the status of a stack's controller; `None` if no controller delivers the stack, or the last delivery has
    /// not ended. `clusters` is called only if there was a delivery.
    ///
    /// # Errors
    /// The cluster of the controller cannot be reached, a cloud refuses the login, or the record cannot be read.
    pub async fn read(
        stack: &StackId,
        state: &StackState,
        clusters: impl Future<Output = Result<Option<Kubernetes>, UserError>>,
    ) -> Result<Option<Self>, UserError> {
        let Some(record) = DeliveryRecord::read(&state.runtime)? else {
            return Ok(None);
        };
        let Some(kubernetes) = &clusters.await? else {
            return Ok(None);
        };
        let (target, Some(digest)) = (&record.target, record.settled_digest()) else {
            return Ok(None);
        };
        let mut objects = state.resources.iter();
        let objects = objects.find(|one| one.runtime == RuntimeKind::Kubernetes);
        let cluster = objects.and_then(|one| one.cluster.as_ref());
        // A cluster that does not respond is an error. A controller object that is missing or reads another artifact is
        // a status.
        target.object(kubernetes).await?;
        let progress = match target.objects(kubernetes, stack, cluster).await {
            Ok(objects) => objects.progress(digest),
            Err(refusal) => DeliveryProgress::Failed(refusal.message),
        };
        let id: ResourceId = target
            .object_id()
            .parse()
            .map_err(|_| UserError::new(ErrorKind::State, "the record of the delivery has no valid name"))?;
        Ok(Some(Self {
            id,
            cluster: target.cluster.clone(),
            digest: digest.to_owned(),
            progress,
        }))
    }

    /// Returns the health of the controller, in the form of the health of an object.
    pub fn health(self) -> ObjectStatus {
        let (health, message) = match self.progress {
            DeliveryProgress::Healthy => (Health::Ready, String::new()),
            DeliveryProgress::Waiting(why) => (Health::Progressing, why),
            DeliveryProgress::Failed(why) => (Health::Failed, why),
        };
        ObjectStatus {
            id: self.id,
            cluster: self.cluster,
            health,
            message,
            suspended_by_spec: false,
        }
    }

    /// Returns the difference from the last delivery, which was healthy; `None` if there is none.
    pub fn difference(self, stack: &StackId) -> Option<ResourcePlan> {
        let (DeliveryProgress::Waiting(why) | DeliveryProgress::Failed(why)) = self.progress else {
            return None;
        };
        let status = FieldChange {
            path: "/status".into(),
            from: Some(Value::String(why)),
            to: Some(Value::String(format!("healthy at {}", self.digest))),
            origin: ChangeOrigin::Drift,
        };
        let kind = RuntimeKind::Kubernetes;
        Some(ResourcePlan {
            cluster: self.cluster,
            ..ResourcePlan::new(stack, self.id, kind, Action::Update, vec![status])
        })
    }
}

/// Returns the error for a stack whose controller is unhealthy although all objects are as applied, so that an apply
/// would restore nothing.
pub fn left_to_controller(stack: &StackId) -> UserError {
    let what =
        format!("`{stack}` is unchanged since its apply: only its controller can make it healthy again");
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("read the status of the controller: let it sync, or fix the problem that it reports")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(progress: DeliveryProgress) -> ControllerStatus {
        ControllerStatus {
            id: "argoproj.io/v1alpha1:Application:argocd:shop-dev"
                .parse()
                .unwrap(),
            cluster: None,
            digest: "sha256:1".to_owned(),
            progress,
        }
    }

    #[test]
    fn a_controller_that_is_not_well_is_a_difference_and_is_not_ready() {
        let stack: StackId = "shop/dev".parse().unwrap();
        let why = "sync is OutOfSync";
        for (progress, health) in [
            (DeliveryProgress::Waiting(why.to_owned()), Health::Progressing),
            (DeliveryProgress::Failed(why.to_owned()), Health::Failed),
        ] {
            let object = status(progress.clone()).health();
            assert_eq!((object.health, object.message.as_str()), (health, why));
            let change = status(progress).difference(&stack).unwrap().changes.remove(0);
            assert_eq!(change.from, Some(why.into()));
            assert_eq!(change.to, Some("healthy at sha256:1".into()));
        }
        assert_eq!(status(DeliveryProgress::Healthy).health().health, Health::Ready);
        assert!(status(DeliveryProgress::Healthy).difference(&stack).is_none());
    }
}
