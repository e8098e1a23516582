use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use konverge_base::{
    error::UserError,
    model::spec::{Resource, RuntimeKind, Sharing, Spec},
    yaml,
};

use super::*;
use crate::{
    bundle::{BundleRequest, LeaveOut},
    document::{Holds, Loss},
    error::Why,
};

#[path = "target_size_tests.rs"]
mod sizes;

const TARGETS: [fn() -> ExportTarget; 5] = [
    || ExportTarget::Helm(ChartOptions::default()),
    || ExportTarget::ArgoCd(None),
    || ExportTarget::Flux(None),
    || ExportTarget::Oam,
    || ExportTarget::Crossplane,
];

fn kubernetes(id: &str, body: Value, depends_on: &[&str]) -> Resource {
    Resource {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        attributes: body.as_object().unwrap().clone(),
        depends_on: depends_on.iter().map(|id| id.parse().unwrap()).collect(),
        extensions: Map::new(),
        sharing: Sharing::default(),
    }
}

fn terraform(id: &str) -> Resource {
    let mut resource = kubernetes(id, json!({"a": 1}), &[]);
    resource.runtime = RuntimeKind::Terraform;
    resource
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut body =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ns"}});
    for (key, value) in rest.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn config(name: &str, data: Value) -> Value {
    object("v1", "ConfigMap", name, json!({"data": data}))
}

fn spec(resources: Vec<Resource>) -> Spec {
    Spec {
        resources,
        ..Spec::default()
    }
}

fn bundle(spec: &Spec, leave_out: LeaveOut) -> Result<Bundle, ExportError> {
    bundle_in_clear(spec, leave_out, &[])
}

fn bundle_in_clear(spec: &Spec, leave_out: LeaveOut, in_clear: &[String]) -> Result<Bundle, ExportError> {
    Bundle::new(&BundleRequest {
        stack: &"shop/dev".parse().unwrap(),
        commit: None,
        spec,
        leave_out,
        in_clear,
        target: "test",
    })
}

fn exported(spec: &Spec, target: &ExportTarget) -> Result<Exported, ExportError> {
    export(&bundle(spec, LeaveOut::default())?, target)
}

fn text<'a>(exported: &'a Exported, path: &str) -> &'a str {
    let content = exported
        .files
        .get(path)
        .unwrap_or_else(|| panic!("{path} in {:?}", exported.files.keys()));
    std::str::from_utf8(content).unwrap()
}

