//! The Spec: the result of compiling a stack with KCL. All historical Spec formats are normalized to this
//! one.

use std::collections::BTreeMap;

use derive_more::Display;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    Digest, GroupKind, ResourceId,
    digest::DigestBuilder,
    reference,
    stack_output::{InvalidName, OUTPUTS_KEY, OutputName},
};

/// The runtime of a resource (`type` in the Spec).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
pub enum RuntimeKind {
    /// Objects of a cluster.
    Kubernetes,
    /// Resources of Terraform's providers.
    Terraform,
}

/// The owners of an object. Only the generation sets a value: neither KCL code nor a Kusion module can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    /// The stack whose Spec has the object.
    #[default]
    Stack,
    /// All stacks of the project that generate the object, such as the project's Namespace.
    Project,
}

impl Sharing {
    /// Returns true if one stack alone owns the object.
    pub fn is_stack(&self) -> bool {
        *self == Self::Stack
    }
}

/// One resource of a Spec. The keys keep the order that KCL wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resource {
    /// The id, unique in the Spec.
    pub id: ResourceId,
    /// The runtime that plans and applies the resource.
    #[serde(rename = "type")]
    pub runtime: RuntimeKind,
    /// The whole Kubernetes object, or the body of the Terraform resource.
    pub attributes: Map<String, Value>,
    /// Explicit dependencies, in the order written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// Runtime-specific additions: `provider`, `providerMeta`, `resourceType`, `GVK`, `cluster`, …
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// The stacks that own the resource. It is not part of a Spec as text.
    #[serde(skip)]
    pub sharing: Sharing,
}

/// Returns true if several stacks of a project may own an object: one that is generated for all of them, or a CRD of
/// `<project>/crd`.
pub fn is_shared(sharing: Sharing, attributes: &Map<String, Value>) -> bool {
    sharing == Sharing::Project
        || GroupKind::from_attributes(attributes) == GroupKind::CUSTOM_RESOURCE_DEFINITION
}

/// The identity of a Kubernetes object, independent of the version of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKeyRef<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind of the object.
    pub kind: &'a str,
    /// The namespace of the object.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
}

impl<'a> ObjectKeyRef<'a> {
    /// Returns the kind of the object.
    pub fn group_kind(&self) -> GroupKind<'a> {
        GroupKind::new(self.group, self.kind)
    }
}

/// Returns the identity of an object. The namespace is `default` if none is written.
pub fn object_key(attributes: &Map<String, Value>) -> ObjectKeyRef<'_> {
    fn text(value: Option<&Value>) -> &str {
        value.and_then(Value::as_str).unwrap_or_default()
    }
    let metadata = |key: &str| attributes.get("metadata")?.get(key);
    let GroupKind { group, kind } = GroupKind::from_attributes(attributes);
    ObjectKeyRef {
        group,
        kind,
        namespace: match text(metadata("namespace")) {
            "" => "default",
            namespace => namespace,
        },
        name: text(metadata("name")),
    }
}

/// A compiled stack.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// The resources, in the order of the Spec. Their ids are unique.
    pub resources: Vec<Resource>,
    /// The secret stores in the Spec itself (Kusion 0.12 and later). They are never used, only compared with
    /// the configured store.
    pub secret_stores: Vec<Map<String, Value>>,
    /// The outputs that are declared beside `resources`, by name: a value, or a text with references. [`Spec::outputs`]
    /// also has those that resources declare.
    pub outputs: Map<String, Value>,
    /// Notes of the generation from AppConfigurations for the developer, in plain text.
    pub notes: Vec<String>,
}

impl Spec {
    /// Returns the digest of the Spec. The order of resources does not matter, everything inside them does.
    pub fn digest(&self) -> Digest {
        let resources = Digest::of_set(self.resources.iter().map(Resource::digest));
        if self.outputs.is_empty() {
            return resources;
        }
        let mut builder = DigestBuilder::new("spec with outputs");
        builder.part(resources.as_bytes());
        builder.part(Digest::of_map(&self.outputs).as_bytes());
        builder.finish()
    }

