//! The inputs of Rego rules, as views of the plan document.

use regorus::Value as RegoValue;
use serde_json::{Map, Value, json};

use super::{
    engine::without_comments,
    value::{rego_value, with_fields},
};
use konverge_base::model::{
    FieldPath, GroupKind,
    json_parts::any_part,
    plan::Action,
    plan_document::{DocumentChange, DocumentResource, StackDocument},
    spec::RuntimeKind,
};

/// Keys of Terraform's plan that [`terraform_plan`] does not produce.
const MISSING_KEYS: [&str; 4] = ["configuration", "resource_drift", "relevant_attributes", "checks"];

/// Returns the desired Kubernetes objects of the stack, in the form in which conftest gets manifests.
pub(crate) fn objects(document: &StackDocument) -> impl Iterator<Item = (&DocumentResource, &Value)> {
    let resources = document.resources.iter();
    resources
        .filter(|resource| resource.runtime == RuntimeKind::Kubernetes)
        .filter_map(|resource| Some((resource, resource.after.as_ref()?)))
}

/// Returns the whole document, without some resources.
pub(crate) fn plan(document: &StackDocument, without: &[&DocumentResource]) -> RegoValue {
    let resources = document.resources.iter();
    let resources = resources.filter(|resource| !without.iter().any(|other| other.id == resource.id));
    let resources: Vec<_> = resources.map(plan_resource).collect();
    with_fields(
        &document.without_resources(),
        [("resources", RegoValue::from(resources))],
    )
}

/// Converts a resource of the document. A created object is both `after` and the value of its change, and is
/// converted once.
fn plan_resource(resource: &DocumentResource) -> RegoValue {
    let side = |value: &Option<Value>| value.as_ref().map_or(RegoValue::Null, rego_value);
    let (before, after) = (side(&resource.before), side(&resource.after));
    let shared = |value: &Value| match value {
        whole if resource.after.as_ref() == Some(whole) => after.clone(),
        whole if resource.before.as_ref() == Some(whole) => before.clone(),
        value => rego_value(value),
    };
    let changes = resource.changes.iter().map(|change| {
        let rest = DocumentChange {
            path: change.path.clone(),
            from: None,
            to: None,
            origin: change.origin.clone(),
        };
        let values = [("from", &change.from), ("to", &change.to)];
        with_fields(
            &rest,
            values
                .into_iter()
                .filter_map(|(name, value)| Some((name, shared(value.as_ref()?)))),
        )
    });
    let changes = RegoValue::from(changes.collect::<Vec<_>>());
    with_fields(
        &resource.without_values(),
        [("before", before), ("after", after), ("changes", changes)],
    )
}

/// Returns the Terraform resources in the form of `terraform show -json`, without some of them.
pub(crate) fn terraform_plan(document: &StackDocument, without: &[&DocumentResource]) -> Value {
    let resources: Vec<_> = document
        .resources
        .iter()
        .filter(|resource| resource.runtime == RuntimeKind::Terraform)
        .filter(|resource| !without.iter().any(|other| other.id == resource.id))
        .collect();
    let changes: Vec<_> = resources
        .iter()
        .map(|resource| resource_change(resource))
        .collect();
    let with = |side: fn(&DocumentResource) -> Option<&Value>| -> Vec<_> {
        let values = resources.iter().filter_map(|resource| {
            let mut value = named(resource);
            value.insert("values".to_owned(), side(resource)?.clone());
            Some(Value::Object(value))
        });
        values.collect()
    };
    let values = with(|resource| resource.after.as_ref());
    let prior = with(|resource| resource.before.as_ref());
    json!({
        "format_version": "1.2",
        "resource_changes": changes,
        "planned_values": {"root_module": {"resources": values}},
        "prior_state": {"format_version": "1.0", "values": {"root_module": {"resources": prior}}},
        // Konverge writes all values into the generated module, so there are neither variables nor outputs.
        "variables": {},
        "output_changes": {},
    })
}