fn refusals(result: Result<Exported, ExportError>) -> Vec<(String, Why)> {
    match result {
        Err(ExportError::Refused { refusals, .. }) => refusals
            .into_iter()
            .map(|refusal| (refusal.id.to_string(), refusal.why))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// The objects of an export, whatever wraps them, by name.
fn objects(exported: &Exported) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for (path, content) in &exported.files {
        if !path.ends_with(".yaml")
            || path.contains("templates/")
            || path.ends_with("values.yaml")
            || path.ends_with("Chart.yaml")
        {
            continue;
        }
        let document: Value = yaml::from_long_str(std::str::from_utf8(content).unwrap()).unwrap();
        let mut all = Vec::new();
        match document["kind"].as_str() {
            Some("Application") => {
                for component in document["spec"]["components"].as_array().unwrap() {
                    all.extend(component["properties"]["objects"].as_array().unwrap().clone());
                }
            }
            Some("Object") => all.push(document["spec"]["forProvider"]["manifest"].clone()),
            _ => all.push(document),
        }
        found.extend(
            all.into_iter()
                .map(|object| (object["metadata"]["name"].as_str().unwrap().to_owned(), object)),
        );
    }
    found
}

#[test]
fn the_same_spec_gives_the_same_bytes_in_whatever_order_it_is_written() {
    let one = kubernetes(
        "v1:ConfigMap:ns:a",
        config("a", json!({"x": "1", "y": "2"})),
        &["v1:ConfigMap:ns:b"],
    );
    let two = kubernetes(
        "v1:ConfigMap:ns:b",
        config("b", json!({"x": "ref+vault://db#/p"})),
        &[],
    );
    let mut swapped = one.clone();
    swapped.attributes = json!({"metadata": {"namespace": "ns", "name": "a"}, "data": {"y": "2", "x": "1"}, "kind": "ConfigMap", "apiVersion": "v1"})
        .as_object().unwrap().clone();
    let target = ExportTarget::Helm(ChartOptions::default());
    let first = exported(&spec(vec![one, two.clone()]), &target).unwrap();
    let second = exported(&spec(vec![two, swapped]), &target).unwrap();
    assert_eq!(first.files, second.files);
    assert_eq!(json!(first.document), json!(second.document));
}

#[test]
fn what_a_target_cannot_carry_is_refused_by_name_or_left_out_and_listed() {
    let secret = object("v1", "Secret", "s", json!({"stringData": {"p": "hunter2"}}));
    let user = config(
        "c",
        json!({"ip": "$kusion_path.aws:b.ip", "p": "ref+vault://db#/p"}),
    );
    let all = spec(vec![
        terraform("aws:b"),
        kubernetes("v1:Secret:ns:s", secret, &[]),
        kubernetes("v1:ConfigMap:ns:c", user, &["aws:b"]),
    ]);
    for target in TARGETS {
        let found = refusals(exported(&all, &target()));
        assert_eq!(found[0], ("aws:b".to_owned(), Why::Terraform));
    }
    let leave_out = LeaveOut {
        terraform: true,
        secrets: false,
    };
    let kept = bundle(&all, leave_out).unwrap();
    for target in &TARGETS[1..] {
        let found = refusals(export(&kept, &target()));
        let unknown = |name: &str, path: &str| {
            (
                "v1:ConfigMap:ns:c".to_owned(),
                Why::Unknown(path.into(), name.to_owned()),
            )
        };
        assert_eq!(
            found,
            [
                unknown("aws:b.ip", "/data/ip"),
                unknown("ref+vault://db#/p", "/data/p"),
                (
                    "v1:Secret:ns:s".to_owned(),
                    Why::SecretData("/stringData/p".into())
                ),
            ]
        );
    }
    let chart = export(&kept, &TARGETS[0]()).unwrap();
    let values: Value = yaml::from_str(text(&chart, "shop-dev/values.yaml")).unwrap();
    let expected = json!({"references": {"aws:b.ip": "", "ref+vault://db#/p": ""}, "secrets": {"v1:Secret:ns:s/stringData/p": ""}});
    assert_eq!(values, expected);
    assert!(
        chart
            .files
            .values()
            .all(|file| !String::from_utf8_lossy(file).contains("hunter2"))
    );
    let document = json!(chart.document);
    assert_eq!(
        document["leftOut"],
        json!([{"id": "aws:b", "because": "terraform"}])
    );
    assert_eq!(
        document["lost"],
        json!([{"from": "aws:b", "to": "v1:ConfigMap:ns:c", "edge": "reference", "lost": "left-out"}])
    );
    assert_eq!(document["values"].as_array().unwrap().len(), 3);
    let without = bundle(
        &all,
        LeaveOut {
            terraform: true,
            secrets: true,
        },
    )
    .unwrap();
    assert_eq!(without.left_out.len(), 2);
    assert_eq!(without.objects.len(), 1);
}

/// A Secret with one text as text and one in base64, and what else the Spec has.
fn beside_secret(others: Vec<Resource>) -> Spec {
    let secret = object(
        "v1",
        "Secret",
        "s",
        json!({"stringData": {"p": "correct-horse-9", "user": "postgres"}, "data": {"q": "YmF0dGVyeS1zdGFwbGUtNw=="}}),
    );
    let mut all = vec![kubernetes("v1:Secret:ns:s", secret, &[])];
    all.extend(others);
    spec(all)
}

fn holds(exported: &Exported, text: &str) -> bool {
    exported
        .files
        .values()
        .any(|file| String::from_utf8_lossy(file).contains(text))
}

#[test]
fn a_text_that_equals_data_of_a_secret_is_the_same_value() {
    let mut map = config(
        "c",
        json!({"a": "correct-horse-9", "b": "battery-staple-7", "user": "postgres", "in64": "Y29ycmVjdC1ob3JzZS05"}),
    );
    map["metadata"]["annotations"] = json!({"x": "YmF0dGVyeS1zdGFwbGUtNw=="});
    let pod = json!({"containers": [{"name": "postgres", "image": "i", "env": [{"name": "P", "value": "correct-horse-9"}]}]});
    let all = beside_secret(vec![
        kubernetes("v1:ConfigMap:ns:c", map, &[]),
        kubernetes("v1:Pod:ns:p", object("v1", "Pod", "p", json!({"spec": pod})), &[]),
    ]);
    let bundle = bundle(&all, LeaveOut::default()).unwrap();
    let of = |name: &str, code| {
        let group = crate::ValueGroup::Secrets;
        let name = format!("v1:Secret:ns:s{name}");
        crate::ValuePart::Value(crate::RequiredValue {
            group,
            name,
            target: None,
            code,
        })
    };
    let places: BTreeMap<_, _> = bundle
        .objects
        .iter()
        .flat_map(|object| {
            object
                .values
                .iter()
                .map(move |place| (format!("{}{}", object.name(), place.path), place.parts.clone()))
        })
        .collect();
    for (place, part) in [
        ("c/data/a", of("/stringData/p", None)),
        ("c/data/in64", of("/stringData/p", Some(crate::ValueCode::Encode))),
        ("c/data/b", of("/data/q", Some(crate::ValueCode::Decode))),
        ("c/metadata/annotations/x", of("/data/q", None)),
        ("c/data/user", of("/stringData/user", None)),
        ("p/spec/containers/0/env/0/value", of("/stringData/p", None)),
    ] {
        assert_eq!(places.get(place), Some(&vec![part]), "{place}");
    }
    // The name of a container is no secret.
    assert_eq!(places.len(), 9, "{places:?}");
    let chart = export(&bundle, &TARGETS[0]()).unwrap();
    for secret in [
        "correct-horse-9",
        "battery-staple-7",
        "Y29ycmVjdC1ob3JzZS05",
        "YmF0dGVyeS1zdGFwbGUtNw==",
    ] {
        assert!(!holds(&chart, secret), "{secret}");
    }
    let values: Value = yaml::from_str(text(&chart, "shop-dev/values.yaml")).unwrap();
    assert_eq!(values["secrets"].as_object().unwrap().len(), 3);
    for target in &TARGETS[1..] {
        let found = refusals(export(&bundle, &target()));
        let why = Why::SecretCopy("/data/a".into(), "v1:Secret:ns:s/stringData/p".to_owned());
        assert!(
            found.contains(&("v1:ConfigMap:ns:c".to_owned(), why)),
            "{found:?}"
        );
    }
}

#[test]
fn a_text_that_holds_data_of_a_secret_is_refused_with_both_places_or_allowed_and_named() {
    let note = |text: &str| kubernetes("v1:ConfigMap:ns:c", config("c", json!({"note": text})), &[]);
    let why = |of: &str| Why::SecretCopy("/data/note".into(), format!("v1:Secret:ns:s{of}"));
    for (text, of) in [
        ("use correct-horse-9", "/stringData/p"),
        ("https://x/?q=battery-staple-7", "/data/q"),
        // `admin:correct-horse-9` and its line break.
        ("Basic YWRtaW46Y29ycmVjdC1ob3JzZS05Cg==", "/stringData/p"),
    ] {
        let all = beside_secret(vec![note(text)]);
        let found = refusals(exported(&all, &TARGETS[0]()));
        assert_eq!(found, [("v1:ConfigMap:ns:c".to_owned(), why(of))], "{text}");
        // Without its Secret, too.
        let leave_out = LeaveOut {
            secrets: true,
            terraform: false,
        };
        let found = refusals(bundle(&all, leave_out).and_then(|bundle| export(&bundle, &TARGETS[1]())));
        assert_eq!(found, [("v1:ConfigMap:ns:c".to_owned(), why(of))], "{text}");
        let allowed = ["v1:ConfigMap:ns:c/data/note".to_owned()];
        let bundle = bundle_in_clear(&all, leave_out, &allowed).unwrap();
        let files = export(&bundle, &TARGETS[1]()).unwrap();
        assert!(holds(&files, text));
        assert_eq!(
            json!(files.document.in_clear),
            json!([{"id": "v1:ConfigMap:ns:c", "path": "/data/note"}])
        );
    }
    let error = UserError::from(
        exported(&beside_secret(vec![note("use correct-horse-9")]), &TARGETS[0]()).unwrap_err(),
    );
    assert!(
        error.message.contains("`/data/note`") && error.message.contains("`v1:Secret:ns:s/stringData/p`"),
        "{error:?}"
    );
    assert!(
        error
            .hints
            .iter()
            .any(|hint| hint.contains("--in-clear 'v1:ConfigMap:ns:c/data/note'")),
        "{error:?}"
    );
    // A plain word is no secret inside a text.
    assert!(
        exported(
            &beside_secret(vec![note("the postgres of the shop")]),
            &TARGETS[0]()
        )
        .is_ok()
    );
}

#[test]
fn secrets_in_a_list_are_values_too() {
    let secret = |kind: Value| {
        let mut secret = json!({"metadata": {"name": "x"}, "stringData": {"p": "correct-horse-9"}, "data": {"q": "YmF0dGVyeS1zdGFwbGUtNw=="}});
        if kind.is_string() {
            secret["apiVersion"] = "v1".into();
            secret["kind"] = kind;
        }
        secret
    };
    for (kind, item) in [
        ("List", secret("Secret".into())),
        ("SecretList", secret(Value::Null)),
    ] {
        let list = object("v1", kind, "l", json!({"items": [item]}));
        let all = spec(vec![kubernetes("v1:List:ns:l", list, &[])]);
        let chart = exported(&all, &TARGETS[0]()).unwrap();
        assert!(
            !holds(&chart, "correct-horse-9") && !holds(&chart, "YmF0dGVyeS1zdGFwbGUtNw"),
            "{kind}"
        );
        let found = refusals(exported(&all, &TARGETS[1]()));
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

#[test]
fn what_looks_like_a_secret_and_is_carried_is_named() {
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\n-----END RSA PRIVATE KEY-----\n";
    let data =
        json!({"password": "hunter2", "url": "postgres://u:s3cr3t-9x@db/x", "key": key, "plain": "hello"});
    let all = spec(vec![kubernetes("v1:ConfigMap:ns:c", config("c", data), &[])]);
    for target in TARGETS {
        let exported = exported(&all, &target()).unwrap();
        let paths: Vec<_> = exported
            .document
            .in_clear
            .iter()
            .map(|place| place.path.as_str())
            .collect();
        assert_eq!(paths, ["/data/key", "/data/password", "/data/url"]);
    }
}

/// Anyone who reads a chart could try out short passwords by a digest of them.
#[test]
fn a_chart_tells_nothing_about_data_of_secrets() {
    let chart = |password: &str| {
        let secret = object("v1", "Secret", "s", json!({"stringData": {"p": password}}));
        let config = kubernetes(
            "v1:ConfigMap:ns:a",
            config("a", json!({"x": "1", "p": password})),
            &[],
        );
        let all = spec(vec![config, kubernetes("v1:Secret:ns:s", secret, &[])]);
        let exported = exported(&all, &TARGETS[0]()).unwrap();
        (exported.files, json!(exported.document))
    };
    assert_eq!(chart("hunter2"), chart("hunter34"));
    let all = spec(vec![kubernetes(
        "v1:ConfigMap:ns:a",
        config("a", json!({"x": "1"})),
        &[],
    )]);
    let whole = exported(&all, &TARGETS[0]()).unwrap();
    assert_eq!(whole.document.spec_digest, all.digest());
}

#[test]
fn what_cannot_be_one_object_of_one_cluster_is_refused() {
    let nameless = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "a-"}});
    let found = refusals(exported(
        &spec(vec![kubernetes("x", nameless, &[])]),
        &TARGETS[0](),
    ));
    assert_eq!(found, [("x".to_owned(), Why::NotAnObject("metadata.name"))]);
    let mut other = kubernetes("v1:ConfigMap:ns:a", config("a", json!({})), &[]);
    other.extensions.insert("cluster".to_owned(), "west".into());
    let two = spec(vec![
        other.clone(),
        kubernetes("v1:ConfigMap:ns:b", config("b", json!({})), &[]),
    ]);
    assert!(
        matches!(exported(&two, &TARGETS[0]()), Err(ExportError::Clusters { clusters, .. }) if clusters.len() == 2)
    );
    let one = exported(&spec(vec![other]), &TARGETS[1]()).unwrap();
    assert_eq!(one.document.cluster.as_deref(), Some("west"));
    assert!(matches!(
        exported(&spec(vec![]), &TARGETS[0]()),
        Err(ExportError::Empty(_))
    ));
    for (target, name) in [
        (0, "helm.sh/hook"),
        (1, "argocd.argoproj.io/hook"),
        (1, "argocd.argoproj.io/sync-wave"),
        (2, "kustomize.toolkit.fluxcd.io/ssa"),
        (3, "konverge/hook"),
    ] {
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": {name: "x"}}});
        let found = refusals(exported(
            &spec(vec![kubernetes("x", body, &[])]),
            &TARGETS[target](),
        ));
        assert_eq!(found, [("x".to_owned(), Why::Annotation(name.to_owned()))]);
    }
}

