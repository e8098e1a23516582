//! The same as in [`super::admission_policies`] for other kinds: Namespaces, a kind without a Namespace, and a custom
//! resource, that are created, updated and deleted.

use std::time::Duration;

use konverge_config::Config;
use konverge_policy_sets::{PolicyFile, PolicySet};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::admission_policies::{denied, refusal};
use crate::support::{
    cluster::Cluster,
    random::{Random, setting},
};

const GROUP: &str = "oracle.example.com";
const KINDS: [&str; 3] = ["Namespace", "ClusterRole", "Thing"];

/// What a policy selects, with an expression that must be true, and a messageExpression.
const POLICIES: [(&str, &str, &str); 9] = [
    (
        "{apiGroups: ['*'], resources: ['*']}",
        "object == null || !has(object.metadata.labels.tier) || object.metadata.labels.tier != 'bad'",
        "request.operation + ' ' + request.kind.group + '/' + request.kind.version + '/' + request.kind.kind + ' ' + request.resource.resource + ' ' + request.name + ' in [' + request.namespace + ']'",
    ),
    (
        "{apiGroups: ['*'], resources: ['*'], operations: [DELETE]}",
        "object == null && oldObject.metadata.labels[?'keep'].orValue('') != 'yes'",
        "'kept ' + oldObject.kind + ' ' + oldObject.metadata.name + ' of ' + (namespaceObject == null ? 'nobody' : namespaceObject.metadata.name)",
    ),
    (
        "{apiGroups: ['*'], resources: ['*'], operations: [UPDATE]}",
        "object.metadata.labels[?'tier'].orValue('') == oldObject.metadata.labels[?'tier'].orValue('')",
        "'tier was ' + oldObject.metadata.labels[?'tier'].orValue('none')",
    ),
    (
        "{apiGroups: ['*'], resources: ['*'], scope: Cluster}",
        "namespaceObject != null || object == null || !('keep' in object.metadata.labels)",
        "'no Namespace around ' + request.name",
    ),
    (
        "{apiGroups: ['*'], resources: ['*'], scope: Namespaced, operations: [CREATE]}",
        "namespaceObject.metadata.name == request.namespace && object.metadata.labels[?'tier'].orValue('') != 'a'",
        "'tier a in ' + namespaceObject.metadata.labels['kubernetes.io/metadata.name']",
    ),
    (
        "{apiGroups: [''], resources: [namespaces]}",
        "object == null || object.metadata.name == request.namespace && object.metadata.annotations[?'a'].orValue('') != 'x'",
        "'x on ' + request.namespace",
    ),
    (
        "{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles]}",
        "object == null || !has(object.rules) || object.rules.all(r, !r.verbs.exists(v, v == '*'))",
        "string(object.rules.map(r, r.verbs.size()).sum()) + ' verbs'",
    ),
    (
        "{apiGroups: [oracle.example.com], resources: [things], operations: [CREATE, UPDATE]}",
        "object.spec.n < 50 && (oldObject == null || object.spec.n >= oldObject.spec.n)",
        "'from ' + (oldObject == null ? 'none' : string(oldObject.spec.n)) + ' to ' + string(object.spec.n)",
    ),
    (
        "{apiGroups: [oracle.example.com], resources: ['*'], resourceNames: [things-base-1]}",
        "oldObject == null || !oldObject.spec.list.exists(item, item.name == 'z')",
        "'z at ' + string(oldObject.spec.list.map(item, item.name).indexOf('z'))",
    ),
];

/// The policy `n` with its binding, for the objects with the label of this run.
fn policy(n: usize, run: &str) -> [Value; 2] {
    let (rule, expression, message) = POLICIES[n];
    let mut rule: Value = konverge_base::yaml::documents(rule).unwrap().remove(0);
    rule["apiVersions"] = json!(["*"]);
    if rule["operations"].is_null() {
        rule["operations"] = json!(["CREATE", "UPDATE", "DELETE"]);
    }
    let name = format!("{run}-{n}");
    let probe =
        format!("(object == null ? oldObject : object).metadata.labels[?'probe'].orValue('') != 'p{n}'");
    let spec = json!({
        "matchConstraints": {
            "resourceRules": [rule],
            "objectSelector": {"matchLabels": {"oracle": run}},
        },
        "validations": [
            {"expression": probe, "message": "probe"},
            {"expression": expression, "messageExpression": message},
        ],
    });
    let api_version = "admissionregistration.k8s.io/v1";
    let object = |kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        object("ValidatingAdmissionPolicy", spec),
        object(
            "ValidatingAdmissionPolicyBinding",
            json!({"policyName": name, "validationActions": ["Deny"]}),
        ),
    ]
}

