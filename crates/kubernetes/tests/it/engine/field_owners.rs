//! A field of ours is ours alone: what was codified, changed and removed again, and what others own.

use std::collections::BTreeSet;

use konverge_base::model::{
    plan::{Action, ChangeOrigin},
    review,
    state::Recorded,
};
use konverge_kubernetes::Conflicts;
use serde_json::{Map, Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random_kills::Dice,
    stack::{CLUSTER, TestStack, action, id, planned},
};

fn map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
}

/// The names of the data fields that a manager owns.
fn data_of(live: &Value, is: impl Fn(&Value) -> bool) -> BTreeSet<String> {
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let data = entries
        .iter()
        .filter(|entry| is(entry))
        .filter_map(|entry| entry["fieldsV1"]["f:data"].as_object());
    data.flat_map(|data| {
        data.keys()
            .filter_map(|key| key.strip_prefix("f:"))
            .map(str::to_owned)
    })
    .collect()
}

const HISTORIES: [u64; 8] = [1, 2, 3, 5, 8, 13, 21, 34];

/// Fields that others set, that are codified, changed and removed again, in random order: after each apply exactly the
/// fields of the Spec are ours, nobody who updates shares them, and a field that left the Spec is gone unless somebody
/// applies it or has changed it.
#[tokio::test(flavor = "multi_thread")]
async fn our_fields_are_exactly_those_of_the_spec() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("histories").await;
    for seed in HISTORIES {
        let mut dice = Dice(seed);
        let mut stack = TestStack::new(&format!("histories-{seed}"), cluster.kubeconfig());
        stack.options.conflicts = Conflicts::Write;
        let name = format!("h{seed}");
        let mut desired: Map<String, Value> = Map::from_iter([("base".to_owned(), json!("1"))]);
        let of = |data: &Map<String, Value>| map(&ns, &name, Value::Object(data.clone()));
        stack.apply(&[of(&desired)]).await;
        for step in 0..12 {
            let key = format!("k{}", dice.roll(4));
            let value = json!(dice.roll(3).to_string());
            let before = objects.get(&of(&desired)).await.unwrap();
            // Whatever others do to the field now is theirs by right.
            let mut touched = None;
            match dice.roll(6) {
                0 | 1 => {
                    let manager = ["kubectl-edit", "kusion"][usize::try_from(dice.roll(2)).unwrap()];
                    objects
                        .merge(&of(&desired), manager, &json!({"data": {key.clone(): value}}))
                        .await;
                    touched = Some(key);
                }
                2 => {
                    let theirs = map(
                        &ns,
                        &name,
                        json!({key.clone(): before["data"].get(&key).unwrap_or(&value)}),
                    );
                    objects.apply_as(&theirs, "flux").await;
                    touched = Some(key);
                }
                // What is there is codified.
                3 => {
                    let live = before["data"].get(&key).unwrap_or(&value).clone();
                    desired.insert(key, live);
                }
                4 => drop(desired.insert(key, value)),
                _ => drop(desired.shift_remove(&key)),
            }
            let had: BTreeSet<String> = data_of(&before, |entry| entry["manager"] == "konverge");
            let object = of(&desired);
            for _ in 0..5 {
                let plan = stack.plan_well(std::slice::from_ref(&object)).await;
                if let Some(outcome) = stack.carry_out_until(plan, dice.kill(true)).await {
                    assert!(outcome.error.is_none(), "seed {seed} step {step}: {outcome:?}");
                    break;
                }
            }
            stack.apply(std::slice::from_ref(&object)).await;
            let live = objects.get(&object).await.unwrap();
            let told = format!("seed {seed} step {step}: {desired:?} {live}");
            let wanted: BTreeSet<String> = desired.keys().cloned().collect();
            assert_eq!(
                data_of(&live, |entry| entry["manager"] == "konverge"),
                wanted,
                "{told}"
            );
            let updated = data_of(&live, |entry| entry["operation"] == "Update");
            assert!(updated.is_disjoint(&wanted), "{updated:?} {told}");
            for (key, value) in &desired {
                assert_eq!(live["data"][key], *value, "{told}");
            }
            let applied = data_of(&live, |entry| entry["manager"] == "flux");
            for key in had
                .difference(&wanted)
                .filter(|key| touched.as_ref() != Some(*key))
            {
                assert!(
                    live["data"].get(key).is_none() || applied.contains(key),
                    "{key} stays; {told}"
                );
            }
            let again = stack.plan_well(std::slice::from_ref(&object)).await;
            assert_eq!(
                action(&again, &object),
                Action::Unchanged,
                "{told} {:?}",
                again.public.resources
            );
        }
    }
}

