//! The scopes of kinds (namespaced or cluster-scoped), as far as they are known without a cluster: from the kinds of
//! Kubernetes itself, and from the CustomResourceDefinitions of a Spec.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::{
    GroupKind, built_in_groups,
    spec::{Resource, RuntimeKind, Spec},
};

/// The scopes of the kinds that a Spec defines; true if namespaced.
pub struct KindScopes<'a>(HashMap<GroupKind<'a>, bool>);

impl<'a> KindScopes<'a> {
    /// Collects the scopes that these resources define.
    pub fn new(resources: impl IntoIterator<Item = &'a Resource>) -> Self {
        let bodies = resources.into_iter().map(|resource| &resource.attributes);
        let kinds = bodies.filter_map(|body| {
            let is_namespaced = body.get("spec")?.get("scope")? != "Cluster";
            Some((GroupKind::defined_by(body)?, is_namespaced))
        });
        Self(kinds.collect())
    }

    /// Sets the namespace of a namespaced object to `default` if it has none, and removes the namespace of a
    /// cluster-scoped one, as an apply does. Returns false if the object has no namespace and the scope of its kind is
    /// unknown.
    pub fn set_namespace(&self, body: &mut Map<String, Value>) -> bool {
        let kind = GroupKind::from_attributes(body);
        let own = self.0.get(&kind).copied();
        let is_namespaced = own.or_else(|| built_in_groups::is_namespaced(kind));
        let metadata = body.get("metadata");
        let written = metadata.and_then(|metadata| metadata.get("namespace")?.as_str());
        let is_missing = written.unwrap_or_default().is_empty();
        let Some(is_namespaced) = is_namespaced else {
            return !is_missing;
        };
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            if !is_namespaced {
                metadata.shift_remove("namespace");
            } else if is_missing {
                metadata.insert("namespace".to_owned(), "default".into());
            }
        }
        true
    }

    /// Returns the Spec with the namespaces that an apply uses. The ids of the resources stay unchanged.
    #[must_use]
    pub fn with_namespaces(spec: &Spec) -> Spec {
        let scopes = KindScopes::new(&spec.resources);
        let mut applied = spec.clone();
        let objects = applied
            .resources
            .iter_mut()
            .filter(|resource| resource.runtime == RuntimeKind::Kubernetes);
        for resource in objects {
            scopes.set_namespace(&mut resource.attributes);
        }
        applied
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_have_the_namespace_of_an_apply() {
        let resource = |body: Value| {
            Resource::new(
                "x".parse().unwrap(),
                RuntimeKind::Kubernetes,
                body.as_object().unwrap().clone(),
            )
        };
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.io"},
            "spec": {"group": "x.io", "names": {"kind": "Thing"}, "scope": "Namespaced"}});
        let object = |api_version: &str, kind: &str, namespace: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": namespace}});
        let spec = Spec {
            resources: [
                definition,
                object("v1", "ConfigMap", Value::Null),
                object("v1", "ConfigMap", json!("shop")),
                object("rbac.authorization.k8s.io/v1", "ClusterRole", json!("odd")),
                object("x.io/v1", "Thing", json!("")),
                object("y.io/v1", "ConfigMap", Value::Null),
            ]
            .map(resource)
            .into(),
            ..Spec::default()
        };
        let applied = KindScopes::with_namespaces(&spec);
        let namespaces: Vec<_> = applied
            .resources
            .iter()
            .map(|one| one.attributes["metadata"].get("namespace").cloned())
            .collect();
        let expected = [
            None,
            Some(json!("default")),
            Some(json!("shop")),
            None,
            Some(json!("default")),
            Some(Value::Null),
        ];
        assert_eq!(namespaces, expected);
    }
}