#[test]
fn names_and_versions_that_helm_refuses_are_refused_before_it_does() {
    let one = spec(vec![kubernetes("v1:ConfigMap:ns:a", config("a", json!({})), &[])]);
    let chart = |name: Option<&str>, version: Option<&str>| {
        let options = ChartOptions {
            name: name.map(str::to_owned),
            version: version.map(str::to_owned),
        };
        exported(&one, &ExportTarget::Helm(options))
    };
    for name in ["", "Shop", "a/b", "../a", "-a", "a_b"] {
        assert!(
            matches!(chart(Some(name), None), Err(ExportError::ChartName { .. })),
            "{name}"
        );
    }
    for version in ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-01"] {
        assert!(
            matches!(chart(None, Some(version)), Err(ExportError::ChartVersion { .. })),
            "{version}"
        );
    }
    let chart = chart(Some("web"), Some("1.2.3")).unwrap();
    let description: Value = yaml::from_str(text(&chart, "web/Chart.yaml")).unwrap();
    assert_eq!(
        (&description["name"], &description["version"]),
        (&json!("web"), &json!("1.2.3"))
    );
}

#[test]
fn a_namespaced_object_without_a_namespace_is_that_of_default() {
    let bare = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let custom = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let all = spec(vec![
        kubernetes("a", bare("ConfigMap", "a"), &[]),
        kubernetes("n", bare("Namespace", "n"), &[]),
        kubernetes("t", custom, &[]),
    ]);
    let exported = exported(&all, &TARGETS[2]()).unwrap();
    let objects = objects(&exported);
    assert_eq!(objects["a"]["metadata"]["namespace"], "default");
    assert!(objects["n"]["metadata"].get("namespace").is_none());
    assert_eq!(json!(exported.document)["withoutNamespace"], json!(["t"]));
}

