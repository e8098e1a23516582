//! The requests that an API server would receive for a planned resource, as far as they are known before the apply.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use konverge_base::model::{
    GroupKind, built_in_groups,
    plan::Action,
    plan_document::{DocumentResource, StackDocument},
    spec::RuntimeKind,
};

/// Operation of a request to the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// Returns the name of the operation in the rules of a policy.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionRequest<'d> {
    pub resource: &'d DocumentResource,
    pub operation: Operation,
    pub group: String,
    pub version: String,
    pub kind: String,
    /// The plural of the kind, as in API paths; `None` for a custom resource without a known definition.
    pub plural: Option<String>,
    pub namespace: Option<String>,
    pub name: String,
    pub object: Option<&'d Value>,
    pub old_object: Option<&'d Value>,
}

/// The known Namespaces by name, with their labels.
pub(crate) type Namespaces = BTreeMap<String, Value>;

/// The plurals of custom resources by group and kind, from their CustomResourceDefinitions.
pub(crate) type Plurals = BTreeMap<(String, String), String>;

/// Adds the plural of a CustomResourceDefinition.
pub(super) fn add_plural(plurals: &mut Plurals, object: &Value) {
    if GroupKind::from_object(object) != GroupKind::CUSTOM_RESOURCE_DEFINITION {
        return;
    }
    let spec = &object["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let names = &spec["names"];
    if let (Some(group), Some(kind), Some(plural)) =
        (text(&spec["group"]), text(&names["kind"]), text(&names["plural"]))
    {
        // A definition in the set wins over one in the stack, because the author of a pull request writes the
        // latter.
        plurals.entry((group, kind)).or_insert(plural);
    }
}

/// Returns the requests for the changed resources of a stack. A replacement gives a deletion and a creation.
pub(crate) fn requests<'d>(document: &'d StackDocument, known: &Plurals) -> Vec<AdmissionRequest<'d>> {
    let mut plurals = known.clone();
    for resource in &document.resources {
        if let Some(object) = &resource.after {
            add_plural(&mut plurals, object);
        }
    }
    let resources = document.resources.iter();
    let objects = resources.filter(|resource| resource.runtime == RuntimeKind::Kubernetes);
    objects
        .flat_map(|resource| {
            let operations: &[Operation] = match resource.action {
                Action::Create | Action::Run => &[Operation::Create],
                Action::Update | Action::Adopt | Action::Unknown => &[Operation::Update],
                Action::Replace => &[Operation::Delete, Operation::Create],
                Action::Delete => &[Operation::Delete],
                Action::Forget | Action::Unchanged => &[],
            };
            operations.iter().map(move |operation| (resource, *operation))
        })
        .map(|(resource, operation)| request(resource, operation, &plurals))
        .collect()
}

fn request<'d>(
    resource: &'d DocumentResource,
    operation: Operation,
    plurals: &Plurals,
) -> AdmissionRequest<'d> {
    let (before, after) = (resource.before.as_ref(), resource.after.as_ref());
    let (object, old_object) = match operation {
        Operation::Create => (after, None),
        Operation::Update => (after, before),
        Operation::Delete => (None, before),
    };
    let any = object.or(old_object).unwrap_or(&Value::Null);
    // Kind and name come from the object; the id is used only if the object has none. Ids are normally
    // `apiVersion:Kind:[namespace:]name`, but a program may choose another id, and names of RBAC objects contain
    // colons.
    let parts = resource.id.object();
    let api_version = any["apiVersion"].as_str();
    let api_version = api_version
        .or(parts.map(|parts| parts.api_version))
        .unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let name = any["metadata"]["name"].as_str().or(Some(resource.id.name()));
    let of_object = parts.filter(|parts| parts.api_version == api_version && parts.kind == resource.kind);
    let from_id = of_object.and_then(|parts| parts.name.strip_suffix(name?)?.strip_suffix(':'));
    let namespace = any["metadata"]["namespace"].as_str();
    let namespace = namespace.or(from_id.filter(|namespace| !namespace.contains(':')));
    let (group, kind) = (group.to_owned(), resource.kind.clone());
    let plural = if built_in_groups::is_built_in(&group) {
        Some(regular_plural(&kind))
    } else {
        plurals.get(&(group.clone(), kind.clone())).cloned()
    };
    AdmissionRequest {
        resource,
        operation,
        version: version.to_owned(),
        plural,
        // For an API server the namespace of a Namespace object is the Namespace itself.
        namespace: match GroupKind::new(&group, &kind) {
            GroupKind::NAMESPACE => name.map(str::to_owned),
            _ => namespace.map(str::to_owned),
        },
        name: name.unwrap_or_default().to_owned(),
        group,
        kind,
        object,
        old_object,
    }
}

