//! Deciding which of 5,000 stacks in 20 rollouts may go now: one LIST, and one GET for each rollout.
//!
//! `cargo bench --bench rollouts`
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "../crates/state/tests/it/support/counting_store.rs"]
mod counting_store;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use counting_store::Counted;
use konverge_base::model::{
    Digest, RepoPath, StackId,
    rollout::{ClockReading, RolloutStack},
};
use konverge_config::Config;
use konverge_rollout::{ChangedStack, RolloutFacts, RolloutRules, RolloutStart, RolloutStep, begin, step};
use konverge_state::{
    DocumentWriter, RepositoryId, StateStore,
    store::{MemoryStore, Store},
};

const STACKS: usize = 5000;
const ROLLOUTS: usize = 20;
const ROUNDS: usize = 21;
const BOUND: Duration = Duration::from_millis(50);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(bench());
}

fn config() -> Config {
    let rollout = |n: usize| {
        format!(
            "- {{name: r{n}, waves: [{{match: 'r{n}/*/canary', bake: 30m}}, {{match: 'r{n}/*/eu-*'}}, {{match: 'r{n}/**'}}]}}\n"
        )
    };
    let rollouts: String = (0..ROLLOUTS).map(rollout).collect();
    Config::parse(&format!("rollouts:\n{rollouts}")).unwrap()
}

fn stacks() -> Vec<(StackId, RepoPath)> {
    let names = ["canary", "eu-1", "eu-2", "us-1", "us-2"];
    let stack = |n: usize| {
        let (project, name) = (n / names.len(), names[n % names.len()]);
        let folder = format!("r{}/p{project}/{name}", project % ROLLOUTS);
        (
            format!("p{project}/{name}").parse().unwrap(),
            RepoPath::normalize(&folder).unwrap(),
        )
    };
    (0..STACKS).map(stack).collect()
}

async fn bench() {
    let counted = Arc::new(Counted::new(Arc::new(MemoryStore::default())));
    let writer = DocumentWriter {
        run: "bench".to_owned(),
        actor: "bench".to_owned(),
    };
    let store: Arc<dyn Store> = counted.clone();
    let states = StateStore::open(store, RepositoryId::new("bench"), writer);
    let (config, stacks) = (config(), stacks());
    let now = ClockReading {
        local: jiff::Timestamp::now(),
        server: None,
    };
    let commit = "c0ffee0000c0ffee0000c0ffee0000c0ffee0000".parse().unwrap();
    let matcher = config.rollout_matcher();
    let mut changed: BTreeMap<String, BTreeMap<StackId, ChangedStack>> = BTreeMap::new();
    for (id, folder) in &stacks {
        let (rollout, wave) = matcher.wave_of(folder).unwrap().unwrap();
        let stack = RolloutStack {
            folder: folder.clone(),
            input: Some(Digest::of_bytes(id.as_str().as_bytes())),
            before: Some(1),
        };
        let of_rollout = changed.entry(rollout.to_owned()).or_default();
        of_rollout.insert(id.clone(), ChangedStack { wave, stack });
    }
    for rollout in &config.rollouts {
        let rules = RolloutRules::from_config(rollout, &config.gates);
        let start = RolloutStart {
            name: &rollout.name,
            commit: &commit,
            rules: &rules,
            changed: &changed[&rollout.name],
            prior: None,
            now,
        };
        let record = begin(&start, |_, _| None);
        assert!(states.write_rollout(1, &record.unwrap()).await.unwrap());
    }
    let pending: BTreeSet<StackId> = stacks.iter().map(|(id, _)| id.clone()).collect();
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        counted.reset();
        let started = Instant::now();
        let stored = states.rollouts().await.unwrap();
        let matcher = config.rollout_matcher();
        let waves = stacks
            .iter()
            .filter(|(_, folder)| matcher.wave_of(folder).unwrap().is_some())
            .count();
        let mut going = 0;
        for rollout in &config.rollouts {
            let rules = RolloutRules::from_config(rollout, &config.gates);
            let facts = RolloutFacts {
                rules: Some(&rules),
                pending: &pending,
                failed: &BTreeMap::new(),
                changed: &BTreeSet::new(),
                health: None,
                gates: &BTreeMap::new(),
                planned: None,
                now,
                watched: None,
            };
            if let RolloutStep::Apply { stacks, .. } = step(&stored[&rollout.name].record, &facts) {
                going += stacks.len();
            }
        }
        times.push(started.elapsed());
        assert_eq!((waves, going), (STACKS, STACKS / 5));
        let count = counted.count();
        assert_eq!((count.lists, count.gets), (1, ROLLOUTS), "{count:?}");
    }
    times.sort();
    assert!(times[ROUNDS / 2] < BOUND, "{times:?}");
    println!(
        "{STACKS} stacks in {ROLLOUTS} rollouts: best {:?}, median {:?} of {ROUNDS}",
        times[0],
        times[ROUNDS / 2]
    );
}
