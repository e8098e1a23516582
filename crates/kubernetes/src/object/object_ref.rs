//! The identity of an object (kind, namespace, name), and the normal form of a resource before the graph is
//! built.

use std::collections::HashMap;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::super::{
    OWNER,
    api::discovery::{Discovery, ResourceType},
};
use super::crd_validation;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{GroupKind, InvalidId, ObjectParts, ResourceId, StackId, built_in_groups, spec::Resource},
};

/// The identity of an object in a cluster, without its version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectRef {
    /// The API group; empty for the core group.
    pub group: String,
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl ObjectRef {
    /// Returns the path of the object in the API; `of` is its type.
    pub(crate) fn path(&self, of: &ResourceType) -> String {
        of.object(self.namespace(), &self.name)
    }

    /// Returns the identity of an object of a type; a missing namespace becomes `default`.
    pub(crate) fn from_object(object: &Map<String, Value>, of: &ResourceType) -> Self {
        let namespace = if of.namespaced {
            match metadata(object, "namespace") {
                "" => "default",
                named => named,
            }
        } else {
            ""
        };
        Self {
            group: of.group.clone(),
            kind: of.kind.clone(),
            namespace: namespace.to_owned(),
            name: metadata(object, "name").to_owned(),
        }
    }

    /// Returns the group and kind of the object.
    pub(crate) fn group_kind(&self) -> GroupKind<'_> {
        GroupKind::new(&self.group, &self.kind)
    }

    /// Returns the namespace; `None` for cluster-scoped objects.
    pub(crate) fn namespace(&self) -> Option<&str> {
        (!self.namespace.is_empty()).then_some(self.namespace.as_str())
    }
}

/// Returns a text in `metadata`; empty if it is missing.
pub(crate) fn metadata<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    let metadata = object.get("metadata").and_then(|m| m.get(key));
    metadata.and_then(Value::as_str).unwrap_or_default()
}

/// Returns an annotation of an object.
pub(crate) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str()
}

/// Returns true if an object has an `annotations` key.
pub(crate) fn has_annotations(object: &Map<String, Value>) -> bool {
    object
        .get("metadata")
        .and_then(|m| m.get("annotations"))
        .is_some()
}

/// Sets the owner annotation of an object to a stack, as an apply does.
pub fn mark_owner(object: &mut Map<String, Value>, stack: &StackId) {
    annotate(object, OWNER, stack.to_string());
}

/// Sets an annotation of an object that has `metadata`.
pub(crate) fn annotate(object: &mut Map<String, Value>, name: &str, text: String) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if annotations.is_null() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(name.to_owned(), Value::String(text));
        }
    }
}

/// Removes the owner annotation from the object to send, which leaves the object as the author wrote it.
pub(crate) fn remove_owner(body: &mut Map<String, Value>, had_annotations: bool) {
    let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if !had_annotations {
        metadata.shift_remove("annotations");
    } else if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(OWNER);
    }
}

/// Returns a text at the top of an object; empty if it is missing.
pub(crate) fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The scopes of kinds (namespaced or not): those of the cluster, and those that CustomResourceDefinitions in
/// the same Spec define.
pub(crate) struct Scopes<'a> {
    discovery: Option<&'a Discovery>,
    /// True for a namespaced kind, by group and kind, from the CustomResourceDefinitions in the Spec.
    own: HashMap<(String, String), bool>,
}

impl<'a> Scopes<'a> {
    /// Collects the scopes for the resources of one cluster.
    ///
    /// # Errors
    /// A CustomResourceDefinition gives a kind another scope than the cluster.
    pub(crate) fn from_resources(
        discovery: Option<&'a Discovery>,
        resources: &[Resource],
    ) -> Result<Self, UserError> {
        let mut own = HashMap::new();
        for resource in resources {
            let definition = &resource.attributes;
            let (Some(defined), Some(namespaced)) = (
                GroupKind::defined_by(definition),
                crd_validation::is_namespaced(definition),
            ) else {
                continue;
            };
            let served = discovery.and_then(|discovery| discovery.of_kind(defined));
            if let Some(served) = served.filter(|served| served.namespaced != namespaced) {
                return Err(another_scope(&resource.id, served, namespaced));
            }
            own.insert((defined.group.to_owned(), defined.kind.to_owned()), namespaced);
        }
        Ok(Self { discovery, own })
    }

