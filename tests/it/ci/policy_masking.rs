//! A Secret, or a name that speaks of one, blinds no rule: in a job, by hand and offline, in every language. GitHub is
//! played by the fake, the API server is real.

use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    hiding,
    process::Outcome,
    random::{Random, setting},
    shop_monorepo::resource,
    tiny_monorepo,
};

/// A role that the rules forbid. It is long enough to be masked wherever a Secret holds it.
const ROLE: &str = "cluster-admin";

/// The roles that the rules forbid: others besides, whatever texts they are.
fn roles() -> (Vec<String>, Random) {
    let seed = setting("KONVERGE_SEED", 20_261_125);
    println!("KONVERGE_SEED={seed}");
    let mut random = Random::of(seed);
    let mut roles = vec![ROLE.to_owned()];
    roles.extend((0..4).map(|_| hiding::text(&mut random)));
    (roles, random)
}

const SETS: &str = "policy:
  sets:
  - {name: rego, path: ops/policy/a.rego, input: objects}
  - {name: plan, path: ops/policy/plan.rego}
  - {name: vap, path: ops/policy/vap.yaml, language: vap}
  - {name: gatekeeper, path: ops/policy/gatekeeper.yaml, language: gatekeeper}
";

/// The same rule in every language, for creations, changes and deletions.
fn write_rules(stage: &Stage, roles: &[String]) {
    let roles = json!(roles);
    let rego = format!(
        "package main\n\ndeny contains sprintf(\"grants %v\", [input.roleRef.name]) if input.roleRef.name in {roles}\n"
    );
    let plan = format!(
        "package main\n\ndeny contains {{\"msg\": sprintf(\"%v: grants %v\", [r.action, r[side].roleRef.name]), \"resource\": r.id}} if {{\n\tsome r in input.resources\n\tr.action != \"unchanged\"\n\tsome side in [\"before\", \"after\"]\n\tr[side].roleRef.name in {roles}\n}}\n"
    );
    let vap = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "roles"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["rolebindings"]}]},
        "validations": [{"expression": format!("!((object == null ? oldObject : object).roleRef.name in {roles})"), "message": "it grants too much"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "roles"},
        "spec": {"policyName": "roles", "validationActions": ["Deny"]}});
    let rego_v0 = format!(
        "package roles\nviolation[{{\"msg\": \"it grants too much\"}}] {{ input.review.object.roleRef.name == {roles}[_] }}\nviolation[{{\"msg\": \"it grants too much\"}}] {{ input.review.oldObject.roleRef.name == {roles}[_] }}\n"
    );
    let template = json!({"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": {"name": "roles"}, "spec": {
        "crd": {"spec": {"names": {"kind": "Roles"}}},
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "operations": ["CREATE", "UPDATE", "DELETE"], "rego": rego_v0}]}});
    let constraint = json!({"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": "Roles", "metadata": {"name": "roles"}, "spec": {}});
    for (file, text) in [
        ("a.rego", rego),
        ("plan.rego", plan),
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

/// A binding of each role.
fn bindings(name: &str, roles: &[String]) -> Vec<Value> {
    let roles = roles.iter().enumerate();
    roles
        .map(|(at, role)| binding(&format!("{name}-{at}"), role))
        .collect()
}

/// What blinded the rules: a Secret with the words of the rule, and a name that speaks of a secret; and whatever holds
/// the other roles.
fn blinds(name: &str, roles: &[String], random: &mut Random) -> Vec<Value> {
    let version = "rbac.authorization.k8s.io/v1";
    let words = json!({"stringData": {"a": ROLE, "b": version, "c": "ClusterRole"}});
    let named = json!({"data": {"admin_password": ROLE}});
    let mut blinds = vec![
        object("v1", "Secret", name, words),
        object("v1", "ConfigMap", name, named),
    ];
    for (at, role) in roles.iter().enumerate().skip(1) {
        blinds.push(hiding::object(role, &format!("{name}-{at}"), "default", random));
    }
    println!("{blinds:?}");
    blinds
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

/// Each set denies each of so many bindings.
fn all_deny(said: &str, sets: &[&str], bindings: usize, what: &str) {
    for set in sets {
        let denied = said.matches(&format!("{set}/")).count();
        assert!(denied >= bindings, "{what}: {set} denies {denied}: {said}");
    }
}

const ALL: [&str; 4] = ["rego", "plan", "vap", "gatekeeper"];
/// Those that judge what goes.
const OF_DELETIONS: [&str; 3] = ["plan", "vap", "gatekeeper"];

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
    let (roles, mut random) = roles();
    let all = roles.len();
    write_rules(&stage, &roles);
    stage.monorepo.commit("Rules");
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
        world.collaborators.insert("grace".into(), "write");
    });
    // Applied before the rules came, to be deleted.
    let old = "blind-job-old";
    stage.reviewed(7, "old", |stage| {
        write_stack(stage, "blind-job/old", &bindings(old, &roles));
    });
    stage.merge(7, "old").outcome.check(0);
    stage.straight_to_main(|stage| stage.configure(SETS));

    let name = "blind-job-new";
    let objects = [bindings(name, &roles), blinds(name, &roles, &mut random)].concat();
    let (_, previewed) = stage.reviewed(8, "new", |stage| {
        write_stack(stage, "blind-job/new", &objects);
    });
    let document = result(&previewed);
    all_deny(&denying(&document), &ALL, all, "preview");
    let comment = stage.comments().last().unwrap().1.clone();
    let denied = format!("Policy sets: {} denied", ALL.len() * all);
    assert!(comment.contains(&denied), "{comment}");
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
    assert!(!is_bound(&stage, &format!("{name}-0")).await);
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
    all_deny(&denying(&result(&approved)), &ALL, all, "approved by digest");
    assert!(!is_bound(&stage, &format!("{name}-0")).await);
    stage.env.clear();

    // The deletion: what hides comes in the same change.
    let objects = blinds(old, &roles, &mut random);
    stage.reviewed(9, "delete", |stage| {
        write_stack(stage, "blind-job/old", &objects);
    });
    let merged = stage.merge(9, "delete");
    merged.outcome.check(3);
    all_deny(&denying(&result(&merged)), &OF_DELETIONS, all, "deletion");
    assert!(is_bound(&stage, &format!("{old}-0")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_blinds_no_rule_by_hand_and_offline() {
    let stage = Stage::small("").await;
    let (roles, mut random) = roles();
    let all = roles.len();
    write_rules(&stage, &roles);
    let (name, stack) = ("blind-hand", "blind/hand");
    let (bound, hides) = (bindings(name, &roles), blinds(name, &roles, &mut random));
    let run = |arguments: &[&str], code: i32| -> Outcome {
        stage.konverge(arguments.iter().copied()).run().expect(code)
    };
    write_stack(&stage, stack, &[bound.clone(), hides.clone()].concat());
    let apply = ["apply", stack, "--yes", "--output", "json"];
    run(&apply, 0);
    assert!(is_bound(&stage, &format!("{name}-0")).await);

    stage.configure(SETS);
    // Offline each object is one that is created.
    let checked = run(&["check", stack, "--policy", "--output", "json"], 1);
    let remarks = checked.json()["remarks"].to_string();
    all_deny(&remarks, &ALL, all, "check");
    let sarif = run(&["check", stack, "--policy", "--output", "sarif"], 1);
    for text in [&remarks, &sarif.stdout, &sarif.stderr] {
        assert!(!text.contains("grants cluster-admin"), "{text}");
    }
    // A change: of an object that exists the printed document is masked, and the rules see what it is.
    let mut changed = bound;
    for binding in &mut changed {
        binding["metadata"]["labels"] = json!({"changed": "yes"});
    }
    write_stack(&stage, stack, &[changed, hides.clone()].concat());
    let printed = run(&["preview", stack, "--output", "plan"], 0).stdout;
    // The name that `roleRef` refers to stands in the Spec, so it stays, and it stands nowhere else.
    let names = format!("\"name\":\"{ROLE}\"");
    assert_eq!(
        printed.matches(ROLE).count(),
        printed.matches(&names).count(),
        "{printed}"
    );
    assert!(printed.contains("\"apiVersion\":\"secret:"), "{printed}");
    let refused = run(&apply, 3).json();
    all_deny(&denying(&refused), &ALL, all, "update");
    // Taken out of the stack, and the stack destroyed.
    write_stack(&stage, stack, &hides);
    let refused = run(&apply, 3).json();
    all_deny(&denying(&refused), &OF_DELETIONS, all, "deletion");
    let refused = run(&["destroy", stack, "--yes", "--output", "json"], 3).json();
    all_deny(&denying(&refused), &OF_DELETIONS, all, "destroy");
    assert!(is_bound(&stage, &format!("{name}-0")).await);
}
