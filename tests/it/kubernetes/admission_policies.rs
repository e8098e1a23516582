//! ValidatingAdmissionPolicies as Konverge evaluates them, held against a real API server with the same policies: random
//! ConfigMaps that are created, updated and deleted, as dry runs.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use konverge::{
    config::Config,
    model::{
        RepoPath, StackId,
        plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
        policy_finding::Enforcement,
        spec::RuntimeKind,
    },
    policy::{
        self,
        sets::{PolicyFile, PolicySet},
    },
};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    random::{Random, setting},
};

/// Expressions with a message, or with a messageExpression if it starts with `=`.
const POLICIES: [&[(&str, &str)]; 18] = [
    &[(
        "object == null || object.metadata.name.startsWith('new')",
        "the name",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.size() < 4",
        "='too long: ' + object.data.s",
    )],
    // Without `has`, what is absent is an error.
    &[("object == null || object.data.n != '7'", "seven")],
    &[(
        "object == null || !has(object.data.n) || int(object.data.n) < 50",
        "",
    )],
    &[(
        "request.operation != 'DELETE' || oldObject.data.s != 'keep'",
        "='kept: ' + request.name",
    )],
    &[(
        "oldObject == null || object == null || !has(oldObject.data.s) || !has(object.data.s) || oldObject.data.s == object.data.s",
        "s never changes",
    )],
    &[(
        "object == null || !has(object.metadata.labels) || object.metadata.labels.all(k, object.metadata.labels[k] != 'bad')",
        "bad label",
    )],
    &[("object == null || variables.text.lowerAscii() != 'abc'", "abc")],
    &[(
        "object == null || !has(object.data.q) || !isQuantity(object.data.q) || quantity(object.data.q).isLessThan(quantity('1Gi'))",
        "too much",
    )],
    &[(
        "object == null || !has(object.data.q) || quantity(object.data.q).compareTo(quantity('500m')) != 0",
        "half",
    )],
    &[(
        "object == null || !has(object.data.ip) || isIP(object.data.ip)",
        "not an address",
    )],
    &[(
        "object == null || !has(object.data.ip) || !isIP(object.data.ip) || !cidr('10.0.0.0/8').containsIP(object.data.ip)",
        "private",
    )],
    &[(
        "object == null || !has(object.data) || sets.contains(['s', 'n', 'q', 'ip', 'probe'], object.data.map(k, k))",
        "another key",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s.split('b').size() < 3",
        "=object.data.s.replace('b', '-')",
    )],
    &[(
        "object == null || !has(object.data.s) || object.data.s in ['', 'a', 'keep', 'aB', 'abc', 'bbb'].filter(x, x != 'bbb') || !has(params.data) || params.data.strict != 'yes'",
        "by parameter",
    )],
    &[
        (
            "object == null || !has(object.data.s) || object.data.s.matches('^[a-z]*$')",
            "letters",
        ),
        (
            "object == null || !has(object.data.n) || object.data.n != '3'",
            "three",
        ),
    ],
    &[
        (
            "object == null || !has(object.data.n) || [1, 2, int(object.data.n)].isSorted()",
            "order",
        ),
        (
            "object == null || !has(object.data.n) || [int(object.data.n), 9].max() < 60",
            "=string([int(object.data.n), 9].max()) + ' is the largest'",
        ),
    ],
    // The empty message is not used.
    &[(
        "object == null || !has(object.data.s) || object.data.s != ''",
        "=string(object.data.s)",
    )],
];

