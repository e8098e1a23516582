//! For random histories of commits, with runs that were cancelled, failed, came late or took a part: `--pending`
//! selects what `konverge ci` applies, and afterwards nothing is pending.
//!
//! The seed is printed; `KONVERGE_PENDING_SEED=n` repeats it, `KONVERGE_PENDING_HISTORIES=20` makes more histories.

use std::{collections::BTreeMap, time::Duration, time::SystemTime};

use nix::sys::signal::Signal::SIGINT;
use serde_json::Value;

use crate::support::{
    ci_stage::{Ran, Stage},
    process::Konverge,
    random::{Random, setting},
    tiny_monorepo,
};

/// The commits of one history.
const COMMITS: usize = 5;
/// The stacks of the monorepo, each with one ConfigMap.
const STACKS: [&str; 4] = ["a", "b", "c", "d"];

struct History {
    stage: Stage,
    random: Random,
    name: String,
    /// The folders that konverge.yaml excludes, and those that it gives another identity.
    excluded: bool,
    renamed: bool,
    /// A fresh value for each edit, and the value of each stack.
    edits: usize,
    values: BTreeMap<String, usize>,
    /// With what konverge.yaml said then.
    commits: Vec<(String, (bool, bool))>,
}

/// The stacks of a plan or a report.
fn ids(document: &Value) -> Vec<String> {
    let stacks = document["stacks"].as_array().unwrap().iter();
    let mut ids: Vec<_> = stacks
        .map(|stack| stack["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// The stacks that a job selected, and how each ended.
fn outcomes(ran: &Ran) -> BTreeMap<String, String> {
    let report = std::fs::read_to_string(ran.output("result-path")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let stacks = report["stacks"].as_array().unwrap().iter();
    stacks
        .map(|stack| (text(&stack["id"]), text(&stack["result"])))
        .collect()
}

impl History {
    async fn begin(seed: u64) -> Self {
        let mut random = Random::of(seed);
        // The first numbers of near seeds are near each other.
        for _ in 0..10 {
            random.next();
        }
        Self {
            stage: Stage::small("").await,
            random,
            name: format!("hist{seed:x}"),
            excluded: false,
            renamed: false,
            edits: 0,
            values: BTreeMap::new(),
            commits: Vec::new(),
        }
    }

    fn folder(&self, stack: &str) -> String {
        format!("appops/{}-{stack}/dev", self.name)
    }

    /// Writes a stack with a fresh value; one that is broken has a second map in a namespace that is nowhere.
    fn write(&mut self, stack: &str, broken: bool) {
        self.edits += 1;
        self.values.insert(stack.to_owned(), self.edits);
        let id = format!("{}-{stack}/dev", self.name);
        let map = |namespace: &str| {
            format!(
                "    {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{}-{stack}\", namespace = \"{namespace}\"}}, data = {{value = \"{}\"}}}}\n",
                self.name, self.edits
            )
        };
        let second = if broken {
            map("pending-nowhere")
        } else {
            String::new()
        };
        let program = format!("resources = [\n{}{second}]\n", map("default"));
        tiny_monorepo::write_program(&self.stage.monorepo, &id, &program);
    }

    fn configure(&self) {
        let mut more = String::new();
        if self.excluded {
            more += &format!("exclude: [{}]\n", self.folder("a"));
        }
        if self.renamed {
            more += &format!(
                "stacks: [{{match: {}, identity: {}-other/dev}}]\n",
                self.folder("b"),
                self.name
            );
        }
        self.stage.configure(&more);
    }

    /// One or two edits, as a commit on `main`.
    fn commit(&mut self) {
        self.stage.monorepo.checkout("main");
        for _ in 0..=self.random.below(2) {
            let stack = *self.random.pick(&STACKS);
            let folder = self.folder(stack);
            let is_there = self.stage.monorepo.path().join(&folder).is_dir();
            match self.random.below(8) {
                0 if is_there => std::fs::remove_dir_all(self.stage.monorepo.path().join(folder)).unwrap(),
                1 => self.excluded = !self.excluded,
                2 => self.renamed = !self.renamed,
                3 => self.write(stack, true),
                _ => self.write(stack, false),
            }
        }
        self.configure();
        self.edits += 1;
        self.stage.monorepo.write("README.md", self.edits.to_string());
        let commit = self.stage.monorepo.commit("One more");
        self.commits.push((commit, (self.excluded, self.renamed)));
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        let caches = self.stage.scratch.path().join("caches");
        let konverge = self.stage.konverge(arguments.iter().copied());
        konverge.env("XDG_CACHE_HOME", caches)
    }

    /// A run after a commit, as a CI leaves it. The last one of a history does not apply everything.
    fn run(&mut self, is_last: bool) {
        let apply = ["apply", "--pending", "--rev", "HEAD", "--yes"];
        let ended = match self.random.below(if is_last { 3 } else { 6 }) {
            0 => {
                println!("  cancelled in the queue");
                return;
            }
            1 => self.konverge(&[&apply[..], &["--shard", "1/2"]].concat()).run(),
            2 | 3 => {
                let after = Duration::from_millis(self.random.below(900) as u64);
                let running = self.konverge(&apply).start();
                std::thread::sleep(after);
                running.signal(SIGINT);
                running.wait()
            }
            _ => self.konverge(&apply).run(),
        };
        println!("  apply: {:?}", ended.code);
        assert!(
            matches!(ended.code, None | Some(0 | 1 | 130)),
            "{}{}",
            ended.stdout,
            ended.stderr
        );
    }

    fn preview(&self, rev: &str) -> Value {
        let arguments = ["preview", "--pending", "--output", "json", "--rev", rev];
        let preview = self.konverge(&arguments).run();
        assert!(matches!(preview.code, Some(0 | 1)), "{}", preview.stderr);
        preview.json()
    }

    /// What `--pending` selects is what the job of the same commit selects, which nobody reviewed.
    fn compare(&mut self, commit: &str) -> Vec<String> {
        self.stage.monorepo.checkout("main");
        let selected = ids(&self.preview(commit));
        let pushed = self.stage.push(commit, commit);
        let applied: Vec<_> = outcomes(&pushed).into_keys().collect();
        println!("  at {}: {selected:?}", &commit[..7]);
        assert_eq!(selected, applied, "{}", pushed.outcome.stderr);
        selected
    }

    /// The stacks that `status` does not call up to date.
    fn behind(&self) -> Vec<String> {
        let status = self
            .konverge(&["status", "--live", "never", "--output", "json"])
            .run();
        let mut status = status.expect(0).json();
        let stacks = status["stacks"].as_array_mut().unwrap();
        stacks.retain(|stack| stack["head"] != "applied" && stack["head"] != "kept");
        ids(&status)
    }

    /// Everything is repaired; what `--pending` selects is what the job applies, and then nothing is left.
    async fn settle(&mut self) -> usize {
        self.stage.monorepo.checkout("main");
        for stack in STACKS {
            if self.stage.monorepo.path().join(self.folder(stack)).is_dir() {
                self.write(stack, false);
            }
        }
        self.stage.monorepo.commit("Repaired");
        let excluded = self.map("a").await;
        let plan = self.preview("main");
        let selected = ids(&plan);
        let stacks = plan["stacks"].as_array().unwrap().iter();
        let digests: Vec<_> = stacks.map(|stack| stack["digest"].as_str().unwrap()).collect();
        let job = if selected.is_empty() {
            self.stage.again()
        } else {
            self.stage.approve(&digests.join(","))
        };
        job.outcome.check(0);
        let applied = outcomes(&job);
        println!("  settled: {applied:?}");
        assert_eq!(selected, applied.keys().cloned().collect::<Vec<_>>());
        let is_well = |result: &String| ["applied", "unchanged"].contains(&result.as_str());
        assert!(applied.values().all(is_well), "{applied:?}");
        assert_eq!(ids(&self.preview("main")), Vec::<String>::new());
        assert_eq!(outcomes(&self.stage.again()), BTreeMap::new());
        for stack in STACKS {
            let wanted = if self.stage.monorepo.path().join(self.folder(stack)).is_dir() {
                if stack == "a" && self.excluded {
                    excluded.clone()
                } else {
                    Some(self.values[stack].to_string())
                }
            } else {
                None
            };
            assert_eq!(self.map(stack).await, wanted, "{stack}");
        }
        selected.len()
    }

    /// The value of the map of a stack.
    async fn map(&self, stack: &str) -> Option<String> {
        self.stage.value(&format!("{}-{stack}", self.name)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_pending_is_what_a_job_applies() {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = setting("KONVERGE_PENDING_SEED", u64::from(now.subsec_nanos()) | 1);
    for seed in seed..seed + setting("KONVERGE_PENDING_HISTORIES", 1) {
        println!("KONVERGE_PENDING_SEED={seed}");
        let mut history = History::begin(seed).await;
        let mut selected = 0;
        for stack in STACKS {
            history.write(stack, false);
        }
        for n in 1..=COMMITS {
            history.commit();
            history.run(n == COMMITS);
        }
        // Jobs that come late, and the newest one. All have the default branch's konverge.yaml.
        let (newest, config) = history.commits.last().unwrap().clone();
        let late: Vec<_> = history.commits.iter().rev().skip(1).cloned().collect();
        for (late, _) in late.iter().filter(|(_, then)| *then == config).take(2) {
            history.compare(late);
        }
        selected += history.compare(&newest).len();
        assert_eq!(history.behind(), history.compare(&newest));
        selected += history.settle().await;
        assert!(selected > 0, "nothing was ever pending");
    }
}