#[test]
fn each_target_keeps_what_it_says_and_the_rest_is_lost_by_name() {
    // The ConfigMap is mounted by the Deployment (its kind orders it), and comes after another ConfigMap on request.
    let mounts = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "b"}}]}]}}}});
    let all = spec(vec![
        kubernetes("v1:ConfigMap:ns:a", config("a", json!({})), &[]),
        kubernetes(
            "v1:ConfigMap:ns:b",
            config("b", json!({"x": "$kusion_path.v1:ConfigMap:ns:a.metadata.uid"})),
            &[],
        ),
        kubernetes(
            "apps/v1:Deployment:ns:d",
            object("apps/v1", "Deployment", "d", mounts.clone()),
            &[],
        ),
        kubernetes(
            "apps/v1:Deployment:ns:e",
            object("apps/v1", "Deployment", "e", mounts),
            &["apps/v1:Deployment:ns:d"],
        ),
        kubernetes(
            "batch/v1:Job:ns:j",
            object("batch/v1", "Job", "j", json!({})),
            &["apps/v1:Deployment:ns:d", "v1:ConfigMap:ns:a"],
        ),
    ]);
    let outcome = |exported: &Exported| {
        let kept = exported
            .document
            .kept
            .iter()
            .map(|edge| (edge.from.to_string(), edge.to.to_string(), Ok(edge.holds)));
        let lost = exported
            .document
            .lost
            .iter()
            .map(|edge| (edge.from.to_string(), edge.to.to_string(), Err(edge.lost)));
        let short = |id: String| id.rsplit(':').next().unwrap().to_owned();
        let all = kept
            .chain(lost)
            .map(|(from, to, outcome)| (format!("{}>{}", short(from), short(to)), outcome));
        all.collect::<BTreeMap<_, _>>()
    };
    let helm = outcome(&exported(&all, &TARGETS[0]()).unwrap());
    assert_eq!(helm["a>b"], Err(Loss::Order), "both are ConfigMaps");
    assert_eq!(helm["b>d"], Ok(Holds::Created));
    assert_eq!(helm["d>e"], Err(Loss::Order));
    assert_eq!(
        helm["d>j"],
        Err(Loss::Readiness),
        "Helm does not wait for a Deployment"
    );
    assert_eq!(helm["a>j"], Ok(Holds::Created), "a ConfigMap is ready at once");
    // The value of `b` is not known to the others.
    let crossplane = exported(&all, &TARGETS[4]()).unwrap();
    let found = outcome(&crossplane);
    assert_eq!(
        (&found["a>b"], &found["b>d"]),
        (&Ok(Holds::Created), &Err(Loss::Order))
    );
    let wrapped: Value = yaml::from_str(text(&crossplane, "objects/001-configmap-ns-b.yaml")).unwrap();
    assert_eq!(
        wrapped["spec"]["references"],
        json!([{"patchesFrom": {"apiVersion": "kubernetes.crossplane.io/v1alpha2", "kind": "Object",
            "name": "shop-dev-configmap-ns-a", "fieldPath": "status.atProvider.manifest.metadata.uid"}, "toFieldPath": "data.x"}])
    );
    let mut known = all.clone();
    known.resources[1] = kubernetes(
        "v1:ConfigMap:ns:b",
        config("b", json!({})),
        &["v1:ConfigMap:ns:a"],
    );
    let argo = exported(&known, &TARGETS[1]()).unwrap();
    let found = outcome(&argo);
    assert_eq!(
        (&found["a>b"], &found["d>e"]),
        (&Ok(Holds::Created), &Ok(Holds::Ready))
    );
    assert_eq!(found["b>d"], Ok(Holds::Created), "the order of kinds in a wave");
    let wave =
        |name: &str| objects(&argo)[name]["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"].clone();
    assert_eq!(
        (wave("a"), wave("b"), wave("d"), wave("e")),
        (Value::Null, json!("1"), json!("1"), json!("2"))
    );
    let flux = outcome(&exported(&known, &TARGETS[2]()).unwrap());
    assert!(
        flux.len() == 6 && flux.values().all(|outcome| *outcome == Ok(Holds::Ready)),
        "{flux:?}"
    );
    // A component of KubeVela comes after the one before, and does not wait for its objects.
    let oam = outcome(&exported(&known, &TARGETS[3]()).unwrap());
    assert_eq!(
        (&oam["a>b"], &oam["b>d"]),
        (&Ok(Holds::Created), &Ok(Holds::Created))
    );
    assert_eq!(
        (&oam["d>e"], &oam["d>j"]),
        (&Err(Loss::Readiness), &Err(Loss::Readiness))
    );
}

