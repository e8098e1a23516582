//! The plan document of a stack, which rules evaluate: built from the plan and the desired resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use konverge_base::model::{
    Digest, FieldPath, ResourceId,
    field_path::item_index,
    masked_value,
    plan::{Action, FieldChange, ResourcePlan, StackPlan},
    plan_document::{
        DOCUMENT_VERSION, DesiredResource, DocumentChange, DocumentResource, DocumentStack, StackDocument,
    },
    reference::MARK,
    spec::RuntimeKind,
};

/// Builds the document of a stack. `desired` has all resources of the Spec, and those that will be deleted.
pub fn document(plan: &StackPlan, desired: Vec<DesiredResource>) -> StackDocument {
    let planned: BTreeMap<&ResourceId, &ResourcePlan> = plan.resources.iter().map(|r| (&r.id, r)).collect();
    let mut resources: BTreeMap<ResourceId, DocumentResource> = BTreeMap::new();
    for wanted in desired {
        let resource = match planned.get(&wanted.id) {
            Some(plan) => changed(plan, Some(wanted)),
            None => unchanged(wanted),
        };
        resources.insert(resource.id.clone(), resource);
    }
    for plan in &plan.resources {
        if !resources.contains_key(&plan.id) {
            resources.insert(plan.id.clone(), changed(plan, None));
        }
    }
    StackDocument {
        version: DOCUMENT_VERSION,
        stack: DocumentStack {
            id: plan.id.clone(),
            folder: plan.stack.clone(),
        },
        basis: plan.basis,
        known_as: plan.known_as.clone(),
        hidden: BTreeSet::new(),
        resources: resources.into_values().collect(),
    }
}

/// Updates a resource in the document from its newer plan: it was planned again right before its write, when all
/// values were known.
pub fn update_document(document: &mut StackDocument, plan: &ResourcePlan) {
    let known = document.resources.iter_mut().find(|known| known.id == plan.id);
    let Some(known) = known else {
        document.resources.push(changed(plan, None));
        return;
    };
    // The changes of the newer plan apply to the object as it is now. A field that was unknown and turns out
    // unchanged keeps its present value.
    let base = match (&known.before, &known.after) {
        (Some(Value::Object(map)), _) | (_, Some(Value::Object(map))) => map.clone(),
        _ => Map::new(),
    };
    let wanted = DesiredResource {
        id: plan.id.clone(),
        runtime: plan.runtime,
        kind: known.kind.clone(),
        cluster: plan.cluster.clone(),
        attributes: base,
        known_before_write: false,
    };
    *known = changed(plan, Some(wanted));
}

fn unchanged(wanted: DesiredResource) -> DocumentResource {
    let shown = RuleValue::new(Value::Object(wanted.attributes));
    DocumentResource {
        id: wanted.id,
        runtime: wanted.runtime,
        kind: wanted.kind,
        cluster: wanted.cluster,
        action: Action::Unchanged,
        replace: Vec::new(),
        data_loss: false,
        before: Some(shown.value.clone()),
        after: Some(shown.value),
        changes: Vec::new(),
        unknown: shown.unknown,
        secret: shown.secret,
        known_before_write: wanted.known_before_write,
    }
}

fn changed(plan: &ResourcePlan, wanted: Option<DesiredResource>) -> DocumentResource {
    let (before, after) = before_and_after(plan, wanted.as_ref());
    let known_before_write = wanted.as_ref().is_some_and(|wanted| wanted.known_before_write);
    let kind = wanted.map_or_else(|| kind_of(plan, before.as_ref()), |wanted| wanted.kind);
    let after = after.map(RuleValue::new);
    let before = before.map(|before| RuleValue::new(before).value);
    let (after, unknown, secret) = match after {
        Some(shown) => (Some(shown.value), shown.unknown, shown.secret),
        None => (None, Vec::new(), Vec::new()),
    };
    DocumentResource {
        id: plan.id.clone(),
        runtime: plan.runtime,
        kind,
        cluster: plan.cluster.clone(),
        action: plan.action,
        replace: plan.replace.clone(),
        data_loss: plan.data_loss,
        before,
        after,
        changes: plan.changes.iter().map(document_change).collect(),
        unknown,
        secret,
        known_before_write,
    }
}

