//! Who owns what: an object has one stack, a field of ours is ours alone, and nothing is made twice where the state or
//! the cluster is not the one that was.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use konverge::{
    model::{
        apply_result::StackResult,
        plan::{Action, ChangeOrigin},
        review,
        state::Recorded,
    },
    runtime::kubernetes::Conflicts,
};
use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Map, Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random::{self, Random},
    spec_runs::SpecRuns,
    stack::{CLUSTER, TestStack, action, id, planned},
    stage::Stage,
    terraform, tiny,
};

fn map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
}

/// Numbers that a seed brings forth.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Done after a random time, if ever.
    fn kill(&mut self, ever: bool) -> impl Future<Output = ()> + use<> {
        let after = if ever { self.roll(60) } else { 60 };
        async move {
            match after {
                0..40 => tokio::time::sleep(Duration::from_millis(after)).await,
                _ => std::future::pending().await,
            }
        }
    }
}

fn owner(object: &Value) -> String {
    let owner = &object["metadata"]["annotations"]["konverge/stack"];
    owner.as_str().unwrap_or_default().to_owned()
}

/// Seeds that found something, kept.
const CREATORS: [u64; 6] = [1, 2, 3, 7, 11, 42];

/// Two stacks plan the same objects while there is none, and write at once; each may be killed on the way.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_stacks_that_create_the_same_objects_one_owns_each() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    for seed in CREATORS {
        let mut dice = Dice(seed);
        let ns = cluster.namespace(&format!("creators-{seed}")).await;
        let wanted = |by: &str| -> Vec<Value> {
            (0..12)
                .map(|n| map(&ns, &format!("m{n}"), json!({"by": by, by: "1"})))
                .collect()
        };
        let names = [format!("creators-a{seed}"), format!("creators-b{seed}")];
        let mut a = TestStack::new(&names[0], cluster.kubeconfig());
        let mut b = TestStack::new(&names[1], cluster.kubeconfig());
        let (plan_a, plan_b) = (a.plan_well(&wanted("a")).await, b.plan_well(&wanted("b")).await);
        let (kill_a, kill_b) = (dice.kill(seed != 3), dice.kill(seed > 3));
        let (ended_a, ended_b) = tokio::join!(
            a.carry_out_until(plan_a, kill_a),
            b.carry_out_until(plan_b, kill_b)
        );

        let mut owned: [Vec<(Value, Value)>; 2] = Default::default();
        for object in wanted("a") {
            let Some(live) = objects.get(&object).await else {
                continue;
            };
            let at = usize::from(owner(&live) == b.id.as_str());
            assert_eq!(owner(&live), [a.id.as_str(), b.id.as_str()][at], "seed {seed}");
            let by = ["a", "b"][at];
            assert_eq!(
                live["data"],
                json!({"by": by, by: "1"}),
                "seed {seed}: one writer alone"
            );
            owned[at].push((object, live["metadata"]["uid"].clone()));
        }
        for (at, (stack, ended)) in [(&a, ended_a), (&b, ended_b)].into_iter().enumerate() {
            for (object, _) in &owned[at] {
                let id = id(object).parse().unwrap();
                assert!(
                    stack.state.resource(&id).is_some(),
                    "seed {seed}: {id} is forgotten"
                );
            }
            let other = [b.id.as_str(), a.id.as_str()][at];
            let Some(outcome) = ended else { continue };
            match owned[1 - at].is_empty() {
                true => assert_eq!(outcome.result, StackResult::Applied, "seed {seed}"),
                false => {
                    assert_eq!(outcome.result, StackResult::Failed, "seed {seed}: {outcome:?}");
                    let said = outcome.error.unwrap().message;
                    assert!(
                        said.contains(&format!("stack `{other}` created it")),
                        "seed {seed}: {said}"
                    );
                    for (object, _) in &owned[1 - at] {
                        let id = id(object).parse().unwrap();
                        assert!(
                            stack.state.resource(&id).is_none(),
                            "seed {seed}: {id} is recorded twice"
                        );
                    }
                }
            }
        }
        // Whoever goes takes nothing of the other with it.
        a.apply(&[]).await;
        for (object, uid) in &owned[1] {
            assert_eq!(
                objects.get(object).await.unwrap()["metadata"]["uid"],
                *uid,
                "seed {seed}"
            );
        }
        for (object, _) in &owned[0] {
            assert!(objects.get(object).await.is_none(), "seed {seed}");
        }
        b.apply(&[]).await;
        for object in wanted("a") {
            assert!(
                objects.get(&object).await.is_none(),
                "seed {seed}: {object} is left"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_that_create_the_same_objects_one_owns_each() {
    let runs = SpecRuns::on_minio("two-owners", "").await;
    let names: Vec<String> = (0..20).map(|n| format!("shared-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let stacks = ["first/prod", "second/prod"];
    for file in ["first.json", "second.json"] {
        runs.spec(file, &names);
    }
    let running = [("first.json", stacks[0]), ("second.json", stacks[1])]
        .map(|(file, stack)| runs.apply(file, stack).start());
    let ended = running.map(|running| running.wait());
    let (first, second) = (runs.made(stacks[0]).await, runs.made(stacks[1]).await);
    assert_eq!(first.len() + second.len(), names.len());
    let objects = Objects::of(runs.cluster).await;
    for (at, (stack, made)) in stacks.iter().zip([&first, &second]).enumerate() {
        let file = ["first.json", "second.json"][at];
        for name in made {
            let live = objects.get(&map(&runs.namespace, name, json!({}))).await.unwrap();
            assert_eq!(live["data"], json!({"made-for": file}), "{stack}");
        }
        assert_eq!(runs.recorded(stack).await, *made, "{stack}");
        let output = format!("{}{}", ended[at].stdout, ended[at].stderr);
        if made.len() < names.len() {
            assert_ne!(ended[at].code, Some(0), "{output}");
            assert!(output.contains(stacks[1 - at]), "{output}");
        }
    }
    // The loser is destroyed.
    runs.on_cluster(&["destroy", stacks[1], "--yes"]).run();
    assert_eq!(runs.made(stacks[0]).await, first);
}

/// The same, and each process may be killed at a random moment: what stands has one owner, whose state knows of it, and
/// the next run of each brings all to an end.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_that_may_be_killed_one_owns_each() {
    let seed = random::setting("KONVERGE_OWNER_SEED", 20_261_122);
    println!("KONVERGE_OWNER_SEED={seed}");
    let mut random = Random::of(seed);
    let runs = SpecRuns::on_minio("killed-owners", "  lease: {term: 3s}\n").await;
    let stacks = ["first/prod", "second/prod"];
    let mut killed_at_work = 0;
    for round in 0..6 {
        let names: Vec<String> = (0..25).map(|n| format!("r{round}-{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for file in ["first.json", "second.json"] {
            runs.spec(file, &names);
        }
        let start = |at: usize| runs.apply(["first.json", "second.json"][at], stacks[at]).start();
        let running = [start(0), start(1)];
        // The moment counts from the first object that is made.
        let began = Instant::now();
        while runs.made_by_anybody().await.iter().all(|name| !name.starts_with(&format!("r{round}-"))) {
            assert!(began.elapsed() < Duration::from_secs(60), "seed {seed}: nothing is made");
        }
        let mut codes = Vec::new();
        for one in running {
            tokio::time::sleep(Duration::from_millis(random.below(60) as u64)).await;
            if !random.once_in(4) {
                one.signal(SIGKILL);
            }
            codes.push(one.wait().code);
        }
        killed_at_work += codes.iter().filter(|code| code.is_none()).count();
        let mut owned = BTreeSet::new();
        for stack in stacks {
            let (made, recorded) = (runs.made(stack).await, runs.recorded(stack).await);
            let forgotten: Vec<_> = made.difference(&recorded).collect();
            assert!(forgotten.is_empty(), "seed {seed} round {round}: {stack} forgot {forgotten:?}");
            assert!(owned.is_disjoint(&made), "seed {seed} round {round}: two own one");
            owned.extend(made);
        }
        // One of them gives way, and the other has all of it.
        runs.spec("nothing.json", &[]);
        let gives_way = ["apply", "--yes", "--allow-empty", "--spec", "nothing.json", "--stack", stacks[1]];
        let kept = runs.made(stacks[0]).await;
        runs.on_cluster(&gives_way).run().expect(0);
        assert_eq!(runs.made(stacks[0]).await, kept, "seed {seed} round {round}");
        runs.apply("first.json", stacks[0]).run().expect(0);
        let all: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(runs.made(stacks[0]).await, all, "seed {seed} round {round}");
        assert_eq!(runs.recorded(stacks[0]).await, all, "seed {seed} round {round}");
        let gives_way = ["apply", "--yes", "--allow-empty", "--spec", "nothing.json", "--stack", stacks[0]];
        runs.on_cluster(&gives_way).run().expect(0);
    }
    assert!(killed_at_work > 2, "seed {seed}: {killed_at_work} were killed at work");
}

/// An object that nobody owns and that appeared since the plan (a namespace's own ServiceAccount) is written to.
#[tokio::test]
async fn an_object_without_an_owner_that_appears_meanwhile_is_written_to() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("appears").await;
    let mut stack = TestStack::new("appears", cluster.kubeconfig());
    let wanted = map(&ns, "c", json!({"ours": "1"}));
    let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
    objects.create(&map(&ns, "c", json!({"theirs": "1"}))).await;
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    let live = objects.get(&wanted).await.unwrap();
    assert_eq!(live["data"], json!({"ours": "1", "theirs": "1"}));
    assert_eq!(owner(&live), stack.id.as_str());
    // What it sets otherwise is not written over.
    let other = map(&ns, "d", json!({"ours": "1"}));
    let plan = stack.plan_well(&[wanted.clone(), other.clone()]).await;
    objects.create(&map(&ns, "d", json!({"ours": "2"}))).await;
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
    assert_eq!(objects.get(&other).await.unwrap()["data"]["ours"], "2");
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
        stack.options.conflicts = Conflicts::Take;
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
        runtime: konverge::model::spec::RuntimeKind::Kubernetes,
        cluster: Some(CLUSTER.parse().unwrap()),
        attributes: std::sync::Arc::new(kusions.as_object().unwrap().clone()),
        depends_on: Vec::new(),
        extensions: Map::new(),
        private: Value::Null,
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
        shown.ownership.contains(&"/data/kept".to_owned()),
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

/// `stop` and `leave` hold for fields that the last apply wrote, too; by default these are put back.
#[tokio::test]
async fn conflicts_are_settled_as_configured_also_for_fields_of_ours() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("policies").await;
    for (policy, value) in [
        (Conflicts::Stop, "by hand"),
        (Conflicts::Leave, "by hand"),
        (Conflicts::Take, "ours"),
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

/// The name of a cluster leads to another one: nothing is compared or written there before somebody says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_does_not_follow_its_clusters_name_to_another_cluster() {
    let (here, there) = (Cluster::shared(), Cluster::start());
    let ns = here.namespace("rebound").await;
    Objects::of(&there)
        .await
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}}))
        .await;
    let runs = SpecRuns::on_minio("rebound", "").await;
    let wanted = map(&ns, "c", json!({"a": "1"}));
    let spec = json!({"resources": [{"id": id(&wanted), "type": "Kubernetes", "attributes": wanted}]});
    std::fs::write(runs.repository.path().join("c.json"), spec.to_string()).unwrap();
    runs.apply("c.json", "shop/prod").run().expect(0);
    let on = |arguments: &[&str]| {
        runs.konverge(arguments)
            .arg("--kubeconfig")
            .arg(there.kubeconfig())
    };
    let apply = ["apply", "--yes", "--spec", "c.json", "--stack", "shop/prod"];
    let uid = async |cluster: &Cluster| {
        let system = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}});
        let live = Objects::of(cluster).await.get(&system).await.unwrap();
        live["metadata"]["uid"].as_str().unwrap().to_owned()
    };
    let stopped = on(&apply).run();
    let said = format!("{}{}", stopped.stdout, stopped.stderr);
    assert_eq!(stopped.code, Some(3), "{said}");
    assert!(
        said.contains(&uid(here).await) && said.contains(&uid(&there).await),
        "{said}"
    );
    assert!(said.contains("konverge state rebind shop/prod"), "{said}");
    assert!(Objects::of(&there).await.get(&wanted).await.is_none());

    runs.konverge(&["state", "rebind", "shop/prod", "--cluster", "default"])
        .run()
        .expect(0);
    on(&apply).run().expect(0);
    assert!(Objects::of(&there).await.get(&wanted).await.is_some());
    let back = runs.apply("c.json", "shop/prod").run();
    assert_eq!(back.code, Some(3), "{}", back.stdout);
}