/// The policy `n` with its binding, for the objects of a namespace.
fn policy(n: usize, namespace: &str) -> [Value; 2] {
    let name = format!("oracle-{namespace}-{n}");
    let probe = format!(
        "object == null || !has(object.data) || !('probe' in object.data) || object.data.probe != 'p{n}'"
    );
    let mut validations = vec![json!({"expression": probe, "message": "probe"})];
    for (expression, message) in POLICIES[n] {
        let mut validation = json!({"expression": expression});
        match message.strip_prefix('=') {
            Some(expression) => validation["messageExpression"] = json!(expression),
            None if message.is_empty() => {}
            None => validation["message"] = json!(message),
        }
        validations.push(validation);
    }
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]});
    let mut spec = json!({
        "matchConstraints": {"resourceRules": [rule]},
        "variables": [{"name": "text", "expression": "has(object.data.s) ? object.data.s : 'nothing'"}],
        "validations": validations,
    });
    let mut binding = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
    });
    match n {
        2 => spec["failurePolicy"] = json!("Ignore"),
        6 => {
            let selector =
                json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["free"]}]});
            spec["matchConstraints"]["objectSelector"] = selector;
        }
        10 => {
            spec["matchConditions"] =
                json!([{"name": "free", "expression": "object == null || object.metadata.name != 'new-3'"}])
        }
        14 => {
            spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"});
            binding["paramRef"] = json!({"name": "strict", "parameterNotFoundAction": "Deny"});
        }
        15 => {
            spec["matchConstraints"]["excludeResourceRules"] = json!([{
                "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["UPDATE"], "resources": ["*"], "resourceNames": ["base-1"],
            }])
        }
        _ => {}
    }
    let api_version = "admissionregistration.k8s.io/v1";
    let object = |kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        object("ValidatingAdmissionPolicy", spec),
        object("ValidatingAdmissionPolicyBinding", binding),
    ]
}

