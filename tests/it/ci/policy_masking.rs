//! A Secret, or a name that speaks of one, blinds no rule: in a job, by hand and offline, in every language. GitHub is
//! played by the fake, the API server is real.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    process::Outcome,
    shop_monorepo::resource,
    tiny_monorepo,
};

/// What the rules forbid. It is long enough to be masked wherever a Secret holds it.
const ROLE: &str = "cluster-admin";

const SETS: &str = "policy:
  sets:
  - {name: rego, path: ops/policy/a.rego, input: objects}
  - {name: plan, path: ops/policy/plan.rego}
  - {name: cel, path: ops/policy/cel.yaml, language: cel, input: objects}
  - {name: vap, path: ops/policy/vap.yaml, language: vap, input: admission}
  - {name: gatekeeper, path: ops/policy/gatekeeper.yaml, language: gatekeeper, input: admission}
";

/// The same rule in every language, for creations, changes and deletions.
fn write_rules(stage: &Stage) {
    let rego = "package main\n\ndeny contains sprintf(\"grants %v\", [input.roleRef.name]) if input.roleRef.name == \"cluster-admin\"\n";
    let plan = "package main\n\ndeny contains {\"msg\": sprintf(\"%v: grants %v\", [r.action, r[side].roleRef.name]), \"resource\": r.id} if {\n\tsome r in input.resources\n\tr.action != \"unchanged\"\n\tsome side in [\"before\", \"after\"]\n\tr[side].roleRef.name == \"cluster-admin\"\n}\n";
    let cel = "rules:\n- name: role\n  match: object.kind == 'RoleBinding'\n  expression: object.roleRef.name != 'cluster-admin'\n  message: it grants too much\n";
    let vap = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "roles"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["rolebindings"]}]},
        "validations": [{"expression": "(object == null ? oldObject : object).roleRef.name != 'cluster-admin'", "message": "it grants too much"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "roles"},
        "spec": {"policyName": "roles", "validationActions": ["Deny"]}});
    let rego_v0 = "package roles\nviolation[{\"msg\": \"it grants too much\"}] { input.review.object.roleRef.name == \"cluster-admin\" }\nviolation[{\"msg\": \"it grants too much\"}] { input.review.oldObject.roleRef.name == \"cluster-admin\" }\n";
    let template = json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "roles"}, "spec": {
        "crd": {"spec": {"names": {"kind": "Roles"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "operations": ["CREATE", "UPDATE", "DELETE"], "rego": rego_v0}]}});
    let constraint = json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Roles", "metadata": {"name": "roles"}, "spec": {}});
    for (file, text) in [
        ("a.rego", rego.to_owned()),
        ("plan.rego", plan.to_owned()),
        ("cel.yaml", cel.to_owned()),
        ("vap.yaml", format!("{vap}\n---\n{binding}\n")),
        ("gatekeeper.yaml", format!("{template}\n---\n{constraint}\n")),
    ] {
        stage.monorepo.write(&format!("ops/policy/{file}"), text);
    }
}

fn object(api_version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    object
}

