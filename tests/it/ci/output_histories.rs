//! For random graphs of stacks that read each other, with random changes, runs that are killed, cancelled or take a
//! part: afterwards each reader has the value that its writer publishes, and no run wrote an older one than the one
//! before.
//!
//! The seed is printed; `KONVERGE_OUTPUTS_SEED=n` repeats it, `KONVERGE_OUTPUTS_HISTORIES=20` makes more histories.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use nix::sys::signal::Signal::{SIGINT, SIGKILL};
use serde_json::Value;

use crate::support::{
    ci_stage::Stage,
    process::Konverge,
    random::{Random, setting},
    tiny_monorepo,
};

/// The stacks of the monorepo, each with one ConfigMap.
const STACKS: usize = 50;
/// The commits of one history.
const COMMITS: usize = 5;

struct History {
    stage: Stage,
    random: Random,
    name: String,
    /// What each stack publishes: numbers that only grow.
    values: Vec<usize>,
    /// What each stack reads, earlier ones alone.
    reads: Vec<BTreeSet<usize>>,
}

impl History {
    async fn begin(seed: u64) -> Self {
        let mut random = Random::of(seed);
        let stage = Stage::small("").await;
        let path = stage.monorepo.path().join("konverge.yaml");
        let config = std::fs::read_to_string(&path).unwrap();
        // A killed run holds its lease for so long.
        let config = config.replace("state: {", "state: {lease: {term: 3s}, ");
        stage.monorepo.write("konverge.yaml", config);
        let reads = (0..STACKS).map(|stack| {
            let count = random.below(4).min(stack);
            (0..count).map(|_| random.below(stack)).collect()
        });
        let mut history = Self {
            reads: reads.collect(),
            stage,
            name: format!("o-random-{seed}"),
            values: vec![0; STACKS],
            random,
        };
        (0..STACKS).for_each(|stack| history.write(stack));
        history.stage.monorepo.commit("All");
        history
    }

    fn map(&self, stack: usize) -> String {
        format!("{}-{stack}", self.name)
    }

    fn write(&mut self, stack: usize) {
        let (map, id) = (self.map(stack), format!("{}/s{stack}", self.name));
        let read = self.reads[stack].iter();
        let read: String = read
            .map(|other| format!(", r{other} = \"$stack_output.a{other}.own\""))
            .collect();
        let program = format!(
            "resources = [{{id = \"v1:ConfigMap:default:{map}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{map}\", namespace = \"default\"}}, data = {{own = \"{}\"{read}}}}}, extensions = {{\"konverge/outputs\" = {{own = \"data.own\"}}}}}}]\n",
            self.values[stack]
        );
        tiny_monorepo::write_program(&self.stage.monorepo, &id, &program);
        let aliases = self.reads[stack]
            .iter()
            .map(|other| format!("a{other}: {}/s{other}", self.name));
        let aliases = aliases.collect::<Vec<_>>().join(", ");
        let manifest = format!("name: s{stack}\nreads: {{{aliases}}}\n");
        let folder = format!("appops/{}/s{stack}", self.name);
        self.stage
            .monorepo
            .write(&format!("{folder}/stack.yaml"), manifest);
    }

    /// Some values grow, and some stack reads another one.
    fn change(&mut self) {
        for _ in 0..=self.random.below(4) {
            let stack = self.random.below(STACKS);
            self.values[stack] += 1;
            if stack > 0 && self.random.once_in(3) {
                let other = self.random.below(stack);
                if !self.reads[stack].remove(&other) {
                    self.reads[stack].insert(other);
                }
            }
            self.write(stack);
        }
        self.stage.monorepo.commit("Changes");
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        let caches = self.stage.scratch.path().join("caches");
        self.stage
            .konverge(arguments.iter().copied())
            .dir(self.stage.monorepo.path())
            .env("XDG_CACHE_HOME", caches)
    }

    /// One run of the commit, which may be stopped, or two at once of which each has a part.
    fn run(&mut self) {
        let apply = ["apply", "--pending", "--rev", "HEAD", "--yes"];
        let codes = match self.random.below(5) {
            0 => vec![self.konverge(&[&apply[..], &["--shard", "1/2"]].concat()).run()],
            1 | 2 => {
                let after = Duration::from_millis(300 + self.random.below(2_500) as u64);
                let running = self.konverge(&apply).start();
                std::thread::sleep(after);
                running.signal(if self.random.once_in(2) { SIGINT } else { SIGKILL });
                vec![running.wait()]
            }
            3 => {
                let parts = ["1/2", "2/2"]
                    .map(|part| self.konverge(&[&apply[..], &["--shard", part]].concat()).start());
                parts.map(|part| part.wait()).into()
            }
            _ => vec![self.konverge(&apply).run()],
        };
        for ended in codes {
            println!("  apply: {:?}", ended.code);
            let is_known = matches!(ended.code, None | Some(0 | 1 | 130));
            assert!(is_known, "{}{}", ended.stdout, ended.stderr);
        }
    }

    /// The data of each ConfigMap that stands.
    async fn live(&self) -> BTreeMap<usize, BTreeMap<String, usize>> {
        let mut live = BTreeMap::new();
        for stack in 0..STACKS {
            let Some(data) = self.stage.data(&self.map(stack)).await else {
                continue;
            };
            let numbers = data.into_iter().map(|(key, value)| (key, value.parse().unwrap()));
            live.insert(stack, numbers.collect());
        }
        live
    }
}

/// No value that stays is an older one.
fn assert_grown(
    before: &BTreeMap<usize, BTreeMap<String, usize>>,
    now: &BTreeMap<usize, BTreeMap<String, usize>>,
) {
    for (stack, data) in before {
        for (key, value) in data {
            if let Some(now) = now[stack].get(key) {
                assert!(now >= value, "s{stack}: {key} was {value}, and is {now}");
            }
        }
    }
}

async fn play(seed: u64) {
    println!("KONVERGE_OUTPUTS_SEED={seed}");
    let mut history = History::begin(seed).await;
    let mut before = BTreeMap::new();
    for commit in 0..COMMITS {
        println!("commit {commit}");
        if commit > 0 {
            history.change();
        }
        history.run();
        let now = history.live().await;
        assert_grown(&before, &now);
        before = now;
    }
    let last = ["apply", "--pending", "--rev", "HEAD", "--yes"];
    history
        .konverge(&last)
        .limit(Duration::from_secs(300))
        .run()
        .check(0);
    let live = history.live().await;
    assert_grown(&before, &live);
    for stack in 0..STACKS {
        let mut expected = BTreeMap::from([("own".to_owned(), history.values[stack])]);
        let read = history.reads[stack].iter();
        expected.extend(read.map(|other| (format!("r{other}"), history.values[*other])));
        assert_eq!(live[&stack], expected, "s{stack}");
    }
    let pending = history
        .konverge(&["preview", "--pending", "--rev", "HEAD", "--output", "json"])
        .run();
    let pending = pending.expect(0).json();
    // The index may not know yet what a killed run wrote. Then a stack is looked at again, and nothing is found.
    for stack in pending["stacks"].as_array().unwrap() {
        assert_eq!(stack["resources"], Value::Array(Vec::new()), "{stack}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_last_run_each_reader_has_what_its_writer_publishes() {
    let seed = setting("KONVERGE_OUTPUTS_SEED", 20_261_129);
    for history in 0..setting("KONVERGE_OUTPUTS_HISTORIES", 1) {
        play(seed + history).await;
    }
}
