//! What one object of a plan needs of another one that changes with it: a binding its role, a Pod what it names, a
//! reference what it reads, a replacement what the old object holds.

use std::path::PathBuf;

use konverge_base::model::plan::{Action, Validation};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random::Random,
    sequential_apply::{apply_in_order, seeds},
    stack::{TestStack, action, planned},
};

/// A kubeconfig of somebody who may do what a role says, in a namespace and beyond.
async fn account(cluster: &Cluster, folder: &tempfile::TempDir, name: &str, rules: Value) -> PathBuf {
    let objects = Objects::of(cluster).await;
    let rbac = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}], "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name}});
    objects.create(&role).await;
    objects.create(&binding).await;
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!(name);
    let path = folder.path().join(name);
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// The rules of the role in `docs/guides/permissions.md`.
fn rules_of_the_guide() -> Value {
    let guide = std::fs::read_to_string(crate::support::root().join("docs/guides/permissions.md")).unwrap();
    let (_, yaml) = guide.split_once("```yaml\n").unwrap();
    let (yaml, _) = yaml.split_once("```").unwrap();
    let documents = konverge_base::yaml::documents(yaml).unwrap();
    let mut roles = documents
        .into_iter()
        .filter(|document| document["kind"] == "ClusterRole");
    roles.next().expect("the guide has a role")["rules"].clone()
}

fn rbac(kind: &str, ns: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": ns}});
    object
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    object
}

fn role(ns: &str, name: &str, verbs: &[&str]) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    rbac("Role", ns, name, json!({ "rules": rules }))
}

fn binding(ns: &str, name: &str, role: &str, subject: &str) -> Value {
    let subjects = json!([{"kind": "ServiceAccount", "name": subject, "namespace": ns}]);
    let to = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
    rbac(
        "RoleBinding",
        ns,
        name,
        json!({"subjects": subjects, "roleRef": to}),
    )
}

fn pod(ns: &str, name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "c:1"}]});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": ns}, "spec": spec})
}

#[tokio::test]
async fn a_role_and_its_binding_come_in_one_change_with_the_role_of_the_guide() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-role").await,
        Objects::of(cluster).await,
    );
    let folder = tempfile::TempDir::new().unwrap();
    let kubeconfig = account(cluster, &folder, "together-guide", rules_of_the_guide()).await;
    let mut stack = TestStack::new("together-role", kubeconfig);
    let wanted = [
        binding(&ns, "readers", "reader", "app"),
        role(&ns, "reader", &["get"]),
    ];
    let plan = stack.plan_well(&wanted).await;
    let shown = planned(&plan, &wanted[0]).unwrap();
    assert_eq!(
        (shown.action, shown.validated),
        (Action::Create, Validation::None)
    );
    let notes = shown.notes.join("\n");
    assert!(
        notes.contains("not validated yet") && notes.contains(":Role:"),
        "{notes}"
    );
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    assert!(objects.get(&wanted[0]).await.is_some());
    assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 2);

    // Nothing of the plan lifts these: the role is not there, or it gives what its author does not have.
    for (wanted, words) in [
        (vec![binding(&ns, "other", "nobody", "app")], "not found"),
        (
            vec![role(&ns, "wide", &["*"]), binding(&ns, "wide", "wide", "app")],
            "attempting to grant",
        ),
    ] {
        let plan = stack.plan(&wanted).await;
        let (_, failure) = plan.failures.first().expect("it is refused");
        assert!(failure.message.contains(words), "{failure:?}");
    }
    // A role that gives less than before may be bound in the same change.
    objects.create(&role(&ns, "shrinks", &["*"])).await;
    let shrinking = [
        role(&ns, "shrinks", &["get"]),
        binding(&ns, "shrinks", "shrinks", "app"),
    ];
    stack.state.resources.clear();
    let plan = stack.plan_well(&shrinking).await;
    assert_eq!(action(&plan, &shrinking[1]), Action::Create);
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
}

