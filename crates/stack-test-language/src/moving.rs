//! Moves a Spec to temporary namespaces for a live test, so that tests do not meet each other or the stack itself.
//!
//! If a resource cannot be moved safely, the whole move is refused. The error names resources that affect the whole
//! cluster, that give permissions to accounts outside of the test, or that belong to Terraform.

mod classes;
mod hosts;
mod stand_ins;

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use konverge_base::model::{
    GroupKind, ResourceId, built_in_groups,
    reference::Targets,
    resolve::ReferenceError,
    spec::{ObjectKeyRef, Resource, RuntimeKind, Sharing, Spec, object_key},
};

use self::hosts::{Hosts, suffixed};
pub use stand_ins::{StandIns, replace_resources};

/// The label of every namespace of a live test. Its value is the name of the test run.
pub const TEST_LABEL: &str = "konverge/test";

/// Annotations that would protect an object from deletion when the test ends.
const KEEPING: [&str; 2] = ["konverge/keep", "konverge/protect"];

/// The cluster-scoped kinds that can be renamed without affecting others. So can classes ([`classes`]).
const MOVED_WITH_CLUSTER: [GroupKind<'static>; 3] = [
    GroupKind::NAMESPACE,
    GroupKind::CLUSTER_ROLE,
    GroupKind::CLUSTER_ROLE_BINDING,
];

/// A Spec that was moved to the namespaces of a test.
#[derive(Debug, Clone, PartialEq)]
pub struct MovedSpec {
    /// The moved resources, and a Namespace for each namespace that the Spec does not define.
    pub spec: Spec,
    /// The original namespace and name of each object, by its key in the test.
    pub originals: HashMap<ObjectKey, (String, String)>,
}

/// The key of an object: group, kind, namespace and name.
pub type ObjectKey = (String, String, String, String);

/// A resource that cannot be moved, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MoveRefusal {
    /// The resource that cannot be moved.
    pub id: ResourceId,
    /// The reason, as a sentence without a full stop.
    pub why: String,
}

/// Returns the group, kind, namespace and name of an object; the namespace is empty for a cluster-scoped object.
pub fn owned_key(attributes: &Map<String, Value>) -> ObjectKey {
    let key = object_key(attributes);
    let namespace = match is_namespaced(attributes) {
        Some(false) => "",
        _ => key.namespace,
    };
    (
        key.group.to_owned(),
        key.kind.to_owned(),
        namespace.to_owned(),
        key.name.to_owned(),
    )
}

