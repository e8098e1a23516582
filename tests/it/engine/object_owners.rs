//! An object is owned by one stack. If several stacks create it at once, one succeeds and the others fail with its
//! name.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use konverge_base::model::apply_result::StackResult;
use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random::{self, Random},
    random_kills::Dice,
    spec_runs::SpecRuns,
    stack::{TestStack, id},
};

fn map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
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
            if owned[1 - at].is_empty() {
                assert_eq!(outcome.result, StackResult::Applied, "seed {seed}")
            } else {
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
        // A stack that goes takes nothing of the other with it.
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
    let runs = SpecRuns::on_s3("two-owners", "").await;
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
    let runs = SpecRuns::on_s3("killed-owners", "  lease: {term: 3s}\n").await;
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
        while runs
            .made_by_anybody()
            .await
            .iter()
            .all(|name| !name.starts_with(&format!("r{round}-")))
        {
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "seed {seed}: nothing is made"
            );
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
            assert!(
                forgotten.is_empty(),
                "seed {seed} round {round}: {stack} forgot {forgotten:?}"
            );
            assert!(owned.is_disjoint(&made), "seed {seed} round {round}: two own one");
            owned.extend(made);
        }
        // One of them gives way, and the other has all of it.
        runs.spec("nothing.json", &[]);
        let gives_way = [
            "apply",
            "--yes",
            "--allow-empty",
            "--spec",
            "nothing.json",
            "--stack",
            stacks[1],
        ];
        let kept = runs.made(stacks[0]).await;
        runs.on_cluster(&gives_way).run().expect(0);
        assert_eq!(runs.made(stacks[0]).await, kept, "seed {seed} round {round}");
        runs.apply("first.json", stacks[0]).run().expect(0);
        let all: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(runs.made(stacks[0]).await, all, "seed {seed} round {round}");
        assert_eq!(runs.recorded(stacks[0]).await, all, "seed {seed} round {round}");
        let gives_way = [
            "apply",
            "--yes",
            "--allow-empty",
            "--spec",
            "nothing.json",
            "--stack",
            stacks[0],
        ];
        runs.on_cluster(&gives_way).run().expect(0);
    }
    assert!(
        killed_at_work > 2,
        "seed {seed}: {killed_at_work} were killed at work"
    );
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

/// `konverge state move`, before the change that renames the stack is merged: nobody else wrote anything.
#[tokio::test(flavor = "multi_thread")]
async fn the_new_name_of_a_moved_stack_is_a_change_of_its_own() {
    use konverge_base::model::plan::ChangeOrigin;
    let cluster = Cluster::shared();
    let ns = cluster.namespace("renamed").await;
    let wanted = [map(&ns, "one", json!({"a": "1"}))];
    let mut stack = TestStack::new("old-name", cluster.kubeconfig());
    stack.apply(&wanted).await;
    stack.id = "test/new-name".parse().unwrap();
    stack.state = stack.state.clone().renamed(stack.id.clone());
    let origins = |plan: &konverge_engine::EnginePlan| -> Vec<(String, ChangeOrigin)> {
        let changes = plan
            .public
            .resources
            .iter()
            .flat_map(|resource| &resource.changes);
        changes
            .map(|change| (change.path.to_string(), change.origin.clone()))
            .collect()
    };
    let name = "/metadata/annotations/konverge~1stack".to_owned();
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(origins(&plan), [(name.clone(), ChangeOrigin::Change)]);
    // What somebody else writes there is theirs, also after the move.
    stack.carry_out(plan).await;
    let other = json!({"metadata": {"annotations": {"konverge/stack": "test/new-name", "x": "y"}}, "data": {"a": "2"}});
    Objects::of(cluster)
        .await
        .merge(&wanted[0], "somebody", &other)
        .await;
    let plan = stack.plan_well(&wanted).await;
    let manager = ChangeOrigin::Manager("somebody".to_owned());
    assert_eq!(origins(&plan), [("/data/a".to_owned(), manager)]);
}