fn definition() -> Value {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let spec = json!({"type": "object", "properties": {"n": {"type": "integer"}, "list": {"type": "array", "items": item}}});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("things.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn resource(kind: &str) -> ApiResource {
    let (group, version, plural) = match kind {
        "Namespace" => ("", "v1", "namespaces"),
        "ClusterRole" => ("rbac.authorization.k8s.io", "v1", "clusterroles"),
        "Thing" => (GROUP, "v1", "things"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        other => (
            "admissionregistration.k8s.io",
            "v1",
            match other {
                "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
                _ => "validatingadmissionpolicybindings",
            },
        ),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

struct Oracle {
    client: kube::Client,
    namespace: String,
}

impl Oracle {
    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let kind = object["kind"].as_str().unwrap();
        match kind {
            "Thing" => Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind)),
            _ => Api::all_with(self.client.clone(), &resource(kind)),
        }
    }

    async fn create(&self, object: &Value, dry_run: bool) -> Result<DynamicObject, kube::Error> {
        let typed = serde_json::from_value(object.clone()).unwrap();
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        self.api(object).create(&params, &typed).await
    }

    /// An object of a kind.
    fn random(&self, random: &mut Random, kind: &str, place: &str) -> Value {
        let name = match kind {
            "Thing" => format!("things-{place}"),
            _ => format!("{}-{place}", self.namespace),
        };
        let mut labels = json!({"oracle": self.namespace});
        for (key, values) in [("tier", &["a", "bad", "b", "c"][..]), ("keep", &["yes", "no"])] {
            if random.once_in(3) {
                labels[key] = json!(random.pick(values));
            }
        }
        let mut metadata = json!({"name": name, "labels": labels});
        if random.once_in(2) {
            metadata["annotations"] = json!({"a": random.pick(&["x", "y", ""])});
        }
        match kind {
            "Namespace" => json!({"apiVersion": "v1", "kind": kind, "metadata": metadata}),
            "ClusterRole" => {
                let verbs = [json!(["get"]), json!(["*"]), json!(["get", "list"])];
                // Without rules the server has `null` there, which a plan has not.
                let rule = |random: &mut Random| json!({"apiGroups": [""], "resources": ["pods"], "verbs": random.pick(&verbs)});
                let rules: Vec<_> = (0..=random.below(2)).map(|_| rule(random)).collect();
                json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules})
            }
            _ => {
                metadata["namespace"] = json!(self.namespace);
                let items: Vec<_> = (0..random.below(3))
                    .map(|_| json!({"name": random.pick(&["y", "z"])}))
                    .collect();
                let spec = json!({"n": random.pick(&[1, 49, 50, 7]), "list": items});
                json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": metadata, "spec": spec})
            }
        }
    }
}