fn class(kind: &str, name: &str) -> Value {
    match kind {
        "PriorityClass" => {
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "value": 7})
        }
        _ => {
            json!({"apiVersion": "node.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "handler": "h"})
        }
    }
}

/// Random roles, bindings and Pods with what they name, each of which may be there, come in the same change, or be
/// missing.
#[tokio::test]
async fn what_others_name_may_come_in_the_same_change() {
    let cluster = Cluster::shared();
    let folder = tempfile::TempDir::new().unwrap();
    let verbs = json!(["get", "list", "create", "patch", "delete"]);
    let rule =
        |group: &str, resources: Value| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let rules = json!([
        rule("", json!(["pods", "serviceaccounts"])),
        rule("rbac.authorization.k8s.io", json!(["roles", "rolebindings"])),
        rule("scheduling.k8s.io", json!(["priorityclasses"])),
        rule("node.k8s.io", json!(["runtimeclasses"]))
    ]);
    let kubeconfig = account(cluster, &folder, "together-pods", rules).await;
    let config = kube::config::Kubeconfig::read_from(&kubeconfig).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let objects = Objects::of(cluster).await;
    let (mut accepted, mut refused, mut late) = (0, 0, 0);
    for seed in seeds() {
        let mut random = Random::of(seed);
        let namespaces = [
            cluster.namespace("together-theirs").await,
            cluster.namespace("together-ours").await,
        ];
        // Each is there before, comes with the rest, or is missing.
        let mut comes = || {
            random
                .pick(&["there", "comes", "comes", "comes", "missing"])
                .to_owned()
        };
        let named = [
            ("ServiceAccount", comes()),
            ("PriorityClass", comes()),
            ("RuntimeClass", comes()),
            ("Role", comes()),
        ];
        let verb = random.pick(&["get", "delete", "*"]).to_owned();
        let mut sides = Vec::new();
        for ns in &namespaces {
            let one = |kind: &str| match kind {
                "ServiceAccount" => {
                    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "runner", "namespace": ns}})
                }
                "Role" => role(ns, "reader", &[verb]),
                _ => class(kind, ns),
            };
            let mut wanted = Vec::new();
            for (kind, how) in &named {
                match *how {
                    "there" => match *kind {
                        "PriorityClass" => {
                            objects
                                .create_at("/apis/scheduling.k8s.io/v1/priorityclasses", &one(kind))
                                .await
                        }
                        "RuntimeClass" => {
                            objects
                                .create_at("/apis/node.k8s.io/v1/runtimeclasses", &one(kind))
                                .await
                        }
                        _ => objects.create(&one(kind)).await,
                    },
                    "comes" => wanted.push(one(kind)),
                    _ => {}
                }
            }
            wanted.push(binding(ns, "readers", "reader", "runner"));
            wanted.push(pod(ns, "a", json!({"serviceAccountName": "runner"})));
            wanted.push(pod(
                ns,
                "b",
                json!({"serviceAccountName": "runner", "priorityClassName": ns}),
            ));
            wanted.push(pod(
                ns,
                "c",
                json!({"serviceAccountName": "runner", "runtimeClassName": ns}),
            ));
            sides.push(wanted);
        }
        let title = format!("seed {seed}: {named:?} {verb}");
        let expected = apply_in_order(&client, &sides[0]).await;
        let mut stack = TestStack::new(&format!("together-pods-{seed}"), kubeconfig.clone());
        // The order in the Spec says nothing.
        sides[1].reverse();
        let plan = stack.plan(&sides[1]).await;
        match expected {
            Ok(()) => {
                accepted += 1;
                assert!(plan.failures.is_empty(), "{title}: {:?}", plan.failures);
                let outcome = stack.carry_out(plan).await;
                assert!(outcome.error.is_none(), "{title}: {outcome:?}");
            }
            Err(why) => {
                refused += 1;
                if plan.failures.is_empty() {
                    // One refusal hides the next: what is missing shows when what comes in the same change is there.
                    late += 1;
                    let outcome = stack.carry_out(plan).await;
                    assert!(outcome.error.is_some(), "{title}: {why}");
                }
            }
        }
    }
    println!("{accepted} were accepted, {refused} refused, {late} of them by the apply");
    assert!(
        seeds().len() == 1 || accepted > 1 && refused > 1,
        "the generator has lost its teeth: {accepted}, {refused}"
    );
}