/// Returns the Namespaces that the set declares and those of the stack.
pub(crate) fn namespaces(known: &Namespaces, document: &StackDocument) -> Namespaces {
    let mut namespaces = known.clone();
    for resource in &document.resources {
        let is_namespace = |object: &&Value| GroupKind::from_object(object) == GroupKind::NAMESPACE;
        if let Some(object) = resource.after.as_ref().filter(is_namespace) {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let mut object = object.clone();
            // Labels that the set declares were set in the cluster by others. The apply of the stack keeps them.
            let theirs = known.get(name).map(|known| &known["metadata"]["labels"]);
            for (key, value) in theirs.and_then(Value::as_object).into_iter().flatten() {
                add_label(&mut object, key, value);
            }
            namespaces.insert(name.to_owned(), object);
        }
    }
    for (name, object) in &mut namespaces {
        add_label(object, "kubernetes.io/metadata.name", &json!(name));
    }
    namespaces
}

/// Adds a label unless the object already has it.
fn add_label(object: &mut Value, key: &str, value: &Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let labels = &mut object["metadata"]["labels"];
    if !labels.is_object() {
        *labels = json!({});
    }
    if labels.get(key).is_none() {
        labels[key] = value.clone();
    }
}

impl AdmissionRequest<'_> {
    /// Returns the namespace that contains the object; `None` for a Namespace.
    pub(crate) fn own_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|_| !self.is_namespace())
    }

    /// Returns true if some labels of the object are known only after the apply.
    pub(crate) fn has_unknown_labels(&self) -> bool {
        let mut unknown = self.resource.unknown.iter();
        unknown.any(|path| matches!(path.as_str(), "" | "/metadata") || path.is_within("/metadata/labels"))
    }

    /// Returns true if the object is a Namespace.
    pub(crate) fn is_namespace(&self) -> bool {
        GroupKind::new(&self.group, &self.kind) == GroupKind::NAMESPACE
    }

    /// Returns the value of the variable `request`, without fields that only the API server knows.
    pub(crate) fn variable(&self) -> Value {
        let kind = json!({"group": self.group, "version": self.version, "kind": self.kind});
        let resource = json!({"group": self.group, "version": self.version, "resource": self.plural});
        let mut about = json!({
            "kind": kind, "requestKind": kind,
            "resource": resource, "requestResource": resource,
            "operation": self.operation.word(),
        });
        // Empty fields are left out, as an API server does: `namespace` for a cluster-wide kind, and `subResource`
        // always.
        let namespace = self.namespace.as_deref().unwrap_or_default();
        for (key, text) in [("name", self.name.as_str()), ("namespace", namespace)] {
            if !text.is_empty() {
                about[key] = json!(text);
            }
        }
        about
    }
}

/// Returns the plural of a built-in kind. One rule covers all built-in kinds.
fn regular_plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.as_str() {
        "endpoints" => kind,
        _ if kind.ends_with('s') => format!("{kind}es"),
        _ if kind.ends_with('y') => format!("{}ies", &kind[..kind.len() - 1]),
        _ => format!("{kind}s"),
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
pub(crate) mod tests;
