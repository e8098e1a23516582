//! Rules judge true values: whatever the author of a change puts into a Secret, or under a name that speaks of one, no
//! verdict changes. What the rules say of it is masked.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use konverge_base::model::{
    RepoPath,
    plan_document::StackDocument,
    policy_finding::{Enforcement, PolicyFinding},
    spec::{Resource, RuntimeKind, Sharing, Spec},
};
use konverge_engine::{self as engine, ComparedSpecs, SpecMask};
use konverge_policy_sets::{self as policy_sets, PolicyFile, PolicySets};
use konverge_secrets::Secrets;
use serde_json::{Map, Value, json};

use super::created_objects;
use crate::support::{
    hiding,
    random::{Random, setting},
    stack::id,
};

fn spec(objects: &[Value]) -> Spec {
    let resource = |object: &Value| Resource {
        id: id(object).parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        attributes: object.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions: Map::new(),
        sharing: Sharing::default(),
    };
    Spec {
        resources: objects.iter().map(resource).collect(),
        ..Spec::default()
    }
}

/// The document that rules get of a change, made as a preview makes it: what is shown is masked first, so that every
/// secret is known.
fn document(before: &[Value], after: &[Value], secrets: &Secrets) -> StackDocument {
    let (before, after) = (spec(before), spec(after));
    let (stack, folder) = ("shop/dev".parse().unwrap(), RepoPath::root());
    let specs = ComparedSpecs {
        base: &before,
        head: &after,
    };
    let mask = SpecMask::for_readers(secrets);
    let shown = engine::plan_against_spec(&stack, &folder, specs, None, mask);
    let truth = engine::true_spec_plan(&shown, specs, None, secrets);
    StackDocument {
        hidden: truth.hidden,
        ..policy_sets::document(&truth.plan, truth.desired)
    }
}

/// Objects of which rules speak, with values of some kinds.
fn objects(random: &mut Random) -> Vec<Value> {
    let mut some = |words: &[&str]| json!(random.pick(words));
    let role = some(&["cluster-admin", "view", "system:masters-and-more"]);
    let image = some(&["registry.example.com/shop/web:latest", "web", "log:2026-11-25"]);
    let meta = |name: &str, labels: Value| json!({"name": name, "namespace": "shop", "labels": labels});
    vec![
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": meta("admins", json!({})),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": meta("web", json!({"tier": some(&["front-end-of-shop", "back"])})),
            "spec": {"rules": [{"host": some(&["shop.example.com", "*.example.com"])}]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta("web", json!({"app.kubernetes.io/part-of": "the-whole-shop"})),
            "spec": {"template": {"spec": {"hostNetwork": true, "containers": [{"name": "web", "image": image,
                "args": ["--address=0.0.0.0:8443", some(&["--debug", "--insecure-skip-tls-verify"])],
                "env": [{"name": "DB_PASSWORD", "value": some(&["hunter2222", "changeme", "postgres://root:hunter3333@db.example.com"])}]}]}}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("web", json!({})), "spec": {"type": some(&["LoadBalancer", "NodePort"])}}),
    ]
}

/// Every text of the objects with its place: kind, name, and the steps to it.
fn leaves<'a>(value: &'a Value, steps: &mut Vec<Value>, found: &mut Vec<(Vec<Value>, &'a str)>) {
    match value {
        Value::String(text) => found.push((steps.clone(), text)),
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                steps.push(json!(at));
                leaves(item, steps, found);
                steps.pop();
            }
        }
        Value::Object(map) => {
            for (key, member) in map {
                steps.push(json!(key));
                leaves(member, steps, found);
                steps.pop();
            }
        }
        _ => {}
    }
}