    fn is_namespaced(&self, api_version: &str, kind: &str) -> Option<bool> {
        let of = GroupKind::from_api_version(api_version, kind);
        let served = self.discovery.and_then(|d| d.of_kind(of));
        let own = || self.own.get(&(of.group.to_owned(), of.kind.to_owned())).copied();
        served
            .map(|served| served.namespaced)
            .or_else(own)
            .or_else(|| built_in_groups::is_namespaced(of))
    }
}

fn another_scope(definition: &ResourceId, served: &ResourceType, namespaced: bool) -> UserError {
    let scope = |namespaced| if namespaced { "Namespaced" } else { "Cluster" };
    let what = format!(
        "`{definition}`: its `spec.scope` is `{}`, but the cluster serves `{}` as `{}`, and Kubernetes does not let the \
         scope of a kind change",
        scope(namespaced),
        served.kind,
        scope(served.namespaced)
    );
    UserError::new(ErrorKind::Spec, what)
    .hint("define the kind in another group, and move the objects there")
    .hint(
        "or remove the definition and its objects in one change, which deletes them all, and add them again in the next",
    )
}

/// Validates and normalizes a resource. A namespaced object without a namespace gets `default`, also in its
/// id. A cluster-scoped object has none. `stringData` is converted to `data`, because server-side apply would
/// not remove a key from it.
///
/// # Errors
/// The resource has no kind or name, requests a generated name, or its id names another object.
pub(crate) fn prepare(mut resource: Resource, scopes: &Scopes<'_>) -> Result<Resource, UserError> {
    let id = resource.id.clone();
    let refuse = |message: String| UserError::new(ErrorKind::Spec, format!("`{id}`: {message}"));
    let api_version = text(&resource.attributes, "apiVersion").to_owned();
    let kind = text(&resource.attributes, "kind").to_owned();
    if api_version.is_empty() || kind.is_empty() {
        return Err(refuse("it has no `apiVersion` or no `kind`".to_owned())
            .hint("write the whole object into `attributes` of a Kubernetes resource"));
    }
    if !resource.attributes.get("metadata").is_some_and(Value::is_object) {
        return Err(refuse("it has no `metadata`".to_owned()));
    }
    let name = metadata(&resource.attributes, "name").to_owned();
    if name.is_empty() {
        let generated = metadata(&resource.attributes, "generateName");
        return Err(match generated {
            "" => refuse("it has no `metadata.name`".to_owned()),
            _ => refuse(
                "`metadata.generateName` cannot be applied: every run would create another object".to_owned(),
            )
            .hint("give the object a `metadata.name`"),
        });
    }
    if let Some(namespaced) = scopes.is_namespaced(&api_version, &kind) {
        let lacks_one = metadata(&resource.attributes, "namespace").is_empty();
        let metadata = resource
            .attributes
            .get_mut("metadata")
            .and_then(Value::as_object_mut);
        let metadata = metadata.expect("it was looked at above");
        if !namespaced {
            metadata.remove("namespace");
        } else if lacks_one {
            metadata.insert("namespace".to_owned(), Value::String("default".to_owned()));
        }
    }
    let namespace = metadata(&resource.attributes, "namespace");
    resource.id = normal_id(&id, &api_version, &kind, namespace, &name).map_err(|why| {
        refuse(why).hint("write the id of a Kubernetes resource as `apiVersion:Kind[:namespace]:name`")
    })?;
    if GroupKind::from_api_version(&api_version, &kind) == GroupKind::SECRET {
        string_data_to_data(&mut resource.attributes);
    }
    Ok(resource)
}

/// Returns the id with the namespace. An id in Kusion's form must name the object; any other text is the
/// author's own name and stays unchanged.
fn normal_id(
    id: &ResourceId,
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
) -> Result<ResourceId, String> {
    let full = if namespace.is_empty() {
        format!("{api_version}:{kind}:{name}")
    } else {
        format!("{api_version}:{kind}:{namespace}:{name}")
    };
    if id.as_str() == full {
        return Ok(id.clone());
    }
    let names_the_kind = |parts: &ObjectParts<'_>| parts.api_version == api_version && parts.kind == kind;
    let Some(parts) = id.object().filter(names_the_kind) else {
        return Ok(id.clone());
    };
    // Names may contain colons (RBAC), so the rest after the kind is compared as a text.
    let rest = parts.name;
    let other = rest.strip_suffix(name).and_then(|head| head.strip_suffix(':'));
    match other {
        Some(other) if !namespace.is_empty() && other != namespace => Err(format!(
            "its id has the namespace `{other}`, but its object has `{namespace}`"
        )),
        // Kusion wrote the namespace of the stack into the id of cluster-scoped kinds.
        Some(other) if namespace.is_empty() && !other.contains(':') => {
            full.parse().map_err(|error: InvalidId| error.to_string())
        }
        _ if rest == name => full.parse().map_err(|error: InvalidId| error.to_string()),
        _ => Ok(id.clone()),
    }
}

