//! The desired resources of a stack as input for policy sets: masked, with markers for unknown values.

use serde_json::{Map, Value};

use super::engine_plan::{EnginePlan, PlanNode};
use crate::{
    model::{
        ClusterName, ResourceId,
        plan::Action,
        plan_document::DesiredResource,
        spec::{Resource, RuntimeKind, Spec, terraform_type},
    },
    secrets::{Secrets, mask_resource},
};

impl EnginePlan {
    /// The resources that the Spec wants and that could be planned, and those that are deleted, as recorded; masked.
    pub fn desired(&self) -> Vec<DesiredResource> {
        let is_there =
            |node: &&PlanNode| !node.is_deletion || node.planned.public.action != Action::Unchanged;
        let nodes = self.nodes.iter().filter(is_there);
        nodes.filter_map(|node| desired_of(node, &self.secrets)).collect()
    }
}

fn desired_of(node: &PlanNode, secrets: &Secrets) -> Option<DesiredResource> {
    let planned = &node.planned;
    let wanted = planned.item.desired.as_ref().or(node.wanted.as_ref());
    let prior = planned.item.prior.as_ref().filter(|_| node.is_deletion);
    // The recorded form also masks secrets that came through a reference.
    let (attributes, extensions) = match (planned.recorded.as_ref().or(prior), wanted) {
        (Some(recorded), _) => (Map::clone(&recorded.attributes), &recorded.extensions),
        (None, Some(wanted)) => (mask_resource(secrets, wanted).attributes, &wanted.extensions),
        (None, None) => return None,
    };
    let public = &planned.public;
    Some(DesiredResource {
        id: public.id.clone(),
        runtime: public.runtime,
        kind: kind(&public.id, public.runtime, &attributes, extensions),
        cluster: public.cluster.clone(),
        attributes,
        known_before_write: node.provisional,
    })
}

/// The resources of a Spec that is compared with another Spec, masked.
pub fn desired_by_spec(
    spec: &Spec,
    cluster: Option<&ClusterName>,
    secrets: &Secrets,
) -> Vec<DesiredResource> {
    let desired = |resource: &Resource| {
        let masked = mask_resource(secrets, resource);
        DesiredResource {
            kind: kind(&masked.id, masked.runtime, &masked.attributes, &masked.extensions),
            cluster: cluster
                .filter(|_| masked.runtime == RuntimeKind::Kubernetes)
                .cloned(),
            id: masked.id,
            runtime: masked.runtime,
            attributes: masked.attributes,
            // References are resolved when it is applied.
            known_before_write: true,
        }
    };
    spec.resources.iter().map(desired).collect()
}

/// The kind of an object, or the type of a Terraform resource.
fn kind(
    id: &ResourceId,
    runtime: RuntimeKind,
    attributes: &Map<String, Value>,
    extensions: &Map<String, Value>,
) -> String {
    let text = match runtime {
        RuntimeKind::Kubernetes => attributes.get("kind").and_then(Value::as_str),
        RuntimeKind::Terraform => terraform_type(id, extensions),
    };
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::secrets::HashKey;
    use serde_json::json;

    /// Terraform takes the type from the id where nothing else says it: a rule must see the same.
    #[test]
    fn a_rule_sees_the_type_that_terraform_takes() {
        let kind = |id: &str, extensions: Value| {
            let resource = Resource {
                id: id.parse().unwrap(),
                runtime: RuntimeKind::Terraform,
                attributes: Map::new(),
                depends_on: Vec::new(),
                extensions: extensions.as_object().unwrap().clone(),
                sharing: crate::model::spec::Sharing::default(),
            };
            let spec = Spec {
                resources: vec![resource],
                ..Spec::default()
            };
            let desired = desired_by_spec(&spec, None, &Secrets::new(HashKey::derive("k")));
            desired[0].kind.clone()
        };
        let id = "hashicorp:aws:aws_db_instance:orders";
        assert_eq!(kind(id, json!({})), "aws_db_instance");
        assert_eq!(kind(id, json!({"resourceType": "aws_instance"})), "aws_instance");
        assert_eq!(kind("a:b:c", json!({})), "");
        assert_eq!(kind("a:b:c:d:e", json!({"resourceType": 1})), "c");
    }
}