/// The documents of a state are gone, the index is not: nothing is created a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_state_whose_documents_are_gone_stops_the_stack() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/state", folder.path().display());
    let runs = SpecRuns::at("vanished", &url, "").await;
    runs.spec("v.json", &["a", "b"]);
    runs.apply("v.json", "shop/prod").run().expect(0);
    let pulled = runs.konverge(&["state", "pull", "shop/prod"]).run().expect(0);
    std::fs::write(runs.repository.path().join("pulled.json"), &pulled.stdout).unwrap();
    let remove = || {
        let mut removed = 0;
        for stack in std::fs::read_dir(folder.path().join("state/stacks")).unwrap() {
            removed += usize::from(std::fs::remove_dir_all(stack.unwrap().path().join("state")).is_ok());
        }
        assert_eq!(removed, 1);
    };
    remove();
    for command in [
        vec!["apply", "--yes", "--spec", "v.json", "--stack", "shop/prod"],
        vec!["preview", "--spec", "v.json", "--stack", "shop/prod"],
    ] {
        let stopped = runs.on_cluster(&command).run();
        let said = format!("{}{}", stopped.stdout, stopped.stderr);
        assert_ne!(stopped.code, Some(0), "{said}");
        assert!(
            said.contains("the state of stack `shop/prod` is gone: serial 1 was written"),
            "{said}"
        );
    }
    runs.konverge(&["state", "push", "shop/prod", "pulled.json"])
        .run()
        .expect(0);
    assert_eq!(runs.recorded("shop/prod").await.len(), 2);
    runs.apply("v.json", "shop/prod").run().expect(0);
    remove();
    runs.konverge(&["state", "forget", "shop/prod", "--yes"])
        .run()
        .expect(0);
    runs.apply("v.json", "shop/prod").run().expect(0);
    assert_eq!(runs.recorded("shop/prod").await, runs.made("shop/prod").await);
}

