use super::*;
use konverge_base::model::{
    RepoPath,
    other_names::OtherNames,
    plan::Basis,
    plan_document::{DOCUMENT_VERSION, DocumentStack},
};

/// A resource of Kubernetes with the object before and after its change. Its kind is that of its id.
pub(crate) fn resource(id: &str, action: Action, [before, after]: [Option<Value>; 2]) -> DocumentResource {
    DocumentResource {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        kind: id.split(':').nth(1).unwrap_or_default().to_owned(),
        cluster: None,
        action,
        replace: Vec::new(),
        data_loss: false,
        before,
        after,
        changes: Vec::new(),
        unknown: Vec::new(),
        secret: Vec::new(),
        known_before_write: false,
    }
}

/// A stack with resources.
pub(crate) fn document(resources: Vec<DocumentResource>) -> StackDocument {
    StackDocument {
        version: DOCUMENT_VERSION,
        stack: DocumentStack {
            id: "shop/dev".parse().unwrap(),
            folder: RepoPath::root(),
        },
        basis: Basis::Live,
        known_as: OtherNames::default(),
        hidden: std::collections::BTreeSet::new(),
        resources,
    }
}

fn service(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
}

fn definition(group: &str, kind: &str, plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "spec": {"group": group, "names": {"kind": kind, "plural": plural}}})
}

#[test]
fn an_action_asks_for_operations_with_their_objects() {
    let (before, after) = (service(json!({"name": "old"})), service(json!({"name": "new"})));
    let create = ("CREATE", Some("new"), None);
    let update = ("UPDATE", Some("new"), Some("old"));
    let delete = ("DELETE", None, Some("old"));
    for (action, expected) in [
        (Action::Create, vec![create]),
        (Action::Update, vec![update]),
        (Action::Adopt, vec![update]),
        (Action::Unknown, vec![update]),
        (Action::Replace, vec![delete, create]),
        (Action::Delete, vec![delete]),
        (Action::Forget, vec![]),
        (Action::Unchanged, vec![]),
    ] {
        let before_and_after = [Some(before.clone()), Some(after.clone())];
        let document = document(vec![resource("v1:Service:shop:a", action, before_and_after)]);
        let requests = requests(&document, &Plurals::new());
        let name = |object: Option<&'_ Value>| object.map(|object| object["metadata"]["name"].clone());
        let found: Vec<_> = requests
            .iter()
            .map(|one| (one.operation.word(), name(one.object), name(one.old_object)))
            .collect();
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(word, new, old)| (word, new.map(|name| json!(name)), old.map(|name| json!(name))))
            .collect();
        assert_eq!(found, expected);
    }
    let mut bucket = resource("v1:Service:shop:a", Action::Create, [None, Some(after)]);
    bucket.runtime = RuntimeKind::Terraform;
    assert!(requests(&document(vec![bucket]), &Plurals::new()).is_empty());
}

#[test]
fn the_object_says_what_it_is_and_its_id_what_it_leaves_out() {
    let role = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}});
    let rbac = "rbac.authorization.k8s.io";
    for (id, object, group, plural, namespace, name) in [
        (
            "v1:Service:shop:a",
            service(json!({"name": "b", "namespace": "other"})),
            "",
            "services",
            Some("other"),
            "b",
        ),
        (
            "v1:Service:shop:a",
            service(json!({"name": "a"})),
            "",
            "services",
            Some("shop"),
            "a",
        ),
        ("v1:Service:shop:a", json!({}), "", "services", Some("shop"), "a"),
        ("v1:Service:a", json!({}), "", "services", None, "a"),
        (
            "v1:Service:shop:a",
            service(json!({"name": "b"})),
            "",
            "services",
            None,
            "b",
        ),
        (
            "my:Service:shop:a",
            service(json!({"name": "a"})),
            "",
            "services",
            None,
            "a",
        ),
        (
            "rbac.authorization.k8s.io/v1:ClusterRole:kube-system:evil",
            role("kube-system:evil"),
            rbac,
            "clusterroles",
            None,
            "kube-system:evil",
        ),
        (
            "rbac.authorization.k8s.io/v1:ClusterRole:a:b:evil",
            role("evil"),
            rbac,
            "clusterroles",
            None,
            "evil",
        ),
        (
            "v1:Namespace:shop",
            json!({}),
            "",
            "namespaces",
            Some("shop"),
            "shop",
        ),
        (
            "networking.k8s.io/v1:NetworkPolicy:shop:a",
            json!({}),
            "networking.k8s.io",
            "networkpolicies",
            Some("shop"),
            "a",
        ),
    ] {
        let document = document(vec![resource(id, Action::Create, [None, Some(object)])]);
        let requests = requests(&document, &Plurals::new());
        let one = &requests[0];
        assert_eq!((one.group.as_str(), one.version.as_str()), (group, "v1"), "{id}");
        assert_eq!(one.plural.as_deref(), Some(plural), "{id}");
        assert_eq!(
            (one.namespace.as_deref(), one.name.as_str()),
            (namespace, name),
            "{id}"
        );
        assert_eq!(one.kind, id.split(':').nth(1).unwrap());
    }
}

#[test]
fn a_namespace_is_in_itself_and_in_no_other() {
    for (id, is_namespace, own) in [
        ("v1:Namespace:shop", true, None),
        ("x.io/v1:Namespace:shop:a", false, Some("shop")),
        ("v1:Service:shop:a", false, Some("shop")),
        ("v1:Node:a", false, None),
    ] {
        let document = document(vec![resource(id, Action::Create, [None, Some(json!({}))])]);
        let requests = requests(&document, &Plurals::new());
        assert_eq!(requests[0].is_namespace(), is_namespace, "{id}");
        assert_eq!(requests[0].own_namespace(), own, "{id}");
    }
}

