//! Reads the format of the Specs on KusionStack's slides: `instances` in place of `resources`, kinds in lower case in
//! the ids, and `dependsOn` inside `attributes`. Each instance is rewritten into a resource of the current format.

use serde_json::{Map, Value};

use super::{SpecError, error::shape};
use konverge_base::model::{ObjectParts, reference::MARK};

/// Rewrites an instance into a resource. A value that is not an instance stays unchanged, and the parser refuses it.
///
/// # Errors
/// The id does not match its object.
pub(super) fn to_resource(instance: &Value, path: &str) -> Result<Value, SpecError> {
    let mut resource = instance.clone();
    let Some(map) = resource.as_object_mut() else {
        return Ok(resource);
    };
    let Some(Value::Object(attributes)) = map.get_mut("attributes") else {
        return Ok(resource);
    };
    if let Some(inside) = attributes.shift_remove("dependsOn") {
        match (map.get_mut("dependsOn"), inside) {
            (Some(Value::Array(ids)), Value::Array(inside)) => ids.extend(inside),
            (None | Some(Value::Null), inside) => {
                map.insert("dependsOn".to_owned(), inside);
            }
            // Leave a `dependsOn` that is not a list: the parser refuses it.
            _ => {}
        }
    }
    if let (Some(Value::String(id)), Some(Value::Object(object))) = (map.get("id"), map.get("attributes"))
        && let Some(spelling) = other_spelling(id, object)
    {
        let message = format!(
            "`{}` does not match its object, which is `{}`",
            id.escape_debug(),
            spelling.escape_debug()
        );
        return Err(shape(&format!("{path}.id"), message));
    }
    Ok(resource)
}

/// Returns the correct id of a Kubernetes object if `id` names another object. The kind may be in lower case, and
/// the namespace may be omitted. A name that is a reference matches every name.
fn other_spelling(id: &str, object: &Map<String, Value>) -> Option<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    let metadata = |key: &str| text(object.get("metadata")?.get(key));
    let (version, kind, name) = (
        text(object.get("apiVersion"))?,
        text(object.get("kind"))?,
        metadata("name")?,
    );
    let namespace = metadata("namespace").filter(|namespace| !namespace.is_empty());
    let is = |part: &str, value: &str| value.contains(MARK) || part == value;
    let matches = ObjectParts::parse(id).is_some_and(|given| {
        // The name of an RBAC object may contain `:`, so the part before the first `:` is not always a namespace.
        let has_name = is(given.name, &name)
            || given.name.split_once(':').is_some_and(|(given_namespace, rest)| {
                is(given_namespace, namespace.as_deref().unwrap_or("default")) && is(rest, &name)
            });
        given.api_version == version && given.kind.eq_ignore_ascii_case(&kind) && has_name
    });
    let namespace = namespace.map(|namespace| namespace + ":").unwrap_or_default();
    (!matches).then(|| format!("{version}:{kind}:{namespace}{name}"))
}

#[cfg(test)]
mod tests {
    use super::super::{
        graph::{Edge, ResourceGraph},
        read_text,
    };

    const SLIDE: &str = include_str!("../../../../tests/fixtures/spec/instances.yaml");

    #[test]
    fn a_slide_reads_as_a_spec_and_draws_its_edges() {
        let spec = read_text(SLIDE, "slide.yaml").unwrap();
        let graph = ResourceGraph::from_spec(&spec.resources).unwrap();
        let edges = |id: &str| -> Vec<(String, Edge)> {
            let found = graph.dependencies(&id.parse().unwrap()).into_iter();
            found.map(|(id, edge)| (id.to_string(), edge)).collect()
        };
        let namespace = "v1:namespace:garden".to_owned();
        assert_eq!(edges(&namespace), []);
        assert_eq!(
            edges("v1:configmap:garden:settings"),
            [(namespace.clone(), Edge::Reference)]
        );
        assert_eq!(
            edges("apps/v1:deployment:garden:fountain"),
            [
                ("v1:configmap:garden:settings".to_owned(), Edge::Reference),
                (namespace, Edge::Explicit),
            ]
        );
        let has_depends_on =
            |resource: &konverge_base::model::spec::Resource| resource.attributes.contains_key("dependsOn");
        assert!(!spec.resources.iter().any(has_depends_on));
    }

    #[test]
    fn the_form_of_today_is_the_same_spec() {
        let today = SLIDE
            .replace("instances:", "resources:")
            .replace("  mode: managed\n", "  type: Kubernetes\n")
            .replace("    dependsOn:\n    -", "  dependsOn:\n  -");
        let read = |text: &str| read_text(text, "f").unwrap();
        assert_eq!(read(&today), read(SLIDE));
    }

    #[test]
    fn an_id_of_another_object_is_refused_with_both_spellings() {
        let error = |from: &str, to: &str| {
            let text = SLIDE.replacen(from, to, 1);
            assert_ne!(text, SLIDE);
            read_text(&text, "f").unwrap_err().to_string()
        };
        assert_eq!(
            error(
                "id: apps/v1:deployment:garden:fountain",
                "id: apps/v1:deployment:garden:pond"
            ),
            "document 2.instances[1].id: `apps/v1:deployment:garden:pond` does not match its object, which is `apps/v1:Deployment:garden:fountain`"
        );
        for other in [
            "v1:deployment:garden:fountain",
            "apps/v1:statefulset:garden:fountain",
            "apps/v1:deployment:other:fountain",
            "fountain",
        ] {
            let message = error("id: apps/v1:deployment:garden:fountain", &format!("id: {other}"));
            assert!(
                message.contains(&format!("`{other}`"))
                    && message.contains("`apps/v1:Deployment:garden:fountain`"),
                "{message}"
            );
        }
        let without_namespace = SLIDE.replace(
            "apps/v1:deployment:garden:fountain",
            "apps/v1:Deployment:fountain",
        );
        assert!(read_text(&without_namespace, "f").is_ok());
    }

    #[test]
    fn a_dependency_in_another_spelling_is_named_with_that_of_the_spec() {
        let text = SLIDE.replace("    - v1:namespace:garden", "    - v1:Namespace:garden");
        let spec = read_text(&text, "f").unwrap();
        let error = ResourceGraph::from_spec(&spec.resources).unwrap_err();
        assert!(error.message.contains("`v1:Namespace:garden`"), "{error}");
        assert!(
            error.hints[0].contains("`v1:namespace:garden`"),
            "{:?}",
            error.hints
        );
    }

    #[test]
    fn what_is_no_instance_is_refused_by_its_path() {
        let message = |text: &str| read_text(text, "f").unwrap_err().to_string();
        let object = "{apiVersion: v1, kind: A, metadata: {name: a}, dependsOn: 1}";
        assert_eq!(
            message(&format!("instances: [{{id: 'v1:a:a', attributes: {object}}}]")),
            "instances[0].dependsOn: must be a list of ids, is a number"
        );
        assert!(message("instances: [1]").starts_with("instances[0]: must be a resource"));
        assert_eq!(
            message("instances: {}"),
            "instances: must be a list, is a mapping"
        );
        assert_eq!(
            message("{instances: [], resource: 1}"),
            "`resource` is not a key of a Spec"
        );
    }
}