async fn hold_against_the_api_server(objects: u64) {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("kinds").await;
    let oracle = Oracle {
        client: cluster.client().await,
        namespace: namespace.clone(),
    };
    let seed = setting("KONVERGE_SEED", 20_261_123);
    println!("KONVERGE_SEED={seed}");
    let mut random = Random::of(seed);
    // Another test of this file may have defined the kind.
    let definition = definition();
    let apply = PatchParams::apply("oracle").force();
    let name = definition["metadata"]["name"].as_str().unwrap();
    oracle
        .api(&definition)
        .patch(name, &apply, &Patch::Apply(&definition))
        .await
        .unwrap();
    let mut tries = 0;
    let probe = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": {"name": "probe", "namespace": namespace}});
    while oracle.create(&probe, true).await.is_err() {
        tries += 1;
        assert!(tries < 600, "the kind is not served");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut bases = Vec::new();
    for kind in KINDS {
        for n in 0..4 {
            let mut base = oracle.random(&mut random, kind, &format!("base-{n}"));
            if base["metadata"]["name"] == "things-base-1" {
                // No other policy denies the probe that is an update of it.
                base["metadata"]["labels"] = json!({"oracle": namespace});
                base["spec"] = json!({"n": 7, "list": [{"name": "y"}, {"name": "z"}]});
            }
            oracle.create(&base, false).await.unwrap();
            bases.push(base);
        }
    }
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    let mut texts = vec![own.to_string(), definition.to_string()];
    for n in 0..POLICIES.len() {
        for object in policy(n, &namespace) {
            let made = oracle.create(&object, false).await;
            made.unwrap_or_else(|error| panic!("policy {n}: {error}"));
            texts.push(object.to_string());
        }
    }
    let config = Config::parse("policy: {sets: [{name: oracle, path: p, language: vap}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/policies.yaml".to_owned(),
        text: texts.join("\n---\n"),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    // Each policy is in force once it denies its probe: by an object that it selects, which no other policy denies.
    for n in 0..POLICIES.len() {
        let labels = json!({"oracle": namespace, "probe": format!("p{n}")});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": format!("{namespace}-base-0"), "labels": labels}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
        let thing = |name: &str| json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"n": 1, "list": []}});
        let in_force = || async {
            let answer = match n {
                // Deletions and updates are asked about what lies there: with the label of the probe.
                1 | 2 => {
                    let object = json!({"metadata": {"labels": {"probe": format!("p{n}")}}});
                    let roles = oracle.api(&role);
                    let name = format!("{namespace}-probe-{n}");
                    if n == 1 {
                        let dry = DeleteParams {
                            dry_run: true,
                            ..DeleteParams::default()
                        };
                        refusal(roles.delete(&name, &dry).await)
                    } else {
                        let dry = PatchParams {
                            dry_run: true,
                            ..PatchParams::default()
                        };
                        refusal(roles.patch(&name, &dry, &Patch::Merge(&object)).await)
                    }
                }
                3 | 6 => {
                    let mut role = role.clone();
                    role["metadata"]["name"] = json!(format!("{namespace}-new"));
                    refusal(oracle.create(&role, true).await)
                }
                5 => {
                    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("{namespace}-new"), "labels": labels}});
                    refusal(oracle.create(&own, true).await)
                }
                // Only what has this name is selected; it is there, so that it is updated.
                8 => {
                    let object = json!({"metadata": {"labels": {"probe": "p8"}}});
                    let dry = PatchParams {
                        dry_run: true,
                        ..PatchParams::default()
                    };
                    refusal(
                        oracle
                            .api(&thing("x"))
                            .patch("things-base-1", &dry, &Patch::Merge(&object))
                            .await,
                    )
                }
                _ => refusal(oracle.create(&thing("new"), true).await),
            };
            answer == Some((format!("{namespace}-{n}"), "probe".to_owned()))
        };
        if matches!(n, 1 | 2) {
            let mut lies = role.clone();
            lies["metadata"]["name"] = json!(format!("{namespace}-probe-{n}"));
            // An update is probed by its new label.
            if n == 2 {
                lies["metadata"]["labels"] = json!({"oracle": namespace});
            }
            oracle.create(&lies, false).await.unwrap();
        }
        let mut tries = 0;
        while !in_force().await {
            tries += 1;
            assert!(tries < 600, "policy {n} is not in force");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let (mut denials, mut passes) = (0, 0);
    for number in 0..objects {
        let base = random.pick(&bases).clone();
        let kind = base["kind"].as_str().unwrap().to_owned();
        let name = base["metadata"]["name"].as_str().unwrap().to_owned();
        let api = oracle.api(&base);
        let (before, after, said) = match random.below(3) {
            0 => {
                let dry = DeleteParams {
                    dry_run: true,
                    ..DeleteParams::default()
                };
                (Some(base), None, refusal(api.delete(&name, &dry).await))
            }
            1 => {
                let place = name.rsplit("base-").next().unwrap();
                let after = oracle.random(&mut random, &kind, &format!("base-{place}"));
                // An update of a custom resource names the version that it is of.
                let mut sent: DynamicObject = serde_json::from_value(after.clone()).unwrap();
                sent.metadata.resource_version = api.get(&name).await.unwrap().metadata.resource_version;
                let dry = PostParams {
                    dry_run: true,
                    ..PostParams::default()
                };
                (
                    Some(base),
                    Some(after),
                    refusal(api.replace(&name, &dry, &sent).await),
                )
            }
            _ => {
                let place = format!("new-{}", random.below(4));
                let after = oracle.random(&mut random, &kind, &place);
                let said = refusal(oracle.create(&after, true).await);
                (None, Some(after), said)
            }
        };
        let ours = denied(&set, before.as_ref(), after.as_ref());
        let told =
            format!("seed {seed}, object {number}: {before:?} -> {after:?}: server {said:?}, ours {ours:?}");
        match &said {
            None => assert!(ours.is_empty(), "{told}"),
            Some(said) => assert!(ours.contains(said), "{told}"),
        }
        *(if said.is_some() { &mut denials } else { &mut passes }) += 1;
    }
    for n in 0..POLICIES.len() {
        for object in policy(n, &namespace) {
            let name = object["metadata"]["name"].as_str().unwrap();
            oracle
                .api(&object)
                .delete(name, &DeleteParams::default())
                .await
                .unwrap();
        }
    }
    assert!(
        denials > objects / 5 && passes > objects / 10,
        "{denials} denied, {passes} passed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_about_other_kinds_as_the_api_server_does() {
    hold_against_the_api_server(setting("KONVERGE_OBJECTS", 300)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "5,000 objects: `make test-all` runs it"]
async fn policies_decide_about_other_kinds_as_the_api_server_does_for_many_objects() {
    hold_against_the_api_server(5_000).await;
}