/// A rule about one text of one object, in each language.
fn sets(object: &Value, steps: &[Value], text: &str, random: &mut Random) -> Vec<PolicySets> {
    let steps: String = steps.iter().map(|step| format!("[{step}]")).collect();
    let (kind, name, text) = (&object["kind"], &object["metadata"]["name"], json!(text));
    // A deny-list finds the text, an allow-list whatever is another.
    let deny = !random.once_in(3);
    let (rego, cel) = match (deny, random.below(3)) {
        (true, 0) => (format!("VALUE == {text}"), format!("VALUE != {text}")),
        (true, 1) => (
            format!("contains(VALUE, {text})"),
            format!("!VALUE.contains({text})"),
        ),
        (true, _) => (
            format!("endswith(VALUE, {text})"),
            format!("!VALUE.endsWith({text})"),
        ),
        (false, _) => (format!("VALUE != {text}"), format!("VALUE == {text}")),
    };
    let rego = |from: &str| rego.replace("VALUE", &format!("{from}{steps}"));
    let cel = |from: &str| cel.replace("VALUE", &format!("{from}{steps}"));
    let set = |settings: &str, path: &str, text: String| {
        let file = PolicyFile {
            path: path.to_owned(),
            text,
        };
        PolicySets::new(vec![created_objects::set(settings, &[file], &[])], &[])
    };
    let is_it = |from: &str| format!("{from}.kind == {kind}; {from}.metadata.name == {name}");
    let objects = format!(
        "package main\ndeny contains sprintf(\"%v\", [input{steps}]) if {{ {}; {} }}\n",
        is_it("input"),
        rego("input")
    );
    let plan = format!(
        "package main\ndeny contains {{\"msg\": sprintf(\"%v\", [r[side]]), \"resource\": r.id}} if {{ some r in input.resources; some side in [\"before\", \"after\"]; {}; {} }}\n",
        is_it("r[side]"),
        rego("r[side]")
    );
    let condition = |from: &str| format!("{from}.kind == {kind} && {from}.metadata.name == {name}");
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}]},
        "variables": [{"name": "it", "expression": "object == null ? oldObject : object"}],
        "matchConditions": [{"name": "m", "expression": format!("(object == null ? {} : {})", condition("oldObject"), condition("object"))}],
        "validations": [{"expression": cel("variables.it")}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let body = |from: &str| {
        format!(
            "violation[{{\"msg\": \"found\"}}] {{ it := {from}; {}; {} }}\n",
            is_it("it"),
            rego("it")
        )
    };
    let template = json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "t"}, "spec": {
        "crd": {"spec": {"names": {"kind": "T"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "operations": ["CREATE", "UPDATE", "DELETE"],
            "rego": format!("package t\n{}{}", body("input.review.object"), body("input.review.oldObject"))}]}});
    let constraint = json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "T", "metadata": {"name": "c"}, "spec": {}});
    vec![
        set("input: objects", "a.rego", objects),
        set("input: plan", "a.rego", plan),
        set("language: vap", "a.yaml", format!("{policy}\n---\n{binding}\n")),
        set(
            "language: gatekeeper",
            "a.yaml",
            format!("{template}\n---\n{constraint}\n"),
        ),
    ]
}

fn verdicts(findings: &[PolicyFinding]) -> BTreeSet<(Enforcement, String, String)> {
    let rows = findings.iter().map(|finding| {
        let resource = finding.place.as_ref().and_then(|place| place.resource.as_ref());
        let resource = resource.map_or(String::new(), ToString::to_string);
        (finding.verdict, finding.rule.clone(), resource)
    });
    rows.collect()
}