/// Moves a Spec. `run` is the name of the test run: lower-case letters and digits.
///
/// # Errors
/// The resources that cannot be moved, sorted.
pub fn move_spec(spec: &Spec, run: &str) -> Result<MovedSpec, Vec<MoveRefusal>> {
    // All resources are checked before any is moved, so that one run reports all reasons.
    let mut refusals: Vec<_> = spec
        .resources
        .iter()
        .filter_map(|resource| {
            let why = refusal(resource, spec)?;
            Some(MoveRefusal {
                id: resource.id.clone(),
                why,
            })
        })
        .collect();
    if !refusals.is_empty() {
        refusals.sort();
        return Err(refusals);
    }
    let mover = Mover::new(spec, run);
    let mut moved = Vec::new();
    let mut originals = HashMap::new();
    for resource in &spec.resources {
        match mover.resource(resource) {
            Ok(new) => {
                let (_, _, namespace, name) = owned_key(&resource.attributes);
                originals.insert(owned_key(&new.attributes), (namespace, name));
                moved.push(new);
            }
            Err(error) => refusals.push(MoveRefusal {
                id: resource.id.clone(),
                why: error.to_string(),
            }),
        }
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    moved.splice(0..0, mover.missing_namespaces(spec));
    Ok(MovedSpec {
        spec: Spec {
            resources: moved,
            ..Spec::default()
        },
        originals,
    })
}

fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_namespaced(attributes: &Map<String, Value>) -> Option<bool> {
    let is_written = attributes
        .get("metadata")
        .and_then(|metadata| metadata.get("namespace"))
        .is_some_and(|namespace| namespace.as_str().is_some_and(|namespace| !namespace.is_empty()));
    built_in_groups::is_namespaced(GroupKind::from_attributes(attributes)).or(is_written.then_some(true))
}

/// Returns the reason why a resource cannot be moved; `None` if it can.
fn refusal(resource: &Resource, spec: &Spec) -> Option<String> {
    if resource.runtime == RuntimeKind::Terraform {
        let why =
            "a Terraform resource cannot be created twice: provide values in its place (`with.terraform`)";
        return Some(why.to_owned());
    }
    let object = Value::Object(resource.attributes.clone());
    let ObjectKeyRef { kind, name, .. } = object_key(&resource.attributes);
    let of = GroupKind::from_attributes(&resource.attributes);
    if name.is_empty() || kind.is_empty() {
        return Some("it has no kind or no name".to_owned());
    }
    match is_namespaced(&resource.attributes) {
        None => {
            return Some(
                "it is unknown if its kind is namespaced: set `metadata.namespace` if it is".to_owned(),
            );
        }
        Some(false) if !MOVED_WITH_CLUSTER.contains(&of) && !classes::is_class(of) => {
            return Some(format!("a {kind} acts on the whole cluster"));
        }
        Some(_) => {}
    }
    if let Some(why) = classes::refusal(of, &object) {
        return Some(why);
    }
    // Kubernetes would add the rules of such a ClusterRole to other roles, such as `admin`, in the whole cluster.
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    let aggregates = |label: &String| label.starts_with("rbac.authorization.k8s.io/aggregate-to-");
    if of == GroupKind::CLUSTER_ROLE && labels.is_some_and(|labels| labels.keys().any(aggregates)) {
        return Some("its rights are added to other roles of the cluster".to_owned());
    }
    // Only service accounts of the test may get permissions, never an existing account.
    if matches!(of, GroupKind::ROLE_BINDING | GroupKind::CLUSTER_ROLE_BINDING) {
        let subjects = object.get("subjects").and_then(Value::as_array);
        let foreign = subjects.into_iter().flatten().find(|subject| {
            text(subject, "/kind") != "ServiceAccount" || !has_namespace(spec, text(subject, "/namespace"))
        });
        if let Some(subject) = foreign {
            let name = text(subject, "/name").escape_debug();
            return Some(format!(
                "it gives rights to `{name}`, who is not a part of the stack"
            ));
        }
    }
    // These fields name an address or a volume that exists only once, so the copy would compete with the stack
    // itself.
    let fixed = match of {
        GroupKind::SERVICE => ["/spec/externalIPs", "/spec/loadBalancerIP"].as_slice(),
        GroupKind::PERSISTENT_VOLUME_CLAIM => &["/spec/volumeName"],
        _ => &[],
    };
    let fixed = fixed
        .iter()
        .find(|path| object.pointer(path).is_some_and(|value| !value.is_null()));
    fixed.map(|path| format!("`{}` names a unique object", path[1..].replace('/', ".")))
}

/// Returns true if the Spec has an object in this namespace.
fn has_namespace(spec: &Spec, namespace: &str) -> bool {
    let mut resources = spec.resources.iter();
    resources.any(|one| {
        is_namespaced(&one.attributes) == Some(true) && object_key(&one.attributes).namespace == namespace
    })
}

/// The names that change for the test.
struct Mover<'a> {
    run: &'a str,
    /// The name of each namespace in the test, by its name in the Spec.
    namespaces: BTreeMap<String, String>,
    /// The name in the test of each cluster-scoped object that is not a namespace, by group, kind and name.
    cluster_scoped: BTreeMap<[String; 3], String>,
    hosts: Hosts,
    targets: Targets,
    ids: HashMap<ResourceId, ResourceId>,
}

fn scoped_key(of: GroupKind<'_>, name: &str) -> [String; 3] {
    [of.group, of.kind, name].map(str::to_owned)
}

impl<'a> Mover<'a> {
    fn new(spec: &Spec, run: &'a str) -> Self {
        let mut mover = Self {
            run,
            namespaces: BTreeMap::new(),
            cluster_scoped: BTreeMap::new(),
            hosts: Hosts::find(spec, run),
            targets: spec.resources.iter().map(|resource| &resource.id).collect(),
            ids: HashMap::new(),
        };
        for resource in &spec.resources {
            let key = object_key(&resource.attributes);
            let (kind, name) = (key.group_kind(), key.name);
            match (is_namespaced(&resource.attributes), kind) {
                (Some(false), GroupKind::NAMESPACE) => {
                    mover.namespaces.insert(name.to_owned(), suffixed(name, run));
                }
                (Some(false), _) => {
                    let scoped = scoped_key(kind, name);
                    mover.cluster_scoped.insert(scoped, suffixed(name, run));
                }
                _ => {
                    mover
                        .namespaces
                        .insert(key.namespace.to_owned(), suffixed(key.namespace, run));
                }
            }
        }
        for resource in &spec.resources {
            let id = mover
                .new_id(&resource.attributes)
                .unwrap_or_else(|| resource.id.clone());
            mover.ids.insert(resource.id.clone(), id);
        }
        mover
    }

    /// Returns the namespace and the name of an object in the test. For a cluster-scoped object the namespace is
    /// empty.
    fn place(&self, attributes: &Map<String, Value>) -> (String, String) {
        let key = object_key(attributes);
        let (kind, name) = (key.group_kind(), key.name);
        match is_namespaced(attributes) {
            Some(false) if kind == GroupKind::NAMESPACE => (String::new(), self.namespaces[name].clone()),
            Some(false) => {
                let scoped = scoped_key(kind, name);
                (String::new(), self.cluster_scoped[&scoped].clone())
            }
            _ => (self.namespaces[key.namespace].clone(), name.to_owned()),
        }
    }

