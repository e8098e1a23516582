//! ValidatingAdmissionPolicies as Konverge evaluates them, held against a real API server with the same policies:
//! random ConfigMaps that are created, updated and deleted, as dry runs.

use std::{collections::BTreeSet, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use konverge_base::model::{
    RepoPath, StackId,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    policy_finding::Enforcement,
    spec::RuntimeKind,
};
use konverge_config::Config;
use konverge_policy_sets::{self as policy_sets, PolicyFile, PolicySet};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::admission_samples::{POLICIES, map, policy, random_map};
use crate::support::{
    cluster::Cluster,
    random::{Random, setting},
};

/// What Konverge denies: policy and message.
pub(super) fn denied(
    set: &PolicySet,
    before: Option<&Value>,
    after: Option<&Value>,
) -> BTreeSet<(String, String)> {
    let stack: StackId = "oracle/dev".parse().unwrap();
    let object = after.or(before).unwrap();
    let metadata = &object["metadata"];
    let parts = [
        &object["apiVersion"],
        &object["kind"],
        &metadata["namespace"],
        &metadata["name"],
    ];
    let parts: Vec<_> = parts.into_iter().filter_map(Value::as_str).collect();
    let id = parts.join(":");
    let action = match (before, after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Update,
    };
    let change = FieldChange {
        path: "".into(),
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
    let findings = crate::policy::created_objects::findings(
        set,
        &policy_sets::document(&plan, Vec::new()),
        &konverge_secrets::Secrets::new(konverge_secrets::HashKey::derive("k")),
    );
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
pub(super) fn refusal<T>(answer: Result<T, kube::Error>) -> Option<(String, String)> {
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
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}}});
    let mut texts = vec![
        serde_json::to_string(&strict).unwrap(),
        serde_json::to_string(&own).unwrap(),
    ];
    for n in 0..POLICIES.len() {
        let [policy, binding] = policy(n, &namespace);
        texts.extend([&policy, &binding].map(|object| serde_json::to_string(object).unwrap()));
        let policy = serde_json::from_value(policy).unwrap();
        let made = policies.create(&real, &policy).await;
        made.unwrap_or_else(|error| panic!("policy {n}: {error}"));
        bindings
            .create(&real, &serde_json::from_value(binding).unwrap())
            .await
            .unwrap();
    }
    let config = Config::parse("policy: {sets: [{name: oracle, path: p, language: vap}]}\n").unwrap();
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