/// What another stack records is not created, also where the object is not there any more.
#[tokio::test(flavor = "multi_thread")]
async fn what_another_stack_records_is_told_before_the_write() {
    let runs = SpecRuns::on_minio("recorded", "").await;
    runs.spec("r.json", &["a"]);
    runs.apply("r.json", "first/prod").run().expect(0);
    Objects::of(runs.cluster)
        .await
        .delete(&map(&runs.namespace, "a", json!({})))
        .await;
    let told = runs
        .on_cluster(&["preview", "--spec", "r.json", "--stack", "second/prod"])
        .run();
    let said = format!("{}{}", told.stdout, told.stderr);
    assert!(
        said.contains("stack `first/prod` records the same object"),
        "{said}"
    );
}

/// What Terraform made is given up wholly: the sealed document does not hold it any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_terraform_resource_is_given_up() {
    let mut runs = SpecRuns::on_minio("forgotten", "").await;
    runs.env
        .push(("KONVERGE_AGE_IDENTITY", "correct horse battery staple".to_owned()));
    let config = runs.repository.read("konverge.yaml");
    let binary = terraform::binary();
    runs.repository.write(
        "konverge.yaml",
        format!("{config}terraform: {{binary: '{}'}}\n", binary.display()),
    );
    let thing = |name: &str| json!({"id": format!("terraform:builtin:terraform_data:{name}"), "type": "Terraform", "attributes": {"input": name}});
    let spec = json!({"resources": [thing("kept"), thing("given-up")]});
    std::fs::write(runs.repository.path().join("t.json"), spec.to_string()).unwrap();
    let stack = ["--spec", "t.json", "--stack", "shop/prod"];
    let run = |arguments: &[&str]| runs.konverge(arguments).arg_all(stack);
    run(&["apply", "--yes"]).run().expect(0);
    let given_up = "terraform:builtin:terraform_data:given-up";
    runs.konverge(&["state", "forget", "shop/prod", given_up])
        .run()
        .expect(0);
    let plan = run(&["preview", "--output", "json"]).run().expect(0).json();
    let planned: Vec<_> = plan["stacks"][0]["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| {
            (
                resource["id"].as_str().unwrap(),
                resource["action"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(planned, [(given_up, "create")]);
    let unknown = runs.konverge(&["state", "forget", "shop/prod", given_up]).run();
    assert_ne!(unknown.code, Some(0), "it is recorded nowhere any more");
}

/// Two stacks of one change that create the same object: `check` finds it in the Specs, the preview of the pull request
/// says it in both, and so does that of two Terraform resources which take over one object.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_object_in_two_stacks_is_told_before_anything_is_applied() {
    let mut stage = Stage::small("").await;
    stage.monorepo.checkout("main").branch("twice");
    stage.stack("twice-a/dev", &[("twice", "one"), ("a-alone", "one")]);
    stage.stack("twice-b/dev", &[("twice", "two")]);
    stage.monorepo.commit("twice");
    let checked = stage.konverge(["check", "--all", "--output", "json", "--skip", "format"]);
    let checked = checked.dir(stage.monorepo.path()).run();
    let remarks = checked.json()["remarks"].as_array().unwrap().clone();
    let remark = remarks
        .iter()
        .find(|remark| remark["rule"] == "ownership")
        .expect("it is found");
    let message = remark["message"].as_str().unwrap();
    assert!(
        message.contains("`v1:ConfigMap:default:twice`: in stack `twice-a/dev` too"),
        "{message}"
    );
    let ran = stage.pull_request(1, "twice", "opened");
    assert_ne!(ran.outcome.code, Some(0));
    for other in ["twice-a/dev", "twice-b/dev"] {
        let told = format!("stack `{other}` would create or adopt the same object");
        assert!(ran.summary.contains(&told), "{}", ran.summary);
    }
}

/// A stack that does not compile holds back deletions that lose data, until somebody answers for it by name.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_does_not_compile_can_be_left_out_by_name() {
    let stage = Stage::small("").await;
    let definition = "{id = \"apiextensions.k8s.io/v1:CustomResourceDefinition:things.without.example.com\", type = \"Kubernetes\", attributes = {\
        apiVersion = \"apiextensions.k8s.io/v1\", kind = \"CustomResourceDefinition\", metadata = {name = \"things.without.example.com\"}, \
        spec = {group = \"without.example.com\", scope = \"Namespaced\", names = {plural = \"things\", kind = \"Thing\"}, versions = [{name = \"v1\", \
        served = True, storage = True, schema = {openAPIV3Schema = {type = \"object\"}}}]}}}";
    let write = |resources: &str| {
        tiny::write_program(
            &stage.monorepo,
            "without-a/dev",
            &format!("resources = [\n    {resources}\n]\n"),
        );
    };
    let apply = |more: &[&str]| {
        let konverge = stage.konverge(
            ["apply", "without-a/dev", "--yes"]
                .into_iter()
                .chain(more.iter().copied()),
        );
        konverge.dir(stage.monorepo.path()).run()
    };
    write(definition);
    stage.monorepo.commit("A definition");
    apply(&[]).check(0);
    tiny::write_program(&stage.monorepo, "without-b/dev", "resources = [ this is no KCL\n");
    write("");
    stage.monorepo.commit("One is gone, the other broken");
    let refused = apply(&["--allow-empty"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert_ne!(refused.code, Some(0), "{said}");
    assert!(said.contains("--without without-b/dev"), "{said}");
    apply(&["--allow-empty", "--without", "without-b/dev"]).check(0);
    let live = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.without.example.com"}});
    assert!(Objects::of(stage.cluster).await.get(&live).await.is_none());
}
