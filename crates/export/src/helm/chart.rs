//! One chart: `Chart.yaml`, the objects, the template that prints them, and the required values.

use serde_json::{Map, Value, json};

use konverge_base::model::ResourceId;

use crate::{
    bundle::{Bundle, BundleObject},
    error::ExportError,
    exported::Files,
    object_text::{document_text, object_text},
    value_places::{RequiredValue, ValuePart},
    values::empty_values,
};

/// The template, which is the same in every chart.
const TEMPLATE: &str = include_str!("objects.yaml");

/// The comment at the start of `values.yaml`.
const VALUES: &str = "# Every value is required. Those of `references` are what the Spec does not know; those of \
`secrets` are\n# the data of Secrets: in base64 below `/data/`, as text below `/stringData/`. Do not commit them.\n";

/// Helm's annotation that makes an uninstall keep an object.
const POLICY: &str = "helm.sh/resource-policy";

/// The contents of a Helm chart before it is written.
pub(super) struct Chart {
    pub(super) name: String,
    /// The objects with their files.
    pub(super) objects: Vec<(ResourceId, String)>,
    /// The files by their path in the chart.
    pub(super) files: Files,
    /// The compressed size in bytes of the user's values, as far as the Spec contains them.
    pub(super) given: usize,
}

impl Chart {
    /// Creates a chart with these objects. `keep` makes an uninstall keep them: deleting a CustomResourceDefinition
    /// would delete all its objects.
    pub(super) fn new(
        bundle: &Bundle,
        name: String,
        version: &str,
        objects: &[&BundleObject],
        keep: bool,
    ) -> Self {
        let mut files = Files::new();
        let mut places = Map::new();
        let mut listed = Vec::new();
        for object in objects {
            let file = format!("manifests/{:03}-{}.yaml", object.level, object.file);
            let text = if keep {
                object_text(&object.annotated(POLICY, "keep".to_owned()))
            } else {
                object_text(&object.body)
            };
            let of_object = object.values.iter().map(|place| {
                let parts = place.parts.iter().map(|part| match part {
                    ValuePart::Text(text) => json!({"text": text}),
                    ValuePart::Value(value) => value_part(value),
                });
                json!({"token": place.token, "parts": parts.collect::<Vec<_>>()})
            });
            let of_object: Vec<_> = of_object.collect();
            if !of_object.is_empty() {
                places.insert(file.clone(), Value::Array(of_object));
            }
            files.insert(file.clone(), text.into_bytes());
            listed.push((object.id.clone(), file));
        }
        let values = empty_values(objects.iter().flat_map(|object| &object.values));
        let values = if values.is_empty() {
            "{}\n".to_owned()
        } else {
            format!("{VALUES}{}", document_text(&Value::Object(values)))
        };
        let mut add = |path: &str, text: String| drop(files.insert(path.to_owned(), text.into_bytes()));
        add("Chart.yaml", description(bundle, &name, version));
        add("values.yaml", values);
        add("places.json", format!("{}\n", Value::Object(places)));
        add("templates/objects.yaml", TEMPLATE.to_owned());
        let places = objects.iter().flat_map(|object| &object.values);
        Self {
            name,
            objects: listed,
            files,
            given: places.map(|place| place.compressed).sum(),
        }
    }
}

/// Describes a value in a location, for the template.
fn value_part(value: &RequiredValue) -> Value {
    let mut part = json!({"group": value.group.key(), "name": value.name});
    if let Some(code) = value.code {
        part["code"] = code.helm_function().into();
    }
    part
}

fn description(bundle: &Bundle, name: &str, version: &str) -> String {
    document_text(&json!({
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "type": "application",
        "description": format!("The stack {}, as Konverge compiled it", bundle.stack),
        "annotations": {
            "konverge/stack": bundle.stack,
            "konverge/spec-digest": bundle.digest,
        },
    }))
}

/// Checks a chart name as `helm lint` does. A release, which is often named after its chart, has a shorter limit:
/// 53.
pub(super) fn check_name(name: &str) -> Result<(), ExportError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let why = match () {
        () if !name.chars().all(allowed) => "it may contain only lower-case letters, digits, `-` and `.`",
        () if !edge(name.chars().next()) || !edge(name.chars().last()) => {
            "it must begin and end with a letter or a digit"
        }
        () if name.len() > 250 => "it may have at most 250 characters",
        () => return Ok(()),
    };
    Err(ExportError::ChartName {
        name: name.to_owned(),
        why,
    })
}

/// Checks a chart version as Helm does: strict SemVer.
pub(super) fn check_version(version: &str) -> Result<(), ExportError> {
    let parsed = semver::Version::parse(version);
    parsed.map(drop).map_err(|error| ExportError::ChartVersion {
        version: version.to_owned(),
        why: error.to_string(),
    })
}