#[test]
fn a_built_in_kind_has_a_regular_plural() {
    for (kind, plural) in [
        ("Endpoints", "endpoints"),
        ("Ingress", "ingresses"),
        ("NetworkPolicy", "networkpolicies"),
        ("Pod", "pods"),
        ("ConfigMap", "configmaps"),
    ] {
        assert_eq!(regular_plural(kind), plural);
    }
}

#[test]
fn a_custom_kind_has_the_plural_of_its_first_definition() {
    let mut known = Plurals::new();
    let mut other_kind = definition("x.io", "Thing", "wrong");
    other_kind["kind"] = json!("ConfigMap");
    let mut other_group = definition("x.io", "Thing", "wrong");
    other_group["apiVersion"] = json!("x.io/v1");
    let mut nameless = definition("x.io", "Thing", "wrong");
    nameless["spec"]["names"]["plural"] = Value::Null;
    for object in [&other_kind, &other_group, &nameless] {
        add_plural(&mut known, object);
    }
    assert_eq!(known, Plurals::new());
    add_plural(&mut known, &definition("x.io", "Thing", "things"));
    add_plural(&mut known, &definition("x.io", "Thing", "foos"));
    let key = |kind: &str| ("x.io".to_owned(), kind.to_owned());
    assert_eq!(known, Plurals::from([(key("Thing"), "things".to_owned())]));
    let custom = |kind: &str| {
        let id = format!("x.io/v1:{kind}:shop:a");
        resource(&id, Action::Create, [None, Some(json!({}))])
    };
    let brought = definition("x.io", "Other", "others");
    let id = "apiextensions.k8s.io/v1:CustomResourceDefinition:others.x.io";
    let brought = resource(id, Action::Unchanged, [None, Some(brought)]);
    let document = document(vec![custom("Thing"), custom("Other"), custom("Unknown"), brought]);
    let plurals: Vec<_> = requests(&document, &known)
        .into_iter()
        .map(|one| one.plural)
        .collect();
    assert_eq!(
        plurals,
        [Some("things".to_owned()), Some("others".to_owned()), None]
    );
}

#[test]
fn the_stack_s_namespaces_have_their_name_and_the_labels_of_the_set() {
    let namespace = |name: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let wanted = |object: Value| resource("v1:Namespace:x", Action::Update, [None, Some(object)]);
    let known = Namespaces::from([
        (
            "shop".to_owned(),
            namespace("shop", json!({"env": "prod", "team": "a"})),
        ),
        ("kept".to_owned(), json!({"kind": "Namespace"})),
    ]);
    let mut of_other_group = namespace("other-group", json!({}));
    of_other_group["apiVersion"] = json!("x.io/v1");
    let mut of_other_kind = namespace("other-kind", json!({}));
    of_other_kind["kind"] = json!("Service");
    let gone = resource(
        "v1:Namespace:gone",
        Action::Delete,
        [Some(namespace("gone", json!({}))), None],
    );
    let document = document(vec![
        wanted(namespace("shop", json!({"env": "dev", "tier": "front"}))),
        wanted(namespace("new", Value::Null)),
        wanted(of_other_group),
        wanted(of_other_kind),
        gone,
    ]);
    let found = namespaces(&known, &document);
    let labels: Vec<_> = found
        .iter()
        .map(|(name, object)| (name.as_str(), object["metadata"]["labels"].clone()))
        .collect();
    let name = "kubernetes.io/metadata.name";
    assert_eq!(
        labels,
        [
            ("kept", json!({name: "kept"})),
            ("new", json!({name: "new"})),
            (
                "shop",
                json!({name: "shop", "env": "dev", "team": "a", "tier": "front"})
            ),
        ]
    );
}

#[test]
fn labels_are_unknown_if_a_path_to_them_is() {
    for (path, unknown) in [
        ("", true),
        ("/metadata", true),
        ("/metadata/labels", true),
        ("/metadata/labels/a", true),
        ("/metadata/name", false),
        ("/spec/template/metadata/labels", false),
    ] {
        let mut one = resource("v1:Service:shop:a", Action::Create, [None, Some(json!({}))]);
        one.unknown = vec!["/spec/type".into(), path.into()];
        let document = document(vec![one]);
        let requests = requests(&document, &Plurals::new());
        assert_eq!(requests[0].has_unknown_labels(), unknown, "{path}");
    }
}

#[test]
fn the_variable_of_a_request_leaves_out_what_is_empty() {
    let kind = json!({"group": "", "version": "v1", "kind": "Service"});
    let named = json!({"group": "", "version": "v1", "resource": "services"});
    let bare = json!({"kind": kind, "requestKind": kind, "resource": named, "requestResource": named, "operation": "CREATE"});
    let mut full = bare.clone();
    full["name"] = json!("a");
    full["namespace"] = json!("shop");
    let mut clustered = bare.clone();
    clustered["name"] = json!("a");
    for (metadata, expected) in [
        (json!({"name": "a", "namespace": "shop"}), full),
        (json!({"name": "a"}), clustered),
        (json!({"name": ""}), bare),
    ] {
        let object = service(metadata);
        let document = document(vec![resource("my:Service", Action::Create, [None, Some(object)])]);
        assert_eq!(requests(&document, &Plurals::new())[0].variable(), expected);
    }
}