#[test]
fn no_value_of_a_secret_changes_a_verdict() {
    let seed = setting("KONVERGE_SEED", 20_261_125);
    println!("KONVERGE_SEED={seed}");
    let mut random = Random::of(seed);
    let now = Timestamp::now();
    let (mut denied, mut languages) = (0, BTreeSet::new());
    for _ in 0..setting("KONVERGE_CASES", 60) {
        let objects = objects(&mut random);
        let object = random.pick(&objects).clone();
        let mut texts = Vec::new();
        leaves(&object, &mut Vec::new(), &mut texts);
        let (steps, text) = random.pick(&texts).clone();
        let hides = hiding::object(text, "hides", "shop", &mut random);
        let mut with = objects.clone();
        with.insert(random.below(objects.len()), hides.clone());
        let nothing = Vec::new();
        let mut changed = objects.clone();
        for object in &mut changed {
            object["metadata"]["labels"]["changed"] = json!("yes");
        }
        // Created, changed, deleted; each time with the object that hides, which is created.
        let hidden = vec![hides];
        for (row, (before, after), beside) in [
            ("create", (&nothing, &objects), &with),
            ("update", (&changed, &objects), &with),
            ("delete", (&objects, &nothing), &hidden),
        ] {
            let of = |after: &[Value]| {
                let secrets = created_objects::secrets();
                let document = document(before, after, &secrets);
                (document, secrets)
            };
            let ((alone, knows_none), (both, knows)) = (of(after), of(beside));
            for (language, sets) in sets(&object, &steps, text, &mut random).iter().enumerate() {
                let found = verdicts(&created_objects::all_findings(sets, &alone, now, &knows_none));
                let beside = created_objects::all_findings(sets, &both, now, &knows);
                let case = format!(
                    "{row} {language} {steps:?} {text:?} beside {:?}: {beside:#?}",
                    hidden[0]
                );
                assert_eq!(verdicts(&beside), found, "{case}");
                if !found.is_empty() {
                    denied += 1;
                    languages.insert((language, row));
                }
            }
        }
    }
    assert!(denied > 100, "{denied}");
    // The objects of a deletion are no input of `objects`.
    assert!(languages.len() >= 11, "{languages:?}");
}

/// The form of the guide: `secret:` and a keyed hash. No rule sees more of a Secret, and the printed document has the
/// same.
#[test]
fn the_data_of_a_secret_is_a_marker() {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"},
        "stringData": {"a": "hunter2222"}, "data": {"b": STANDARD.encode("hunter3333")}});
    let secrets = created_objects::secrets();
    let document = document(&[], &[secret], &secrets);
    let after = document.resources[0].after.as_ref().unwrap();
    for (part, key, value) in [("stringData", "a", "hunter2222"), ("data", "b", "hunter3333")] {
        let expected = format!("secret:{}", secrets.hash(value.as_bytes()));
        assert_eq!(after[part][key], json!(expected));
    }
    assert_eq!(document.resources[0].secret, ["/stringData/a", "/data/b"]);
    assert!(
        !serde_json::to_string(&document).unwrap().contains("hunter"),
        "no rule sees it"
    );
}

/// A rule sees what stands under a name that speaks of a secret. What it says of it is masked, however short it is.
#[test]
fn what_a_rule_quotes_is_masked() {
    let value = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "shop"},
            "data": {"db_password": value, "address": format!("postgres://root:{value}@db")}})
    };
    let quoting = PolicyFile {
        path: "a.rego".to_owned(),
        text: "package main\ndeny contains {\"msg\": sprintf(\"%s and %s\", [input.data.db_password, input.data.address]), \"path\": input.data.db_password, \"of\": input.data.db_password} if input.data\n".to_owned(),
    };
    let set = created_objects::set("input: objects", &[quoting], &[]);
    let mut digests = BTreeSet::new();
    for text in ["blue", "long-forgotten-words", "Hunter_2222", "a"] {
        let secrets = created_objects::secrets();
        let found = created_objects::findings(&set, &document(&[], &[value(text)], &secrets), &secrets);
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(finding.message, "*** and postgres://root:***@db", "{text}");
        let place = finding.place.as_ref().unwrap();
        assert_eq!(place.path.as_deref(), Some("***"));
        assert_eq!(place.details["of"], "***");
        digests.insert(place.digest);
    }
    assert_eq!(digests.len(), 4, "two findings that look alike are two");
}