/// Returns the document without null fields in Kubernetes objects; `None` if no policy would see one. Before a
/// policy sees an object, an API server drops most null fields but keeps some, depending on the type of the field.
pub(crate) fn without_nulls(document: &StackDocument) -> Option<StackDocument> {
    // An unchanged resource gives no request, but an unchanged Namespace is the `namespaceObject` of requests for
    // its objects.
    let is_namespace = |object: &Option<Value>| {
        object
            .as_ref()
            .is_some_and(|object| GroupKind::from_object(object) == GroupKind::NAMESPACE)
    };
    let is_object = |resource: &DocumentResource| {
        resource.runtime == RuntimeKind::Kubernetes
            && (!matches!(resource.action, Action::Unchanged | Action::Forget)
                || is_namespace(&resource.after))
    };
    let has = |side: &Option<Value>| side.as_ref().is_some_and(has_null);
    let mut objects = document.resources.iter().filter(|resource| is_object(resource));
    if !objects.any(|object| has(&object.before) || has(&object.after)) {
        return None;
    }
    let mut without = document.clone();
    for object in without
        .resources
        .iter_mut()
        .filter(|resource| is_object(resource))
    {
        let objects = [&mut object.before, &mut object.after];
        objects.into_iter().flatten().for_each(drop_nulls);
    }
    Some(without)
}