fn service(ns: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": spec})
}

/// A dry run answers with a cluster IP and node ports that are not those of the write.
#[tokio::test]
async fn what_a_dry_run_invents_is_neither_shown_nor_written() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-invented").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("together-invented", cluster.kubeconfig());
    let reader = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "reader", "namespace": ns}, "data": data});
    let id = format!("v1:Service:{ns}:s");
    let ip = json!({"ip": format!("ip $kusion_path.{id}.spec.clusterIP")});
    let port = json!({"port": format!("port $kusion_path.{id}.spec.ports.1.nodePort")});
    let outside = service(
        &ns,
        json!({"type": "ExternalName", "externalName": "a.example.com"}),
    );
    let inside = service(&ns, json!({"type": "ClusterIP", "ports": [{"port": 80}]}));
    let open = service(
        &ns,
        json!({"type": "NodePort", "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}),
    );
    stack.apply(&[outside, reader(json!({"ip": "none"}))]).await;
    for (wanted, field, word) in [(inside, "/spec/clusterIP", ip), (open, "/spec/ports", port)] {
        let wanted = [wanted, reader(word)];
        let plan = stack.plan_well(&wanted).await;
        let shown = planned(&plan, &wanted[0]).unwrap();
        let invented =
            |change: &&konverge_base::model::plan::FieldChange| change.path.as_str().starts_with(field);
        let change = shown.changes.iter().rfind(invented).expect("it is shown");
        let to = change.to.clone().unwrap();
        assert!(
            konverge_base::model::masked_value::holds_unknown(&to),
            "{change:?}"
        );
        // The same is shown each time: nothing of it is random.
        let again = stack.plan_well(&wanted).await;
        assert_eq!(planned(&again, &wanted[0]).unwrap().digest, shown.digest);
        let outcome = stack.carry_out(plan).await;
        assert!(outcome.error.is_none(), "{outcome:?}");
        let live = objects.get(&wanted[0]).await.unwrap();
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let read = objects.get(&wanted[1]).await.unwrap()["data"].clone();
        let expected = match read.get("ip") {
            Some(_) => json!({"ip": format!("ip {}", text(&live["spec"]["clusterIP"]))}),
            None => json!({"port": format!("port {}", text(&live["spec"]["ports"][1]["nodePort"]))}),
        };
        assert_eq!(read, expected);
    }
}

/// What the old object holds is free only when it is gone: the trial of the new one must not ask for it.
#[tokio::test]
async fn a_service_with_a_fixed_port_and_address_is_replaced() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-fixed").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("together-fixed", cluster.kubeconfig());
    let fixed = |address: &str, more: Value| {
        let mut spec =
            json!({"type": "NodePort", "clusterIP": address, "ports": [{"port": 80, "nodePort": 32111}]});
        spec.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        service(&ns, spec)
    };
    let (first, second) = (fixed("10.0.77.1", json!({})), fixed("10.0.77.2", json!({})));
    stack.apply(&[first]).await;
    let plan = stack.plan_well(std::slice::from_ref(&second)).await;
    let shown = planned(&plan, &second).unwrap();
    assert_eq!(
        (shown.action, shown.validated),
        (Action::Replace, Validation::Server)
    );
    let changes: Vec<_> = shown
        .changes
        .iter()
        .map(|c| (c.path.as_str(), c.to.clone()))
        .collect();
    let address = json!("10.0.77.2");
    assert_eq!(
        changes,
        [
            ("/spec/clusterIP", Some(address.clone())),
            ("/spec/clusterIPs", Some(json!([address])))
        ]
    );
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    let live = objects.get(&second).await.unwrap();
    assert_eq!(
        (&live["spec"]["clusterIP"], &live["spec"]["ports"][0]["nodePort"]),
        (&json!("10.0.77.2"), &json!(32111))
    );
    // What another Service holds is refused as ever.
    let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other", "namespace": ns}, "spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 32112}]}});
    objects.create(&other).await;
    let ports = json!({"ports": [{"port": 80, "nodePort": 32112}]});
    let taken = stack.plan(&[fixed("10.0.77.3", ports)]).await;
    let (_, failure) = taken.failures.first().expect("it is refused");
    assert!(failure.message.contains("already allocated"), "{failure:?}");
}