    fn new_id(&self, attributes: &Map<String, Value>) -> Option<ResourceId> {
        let (namespace, name) = self.place(attributes);
        let api_version = attributes.get("apiVersion")?.as_str()?;
        let kind = object_key(attributes).kind;
        let id = match namespace.as_str() {
            "" => format!("{api_version}:{kind}:{name}"),
            namespace => format!("{api_version}:{kind}:{namespace}:{name}"),
        };
        id.parse().ok()
    }

    fn resource(&self, resource: &Resource) -> Result<Resource, ReferenceError> {
        let renamed = self.targets.rename(&resource.attributes, &self.ids)?;
        let mut object = Value::Object(renamed);
        self.rename_texts(&mut object);
        let (namespace, name) = self.place(&resource.attributes);
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let of = GroupKind::from_attributes(&resource.attributes);
        if of == GroupKind::NAMESPACE {
            let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
            let mut labels = labels.cloned().unwrap_or_default();
            labels.insert(TEST_LABEL.to_owned(), json!(self.run));
            object["metadata"]["labels"] = Value::Object(labels);
        }
        if let Some(annotations) = object
            .pointer_mut("/metadata/annotations")
            .and_then(Value::as_object_mut)
        {
            // Otherwise the end of the test could not delete the object.
            annotations.retain(|key, _| !KEEPING.contains(&key.as_str()));
        }
        if of.group == GroupKind::RBAC {
            self.rename_rights(&mut object);
        }
        self.rename_selected_namespaces(&mut object);
        classes::rename(&mut object, &|kind, name| {
            self.cluster_scoped.get(&scoped_key(kind, name)).cloned()
        });
        let attributes = object.as_object().cloned().unwrap_or_default();
        let mut extensions = resource.extensions.clone();
        // The extension names the cluster of the stack. The test runs on another one.
        extensions.shift_remove("cluster");
        let renamed = |id: &ResourceId| self.ids.get(id).unwrap_or(id).clone();
        Ok(Resource {
            id: renamed(&resource.id),
            runtime: resource.runtime,
            attributes,
            depends_on: resource.depends_on.iter().map(renamed).collect(),
            extensions,
            sharing: Sharing::Stack,
        })
    }

    /// Renames hosts and DNS names of services in all texts of a value.
    fn rename_texts(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hosts.rename(text, &self.namespaces),
            Value::Array(items) => items.iter_mut().for_each(|item| self.rename_texts(item)),
            Value::Object(map) => map.values_mut().for_each(|value| self.rename_texts(value)),
            _ => {}
        }
    }

    /// Renames the subjects and the role of a binding.
    fn rename_rights(&self, object: &mut Value) {
        let subjects = object.get_mut("subjects").and_then(Value::as_array_mut);
        for subject in subjects.into_iter().flatten() {
            if let Some(namespace) = self.namespaces.get(text(subject, "/namespace")) {
                subject["namespace"] = json!(namespace);
            }
        }
        let role = GroupKind::new(GroupKind::RBAC, text(object, "/roleRef/kind"));
        let role = scoped_key(role, text(object, "/roleRef/name"));
        if let Some(name) = self.cluster_scoped.get(&role) {
            object["roleRef"]["name"] = json!(name);
        }
    }

    /// Renames namespaces in selectors that use the label `kubernetes.io/metadata.name`.
    fn rename_selected_namespaces(&self, value: &mut Value) {
        const LABEL: &str = "kubernetes.io/metadata.name";
        let renamed = |value: &mut Value| {
            if let Some(name) = value.as_str().and_then(|name| self.namespaces.get(name)) {
                *value = json!(name);
            }
        };
        match value {
            Value::Array(items) => items
                .iter_mut()
                .for_each(|item| self.rename_selected_namespaces(item)),
            Value::Object(map) => {
                if map.get("key").and_then(Value::as_str) == Some(LABEL) {
                    let values = map.get_mut("values").and_then(Value::as_array_mut);
                    values.into_iter().flatten().for_each(renamed);
                }
                if let Some(name) = map.get_mut(LABEL) {
                    renamed(name);
                }
                map.values_mut()
                    .for_each(|value| self.rename_selected_namespaces(value));
            }
            _ => {}
        }
    }

    /// Returns a Namespace object for each namespace that the Spec uses but does not define.
    fn missing_namespaces(&self, spec: &Spec) -> Vec<Resource> {
        let is_defined = |name: &str| {
            let mut resources = spec.resources.iter();
            resources.any(|one| {
                let key = object_key(&one.attributes);
                key.group_kind() == GroupKind::NAMESPACE && key.name == name
            })
        };
        let missing = self.namespaces.iter().filter(|(name, _)| !is_defined(name));
        let objects = missing.filter_map(|(_, name)| {
            let object = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {TEST_LABEL: self.run}},
            });
            Some(Resource {
                id: format!("v1:Namespace:{name}").parse().ok()?,
                runtime: RuntimeKind::Kubernetes,
                attributes: object.as_object()?.clone(),
                depends_on: Vec::new(),
                extensions: Map::new(),
                sharing: Sharing::Stack,
            })
        });
        objects.collect()
    }
}

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;
