//! A Kubernetes object as a resource of a Spec, with the id and the extension that Kusion gives it.

use serde_json::{Map, Value, json};

use super::KusionError;
use konverge_base::model::{
    ResourceId,
    spec::{Resource, RuntimeKind},
};

/// The extension that marks the workload of an application.
pub(super) const IS_WORKLOAD: &str = "kusion.io/is-workload";

/// The identity of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectName<'a> {
    api_version: &'a str,
    kind: &'a str,
    namespace: Option<&'a str>,
    name: &'a str,
}

impl<'a> ObjectName<'a> {
    /// A cluster-scoped object has no namespace.
    pub(super) fn new(
        api_version: &'a str,
        kind: &'a str,
        namespace: Option<&'a str>,
        name: &'a str,
    ) -> Self {
        Self {
            api_version,
            kind,
            namespace,
            name,
        }
    }

    /// Returns the resource of this object. `body` is everything but `apiVersion`, `kind` and `metadata`.
    /// Metadata and empty values are written as Kusion writes them.
    pub(super) fn resource(
        &self,
        app: &str,
        labels: &Map<String, Value>,
        annotations: &Map<String, Value>,
        body: Value,
    ) -> Result<Resource, KusionError> {
        let metadata = metadata(Some(self), labels, annotations);
        let mut attributes = Map::new();
        attributes.insert("apiVersion".to_owned(), json!(self.api_version));
        attributes.insert("kind".to_owned(), json!(self.kind));
        attributes.insert("metadata".to_owned(), metadata);
        attributes.extend(body.as_object().cloned().unwrap_or_default());
        let mut extensions = Map::new();
        let group_version = if self.api_version.contains('/') {
            self.api_version.to_owned()
        } else {
            format!("/{}", self.api_version)
        };
        extensions.insert(
            "GVK".to_owned(),
            json!(format!("{group_version}, Kind={}", self.kind)),
        );
        Ok(Resource {
            id: self.id(app)?,
            runtime: RuntimeKind::Kubernetes,
            attributes,
            depends_on: Vec::new(),
            extensions,
            sharing: konverge_base::model::spec::Sharing::default(),
        })
    }

    fn id(&self, app: &str) -> Result<ResourceId, KusionError> {
        let namespace = self.namespace.map(|namespace| format!("{namespace}:"));
        let text = format!(
            "{}:{}:{}{}",
            self.api_version,
            self.kind,
            namespace.unwrap_or_default(),
            self.name
        );
        text.parse().map_err(|error| KusionError::App {
            app: app.to_owned(),
            message: format!("{error}"),
        })
    }
}

/// Returns the metadata of an object, or of a pod template (which has no name).
pub(super) fn metadata(
    name: Option<&ObjectName<'_>>,
    labels: &Map<String, Value>,
    annotations: &Map<String, Value>,
) -> Value {
    let mut metadata = Map::new();
    let mut add = |key: &str, value: &Map<String, Value>| {
        if !value.is_empty() {
            metadata.insert(key.to_owned(), Value::Object(value.clone()));
        }
    };
    add("annotations", annotations);
    add("labels", labels);
    metadata.insert("creationTimestamp".to_owned(), Value::Null);
    if let Some(object) = name {
        metadata.insert("name".to_owned(), json!(object.name));
        if let Some(namespace) = object.namespace {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
    }
    Value::Object(metadata)
}