fn binding(name: &str, role: &str) -> Value {
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let subjects = json!([{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]);
    object(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        name,
        json!({"roleRef": role, "subjects": subjects}),
    )
}

/// What blinded the rules: a Secret with the words of the rule, and a name that speaks of a secret.
fn blinds(name: &str) -> [Value; 2] {
    let version = "rbac.authorization.k8s.io/v1";
    [
        object(
            "v1",
            "Secret",
            name,
            json!({"stringData": {"a": ROLE, "b": version, "c": "ClusterRole"}}),
        ),
        object("v1", "ConfigMap", name, json!({"data": {"admin_password": ROLE}})),
    ]
}

fn write_stack(stage: &Stage, id: &str, objects: &[Value]) {
    let resources: Vec<_> = objects.iter().map(resource).collect();
    tiny_monorepo::write_program(
        &stage.monorepo,
        id,
        &format!("resources = {}\n", json!(resources)),
    );
}

async fn is_bound(stage: &Stage, name: &str) -> bool {
    let bindings: Api<RoleBinding> = Api::namespaced(stage.cluster.client().await, "default");
    bindings.get_opt(name).await.unwrap().is_some()
}

/// Each set denies the binding, and what leaves does not hold the value of the Secret.
fn all_deny(said: &str, sets: &[&str], what: &str) {
    for set in sets {
        assert!(said.contains(&format!("{set}/")), "{what}: {set} denies: {said}");
    }
}

const ALL: [&str; 5] = ["rego", "plan", "cel", "vap", "gatekeeper"];

fn result(ran: &Ran) -> Value {
    serde_json::from_str(&std::fs::read_to_string(ran.output("result-path")).unwrap()).unwrap()
}

fn denying(document: &Value) -> String {
    let findings = document["findings"].as_array().unwrap().iter();
    let denied = findings.filter(|finding| finding["verdict"] == "deny");
    denied
        .map(|finding| format!("{} ", finding["rule"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_blinds_no_rule_in_a_job() {
    let mut stage = Stage::small("").await;
    write_rules(&stage);
    stage.monorepo.commit("Rules");
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        world.collaborators.insert("grace".into(), "write");
    });
    // Applied before the rules came, to be deleted.
    let old = "blind-job-old";
    stage.reviewed(7, "old", |stage| {
        write_stack(stage, "blind-job/old", &[binding(old, ROLE)])
    });
    stage.merge(7, "old").outcome.check(0);
    stage.straight_to_main(|stage| stage.configure(SETS));

    let name = "blind-job-new";
    let (_, previewed) = stage.reviewed(8, "new", |stage| {
        let [secret, named] = blinds(name);
        write_stack(stage, "blind-job/new", &[binding(name, ROLE), secret, named]);
    });
    let document = result(&previewed);
    all_deny(&denying(&document), &ALL, "preview");
    let comment = stage.comments().last().unwrap().1.clone();
    assert!(comment.contains("Policy sets: 5 denied"), "{comment}");
    // What a rule quotes of it is masked, wherever it leaves.
    for (place, text) in [
        ("comment", comment),
        ("log", previewed.outcome.stderr.clone()),
        ("page of the job", previewed.summary.clone()),
        ("result", document["findings"].to_string()),
    ] {
        assert!(!text.contains("grants cluster-admin"), "{place}: {text}");
    }
    let merged = stage.merge(8, "new");
    merged.outcome.check(3);
    assert!(!is_bound(&stage, name).await);
    // A person who approves exactly this plan does not approve what the rules deny.
    let stacks = result(&merged)["stacks"].clone();
    let stopped = stacks
        .as_array()
        .unwrap()
        .iter()
        .find(|stack| stack["id"] == "blind-job/new");
    let plan = stopped.unwrap()["digest"].as_str().unwrap().to_owned();
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    let approved = stage.approve(&plan);
    approved.outcome.check(3);
    all_deny(&denying(&result(&approved)), &ALL, "approved by digest");
    assert!(!is_bound(&stage, name).await);
    stage.env.clear();

    // The deletion: the Secret comes in the same change.
    stage.reviewed(9, "delete", |stage| {
        write_stack(stage, "blind-job/old", &blinds(old));
    });
    let merged = stage.merge(9, "delete");
    merged.outcome.check(3);
    all_deny(
        &denying(&result(&merged)),
        &["plan", "vap", "gatekeeper"],
        "deletion",
    );
    assert!(is_bound(&stage, old).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_blinds_no_rule_by_hand_and_offline() {
    let stage = Stage::small("").await;
    write_rules(&stage);
    let (name, stack) = ("blind-hand", "blind/hand");
    let [secret, named] = blinds(name);
    let run = |arguments: &[&str], code: i32| -> Outcome {
        stage.konverge(arguments.iter().copied()).run().expect(code)
    };
    write_stack(
        &stage,
        stack,
        &[binding(name, ROLE), secret.clone(), named.clone()],
    );
    let apply = ["apply", stack, "--yes", "--output", "json"];
    run(&apply, 0);
    assert!(is_bound(&stage, name).await);

    stage.configure(SETS);
    // Offline each object is one that is created.
    let checked = run(&["check", stack, "--policy", "--output", "json"], 1);
    let remarks = checked.json()["remarks"].to_string();
    all_deny(&remarks, &ALL, "check");
    let sarif = run(&["check", stack, "--policy", "--output", "sarif"], 1);
    for text in [&remarks, &sarif.stdout, &sarif.stderr] {
        assert!(!text.contains("grants cluster-admin"), "{text}");
    }
    // A change: of an object that exists the printed document is masked, and the rules see what it is.
    let mut changed = binding(name, ROLE);
    changed["metadata"]["labels"] = json!({"changed": "yes"});
    write_stack(&stage, stack, &[changed, secret.clone(), named.clone()]);
    let printed = run(&["preview", stack, "--output", "plan"], 0).stdout;
    assert!(
        !printed.contains(ROLE) && printed.contains("\"secret:"),
        "{printed}"
    );
    let refused = run(&apply, 3).json();
    all_deny(&denying(&refused), &ALL, "update");
    // Taken out of the stack, and the stack destroyed.
    write_stack(&stage, stack, &[secret, named]);
    let refused = run(&apply, 3).json();
    all_deny(&denying(&refused), &["plan", "vap", "gatekeeper"], "deletion");
    let refused = run(&["destroy", stack, "--yes", "--output", "json"], 3).json();
    all_deny(&denying(&refused), &["plan", "vap", "gatekeeper"], "destroy");
    assert!(is_bound(&stage, name).await);
}