/// The preview of a replacement shows the field that forces it, and neither what the server added to the old object nor
/// what somebody else did to it as a change of ours.
#[tokio::test]
async fn a_replacement_shows_what_forces_it() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("together-forced").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("together-forced", cluster.kubeconfig());
    let labels = |labels: Value, replicas: u32| {
        let template = json!({"metadata": {"labels": {"app": "a", "tier": "x"}}, "spec": {"containers": [{"name": "c", "image": "c:1"}], "tolerations": []}});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": ns},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}})
    };
    let before = labels(json!({"app": "a", "tier": "x"}), 2);
    let after = labels(json!({"app": "a"}), 3);
    stack.apply(std::slice::from_ref(&before)).await;
    let drift = json!({"metadata": {"annotations": {"note": "by hand"}}, "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "c:2"}]}}}});
    objects.merge(&before, "somebody", &drift).await;
    let plan = stack.plan_well(std::slice::from_ref(&after)).await;
    let shown = planned(&plan, &after).unwrap();
    assert_eq!(shown.action, Action::Replace);
    assert_eq!(shown.replace, ["/spec/selector"]);
    let changes: Vec<_> = shown
        .changes
        .iter()
        .map(|c| (c.path.as_str(), c.to.clone(), c.origin.clone()))
        .collect();
    use konverge_base::model::plan::ChangeOrigin;
    assert_eq!(
        changes,
        [
            ("/spec/replicas", Some(json!(3)), ChangeOrigin::Change),
            ("/spec/selector/matchLabels/tier", None, ChangeOrigin::Change),
            (
                "/spec/template/spec/containers/name=c/image",
                Some(json!("c:1")),
                ChangeOrigin::Manager("somebody".to_owned())
            ),
        ]
    );
}

/// Gateway API and others use names that end in `.k8s.io`: another stack may define such a kind.
#[tokio::test]
async fn a_group_is_not_built_in_by_its_name() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("together-groups").await;
    let stack = TestStack::new("together-groups", cluster.kubeconfig());
    let of = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "g", "namespace": ns}, "spec": {}});
    let gateway = of("gateway.networking.k8s.io/v1", "Gateway");
    let plan = stack.plan_well(std::slice::from_ref(&gateway)).await;
    let notes = planned(&plan, &gateway).unwrap().notes.join("\n");
    assert!(notes.contains("another stack must define it before"), "{notes}");
    let refused = stack.plan(&[of("networking.k8s.io/v1", "Gateway")]).await;
    let (_, failure) = refused.failures.first().expect("it is refused");
    assert!(failure.message.contains("knows no kind `Gateway`"), "{failure:?}");
}

#[tokio::test]
async fn audit_logs_name_konverge() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("together-agent").await;
    let mut stack = TestStack::new("together-agent", cluster.kubeconfig());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}});
    stack.apply(&[map]).await;
    let audit = cluster.audit();
    let ours: Vec<_> = audit
        .iter()
        .filter(|event| event.is_in(&ns) && event.verb == "patch")
        .collect();
    assert!(!ours.is_empty());
    for event in ours {
        assert_eq!(event.user_agent, concat!("konverge/", env!("CARGO_PKG_VERSION")));
    }
}