fn map(namespace: &str, name: &str, labels: Value, data: Value) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
    for (value, place) in [(labels, "/metadata/labels"), (data, "/data")] {
        if value.as_object().is_some_and(|map| !map.is_empty()) {
            let (parent, key) = place.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    object
}

fn random_map(random: &mut Random, namespace: &str, name: &str) -> Value {
    let (mut data, mut labels) = (json!({}), json!({}));
    let values: [(&str, &[&str]); 5] = [
        ("s", &["", "a", "keep", "aB", "abc", "bbb", "ABC", "longer"]),
        ("n", &["3", "7", "49", "50", "99", "x", "-1"]),
        (
            "q",
            &["500m", "0.5", "1Gi", "1Mi", "1e3", "2000M", "1.5Gi", "half", ".5"],
        ),
        ("ip", &["10.1.2.3", "192.168.0.1", "::1", "10.1", "fe80::1"]),
        ("other", &["x"]),
    ];
    for (key, values) in values {
        if random.once_in(if key == "other" { 6 } else { 2 }) {
            data[key] = json!(random.pick(values));
        }
    }
    for (key, values) in [("app", ["web", "free", "bad"]), ("tier", ["a", "bad", "b"])] {
        if random.once_in(2) {
            labels[key] = json!(random.pick(&values));
        }
    }
    map(namespace, name, labels, data)
}

/// What Konverge denies: policy and message.
fn denied(set: &PolicySet, before: Option<&Value>, after: Option<&Value>) -> BTreeSet<(String, String)> {
    let stack: StackId = "oracle/dev".parse().unwrap();
    let object = after.or(before).unwrap();
    let metadata = &object["metadata"];
    let id = format!(
        "v1:ConfigMap:{}:{}",
        metadata["namespace"].as_str().unwrap(),
        metadata["name"].as_str().unwrap()
    );
    let action = match (before, after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Update,
    };
    let change = FieldChange {
        path: String::new(),
        from: before.cloned(),
        to: after.cloned(),
        origin: ChangeOrigin::Change,
    };
    let plan = ResourcePlan::new(
        &stack,
        id.parse().unwrap(),
        RuntimeKind::Kubernetes,
        action,
        vec![change],
    );
    let plan = StackPlan::new(RepoPath::root(), stack, Basis::Live, vec![plan]);
    let findings = set.findings(&policy::document(&plan, Vec::new()));
    let findings = findings
        .into_iter()
        .filter(|finding| finding.verdict == Enforcement::Deny);
    findings
        .map(|finding| {
            let rule = finding.rule.strip_prefix("oracle/").unwrap();
            let (policy, _) = rule.split_once(':').unwrap_or((rule, ""));
            (policy.to_owned(), comparable(&finding.message))
        })
        .collect()
}

/// What an error says differs; that there is one does not.
fn comparable(message: &str) -> String {
    let (start, _) = message.split_once("resulted in error").unwrap_or((message, ""));
    start.to_owned()
}

/// What the API server denies, if it does.
fn refusal<T>(answer: Result<T, kube::Error>) -> Option<(String, String)> {
    let error = match answer {
        Ok(_) => return None,
        Err(kube::Error::Api(status)) => status.message,
        Err(error) => panic!("{error}"),
    };
    let (_, rest) = error
        .split_once("ValidatingAdmissionPolicy '")
        .unwrap_or_else(|| panic!("{error}"));
    let (policy, rest) = rest.split_once('\'').unwrap();
    let (_, message) = rest
        .split_once("denied request: ")
        .unwrap_or_else(|| panic!("{error}"));
    Some((policy.to_owned(), comparable(message)))
}

async fn hold_against_the_api_server(objects: u64) {
    let cluster = Cluster::shared();
    let namespace = cluster.namespace("oracle").await;
    let client = cluster.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let seed = setting("KONVERGE_SEED", 20_261_122);
    println!("KONVERGE_SEED={seed}");
    let mut random = Random::of(seed);
    let typed = |object: &Value| serde_json::from_value::<ConfigMap>(object.clone()).unwrap();
    let real = PostParams::default();
    let mut bases = Vec::new();
    for n in 0..6 {
        let base = random_map(&mut random, &namespace, &format!("base-{n}"));
        maps.create(&real, &typed(&base)).await.unwrap();
        bases.push(base);
    }
    let strict = map(&namespace, "strict", json!({}), json!({"strict": "yes"}));
    maps.create(&real, &typed(&strict)).await.unwrap();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let mut texts = vec![serde_json::to_string(&strict).unwrap()];
    for n in 0..POLICIES.len() {
        let [policy, binding] = policy(n, &namespace);
        texts.extend([&policy, &binding].map(|object| serde_json::to_string(object).unwrap()));
        policies
            .create(&real, &serde_json::from_value(policy).unwrap())
            .await
            .unwrap();
        bindings
            .create(&real, &serde_json::from_value(binding).unwrap())
            .await
            .unwrap();
    }
    let config =
        Config::parse("policy: {sets: [{name: oracle, path: p, language: vap, input: admission}]}\n")
            .unwrap();
    let file = PolicyFile {
        path: "p/policies.yaml".to_owned(),
        text: texts.join("\n---\n"),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    // Each policy is in force once it denies its probe.
    for n in 0..POLICIES.len() {
        let probe = map(
            &namespace,
            "new-probe",
            json!({}),
            json!({"probe": format!("p{n}"), "n": "4"}),
        );
        let wanted = Some((format!("oracle-{namespace}-{n}"), "probe".to_owned()));
        let mut tries = 0;
        while refusal(maps.create(&dry, &typed(&probe)).await) != wanted {
            tries += 1;
            assert!(tries < 600, "policy {n} is not in force");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    let (mut denials, mut passes) = (0, 0);
    for number in 0..objects {
        let base = random.pick(&bases).clone();
        let name = base["metadata"]["name"].as_str().unwrap().to_owned();
        let (before, after, said) = match random.below(5) {
            0 => {
                let delete = DeleteParams {
                    dry_run: true,
                    ..DeleteParams::default()
                };
                (
                    Some(base),
                    None,
                    refusal(maps.delete(&name, &delete).await.map(|_| ())),
                )
            }
            1 | 2 => {
                let after = random_map(&mut random, &namespace, &name);
                let said = refusal(maps.replace(&name, &dry, &typed(&after)).await);
                (Some(base), Some(after), said)
            }
            _ => {
                let name = format!("{}-{}", random.pick(&["new", "old"]), random.below(5));
                let after = random_map(&mut random, &namespace, &name);
                let said = refusal(maps.create(&dry, &typed(&after)).await);
                (None, Some(after), said)
            }
        };
        let ours = denied(&set, before.as_ref(), after.as_ref());
        let told =
            format!("seed {seed}, object {number}: {before:?} -> {after:?}: server {said:?}, ours {ours:?}");
        match &said {
            None => assert!(ours.is_empty(), "{told}"),
            // The server names one of the policies that deny.
            Some(said) => assert!(ours.contains(said), "{told}"),
        }
        *(if said.is_some() { &mut denials } else { &mut passes }) += 1;
    }
    for n in 0..POLICIES.len() {
        let name = format!("oracle-{namespace}-{n}");
        let delete = DeleteParams::default();
        bindings.delete(&name, &delete).await.unwrap();
        policies.delete(&name, &delete).await.unwrap();
    }
    assert!(
        denials > objects / 10 && passes > objects / 50,
        "{denials} denied, {passes} passed"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_decide_as_the_api_server_does() {
    hold_against_the_api_server(setting("KONVERGE_OBJECTS", 300)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "10,000 objects: `make test-all` runs it"]
async fn policies_decide_as_the_api_server_does_for_many_objects() {
    hold_against_the_api_server(10_000).await;
}