/// Argo CD takes an object for healthy at once if it has no rule for its kind, also for one that is called like
/// another.
#[test]
fn a_wave_waits_only_for_kinds_with_a_health_rule() {
    let pair = |api_version: &str, kind: &str| {
        let first = object(api_version, kind, "first", json!({}));
        let all = spec(vec![
            kubernetes("first", first, &[]),
            kubernetes("second", config("second", json!({})), &["first"]),
        ]);
        let document = exported(&all, &TARGETS[1]()).unwrap().document;
        let kept = document.kept.first().map(|edge| Ok(edge.holds));
        kept.unwrap_or_else(|| Err(document.lost[0].lost))
    };
    assert_eq!(pair("apps/v1", "Deployment"), Ok(Holds::Ready));
    assert_eq!(pair("v1", "Service"), Ok(Holds::Ready));
    assert_eq!(pair("v1", "Namespace"), Ok(Holds::Created));
    for (api_version, kind) in [
        ("example.io/v1", "Database"),
        ("serving.knative.dev/v1", "Service"),
    ] {
        assert_eq!(pair(api_version, kind), Err(Loss::Readiness), "{kind}");
    }
}

#[test]
fn delivery_points_at_the_files_and_never_substitutes() {
    let all = spec(vec![
        kubernetes("v1:ConfigMap:ns:a", config("a", json!({"x": "${y}"})), &[]),
        kubernetes(
            "v1:ConfigMap:ns:b",
            config("b", json!({})),
            &["v1:ConfigMap:ns:a"],
        ),
    ]);
    let source = DeliverySource {
        url: "https://x/deploy".to_owned(),
        revision: None,
        path: "deploy/shop-dev".to_owned(),
        namespace: "delivery".to_owned(),
    };
    let flux = exported(&all, &ExportTarget::Flux(Some(source.clone()))).unwrap();
    let documents = yaml::documents(text(&flux, "delivery/flux.yaml")).unwrap();
    assert_eq!(documents[0]["kind"], "GitRepository");
    assert_eq!(documents[1]["spec"]["path"], "./deploy/shop-dev/manifests/000");
    let in_namespace = |document: &Value| document["metadata"]["namespace"] == "delivery";
    assert!(documents.iter().all(in_namespace), "{documents:?}");
    assert_eq!(
        documents[2]["spec"]["dependsOn"],
        json!([{"name": "shop-dev-000"}])
    );
    assert!(
        documents
            .iter()
            .all(|document| document["spec"].get("postBuild").is_none())
    );
    let argo = exported(&all, &ExportTarget::ArgoCd(Some(source))).unwrap();
    let application: Value = yaml::from_str(text(&argo, "delivery/application.yaml")).unwrap();
    assert_eq!(application["spec"]["source"]["path"], "deploy/shop-dev/.");
    assert!(in_namespace(&application), "{application}");
    let artifact = DeliverySource {
        url: "oci://h/a".to_owned(),
        revision: Some("1".to_owned()),
        path: ".".to_owned(),
        namespace: "flux-system".to_owned(),
    };
    let flux = exported(&all, &ExportTarget::Flux(Some(artifact))).unwrap();
    let documents = yaml::documents(text(&flux, "delivery/flux.yaml")).unwrap();
    assert_eq!(
        (&documents[0]["kind"], &documents[0]["spec"]["ref"]),
        (&json!("OCIRepository"), &json!({"tag": "1"}))
    );
    assert_eq!(documents[1]["spec"]["path"], "./manifests/000");
}