#[tokio::test]
async fn taking_over_an_equal_value_is_counted_and_needs_no_review() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("codified").await;
    let mut stack = TestStack::new("codified", cluster.kubeconfig());
    let before = map(&ns, "c", json!({"ours": "1"}));
    let codified = map(&ns, "c", json!({"ours": "1", "theirs": "x"}));
    stack.apply(std::slice::from_ref(&before)).await;
    objects
        .merge(&before, "kubectl-edit", &json!({"data": {"theirs": "x"}}))
        .await;
    let plan = stack.plan_well(std::slice::from_ref(&codified)).await;
    let taken = planned(&plan, &codified).expect("it is shown");
    assert_eq!(
        (taken.action, taken.changes.len(), plan.public.summary.update),
        (Action::Update, 0, 1)
    );
    assert_eq!(taken.ownership, ["/data/theirs"]);
    assert_eq!(
        taken.notes,
        ["takes over `/data/theirs` from `kubectl-edit`: same value, only the field manager changes"]
    );
    assert!(review::stack_units(&plan.public).is_empty());
    stack.carry_out(plan).await;
    stack.apply(std::slice::from_ref(&before)).await;
    assert_eq!(objects.get(&before).await.unwrap()["data"], json!({"ours": "1"}));
}

/// What Kusion made and recorded is ours after the import, field by field; what the Spec no longer has goes at once.
#[tokio::test]
async fn after_an_import_every_field_is_ours_and_what_left_the_spec_goes() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("imported").await;
    let mut stack = TestStack::new("imported", cluster.kubeconfig());
    let kusions = map(&ns, "c", json!({"kept": "1", "gone": "1", "edited": "1"}));
    objects.create_as(&kusions, "kusion").await;
    objects
        .merge(
            &kusions,
            "kubectl-edit",
            &json!({"data": {"edited": "by hand", "added": "by hand"}}),
        )
        .await;
    let recorded = Recorded {
        id: id(&kusions).parse().unwrap(),
        runtime: konverge_base::model::spec::RuntimeKind::Kubernetes,
        cluster: Some(CLUSTER.parse().unwrap()),
        attributes: std::sync::Arc::new(kusions.as_object().unwrap().clone()),
        depends_on: Vec::new(),
        extensions: Map::new(),
        object_hash: None,
        private: konverge_base::model::state::RuntimeRecord::default(),
        sharing: konverge_base::model::spec::Sharing::default(),
    };
    stack.state.put(recorded);
    let wanted = map(&ns, "c", json!({"kept": "1"}));
    let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
    let shown = planned(&plan, &wanted).unwrap();
    assert_eq!(shown.action, Action::Update);
    let gone: Vec<_> = shown
        .changes
        .iter()
        .filter(|change| change.to.is_none())
        .collect();
    assert_eq!(
        gone.iter().map(|change| change.path.as_str()).collect::<Vec<_>>(),
        ["/data/gone"]
    );
    assert_eq!(gone[0].origin, ChangeOrigin::Change);
    assert!(
        shown.ownership.contains(&"/data/kept".into()),
        "{:?}",
        shown.ownership
    );
    stack.carry_out(plan).await;
    let live = objects.get(&wanted).await.unwrap();
    assert_eq!(
        live["data"],
        json!({"kept": "1", "edited": "by hand", "added": "by hand"})
    );
    let again = stack.plan_well(std::slice::from_ref(&wanted)).await;
    assert_eq!(action(&again, &wanted), Action::Unchanged);
}

/// `stop` and `leave` hold for fields that the last apply wrote, too; by default these are restored.
#[tokio::test]
async fn conflicts_are_settled_as_configured_also_for_fields_of_ours() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("policies").await;
    for (policy, value) in [
        (Conflicts::Stop, "by hand"),
        (Conflicts::Leave, "by hand"),
        (Conflicts::Write, "ours"),
        (Conflicts::Restore, "ours"),
    ] {
        let name = format!("{policy:?}").to_lowercase();
        let mut stack = TestStack::new(&format!("policies-{name}"), cluster.kubeconfig());
        let object = map(&ns, &name, json!({"a": "ours"}));
        stack.apply(std::slice::from_ref(&object)).await;
        objects
            .merge(&object, "kubectl-edit", &json!({"data": {"a": "by hand"}}))
            .await;
        stack.options.conflicts = policy;
        let plan = stack.plan(std::slice::from_ref(&object)).await;
        if policy == Conflicts::Stop {
            let said = &plan.failures[0].1.message;
            assert!(said.contains("`/data/a` (owned by `kubectl-edit`)"), "{said}");
        } else {
            assert!(plan.failures.is_empty(), "{policy:?}: {:?}", plan.failures);
        }
        stack.carry_out(plan).await;
        assert_eq!(
            objects.get(&object).await.unwrap()["data"]["a"],
            value,
            "{policy:?}"
        );
        if policy == Conflicts::Leave {
            let again = stack.plan_well(std::slice::from_ref(&object)).await;
            assert_eq!(action(&again, &object), Action::Unchanged);
        }
    }
}