fn document_change(change: &FieldChange) -> DocumentChange {
    let shown = |side: &Option<Value>| {
        let side = side.as_ref().filter(|value| !masked_value::is_unknown(value));
        side.map(|value| RuleValue::new(value.clone()).value)
    };
    DocumentChange {
        path: change.path.clone(),
        from: shown(&change.from),
        to: shown(&change.to),
        origin: change.origin.clone(),
    }
}

/// Returns the resource before and after the change, with marker values for secrets and unknown values.
fn before_and_after(plan: &ResourcePlan, wanted: Option<&DesiredResource>) -> (Option<Value>, Option<Value>) {
    if let Some(whole) = plan.changes.iter().find(|change| change.path.is_root()) {
        let after = whole.to.clone();
        return match plan.action {
            Action::Delete | Action::Forget => (whole.from.clone(), None),
            _ => (whole.from.clone(), after),
        };
    }
    if matches!(plan.action, Action::Delete | Action::Forget) {
        return (
            wanted.map(|wanted| Value::Object(wanted.attributes.clone())),
            None,
        );
    }
    let Some(wanted) = wanted else {
        return (None, None);
    };
    let mut after = Value::Object(wanted.attributes.clone());
    let mut before = after.clone();
    for change in &plan.changes {
        set(&mut after, &change.path, change.to.as_ref());
        set(&mut before, &change.path, change.from.as_ref());
    }
    match plan.action {
        Action::Create | Action::Run => (None, Some(after)),
        _ => (Some(before), Some(after)),
    }
}

fn kind_of(plan: &ResourcePlan, before: Option<&Value>) -> String {
    let from_id = match plan.runtime {
        RuntimeKind::Kubernetes => plan.id.object().map(|parts| parts.kind),
        RuntimeKind::Terraform => plan.id.terraform().map(|parts| parts.kind),
    };
    let of_object = before.and_then(|before| before["kind"].as_str());
    let of_object = of_object.filter(|_| plan.runtime == RuntimeKind::Kubernetes);
    of_object.or(from_id).unwrap_or_default().to_owned()
}

/// Sets or removes the value at the path of a change. Creates missing parents.
fn set(value: &mut Value, path: &FieldPath, new: Option<&Value>) {
    let mut components: Vec<String> = path.components().collect();
    let Some(last) = components.pop() else {
        return;
    };
    let mut at = value;
    for component in &components {
        let Some(next) = step(at, component, new.is_some()) else {
            return;
        };
        at = next;
    }
    if new.is_some() {
        replace_null(at);
    }
    match (at, new) {
        (Value::Object(map), Some(new)) => drop(map.insert(last, new.clone())),
        (Value::Object(map), None) => drop(map.shift_remove(&last)),
        (Value::Array(items), new) => {
            let index = item_index(items, &last);
            match (index, new) {
                (Some(index), Some(new)) => items[index] = new.clone(),
                (Some(index), None) => drop(items.remove(index)),
                (None, Some(new)) => items.push(new.clone()),
                (None, None) => {}
            }
        }
        _ => {}
    }
}

fn step<'v>(value: &'v mut Value, component: &str, create: bool) -> Option<&'v mut Value> {
    if create {
        replace_null(value);
    }
    match value {
        Value::Object(map) => {
            if create {
                Some(map.entry(component).or_insert_with(|| Value::Object(Map::new())))
            } else {
                map.get_mut(component)
            }
        }
        Value::Array(items) => {
            let index = item_index(items, component)?;
            items.get_mut(index)
        }
        _ => None,
    }
}

/// Replaces a null with an empty map, so that a field can be set in it.
fn replace_null(value: &mut Value) {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
}

/// Returns the text that stands for a secret in the document: a hash of the value. For a reference to a secret
/// store it is the hash of the displayed reference, which changes with the version.
fn secret_text(value: &Value) -> Option<String> {
    let hash = match masked_value::as_secret(value) {
        Some(hash) => hash.to_owned(),
        None => {
            masked_value::as_reference(value)?;
            Digest::of_json(value).short()
        }
    };
    Some(format!("secret:{hash}"))
}

