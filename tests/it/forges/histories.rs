//! Promises 3 and 4 for random histories, at the fake GitHub and at a real Gitea: what was reviewed is applied,
//! exactly; and no merge is lost, whatever happened to its job. What must happen is said by [`Model`], which knows the
//! guide alone.
//!
//! The seed is printed; `KONVERGE_REVIEW_SEED=n` repeats it, `KONVERGE_REVIEW_HISTORIES=20` makes more histories, and
//! `KONVERGE_REVIEW_STEPS=30` longer ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, api::ListParams};
use nix::sys::signal::Signal::SIGKILL;
use serde_json::Value;

use super::{
    hosts::{Gitea, Github, Host, Style},
    model::{Change, Content, Expected, MAPS, Model, Plan, Preview, STACKS, Slot, changed},
};
use crate::support::{
    ci_stage::Ran,
    cluster::Cluster,
    process::Konverge,
    random::{Random, setting},
};

/// A job that the runner holds back.
struct Held<J> {
    job: J,
    what: Work,
}

/// What a job is for.
#[derive(Clone)]
enum Work {
    Preview(Preview),
    /// Of a commit of `main`.
    Apply(usize),
}

struct History<H: Host> {
    host: H,
    random: Random,
    model: Model,
    /// The names of the stacks and maps begin with it.
    name: String,
    values: u64,
    branches: usize,
    /// The branch of each open pull request.
    open: BTreeMap<u64, String>,
    held: Vec<Held<H::Job>>,
    /// The plans that were stopped, by their digests.
    offered: BTreeMap<usize, (String, Plan)>,
    /// What a killed job used of a review is not known: from then on no value comes twice.
    was_killed: bool,
}

/// Writes the files of the maps that change.
fn write<H: Host>(host: &H, name: &str, change: &Change) {
    for ((stack, map), value) in change {
        let object = format!("{name}-{stack}-{map}");
        let resource = value.map(|value| {
            format!(
                "{{id = \"v1:ConfigMap:default:{object}\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"{object}\", namespace = \"default\"}}, data = {{value = \"{value}\"}}}}}}"
            )
        });
        let text = format!("_map{map} = [{}]\n", resource.unwrap_or_default());
        host.konfig()
            .write(&format!("appops/{name}-{stack}/dev/map{map}.k"), text);
    }
}

/// Writes the stacks without their maps.
fn write_stacks<H: Host>(host: &H, name: &str) {
    let maps: Vec<_> = (0..MAPS).map(|map| format!("_map{map}")).collect();
    let files: String = (0..MAPS).map(|map| format!(", map{map}.k")).collect();
    for stack in 0..STACKS {
        let project = format!("appops/{name}-{stack}");
        host.konfig()
            .write(
                &format!("{project}/project.yaml"),
                format!("name: {name}-{stack}\n"),
            )
            .write(&format!("{project}/dev/stack.yaml"), "name: dev\n")
            .write(
                &format!("{project}/dev/kcl.yaml"),
                format!("kcl_cli_configs:\n  files: [main.k{files}]\n"),
            )
            .write(
                &format!("{project}/dev/main.k"),
                format!("resources = {}\n", maps.join(" + ")),
            );
    }
}

impl<H: Host> History<H> {
    /// All stacks are there, reviewed and applied.
    async fn begin(seed: u64) -> Self {
        let mut random = Random::of(seed);
        // The first numbers of near seeds are near each other.
        for _ in 0..10 {
            random.next();
        }
        let host = H::start().await;
        let name = format!("rev{seed:x}{}", H::NAME);
        let slots = (0..STACKS).flat_map(|stack| (0..MAPS).map(move |map| (stack, map)));
        let first: Change = slots.zip(1..).map(|(slot, value)| (slot, Some(value))).collect();
        host.konfig().checkout("main").branch("first");
        write_stacks(&host, &name);
        write(&host, &name, &first);
        host.konfig().commit("All stacks");
        let mut history = Self {
            host,
            random,
            model: Model::applied(changed(&Content::new(), &first)),
            name,
            values: first.len() as u64,
            branches: 0,
            open: BTreeMap::new(),
            held: Vec::new(),
            offered: BTreeMap::new(),
            was_killed: false,
        };
        let (number, job) = history.host.open("first").await;
        history.run(job).await.outcome.check(0);
        let job = history.host.merge(number, "first", Style::Merge).await;
        history.run(job).await.outcome.check(0);
        assert_eq!(history.live().await, history.model.live);
        history
    }

