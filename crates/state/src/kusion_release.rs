//! Writes a release in Kusion's format.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use konverge_base::{
    model::{
        GroupKind, ResourceId,
        masked_value::is_secret,
        spec::{Resource, RuntimeKind},
        state::{KusionRelease, Recorded},
    },
    yaml,
};

/// The start of the first line of a release that Konverge writes: a comment, so the file stays valid for
/// Kusion.
const MARK: &str = "# konverge ";

/// The placeholder of a secret. Kusion uses only the keys of the last applied resources, not their values.
const SECRET: &str = "(secret)";
/// The placeholder of a secret in the `data` of a Secret, which is base64.
const SECRET_DATA: &str = "KHNlY3JldCk=";

/// A release as Kusion writes it, with the same field names in the same order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReleaseDocument {
    project: String,
    workspace: String,
    revision: u64,
    stack: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<SpecPart>,
    state: Value,
    phase: String,
    create_time: String,
    modified_time: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecPart {
    resources: Vec<ResourcePart>,
    secret_store: Value,
    context: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourcePart {
    id: String,
    r#type: &'static str,
    attributes: Map<String, Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<String>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    extensions: Map<String, Value>,
}

impl ReleaseDocument {
    /// Builds the text of a release that has begun, with the state of the previous release.
    pub(crate) fn begun(release: &KusionRelease, phase: &str, state: Value) -> Self {
        let now = second_of(Timestamp::now());
        Self {
            project: release.project.clone(),
            workspace: release.workspace.clone(),
            revision: release.revision,
            stack: release.stack.clone(),
            spec: None,
            state,
            phase: phase.to_owned(),
            create_time: now.clone(),
            modified_time: now,
        }
    }

    /// Ends the release. The values of `wanted` and `state` must be masked; they become placeholders.
    /// `before` is the Spec of the previous release, whose store and context Kusion needs for a destroy.
    pub(crate) fn ended(
        mut self,
        phase: &str,
        wanted: &[Resource],
        state: &[Recorded],
        before: &Value,
    ) -> Self {
        let ids = KusionIds::new(wanted, state);
        let resources: Vec<_> = state.iter().map(|recorded| ids.recorded_part(recorded)).collect();
        self.spec = Some(SpecPart {
            resources: wanted.iter().map(spec_part).collect(),
            secret_store: before["secretStore"].clone(),
            context: match &before["context"] {
                Value::Object(context) => Value::Object(context.clone()),
                _ => Value::Object(Map::new()),
            },
        });
        self.state = serde_json::json!({ "resources": resources });
        phase.clone_into(&mut self.phase);
        self.modified_time = second_of(Timestamp::now());
        self
    }

    /// Returns the text, with the mark in a comment on the first line.
    pub(crate) fn text(&self, mark: &str) -> String {
        format!("{MARK}{mark}\n{}", yaml::to_quoted_string(self))
    }
}

/// Returns true if the text is that of a release with this mark.
pub(super) fn is_marked(text: &str, mark: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix(MARK) == Some(mark)
}

fn second_of(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn spec_part(resource: &Resource) -> ResourcePart {
    ResourcePart {
        id: resource.id.to_string(),
        r#type: type_name(resource.runtime),
        attributes: without_secrets(&resource.attributes),
        depends_on: resource.depends_on.iter().map(ToString::to_string).collect(),
        extensions: resource.extensions.clone(),
    }
}

const fn type_name(runtime: RuntimeKind) -> &'static str {
    match runtime {
        RuntimeKind::Kubernetes => "Kubernetes",
        RuntimeKind::Terraform => "Terraform",
    }
}

/// The ids in the Spec, by recorded id. A recorded id always contains the namespace. If the id in Kusion's
/// Spec does not, Kusion finds the object only by the id without it.
struct KusionIds<'a>(HashMap<&'a ResourceId, &'a ResourceId>);

impl<'a> KusionIds<'a> {
    fn new(wanted: &'a [Resource], state: &'a [Recorded]) -> Self {
        let named: HashSet<_> = wanted.iter().map(|resource| &resource.id).collect();
        let known: HashSet<_> = state.iter().map(|recorded| &recorded.id).collect();
        let mut others: HashMap<_, _> = wanted
            .iter()
            .filter(|resource| !known.contains(&resource.id))
            .map(|resource| (object_name(&resource.attributes), &resource.id))
            .collect();
        let renamed = state.iter().filter(|recorded| !named.contains(&recorded.id));
        let pairs = renamed
            .filter_map(|recorded| Some((&recorded.id, others.remove(&object_name(&recorded.attributes))?)));
        Self(pairs.collect())
    }

    fn kusion_id(&self, id: &ResourceId) -> String {
        self.0.get(id).copied().unwrap_or(id).to_string()
    }

    fn recorded_part(&self, recorded: &Recorded) -> ResourcePart {
        ResourcePart {
            id: self.kusion_id(&recorded.id),
            r#type: type_name(recorded.runtime),
            attributes: without_secrets(&recorded.attributes),
            depends_on: recorded.depends_on.iter().map(|id| self.kusion_id(id)).collect(),
            extensions: recorded.extensions.clone(),
        }
    }
}

/// Returns the fields that identify an object within its namespace: API version, kind and name.
fn object_name(attributes: &Map<String, Value>) -> [&str; 3] {
    let metadata = attributes.get("metadata");
    [
        text_of(attributes.get("apiVersion")),
        text_of(attributes.get("kind")),
        text_of(metadata.and_then(|metadata| metadata.get("name"))),
    ]
}

fn text_of(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

/// Returns the attributes with placeholders for masked values.
fn without_secrets(attributes: &Map<String, Value>) -> Map<String, Value> {
    let is_secret_object = GroupKind::from_attributes(attributes) == GroupKind::SECRET;
    let entries = attributes.iter().map(|(key, value)| {
        let text = if is_secret_object && key == "data" {
            SECRET_DATA
        } else {
            SECRET
        };
        (key.clone(), without_marks(value, text))
    });
    entries.collect()
}

fn without_marks(value: &Value, text: &str) -> Value {
    match value {
        value if is_secret(value) => Value::String(text.to_owned()),
        Value::Object(map) => {
            let entries = map
                .iter()
                .map(|(key, value)| (key.clone(), without_marks(value, text)));
            Value::Object(entries.collect())
        }
        Value::Array(items) => items.iter().map(|item| without_marks(item, text)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
#[path = "kusion_release_tests.rs"]
mod tests;
