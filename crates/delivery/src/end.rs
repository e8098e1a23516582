//! The end of a delivery: the controller's object is deleted, and Konverge becomes the manager of the fields again.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, StackId,
        spec::{Resource, RuntimeKind, Spec},
        state::StackState,
    },
};
use konverge_config::DeliveryTool;
use konverge_engine::runtime::{Item, Needs};
use konverge_kubernetes::{FIELD_MANAGER, Kubernetes};

use super::{controller::managers_besides, record::DeliveryRecord};

/// The reason for the end of an earlier delivery.
pub(crate) const OTHER_RULE: &str = "konverge.yaml has another delivery rule for the stack now";
pub(crate) const NO_OBJECTS: &str = "its Spec has no objects any more";

/// Returns an error if the controller's object of an earlier delivery still exists: the controller would revert or
/// delete what Konverge or another controller applies.
///
/// # Errors
/// The object exists, or the cluster does not respond.
pub(crate) async fn check_released(
    kubernetes: &Kubernetes,
    stack: &StackId,
    before: &DeliveryRecord,
    why: &str,
) -> Result<(), UserError> {
    let earlier = &before.target;
    if earlier.object(kubernetes).await?.is_none() {
        return Ok(());
    }
    let what = format!("`{stack}` is delivered by {}, and {why}", earlier.title());
    let how = match earlier.tool {
        DeliveryTool::Argocd => format!(
            "delete the Application without its objects, and run the command again: `argocd app delete {} --cascade=false`",
            earlier.name
        ),
        DeliveryTool::Flux => {
            "set `spec.deletionPolicy: Orphan` in its Kustomizations, delete them and the OCIRepository, and run again".to_owned()
        }
    };
    Err(UserError::new(ErrorKind::Policy, what).hint(how))
}

/// Returns true if an apply ends the delivery of a stack, because Konverge applies its objects again or it has none.
/// `has_rule` is true if a rule names a controller.
///
/// # Errors
/// The record of the delivery cannot be read.
pub fn ends(has_rule: bool, wanted: &Spec, state: &StackState) -> Result<bool, UserError> {
    let has_ended = !(has_rule && has_objects(wanted));
    Ok(has_ended && DeliveryRecord::read(&state.runtime)?.is_some())
}

fn objects(spec: &Spec) -> impl Iterator<Item = &Resource> {
    let resources = spec.resources.iter();
    resources.filter(|one| one.runtime == RuntimeKind::Kubernetes)
}

/// Returns true if a Spec has Kubernetes objects.
pub fn has_objects(spec: &Spec) -> bool {
    objects(spec).next().is_some()
}

/// Returns the cluster that the objects of a Spec name, if they name one. An artifact is for one cluster only.
pub fn named_cluster(spec: &Spec) -> Option<ClusterName> {
    objects(spec).find_map(|one| one.extensions.get("cluster")?.as_str()?.parse().ok())
}

/// Makes Konverge the manager of a stack's fields again. A second call changes nothing.
///
/// # Errors
/// A cluster cannot be reached, or refuses the change.
pub async fn take_back(kubernetes: &Kubernetes, state: &StackState) -> Result<(), UserError> {
    let objects = state.resources.iter();
    let objects = objects.filter(|one| one.runtime == RuntimeKind::Kubernetes);
    let items = objects.map(|recorded| Item {
        id: recorded.id.clone(),
        cluster: recorded.cluster.clone(),
        prior: Some(recorded.clone()),
        desired: None,
        needs: Needs::default(),
    });
    let items: Vec<Item> = items.collect();
    let others = managers_besides(FIELD_MANAGER);
    kubernetes
        .hand_over(&state.stack, &items, &others, FIELD_MANAGER)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{ended, recorded};
    use konverge_base::model::{RepoPath, state::JournalEntry};
    use serde_json::json;

    #[test]
    fn a_delivery_ends_without_a_rule_or_without_objects() {
        let object = json!({"id": "v1:ConfigMap:a:b", "type": "Kubernetes", "attributes": {}});
        let spec = Spec {
            resources: vec![serde_json::from_value(object).unwrap()],
            ..Spec::default()
        };
        let none = Spec::default();
        let mut state = StackState::empty("a/dev".parse().unwrap(), RepoPath::normalize("a/dev").unwrap());
        assert!(!ends(false, &spec, &state).unwrap(), "there was none");
        state.runtime = recorded();
        assert!(!ends(true, &spec, &state).unwrap());
        assert!(ends(false, &spec, &state).unwrap() && ends(true, &none, &state).unwrap());
        let JournalEntry::Runtime { key, value } = ended() else {
            panic!("it is data of a runtime")
        };
        state.runtime.insert(key, value);
        assert!(!ends(false, &spec, &state).unwrap(), "it has ended");
    }
}