    fn stack(&self, stack: usize) -> String {
        format!("{}-{stack}/dev", self.name)
    }

    /// What stands in the cluster.
    async fn live(&self) -> Content {
        let maps: Api<ConfigMap> = Api::namespaced(Cluster::shared().client().await, "default");
        let maps = maps.list(&ListParams::default()).await.unwrap();
        let slot = |name: &str| -> Option<Slot> {
            let (stack, map) = name
                .strip_prefix(&self.name)?
                .strip_prefix('-')?
                .split_once('-')?;
            Some((stack.parse().ok()?, map.parse().ok()?))
        };
        let value = |map: ConfigMap| map.data.unwrap()["value"].parse().unwrap();
        let maps = maps.items.into_iter();
        maps.filter_map(|map| Some((slot(map.metadata.name.as_deref()?)?, value(map))))
            .collect()
    }

    async fn run(&mut self, mut job: H::Job) -> Ran {
        let (konverge, folder) = self.host.prepared(&mut job);
        let ran = Ran::of(konverge.run(), folder);
        self.host.ended(job, ran.outcome.code == Some(0)).await;
        ran
    }

    /// Runs a job until it has written so many documents, and kills it.
    async fn kill(&mut self, mut job: H::Job, after: usize) {
        let (konverge, _) = self.host.prepared(&mut job);
        let before = documents(&self.host.store());
        let mut running = konverge.start();
        while !running.has_ended() && documents(&self.host.store()) < before + after {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        if !running.has_ended() {
            running.signal(SIGKILL);
        }
        running.wait();
        self.host.ended(job, false).await;
    }

    /// A map that no open pull request changes.
    fn free_slot(&mut self, taken: &Change) -> Option<Slot> {
        let slots = (0..STACKS).flat_map(|stack| (0..MAPS).map(move |map| (stack, map)));
        let is_free = |slot: &Slot| {
            let mut open = self.open.keys().map(|number| &self.model.pulls[number].change);
            !taken.contains_key(slot) && !open.any(|change| change.contains_key(slot))
        };
        let free: Vec<_> = slots.filter(is_free).collect();
        (!free.is_empty()).then(|| *self.random.pick(&free))
    }

    fn fresh(&mut self) -> Option<u64> {
        self.values += 1;
        Some(self.values)
    }

    /// Changes one or two maps.
    fn change(&mut self) -> Change {
        let mut change = Change::new();
        for _ in 0..=self.random.below(2) {
            let Some(slot) = self.free_slot(&change) else {
                break;
            };
            let is_there = self.model.tip().content.contains_key(&slot);
            let value = if is_there && !self.was_killed && self.random.once_in(5) {
                None
            } else {
                self.fresh()
            };
            change.insert(slot, value);
        }
        change
    }

    /// Two commits, so that merge, squash and rebase differ.
    fn commit_on(&mut self, branch: &str, change: &Change) -> String {
        write(&self.host, &self.name, change);
        self.host.konfig().commit(branch);
        self.values += 1;
        let notes = format!("notes/{branch}.md");
        self.host.konfig().write(&notes, format!("{}\n", self.values));
        self.host.konfig().commit("Notes")
    }

    async fn step(&mut self) {
        match self.random.below(11) {
            0..=2 if self.open.len() < 2 => self.open_pull().await,
            3 if !self.open.is_empty() => self.push_by_force().await,
            4..=6 if !self.open.is_empty() => self.merge().await,
            7 => self.push().await,
            8 if !self.held.is_empty() => {
                let at = self.random.below(self.held.len());
                let Held { job, what } = self.held.swap_remove(at);
                println!("  late:");
                self.work(job, what).await;
            }
            9 | 10 if !self.offered.is_empty() => self.approve().await,
            _ if self.open.len() < 2 => self.open_pull().await,
            _ => self.merge().await,
        }
    }

    async fn open_pull(&mut self) {
        let change = self.change();
        if change.is_empty() {
            return;
        }
        let (number, job) = self.opened(change).await;
        let preview = self.model.asked(number, H::HAS_TEST_MERGE);
        self.begun(job, Work::Preview(preview)).await;
    }

    /// Somebody opens a pull request with a change.
    async fn opened(&mut self, change: Change) -> (u64, H::Job) {
        self.branches += 1;
        let branch = format!("topic{}", self.branches);
        self.host.konfig().checkout("main").branch(&branch);
        let head = self.commit_on(&branch, &change);
        let (number, job) = self.host.open(&branch).await;
        println!("#{number} sets {change:?}");
        self.model.opened(number, head, change);
        self.open.insert(number, branch);
        (number, job)
    }

    fn some_pull(&mut self) -> (u64, String) {
        let open: Vec<_> = self
            .open
            .iter()
            .map(|(number, branch)| (*number, branch.clone()))
            .collect();
        self.random.pick(&open).clone()
    }

    /// Other values of the same maps.
    async fn push_by_force(&mut self) {
        let (number, branch) = self.some_pull();
        let old = self.model.pulls[&number].change.clone();
        let mut change = old.clone();
        for value in change.values_mut() {
            if self.random.once_in(2) {
                *value = self.fresh();
            }
        }
        self.host.konfig().checkout(&branch);
        self.host.konfig().git(["reset", "--quiet", "--hard", "HEAD~2"]);
        let head = self.commit_on(&branch, &change);
        let job = self.host.push_by_force(number, &branch).await;
        println!("#{number} sets {change:?} instead");
        let pull = self.model.pulls.get_mut(&number).unwrap();
        (pull.head, pull.change) = (head, change);
        let preview = self.model.asked(number, H::HAS_TEST_MERGE);
        self.begun(job, Work::Preview(preview)).await;
    }

    async fn merge(&mut self) {
        let (number, _) = self.some_pull();
        let (at, job) = self.merged(number).await;
        self.begun(job, Work::Apply(at)).await;
    }

    async fn merged(&mut self, number: u64) -> (usize, H::Job) {
        let branch = self.open.remove(&number).unwrap();
        let style = *self.random.pick(&[Style::Merge, Style::Squash, Style::Rebase]);
        let job = self.host.merge(number, &branch, style).await;
        let change = self.model.pulls[&number].change.clone();
        let at = self.model.pushed(&change, Some(number));
        println!("commit {at} merges #{number} by {style:?}");
        (at, job)
    }

    /// A change of one map without a pull request: a new value, an old one, or none.
    async fn push(&mut self) {
        let Some(slot) = self.free_slot(&Change::new()) else {
            return;
        };
        let old: BTreeSet<_> = self
            .model
            .main
            .iter()
            .map(|commit| commit.content.get(&slot).copied())
            .collect();
        let now = self.model.tip().content.get(&slot).copied();
        let old: Vec<_> = old.into_iter().filter(|value| *value != now).collect();
        let value = if old.is_empty() || self.was_killed || self.random.once_in(2) {
            self.fresh()
        } else {
            *self.random.pick(&old)
        };
        let (at, job) = self.pushed(slot, value).await;
        self.begun(job, Work::Apply(at)).await;
    }

    async fn pushed(&mut self, slot: Slot, value: Option<u64>) -> (usize, H::Job) {
        let change = Change::from([(slot, value)]);
        self.host.konfig().checkout("main");
        write(&self.host, &self.name, &change);
        self.host.konfig().commit("Straight to main");
        let job = self.host.push_main().await;
        let at = self.model.pushed(&change, None);
        println!("commit {at} sets {change:?}");
        (at, job)
    }

    /// A stack uses a review for which another one still waits. Later a push sets what that review showed, which nobody
    /// reviewed anew. Of 20,000 random histories one came here by itself: it takes five jobs in this order, of which
    /// none is left out. Returns false where no two stacks are at rest.
    async fn use_a_review_twice(&mut self) -> bool {
        let pending = self.model.pending(self.model.main.len() - 1);
        let mut free = (0..STACKS).filter(|stack| {
            let open = self.open.keys().map(|number| &self.model.pulls[number].change);
            !pending.contains(stack) && !open.flatten().any(|((of, _), _)| of == stack)
        });
        let (Some(uses), Some(waits), false) = (free.next(), free.next(), self.was_killed) else {
            return false;
        };
        let (shown, later) = (self.fresh(), self.fresh());
        println!("stack {uses} uses a review for which stack {waits} waits");
        let value = self.fresh();
        let reviewed = self
            .reviewed(Change::from([((uses, 0), shown), ((waits, 0), value)]))
            .await;
        let value = self.fresh();
        let (at, job) = self.pushed((waits, 1), value).await;
        self.work(job, Work::Apply(at)).await;
        let (at, job) = self.merged(reviewed).await;
        self.work(job, Work::Apply(at)).await;
        let next = self.reviewed(Change::from([((uses, 0), later)])).await;
        let (at, job) = self.merged(next).await;
        self.work(job, Work::Apply(at)).await;
        let (at, job) = self.pushed((uses, 0), shown).await;
        self.work(job, Work::Apply(at)).await;
        true
    }

    /// A pull request whose preview has run.
    async fn reviewed(&mut self, change: Change) -> u64 {
        let (number, job) = self.opened(change).await;
        let preview = self.model.asked(number, H::HAS_TEST_MERGE);
        self.work(job, Work::Preview(preview)).await;
        number
    }

    async fn approve(&mut self) {
        let stacks: Vec<_> = self.offered.keys().copied().collect();
        let stack = *self.random.pick(&stacks);
        let (digest, plan) = self.offered.remove(&stack).unwrap();
        println!("stack {stack}: {plan:?} is approved");
        let job = self.host.approve(&digest).await;
        self.apply(job, self.model.main.len() - 1, &BTreeMap::from([(stack, plan)]))
            .await;
    }

    /// A job has been started: it runs, is left out, comes late or is killed.
    async fn begun(&mut self, job: H::Job, what: Work) {
        let fate = self.random.below(10);
        match (fate, &what) {
            (0 | 1, _) => {
                println!("  left out");
                self.host.ended(job, false).await;
            }
            (2 | 3, _) => {
                println!("  held back");
                self.held.push(Held { job, what });
            }
            (4, Work::Apply(at)) => {
                let after = 1 + self.random.below(12);
                println!("  killed after {after} documents");
                self.kill(job, after).await;
                let expected = self.model.expected(*at, &BTreeMap::new());
                let live = self.live().await;
                self.model.killed_at(*at, &expected, live);
                self.was_killed = true;
                // Which stacks have a newer commit now is not known.
                for held in std::mem::take(&mut self.held) {
                    self.host.ended(held.job, false).await;
                }
            }
            _ => self.work(job, what).await,
        }
    }

    async fn work(&mut self, job: H::Job, what: Work) {
        match what {
            Work::Preview(preview) => {
                println!("  preview of #{}", preview.number);
                self.run(job).await.outcome.check(0);
                self.model.previewed(&preview);
            }
            Work::Apply(at) => {
                let ran = self.apply(job, at, &BTreeMap::new()).await;
                ran.0.outcome.check(if ran.1.stopped.is_empty() { 0 } else { 3 });
            }
        }
    }

    /// Runs an apply and holds what it did against the model.
    async fn apply(&mut self, job: H::Job, at: usize, agreed: &BTreeMap<usize, Plan>) -> (Ran, Expected) {
        let expected = self.model.expected(at, agreed);
        println!("  apply of commit {at}: {expected:?}");
        let ran = self.run(job).await;
        self.model.applied_at(at, &expected);
        let said = format!("{}{}", ran.outcome.stdout, ran.outcome.stderr);
        assert_eq!(self.live().await, self.model.live, "{said}");
        let stopped: BTreeSet<_> = expected.stopped.keys().map(|stack| self.stack(*stack)).collect();
        let digests = stopped_stacks(&ran);
        assert_eq!(
            digests.keys().cloned().collect::<BTreeSet<_>>(),
            stopped,
            "{said}"
        );
        for (stack, plan) in &expected.stopped {
            let digest = digests[&self.stack(*stack)].clone();
            self.offered.insert(*stack, (digest, plan.clone()));
        }
        if at + 1 == self.model.main.len() {
            let titles = stopped
                .iter()
                .map(|stack| format!("{stack}: blocked: unreviewed change"));
            assert_eq!(self.host.stopped().await, titles.collect(), "{said}");
        }
        (ran, expected)
    }

    /// The stacks that `--pending` selects.
    fn pending(&self) -> BTreeSet<String> {
        self.host.konfig().checkout("main");
        let preview = Konverge::new(["preview", "--pending", "--rev", "main", "--output", "json"])
            .with_kcl()
            .dir(self.host.konfig().path())
            .env("KUBECONFIG", Cluster::shared().kubeconfig())
            .run();
        let stacks = preview.expect(0).json()["stacks"].as_array().unwrap().clone();
        stacks
            .iter()
            .map(|stack| stack["id"].as_str().unwrap().to_owned())
            .collect()
    }

    /// One more job, of a change of no stack.
    async fn last_job(&mut self) -> Expected {
        self.values += 1;
        self.host
            .konfig()
            .checkout("main")
            .write("README.md", format!("{}\n", self.values));
        self.host.konfig().commit("Of no stack");
        let job = self.host.push_main().await;
        let at = self.model.pushed(&Change::new(), None);
        println!("commit {at} changes no stack");
        self.apply(job, at, &BTreeMap::new()).await.1
    }

    /// What comes late comes; then what is not applied is listed, and the next job applies it or says that it is
    /// stopped.
    async fn settle(&mut self) {
        while !self.held.is_empty() {
            let at = self.random.below(self.held.len());
            let Held { job, what } = self.held.swap_remove(at);
            println!("  late:");
            self.work(job, what).await;
        }
        let pending = self.pending();
        for (slot, _) in self
            .model
            .tip()
            .content
            .iter()
            .filter(|(slot, value)| self.model.live.get(*slot) != Some(*value))
        {
            assert!(
                pending.contains(&self.stack(slot.0)),
                "{slot:?} is lost: {pending:?}"
            );
        }
        let left = self.last_job().await;
        let digests: Vec<_> = left
            .stopped
            .keys()
            .map(|stack| self.offered[stack].0.clone())
            .collect();
        if !digests.is_empty() {
            let job = self.host.approve(&digests.join(",")).await;
            let (ran, left) = self.apply(job, self.model.main.len() - 1, &left.stopped).await;
            ran.outcome.check(0);
            assert!(left.stopped.is_empty());
        }
        assert_eq!(self.model.live, self.model.tip().content);
        assert!(self.pending().is_empty());
    }
}

/// The stacks that a job stopped, and the digests of their plans.
fn stopped_stacks(ran: &Ran) -> BTreeMap<String, String> {
    let report = std::fs::read_to_string(ran.output("result-path")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let stacks = report["stacks"].as_array().unwrap().iter();
    stacks
        .filter(|stack| stack["result"] == "stopped")
        .map(|stack| (text(&stack["id"]), text(&stack["digest"])))
        .collect()
}

/// The number of documents in a store.
fn documents(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let count = |path: PathBuf| if path.is_dir() { documents(&path) } else { 1 };
    entries.flatten().map(|entry| count(entry.path())).sum()
}

async fn play<H: Host>(histories: u64, steps: u64) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seed = setting("KONVERGE_REVIEW_SEED", u64::from(now.subsec_nanos()) | 1);
    for seed in seed..seed + setting("KONVERGE_REVIEW_HISTORIES", histories) {
        println!("KONVERGE_REVIEW_SEED={seed}");
        let mut history = History::<H>::begin(seed).await;
        let (moment, mut is_used) = (history.random.next() % 3, false);
        for step in 0..setting("KONVERGE_REVIEW_STEPS", steps) {
            if step >= moment && !is_used {
                is_used = history.use_a_review_twice().await;
            }
            history.step().await;
        }
        history.settle().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reviewed_is_applied_and_no_merge_is_lost_at_github() {
    play::<Github>(1, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn what_was_reviewed_is_applied_and_no_merge_is_lost_at_gitea() {
    play::<Gitea>(2, 10).await;
}
