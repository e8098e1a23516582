//! [`Container`]: an object whose deletion deletes other objects: a Namespace or a CustomResourceDefinition.

use serde_json::{Map, Value};

use super::{
    ClusterName, GroupKind,
    claim::short_hash,
    spec::{RuntimeKind, object_key},
    state::Recorded,
};

/// An object whose deletion also deletes all objects in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container<'a> {
    /// A Namespace; it contains the objects of the namespace.
    Namespace(&'a str),
    /// A CustomResourceDefinition; it contains all objects of its kind.
    Definition(GroupKind<'a>),
}

impl<'a> Container<'a> {
    /// Returns the container that an object is, by its attributes; `None` for every other object.
    pub fn from_attributes(attributes: &'a Map<String, Value>) -> Option<Self> {
        let object = object_key(attributes);
        let text = |path: &str| {
            let spec = attributes.get("spec")?;
            spec.pointer(path)?.as_str()
        };
        match object.group_kind() {
            GroupKind::NAMESPACE => Some(Self::Namespace(object.name)),
            GroupKind::CUSTOM_RESOURCE_DEFINITION => Some(Self::Definition(GroupKind::new(
                text("/group")?,
                text("/names/kind")?,
            ))),
            _ => None,
        }
    }

    /// Returns true if a recorded object is in the container, on this cluster. A record without a cluster counts as a
    /// record of this cluster.
    pub fn holds(self, recorded: &Recorded, cluster: Option<&ClusterName>) -> bool {
        recorded.runtime == RuntimeKind::Kubernetes
            && recorded.cluster.as_ref().or(cluster) == cluster
            && Self::around(&recorded.attributes).contains(&self)
    }

    /// Returns the short hashes of the containers of a recorded object: its Namespace, and the CRD of its kind.
    pub fn marks_of_recorded(recorded: &Recorded) -> Vec<String> {
        if recorded.runtime != RuntimeKind::Kubernetes {
            return Vec::new();
        }
        let around = Self::around(&recorded.attributes);
        let marks = around.map(|container| Container::mark(container, recorded.cluster.as_ref()));
        marks.into()
    }

    /// Returns a short hash of the container on a cluster. Containers with different hashes are different.
    pub fn mark(self, cluster: Option<&ClusterName>) -> String {
        let cluster = cluster.map(ClusterName::as_str).unwrap_or_default();
        match self {
            Self::Namespace(name) => short_hash("container", [cluster, name]),
            Self::Definition(GroupKind { group, kind }) => short_hash("container", [cluster, group, kind]),
        }
    }

    fn around(attributes: &Map<String, Value>) -> [Container<'_>; 2] {
        let object = object_key(attributes);
        [
            Container::Namespace(object.namespace),
            Container::Definition(object.group_kind()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn recorded(attributes: &Value, cluster: Option<&str>) -> Recorded {
        Recorded {
            cluster: cluster.map(|name| name.parse().unwrap()),
            ..Recorded::new(
                "v1:X:shop:x".parse().unwrap(),
                RuntimeKind::Kubernetes,
                attributes.as_object().unwrap().clone(),
            )
        }
    }

    #[test]
    fn a_namespace_and_a_definition_hold_what_is_in_them_on_their_cluster() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "fruits.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Fruit"}}});
        let fruit = json!({"apiVersion": "example.com/v2", "kind": "Fruit", "metadata": {"name": "a", "namespace": "shop"}});
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}});
        let (east, west): (ClusterName, ClusterName) = ("east".parse().unwrap(), "west".parse().unwrap());
        for (container, object, is_held) in [
            (&namespace, &fruit, true),
            (&namespace, &map, true),
            (&definition, &fruit, true),
            (&definition, &map, false),
        ] {
            let attributes = container.as_object().unwrap();
            let container = Container::from_attributes(attributes).unwrap();
            let object = recorded(object, Some("east"));
            assert_eq!(container.holds(&object, Some(&east)), is_held);
            assert!(!container.holds(&object, Some(&west)));
            let marks = Container::marks_of_recorded(&object);
            assert_eq!(marks.contains(&container.mark(Some(&east))), is_held);
            assert!(!marks.contains(&container.mark(Some(&west))));
        }
        assert_eq!(Container::from_attributes(map.as_object().unwrap()), None);
        assert!(Container::Namespace("shop").holds(&recorded(&map, None), Some(&west)));
    }
}