/// What templates, shells, YAML and substitutions would change.
fn awkward() -> impl Strategy<Value = String> {
    const PARTS: &str = "{{ .Values.x }}|{{|}}|${x}|$(x)|\n---\n|---|\t|\r\n|\n| |\\n|\"|'|# |: |- |%|é世😀|\u{85}|\u{2028}|\u{feff}|\u{7f}|\u{1}|null|0123|yes|1e3|konverge-value-0-";
    let parts: Vec<_> = PARTS.split('|').map(str::to_owned).collect();
    let part = prop_oneof![1 => "[a-z]{1,8}".boxed(), 20 => prop::sample::select(parts).boxed()];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn data_survives_each_target_byte_for_byte(
        data in prop::collection::vec(prop::collection::btree_map("[a-z{}$. -]{1,12}", awkward(), 0..4), 1..4),
        large in 0..400_u32,
    ) {
        let mut resources = Vec::new();
        for (number, mut data) in data.into_iter().enumerate() {
            if large == 0 && number == 0 {
                data.insert("large".to_owned(), "{{ x }} ${y}\t---\n".repeat(900 * 1024 / 17));
            }
            let name = format!("c{number}");
            resources.push(kubernetes(&format!("v1:ConfigMap:ns:{name}"), config(&name, json!(data)), &[]));
        }
        let all = spec(resources);
        for target in TARGETS {
            let exported = exported(&all, &target()).unwrap();
            let found = objects(&exported);
            for resource in &all.resources {
                let name = resource.attributes["metadata"]["name"].as_str().unwrap();
                prop_assert_eq!(&found[name], &Value::Object(resource.attributes.clone()), "{}", target().name());
            }
        }
    }
}