    /// Returns the Spec as the content of a file: `resources`, and `konverge/outputs` if the Spec has outputs beside
    /// them.
    pub fn to_document(&self) -> Map<String, Value> {
        let resources = self.resources.iter();
        let resources =
            resources.map(|resource| serde_json::to_value(resource).expect("a resource is plain JSON"));
        let mut document = Map::new();
        document.insert("resources".to_owned(), resources.collect());
        if !self.outputs.is_empty() {
            document.insert(OUTPUTS_KEY.to_owned(), Value::Object(self.outputs.clone()));
        }
        document
    }

    /// Returns the outputs that the stack publishes, by name: a value, or a text with references to its resources.
    ///
    /// # Errors
    /// A name or a path is invalid, or two outputs have the same name.
    pub fn outputs(&self) -> Result<BTreeMap<OutputName, Value>, PublishError> {
        let mut found: BTreeMap<OutputName, Value> = BTreeMap::new();
        let mut add = |name: &str, value: Value| {
            let name: OutputName = name.parse()?;
            match found.insert(name.clone(), value) {
                None => Ok(()),
                Some(_) => Err(PublishError::Twice(name)),
            }
        };
        for (name, value) in &self.outputs {
            add(name, value.clone())?;
        }
        for resource in &self.resources {
            let id = &resource.id;
            let Some(own) = resource.extensions.get(OUTPUTS_KEY) else {
                continue;
            };
            let own = own.as_object().ok_or_else(|| PublishError::NoMap(id.clone()))?;
            for (name, path) in own {
                let path = path.as_str().filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| PublishError::NoPath(id.clone(), name.clone()))?;
                add(name, Value::String(format!("{}{id}.{path}", reference::MARK)))?;
            }
        }
        Ok(found)
    }
}

/// The error for invalid outputs in a Spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// The name of an output is invalid.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two outputs have the same name.
    #[error("two outputs have the name `{0}`")]
    Twice(OutputName),
    /// The extension is not a map.
    #[error("`{0}`: `konverge/outputs` must be a map of names to paths")]
    NoMap(ResourceId),
    /// The path of an output is not a text.
    #[error("`{0}`: the value of output `{1}` must be a path, such as `status.address`")]
    NoPath(ResourceId, String),
}

/// Returns the type of a Terraform resource: `extensions.resourceType`, or else the third part of its id.
pub fn terraform_type<'a>(id: &'a ResourceId, extensions: &'a Map<String, Value>) -> Option<&'a str> {
    let named = extensions.get("resourceType").and_then(Value::as_str);
    named.or_else(|| {
        let parts = id.terraform().filter(|parts| parts.name.is_some())?;
        Some(parts.kind)
    })
}

impl Resource {
    /// Creates a resource of one stack, without dependencies and extensions.
    pub fn new(id: ResourceId, runtime: RuntimeKind, attributes: Map<String, Value>) -> Self {
        Self {
            id,
            runtime,
            attributes,
            depends_on: Vec::new(),
            extensions: Map::new(),
            sharing: Sharing::default(),
        }
    }

    /// Returns a copy of the resource with other attributes.
    #[must_use]
    pub fn with(&self, attributes: Map<String, Value>) -> Self {
        Self {
            id: self.id.clone(),
            runtime: self.runtime,
            attributes,
            depends_on: self.depends_on.clone(),
            extensions: self.extensions.clone(),
            sharing: self.sharing,
        }
    }

    /// Returns true if several stacks of the project may own the object.
    pub fn is_shared(&self) -> bool {
        self.runtime == RuntimeKind::Kubernetes && is_shared(self.sharing, &self.attributes)
    }

    /// Returns the digest of the resource; the order of `dependsOn` does not matter.
    pub fn digest(&self) -> Digest {
        let mut depends_on: Vec<_> = self.depends_on.iter().map(ResourceId::as_str).collect();
        depends_on.sort_unstable();
        let mut builder = DigestBuilder::new("resource");
        builder
            .part(self.id.as_str().as_bytes())
            .part(self.runtime.to_string().as_bytes());
        builder.part(Digest::of_map(&self.attributes).as_bytes());
        builder.part(depends_on.join("\n").as_bytes());
        builder.part(Digest::of_map(&self.extensions).as_bytes());
        builder.finish()
    }
}