fn has_null(value: &Value) -> bool {
    any_part(value, |part| {
        part.as_object()
            .is_some_and(|map| map.values().any(Value::is_null))
    })
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Returns a key of Terraform's plan that a rule reads and this input lacks. Reading it would be undefined, and the
/// rule would silently find nothing.
pub(crate) fn missing_terraform_key(source: &str) -> Option<&'static str> {
    let source = without_comments(source);
    let words: Vec<_> = source.split_whitespace().collect();
    let aliases = words.windows(4).filter_map(|words| match words {
        ["import", "input", "as", alias] => Some(*alias),
        _ => None,
    });
    let names: Vec<_> = std::iter::once("input")
        .chain(aliases)
        .map(regex::escape)
        .collect();
    let names = names.join("|");
    MISSING_KEYS.into_iter().find(|key| {
        let read = regex::Regex::new(&format!(r#"\b({names})\s*(\.\s*{key}\b|\[\s*"{key}"\s*\])"#));
        read.is_ok_and(|read| read.is_match(&source))
    })
}

fn resource_change(resource: &DocumentResource) -> Value {
    let actions = match resource.action {
        Action::Create => json!(["create"]),
        Action::Replace => json!(["delete", "create"]),
        Action::Delete => json!(["delete"]),
        Action::Forget => json!(["forget"]),
        Action::Run => json!(["run"]),
        Action::Unchanged => json!(["no-op"]),
        Action::Update | Action::Adopt | Action::Unknown => json!(["update"]),
    };
    let marked = |paths: &[FieldPath]| {
        let mut marks = json!({});
        paths.iter().for_each(|path| mark(&mut marks, path));
        marks
    };
    let mut value = named(resource);
    let change = json!({
        "actions": actions,
        "before": resource.before,
        "after": resource.after,
        "after_unknown": marked(&resource.unknown),
        "after_sensitive": marked(&resource.secret),
    });
    value.insert("change".to_owned(), change);
    Value::Object(value)
}

/// Returns address, type, name and provider. The id of a Terraform resource is `namespace:provider:type:name`.
fn named(resource: &DocumentResource) -> Map<String, Value> {
    let name = resource.id.name();
    let mut value = Map::new();
    let mut put = |key: &str, text: String| value.insert(key.to_owned(), Value::String(text));
    put("address", format!("{}.{name}", resource.kind));
    put("mode", "managed".to_owned());
    put("type", resource.kind.clone());
    put("name", name.to_owned());
    if let Some(parts) = resource.id.terraform() {
        put(
            "provider_name",
            format!("registry.terraform.io/{}/{}", parts.namespace, parts.provider),
        );
    }
    put("konverge_id", resource.id.to_string());
    value
}

/// Sets `true` at a path. Lists become maps with the index as key, which rules read in the same way.
fn mark(value: &mut Value, path: &FieldPath) {
    let mut at = value;
    for key in path.components() {
        let Value::Object(map) = at else { return };
        at = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    }
    *at = Value::Bool(true);
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        other_names::OtherNames,
        plan::{Basis, ChangeOrigin},
        plan_document::DocumentStack,
    };

    #[test]
    fn the_plan_is_what_the_document_serializes_as() {
        let object = json!({"kind": "ConfigMap", "data": {"a": "b", "n": [1, -2, 0.5, null]}});
        let resource = |id: &str, before: Option<&Value>, after: Option<&Value>| DocumentResource {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            kind: "ConfigMap".to_owned(),
            cluster: Some("prod".parse().unwrap()),
            action: Action::Replace,
            replace: vec!["/data".into()],
            data_loss: true,
            before: before.cloned(),
            after: after.cloned(),
            changes: [
                (before, after),
                (None, None),
                (after, None),
                (Some(&Value::Null), before),
            ]
            .map(|(from, to)| DocumentChange {
                path: "/data/a~1b".into(),
                from: from.cloned(),
                to: to.cloned(),
                origin: ChangeOrigin::Manager("kubectl".to_owned()),
            })
            .into(),
            unknown: vec!["/status".into()],
            secret: vec!["/data/a".into()],
            known_before_write: true,
        };
        let small = json!({"kind": "ConfigMap"});
        let document = StackDocument {
            version: 1,
            stack: DocumentStack {
                id: "shop/prod".parse().unwrap(),
                folder: RepoPath::root(),
            },
            basis: Basis::Spec,
            known_as: OtherNames::default(),
            hidden: std::iter::once("b".to_owned()).collect(),
            resources: vec![
                resource("v1:ConfigMap:shop:a", None, Some(&object)),
                resource("v1:ConfigMap:shop:b", Some(&small), Some(&object)),
                resource("v1:ConfigMap:shop:c", Some(&object), None),
            ],
        };
        let whole = serde_json::to_value(&document).unwrap();
        assert_eq!(plan(&document, &[]), rego_value(&whole));
        let mut without = whole;
        without["resources"].as_array_mut().unwrap().remove(1);
        assert_eq!(plan(&document, &[&document.resources[1]]), rego_value(&without));
    }

    #[test]
    fn an_unknown_value_of_a_terraform_resource_is_marked_where_terraform_marks_it() {
        let bucket = DocumentResource {
            id: "hashicorp:aws:aws_s3_bucket:logs".parse().unwrap(),
            runtime: RuntimeKind::Terraform,
            kind: "aws_s3_bucket".to_owned(),
            cluster: None,
            action: Action::Create,
            replace: Vec::new(),
            data_loss: false,
            before: None,
            after: Some(json!({"bucket": "logs"})),
            changes: Vec::new(),
            unknown: ["/arn", "/tags/a~1b", "/rule/0/id", "/rule/1/id"]
                .map(Into::into)
                .into(),
            secret: Vec::new(),
            known_before_write: false,
        };
        let document = StackDocument {
            version: 1,
            stack: DocumentStack {
                id: "shop/prod".parse().unwrap(),
                folder: RepoPath::root(),
            },
            basis: Basis::Live,
            known_as: konverge_base::model::other_names::OtherNames::default(),
            hidden: std::collections::BTreeSet::new(),
            resources: vec![bucket.clone()],
        };
        let shown = terraform_plan(&document, &[]);
        let change = &shown["resource_changes"][0];
        assert_eq!(change["address"], "aws_s3_bucket.logs");
        assert_eq!(change["change"]["actions"], json!(["create"]));
        assert_eq!(
            change["change"]["after_unknown"],
            json!({"arn": true, "tags": {"a/b": true}, "rule": {"0": {"id": true}, "1": {"id": true}}})
        );
        let without = terraform_plan(&document, &[&bucket]);
        assert_eq!(without["resource_changes"], json!([]));
    }
}
