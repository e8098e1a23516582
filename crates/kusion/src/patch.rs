//! [`Patch`]: changes that a module makes to the workload of the application and to other resources.

use serde_json::{Map, Value, json};

use super::{KusionError, json_patch::JsonPatch, patch_environment};
use konverge_base::{model::spec::Resource, yaml};

/// A patch of a module (`patcher` in Kusion).
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Patch {
    /// Environment variables, in Kubernetes' form.
    environments: Vec<Map<String, Value>>,
    labels: Map<String, Value>,
    pod_labels: Map<String, Value>,
    annotations: Map<String, Value>,
    pod_annotations: Map<String, Value>,
    /// JSON patches, each with the id of its resource.
    json: Vec<(String, JsonPatch)>,
}

/// The paths at which a workload has its pod template.
const POD_TEMPLATES: [&str; 2] = ["/spec/template", "/spec/jobTemplate/spec/template"];

impl Patch {
    /// Reads a patch in YAML. Its keys are the names of Go's fields, with capitals or all in lower case.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value: Option<Value> = yaml::from_str(text).map_err(|error| error.message)?;
        let mut patch = Self::default();
        let keys = match value {
            None | Some(Value::Null) => return Ok(patch),
            Some(Value::Object(keys)) => keys,
            Some(_) => return Err("it is not a mapping".to_owned()),
        };
        for (key, value) in keys.into_iter().filter(|(_, value)| !value.is_null()) {
            let wrong = |why: String| format!("`{}`: {why}", key.escape_debug());
            match key.to_ascii_lowercase().as_str() {
                "environments" => patch.environments = patch_environment::read(value).map_err(wrong)?,
                "labels" => patch.labels = texts(value).map_err(wrong)?,
                "podlabels" => patch.pod_labels = texts(value).map_err(wrong)?,
                "annotations" => patch.annotations = texts(value).map_err(wrong)?,
                "podannotations" => patch.pod_annotations = texts(value).map_err(wrong)?,
                "jsonpatcher" | "jsonpatchers" => {
                    let Value::Object(patches) = value else {
                        return Err(wrong("it is not a mapping".to_owned()));
                    };
                    for (id, value) in patches {
                        let read = JsonPatch::read(value)
                            .map_err(|why| wrong(format!("`{}`: {why}", id.escape_debug())))?;
                        patch.json.push((id, read));
                    }
                    patch.json.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                _ => return Err(format!("it has the unknown key `{}`", key.escape_debug())),
            }
        }
        Ok(patch)
    }

    /// Returns true if the patch changes the workload.
    fn is_for_workload(&self) -> bool {
        !self.environments.is_empty()
            || [
                &self.labels,
                &self.pod_labels,
                &self.annotations,
                &self.pod_annotations,
            ]
            .iter()
            .any(|texts| !texts.is_empty())
    }

    /// Applies the patch to the workload, then to the other resources by their ids. Returns notes for the
    /// developer.
    pub(super) fn apply(
        &self,
        by: &PatchAuthor<'_>,
        workload: Option<usize>,
        resources: &mut [Resource],
    ) -> Result<Vec<String>, KusionError> {
        let mut notes = Vec::new();
        if self.is_for_workload() {
            let Some(workload) = workload.map(|index| &mut resources[index]) else {
                return Err(by.refuse(
                    "adds to the workload, but no workload of the application is known: a module that makes several resources must mark the workload by the extension `kusion.io/is-workload`",
                ));
            };
            self.apply_to_workload(by, workload, &mut notes)?;
        }
        for (id, patch) in &self.json {
            match resources.iter_mut().find(|resource| resource.id.as_str() == id) {
                Some(resource) => {
                    let attributes = Value::Object(std::mem::take(&mut resource.attributes));
                    let patched = patch.apply(attributes);
                    let patched = patched.map_err(|why| by.refuse(&format!("patches `{id}`: {why}")))?;
                    let Value::Object(attributes) = patched else {
                        return Err(by.refuse(&format!("patches `{id}`, and the result is not an object")));
                    };
                    resource.attributes = attributes;
                }
                None => notes.push(format!(
                    "the module `{}` patches `{}`, which is not among the resources of `{}`",
                    by.module,
                    id.escape_debug(),
                    by.app
                )),
            }
        }
        Ok(notes)
    }

    fn apply_to_workload(
        &self,
        by: &PatchAuthor<'_>,
        workload: &mut Resource,
        notes: &mut Vec<String>,
    ) -> Result<(), KusionError> {
        let mut attributes = Value::Object(std::mem::take(&mut workload.attributes));
        let root = attributes.as_object_mut().expect("it was made one");
        add_texts(root, "labels", &self.labels);
        add_texts(root, "annotations", &self.annotations);
        if !self.pod_labels.is_empty() || !self.pod_annotations.is_empty() || !self.environments.is_empty() {
            let template = POD_TEMPLATES
                .iter()
                .find(|path| attributes.pointer(path).is_some_and(Value::is_object));
            let template = template.and_then(|path| attributes.pointer_mut(path)?.as_object_mut());
            let Some(template) = template else {
                return Err(by.refuse(&format!(
                    "changes the pods of `{}`, which has no pod template",
                    workload.id
                )));
            };
            add_texts(template, "labels", &self.pod_labels);
            add_texts(template, "annotations", &self.pod_annotations);
            if !self.environments.is_empty() {
                let containers = template
                    .get_mut("spec")
                    .and_then(|spec| spec.get_mut("containers"));
                let Some(containers) = containers.and_then(Value::as_array_mut) else {
                    return Err(by.refuse(&format!(
                        "changes the containers of `{}`, which has no container",
                        workload.id
                    )));
                };
                for container in containers.iter_mut().filter_map(Value::as_object_mut) {
                    patch_environment::add(&self.environments, container, &mut |name, container| {
                        notes.push(format!(
                            "the module `{}` sets the variable `{name}` of the container `{container}` in `{}`, which is set already: the earlier one counts",
                            by.module, by.app
                        ));
                    });
                }
            }
        }
        if let Value::Object(attributes) = attributes {
            workload.attributes = attributes;
        }
        Ok(())
    }
}

/// Application, part and module that a patch comes from, for messages.
pub(super) struct PatchAuthor<'a> {
    pub(super) app: &'a str,
    pub(super) place: &'a str,
    pub(super) module: &'a str,
}

impl PatchAuthor<'_> {
    fn refuse(&self, does: &str) -> KusionError {
        KusionError::Module {
            app: self.app.to_owned(),
            place: self.place.to_owned(),
            message: format!("the module `{}` {does}", self.module),
        }
    }
}

/// Adds labels or annotations to the metadata of an object, and replaces those that it already has.
fn add_texts(object: &mut Map<String, Value>, key: &str, texts: &Map<String, Value>) {
    if texts.is_empty() {
        return;
    }
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if !metadata.is_object() {
        *metadata = json!({});
    }
    let place = &mut metadata[key];
    if !place.is_object() {
        *place = json!({});
    }
    if let Some(place) = place.as_object_mut() {
        place.extend(texts.clone());
        place.sort_keys();
    }
}

fn texts(value: Value) -> Result<Map<String, Value>, String> {
    let Value::Object(texts) = value else {
        return Err("it is not a mapping".to_owned());
    };
    match texts.iter().find(|(_, value)| !value.is_string()) {
        Some((key, _)) => Err(format!("`{}` is not a string", key.escape_debug())),
        None => Ok(texts),
    }
}