/// Converts `stringData`, which is write-only: a key that is removed from it would stay in the object forever
/// (kubernetes/kubernetes#108008). If both have a key, `stringData` wins, as on the server. An unknown value
/// stays unknown.
pub(crate) fn string_data_to_data(secret: &mut Map<String, Value>) {
    let Some(Value::Object(texts)) = secret.shift_remove("stringData") else {
        return;
    };
    // A reference is encoded only when its value is known, so it stays in `stringData` until then.
    let is_reference = |value: &Value| value.as_str().is_some_and(|text| text.contains("$kusion_path."));
    let (references, texts): (Map<_, _>, Map<_, _>) =
        texts.into_iter().partition(|(_, value)| is_reference(value));
    if !references.is_empty() {
        secret.insert("stringData".to_owned(), Value::Object(references));
    }
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    let Some(data) = data.as_object_mut() else {
        return;
    };
    for (key, value) in texts {
        let encoded = match value {
            Value::String(text) => Value::String(base64::engine::general_purpose::STANDARD.encode(text)),
            other => other,
        };
        data.insert(key, encoded);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::json;

    fn prepare_object(id: &str, attributes: Value) -> Result<Resource, UserError> {
        let resource = Resource::new(
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            attributes.as_object().unwrap().clone(),
        );
        let scopes = Scopes::from_resources(None, &[])?;
        prepare(resource, &scopes)
    }

    #[test]
    fn a_missing_namespace_is_default_and_the_id_says_so() {
        let config = prepare_object(
            "v1:ConfigMap:c",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
        )
        .unwrap();
        assert_eq!(config.id.as_str(), "v1:ConfigMap:default:c");
        assert_eq!(config.attributes["metadata"]["namespace"], "default");
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:x", "namespace": "odd"}});
        let role = prepare_object("rbac.authorization.k8s.io/v1:ClusterRole:system:x", role).unwrap();
        assert_eq!(
            role.id.as_str(),
            "rbac.authorization.k8s.io/v1:ClusterRole:system:x"
        );
        assert!(role.attributes["metadata"].get("namespace").is_none());
    }

    #[test]
    fn a_kind_without_a_namespace_may_have_one_in_its_id_as_kusion_wrote_it() {
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus", "namespace": "default"}});
        let binding = prepare_object(
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding:default:prometheus",
            binding,
        );
        let binding = binding.unwrap();
        assert_eq!(
            binding.id.as_str(),
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding:prometheus"
        );
        assert!(binding.attributes["metadata"].get("namespace").is_none());
        // Names may contain colons.
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "system:x"}});
        let role = prepare_object("rbac.authorization.k8s.io/v1:ClusterRole:default:system:x", role).unwrap();
        assert_eq!(
            role.id.as_str(),
            "rbac.authorization.k8s.io/v1:ClusterRole:system:x"
        );
    }

    #[test]
    fn what_can_never_be_applied_is_refused() {
        let generated = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "x-"}});
        assert!(
            prepare_object("v1:Pod:ns:x", generated)
                .unwrap_err()
                .message
                .contains("generateName")
        );
        let other = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "b"}});
        let error = prepare_object("v1:Pod:a:x", other).unwrap_err();
        assert_eq!(
            error.message,
            "`v1:Pod:a:x`: its id has the namespace `a`, but its object has `b`"
        );
        assert!(prepare_object("x", json!({"kind": "Pod"})).is_err());
    }

    #[test]
    fn string_data_becomes_data() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "b2xk", "c": "eA=="}, "stringData": {"a": "new"}});
        let secret = prepare_object("v1:Secret:s", secret).unwrap();
        assert_eq!(
            Value::Object(secret.attributes)["data"],
            json!({"a": "bmV3", "c": "eA=="})
        );
    }
}