/// Converts a value to the form that rules see: secrets become text, unknown values are left out.
struct RuleValue {
    value: Value,
    unknown: Vec<FieldPath>,
    secret: Vec<FieldPath>,
}

impl RuleValue {
    fn new(value: Value) -> Self {
        let mut shown = Self {
            value: Value::Null,
            unknown: Vec::new(),
            secret: Vec::new(),
        };
        shown.value = shown.convert(value, &FieldPath::root()).unwrap_or(Value::Null);
        shown
    }

    /// Returns the converted value; `None` if it is unknown.
    fn convert(&mut self, value: Value, path: &FieldPath) -> Option<Value> {
        if masked_value::is_unknown(&value) {
            self.unknown.push(path.clone());
            return None;
        }
        if let Some(text) = secret_text(&value) {
            self.secret.push(path.clone());
            return Some(Value::String(text));
        }
        Some(match value {
            // A text with a reference to another resource is unknown, if the plan was made without a cluster.
            Value::String(text) if text.contains(MARK) => {
                self.unknown.push(path.clone());
                return None;
            }
            Value::Array(items) => Value::Array(
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| self.convert(item, &path.item(at)).unwrap_or(Value::Null))
                    .collect(),
            ),
            Value::Object(map) => {
                let mut shown = Map::with_capacity(map.len());
                for (key, value) in map {
                    let path = path.join(&key);
                    if let Some(value) = self.convert(value, &path) {
                        shown.insert(key, value);
                    }
                }
                Value::Object(shown)
            }
            scalar => scalar,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        plan::{Basis, ChangeOrigin},
    };
    use serde_json::json;

    fn change(path: &str, from: Option<Value>, to: Option<Value>) -> FieldChange {
        FieldChange {
            path: path.into(),
            from,
            to,
            origin: ChangeOrigin::Change,
        }
    }

    fn wanted(id: &str, attributes: Value) -> DesiredResource {
        DesiredResource {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            kind: attributes["kind"].as_str().unwrap().to_owned(),
            cluster: None,
            attributes: attributes.as_object().unwrap().clone(),
            known_before_write: false,
        }
    }

    fn plan(id: &str, action: Action, changes: Vec<FieldChange>) -> ResourcePlan {
        let stack = "shop/dev".parse().unwrap();
        ResourcePlan::new(
            &stack,
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            changes,
        )
    }

    fn stack(resources: Vec<ResourcePlan>) -> StackPlan {
        let folder = RepoPath::normalize("appops/shop/dev").unwrap();
        StackPlan::new(folder, "shop/dev".parse().unwrap(), Basis::Live, resources)
    }

    const WEB: &str = "apps/v1:Deployment:shop:web";

    fn web(image: Value) -> Value {
        json!({"kind": "Deployment", "spec": {"replicas": 2, "containers": [{"name": "web", "image": image, "env": [{"name": "P", "value": {"$secret": "abc"}}]}]}})
    }

    #[test]
    fn a_path_leads_through_maps_and_items() {
        for (before, path, new, after) in [
            (json!({"a": 1}), "/a", Some(json!(2)), json!({"a": 2})),
            (
                json!({"a": 1}),
                "/b/c",
                Some(json!(2)),
                json!({"a": 1, "b": {"c": 2}}),
            ),
            (json!({"a": null}), "/a/b", Some(json!(2)), json!({"a": {"b": 2}})),
            (json!({"a": null}), "/a/b", None, json!({"a": null})),
            (
                json!({"a": null}),
                "/a/b/c",
                Some(json!(2)),
                json!({"a": {"b": {"c": 2}}}),
            ),
            (json!({"a": 1, "b": 2}), "/a", None, json!({"b": 2})),
            (json!({"a": 1}), "/b/c", None, json!({"a": 1})),
            (json!({"a": 1}), "/a/b", Some(json!(2)), json!({"a": 1})),
            (json!({"a": 1}), "", Some(json!(2)), json!({"a": 1})),
            (json!({"a~/b": 1}), "/a~0~1b", None, json!({})),
            (json!([1, 2, 3]), "/1", Some(json!(9)), json!([1, 9, 3])),
            (json!([1, 2, 3]), "/2", Some(json!(9)), json!([1, 2, 9])),
            (json!([1, 2, 3]), "/3", Some(json!(9)), json!([1, 2, 3, 9])),
            (json!([1, 2, 3]), "/0", None, json!([2, 3])),
            (json!([1, 2, 3]), "/3", None, json!([1, 2, 3])),
            (
                json!([{"x": 1}, {}]),
                "/0/x",
                Some(json!(2)),
                json!([{"x": 2}, {}]),
            ),
            (json!([{"x": 1}]), "/1/x", Some(json!(2)), json!([{"x": 1}])),
            (
                json!([{"name": "a"}, {"name": "b", "x": 1}]),
                "/name=b/x",
                Some(json!(2)),
                json!([{"name": "a"}, {"name": "b", "x": 2}]),
            ),
            (
                json!([{"name": "a"}, {"name": "b"}]),
                "/name=a",
                None,
                json!([{"name": "b"}]),
            ),
        ] {
            let mut value = before.clone();
            set(&mut value, &path.into(), new.as_ref());
            assert_eq!(value, after, "{before} {path}");
        }
    }

    #[test]
    fn rules_see_neither_markers_nor_references() {
        let shown = RuleValue::new(json!({
            "known": ["a", 1],
            "unknown": {"$unknown": true},
            "secret": [{"$secret": "abc"}],
            "reference": {"x/y": "a $kusion_path.v1:Service:ns:web.spec.clusterIP"},
        }));
        assert_eq!(
            shown.value,
            json!({"known": ["a", 1], "secret": ["secret:abc"], "reference": {}})
        );
        assert_eq!(shown.unknown, ["/unknown", "/reference/x~1y"]);
        assert_eq!(shown.secret, ["/secret/0"]);
    }

    #[test]
    fn an_update_has_both_values_and_no_marker() {
        let changes = vec![
            change(
                "/spec/containers/name=web/image",
                Some(json!("a:1")),
                Some(json!("a:2")),
            ),
            change("/spec/replicas", None, Some(json!(2))),
            change("/metadata/labels/app.io~1x", Some(json!("y")), None),
        ];
        let document = document(
            &stack(vec![plan(WEB, Action::Update, changes)]),
            vec![
                wanted(WEB, web(json!("a:2"))),
                wanted("v1:Pod:shop:p", json!({"kind": "Pod"})),
            ],
        );
        let [pod, web] = &document.resources[..] else {
            panic!("two resources")
        };
        let (pod, web) = match pod.kind.as_str() {
            "Pod" => (pod, web),
            _ => (web, pod),
        };
        assert_eq!(pod.action, Action::Unchanged);
        assert_eq!(pod.before, pod.after);
        let (before, after) = (web.before.as_ref().unwrap(), web.after.as_ref().unwrap());
        assert_eq!(before["spec"]["containers"][0]["image"], "a:1");
        assert_eq!(after["spec"]["containers"][0]["image"], "a:2");
        assert_eq!(before["spec"].get("replicas"), None);
        assert_eq!(before["metadata"]["labels"]["app.io/x"], "y");
        assert_eq!(after["spec"]["containers"][0]["env"][0]["value"], "secret:abc");
        assert_eq!(web.secret, ["/spec/containers/0/env/0/value"]);
    }

    #[test]
    fn a_reference_to_a_secret_is_a_secret() {
        let reference = |version| {
            let mark = masked_value::ReferenceMark {
                reference: "db:pay#/password",
                version: Some(version),
                text: None,
            };
            masked_value::reference(mark)
        };
        let shown = |version| {
            let object = json!({"kind": "Secret", "data": {"password": reference(version)}});
            let create = plan(WEB, Action::Create, vec![change("", None, Some(object.clone()))]);
            let document = document(&stack(vec![create]), vec![wanted(WEB, object)]);
            let secret = &document.resources[0];
            assert_eq!(secret.secret, ["/data/password"]);
            let text = secret.after.as_ref().unwrap()["data"]["password"].clone();
            text.as_str().unwrap().to_owned()
        };
        assert!(shown("7").starts_with("secret:"));
        assert_eq!(shown("7"), shown("7"));
        assert_ne!(shown("7"), shown("8"));
    }

    #[test]
    fn what_is_unknown_is_absent_and_listed_until_it_is_known() {
        let unknown = masked_value::unknown();
        let create = plan(
            WEB,
            Action::Create,
            vec![change("", None, Some(web(unknown.clone())))],
        );
        let mut document = document(&stack(vec![create]), vec![wanted(WEB, web(unknown))]);
        let web_document = &document.resources[0];
        assert_eq!(web_document.unknown, ["/spec/containers/0/image"]);
        assert_eq!(web_document.before, None);
        let container = &web_document.after.as_ref().unwrap()["spec"]["containers"][0];
        assert_eq!(container.get("image"), None);

        let now = plan(
            WEB,
            Action::Create,
            vec![change("", None, Some(web(json!("a:latest"))))],
        );
        update_document(&mut document, &now);
        let container = &document.resources[0].after.as_ref().unwrap()["spec"]["containers"][0];
        assert_eq!(container["image"], "a:latest");
        assert!(document.resources[0].unknown.is_empty());
    }

    #[test]
    fn an_update_that_became_known_starts_from_what_is_there() {
        let unknown = masked_value::unknown();
        let path = "/spec/containers/name=web/image";
        let update = plan(
            WEB,
            Action::Update,
            vec![change(path, Some(json!("a:1")), Some(unknown.clone()))],
        );
        let mut document = document(&stack(vec![update]), vec![wanted(WEB, web(unknown))]);
        assert_eq!(document.resources[0].unknown, ["/spec/containers/0/image"]);
        // It turned out to be what is there already: only the replicas change.
        let now = plan(
            WEB,
            Action::Update,
            vec![change("/spec/replicas", Some(json!(2)), Some(json!(3)))],
        );
        update_document(&mut document, &now);
        let after = document.resources[0].after.as_ref().unwrap();
        assert_eq!(after["spec"]["containers"][0]["image"], "a:1");
        assert_eq!(after["spec"]["replicas"], 3);
        assert!(document.resources[0].unknown.is_empty());
    }

    #[test]
    fn a_deletion_has_no_after() {
        let delete = plan(
            WEB,
            Action::Delete,
            vec![change("", Some(web(json!("a:1"))), None)],
        );
        let document = document(&stack(vec![delete]), Vec::new());
        let web = &document.resources[0];
        assert_eq!(web.after, None);
        assert_eq!(web.kind, "Deployment");
        assert_eq!(web.before.as_ref().unwrap()["spec"]["replicas"], 2);
    }

    #[test]
    fn an_object_that_appeared_meanwhile_is_updated_from_what_was_wanted() {
        let create = plan(
            WEB,
            Action::Create,
            vec![change("", None, Some(web(json!("a:1"))))],
        );
        let mut document = document(&stack(vec![create]), vec![wanted(WEB, web(json!("a:1")))]);
        let now = plan(
            WEB,
            Action::Update,
            vec![change("/spec/replicas", Some(json!(1)), Some(json!(2)))],
        );
        update_document(&mut document, &now);
        let resource = &document.resources[0];
        let (before, after) = (
            resource.before.as_ref().unwrap(),
            resource.after.as_ref().unwrap(),
        );
        assert_eq!(
            (&before["spec"]["replicas"], &after["spec"]["replicas"]),
            (&json!(1), &json!(2))
        );
        assert_eq!(after["spec"]["containers"][0]["image"], "a:1");
    }

    #[test]
    fn what_is_forgotten_has_no_after() {
        for action in [Action::Forget, Action::Delete] {
            let plan = plan(WEB, action, Vec::new());
            let document = document(&stack(vec![plan]), vec![wanted(WEB, web(json!("a:1")))]);
            let resource = &document.resources[0];
            assert_eq!(resource.after, None);
            assert_eq!(resource.before.as_ref().unwrap()["spec"]["replicas"], 2);
        }
    }
}
