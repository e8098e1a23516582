//! Simulates concurrent and crashing runs on one store in virtual time, with thousands of random schedules.
//!
//! A run takes the lease, looks at what may exist, journals its intents, writes to a world outside, journals results
//! and commits. Requests are slow, dropped, answered too late or not at all, and done twice; answers are lost after the
//! write happened; processes are killed, or stopped for minutes and go on; wall clocks are wrong by hours. What a
//! process sends to the outside right after it asked the lease arrives: a stop between those two is the one thing that
//! no lease can guard, and not simulated.
//!
//! `KONVERGE_MODEL_SEEDS=20000` runs longer, `KONVERGE_MODEL_SEED=n` one schedule.

use crate::support::{
    faulty_store::{Process, Random, Weather},
    timeline::Timeline,
};
use bytes::Bytes;
use konverge_base::model::{
    Digest, RepoPath, StackId,
    plan::Action,
    spec::RuntimeKind,
    state::{JournalEntry, Recorded, StackState},
};
use konverge_state::{
    Clock, DocumentWriter, Holder, LeaseOptions, LeaseWatch, RepositoryId, StateError, StateStore,
    WaitVerdict,
    store::{Created, Key, MemoryStore, Store, StoreError},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// What exists outside, and what must hold of it.
#[derive(Default)]
struct World {
    outside: BTreeMap<StackId, BTreeSet<String>>,
    /// The highest token that wrote to the outside.
    token: BTreeMap<StackId, u64>,
    /// Who got which token.
    tokens: BTreeSet<(StackId, u64)>,
    /// What runs were told that they committed.
    serials: BTreeSet<(StackId, u64)>,
    commits: usize,
    takeovers: usize,
    lost: usize,
}

/// The store itself; sees what lands, in the order it lands.
#[derive(Default)]
struct Witness {
    memory: MemoryStore,
    /// The newest serial per stack.
    serials: Mutex<BTreeMap<String, u64>>,
}

#[async_trait::async_trait]
impl Store for Witness {
    fn url(&self) -> &str {
        self.memory.url()
    }
    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.memory.get(key).await
    }
    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        self.memory.list(prefix).await
    }
    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let created = self.memory.create(key, content).await?;
        if std::env::var_os("KONVERGE_MODEL_SEED").is_some() {
            println!("           {key} {created:?}");
        }
        if let (Created::Created, Some((stack, serial))) = (created, key.as_str().split_once("/state/")) {
            let serial: u64 = serial.parse().unwrap();
            let before = self
                .serials
                .lock()
                .unwrap()
                .insert(stack.to_owned(), serial)
                .unwrap_or(0);
            assert_eq!(serial, before + 1, "the serial of {stack} did not go on by one");
        }
        Ok(created)
    }
    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.memory.delete(key).await
    }
}

/// Says of a run that ended, or was killed, at once that it is over.
#[derive(Default)]
struct Github(Mutex<BTreeSet<String>>);

impl Github {
    fn is_over(&self, run: &str) {
        self.0.lock().unwrap().insert(run.to_owned());
    }
}

#[async_trait::async_trait]
impl LeaseWatch for Github {
    async fn waiting(&self, holder: &Holder, _: Duration) -> WaitVerdict {
        if self.0.lock().unwrap().contains(&holder.writer.run) {
            WaitVerdict::HolderIsOver
        } else {
            WaitVerdict::KeepWaiting
        }
    }
}

struct Simulation {
    seed: u64,
    timeline: Arc<Timeline>,
    store: Arc<Witness>,
    random: Random,
    world: Mutex<World>,
    github: Arc<Github>,
}

fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:x:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: std::sync::Arc::default(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: konverge_base::model::state::RuntimeRecord::default(),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

fn names(state: &StackState) -> BTreeSet<String> {
    let name = |r: &Recorded| r.id.as_str().rsplit(':').next().unwrap().to_owned();
    state.resources.iter().map(name).collect()
}

fn digest_of(wanted: &BTreeSet<String>) -> Digest {
    Digest::of_json(&serde_json::json!(wanted))
}

impl Simulation {
    fn states(&self, store: Arc<dyn Store>, clock: Arc<dyn Clock>, run: &str) -> StateStore {
        let writer = DocumentWriter {
            run: run.to_owned(),
            actor: "model".to_owned(),
        };
        StateStore::open(store, RepositoryId::new("model"), writer).with_clock(clock)
    }

    /// What happens, if one schedule is looked at.
    fn say(&self, text: std::fmt::Arguments<'_>) {
        if std::env::var_os("KONVERGE_MODEL_SEED").is_some() {
            println!("{:10.3} {text}", self.timeline.now().as_secs_f64());
        }
    }

    /// Looks at the store without any fault.
    fn truth(&self) -> StateStore {
        self.states(
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&self.timeline) as Arc<dyn Clock>,
            "truth",
        )
    }

    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// One run: makes the stack be `wanted`.
    async fn run(
        &self,
        states: &StateStore,
        stack: &StackId,
        wanted: &BTreeSet<String>,
    ) -> Result<(), StateError> {
        let github = Arc::clone(&self.github) as Arc<dyn LeaseWatch>;
        let options = LeaseOptions {
            term: Duration::from_secs(30),
            wait: Duration::from_secs(400),
            watch: self.random.permille(500).then_some(github),
            ..LeaseOptions::default()
        };
        if self.random.permille(300) {
            let known = states.read_all().await?;
            states.maintain_index(&known).await?;
        }
        let lease = states.acquire(stack, options).await?;
        let token = lease.epoch();
        let fresh = self.world().tokens.insert((stack.clone(), token));
        assert!(
            fresh,
            "seed {}: two holders of token {token} of {stack}",
            self.seed
        );
        let prior = lease.prior().map(|prior| prior.state.clone());
        self.say(format_args!(
            "{stack} token {token} taken, serial {:?}, prior {:?}, wanted {wanted:?}",
            lease.prior().map(|prior| prior.serial),
            prior.as_ref().map(names)
        ));
        if lease
            .prior()
            .is_some_and(konverge_state::Versioned::was_interrupted)
        {
            self.world().takeovers += 1;
        }
        let mut state = prior.unwrap_or_else(|| StackState::empty(stack.clone(), RepoPath::root()));
        let known = names(&state);
        let live = self.world().outside.get(stack).cloned().unwrap_or_default();
        let make: Vec<_> = wanted.difference(&live).cloned().collect();
        let remove: Vec<_> = known
            .intersection(&live)
            .filter(|name| !wanted.contains(*name))
            .cloned()
            .collect();
        let intent = |name: &String, action| JournalEntry::Intent {
            recorded: recorded(name),
            action,
        };
        let intents: Vec<_> = make
            .iter()
            .map(|name| intent(name, Action::Create))
            .chain(remove.iter().map(|name| intent(name, Action::Delete)))
            .collect();
        if !intents.is_empty() {
            lease.journal(intents).await?;
        }
        for (name, made) in make
            .iter()
            .map(|n| (n, true))
            .chain(remove.iter().map(|n| (n, false)))
        {
            // Time passes: waiting for readiness, planning the next.
            self.timeline.sleep(self.random.millis(20_000)).await;
            lease.check()?;
            self.write_outside(stack, token, name, made);
            if self.random.permille(100) {
                self.check_index(stack).await;
            }
            let entry = if made {
                JournalEntry::Done {
                    recorded: recorded(name),
                }
            } else {
                JournalEntry::Gone {
                    id: recorded(name).id,
                }
            };
            lease.journal(vec![entry]).await?;
        }
        state.resources = Vec::new();
        wanted.iter().for_each(|name| state.put(recorded(name)));
        state.input_digest = Some(digest_of(wanted));
        if self.random.permille(50) {
            // An apply that failed elsewhere: what was journaled stays for the next.
            return lease.release().await;
        }
        let serial = lease.commit(state, &[]).await?;
        {
            let mut world = self.world();
            let fresh = world.serials.insert((stack.clone(), serial));
            assert!(
                fresh,
                "seed {}: serial {serial} of {stack} was committed twice",
                self.seed
            );
            world.commits += 1;
        }
        if self.random.permille(500) {
            states.save_index().await?;
        }
        Ok(())
    }

    fn write_outside(&self, stack: &StackId, token: u64, name: &str, made: bool) {
        self.say(format_args!("{stack} token {token} writes {name} {made}"));
        let mut world = self.world();
        let newest = world.token.entry(stack.clone()).or_default();
        assert!(
            token >= *newest,
            "seed {}: token {token} of {stack} wrote after {newest}",
            self.seed
        );
        *newest = token;
        let outside = world.outside.entry(stack.clone()).or_default();
        if made {
            outside.insert(name.to_owned());
        } else {
            outside.remove(name);
        }
    }

    /// A stack that is being worked on is never taken for settled.
    async fn check_index(&self, stack: &StackId) {
        let known = self.truth().read_all().await.unwrap();
        let settled = known
            .entries
            .get(stack)
            .and_then(konverge_state::IndexEntry::settled_digest);
        assert_eq!(
            settled, None,
            "seed {}: {stack} is taken for settled while it is written",
            self.seed
        );
    }

    /// Everything that exists is in state and journal.
    async fn check_nothing_forgotten(&self, stack: &StackId) {
        let outside = self.world().outside.get(stack).cloned().unwrap_or_default();
        let recorded = self.truth().load(stack).await.unwrap();
        let recorded = recorded
            .map(|versioned| names(&versioned.state))
            .unwrap_or_default();
        let forgotten: Vec<_> = outside.difference(&recorded).collect();
        assert!(
            forgotten.is_empty(),
            "seed {}: {stack} forgot {forgotten:?}; it records {recorded:?}",
            self.seed
        );
    }
}

async fn simulate(seed: u64) -> (usize, usize, usize) {
    Timeline::simulate(|timeline| async move {
        let random = Random::new(seed);
        let weather = match random.below(4) {
            0 => Weather {
                dropped: 0,
                answer_lost: 0,
                late: 0,
                doubled: 0,
                slow: 0,
                stopped: 0,
            },
            1 => Weather {
                dropped: 30,
                answer_lost: 60,
                late: 30,
                doubled: 60,
                slow: 20,
                stopped: 0,
            },
            2 => Weather {
                dropped: 10,
                answer_lost: 20,
                late: 10,
                doubled: 20,
                slow: 60,
                stopped: 30,
            },
            _ => Weather {
                dropped: 60,
                answer_lost: 120,
                late: 120,
                doubled: 60,
                slow: 60,
                stopped: 15,
            },
        };
        let simulation = Arc::new(Simulation {
            seed,
            timeline: Arc::clone(&timeline),
            store: Arc::default(),
            random: random.clone(),
            world: Mutex::default(),
            github: Arc::default(),
        });
        let stacks: Vec<StackId> = ["one/prod", "two/prod"].map(|text| text.parse().unwrap()).into();
        let mut runs = Vec::new();
        for number in 0..6 {
            let (simulation, random, timeline) =
                (Arc::clone(&simulation), random.clone(), Arc::clone(&timeline));
            let stack = stacks[usize::from(random.permille(200))].clone();
            let start = random.millis(120_000);
            let killed = random.permille(350).then(|| random.millis(150_000));
            let task = tokio::spawn(async move {
                timeline.sleep(start).await;
                let process = Process::new(
                    Arc::clone(&simulation.store) as Arc<dyn Store>,
                    timeline,
                    random.clone(),
                    weather,
                );
                let store = Arc::clone(&process) as Arc<dyn Store>;
                let states = simulation.states(store, process, &format!("run {number}"));
                let wanted = NAMES
                    .iter()
                    .filter(|_| random.permille(500))
                    .map(|name| (*name).to_owned())
                    .collect();
                let ended = simulation.run(&states, &stack, &wanted).await;
                simulation.github.is_over(&format!("run {number}"));
                match ended {
                    Ok(()) => {}
                    Err(StateError::Lost { .. }) => simulation.world().lost += 1,
                    Err(StateError::Store(_) | StateError::Held { .. } | StateError::Missing(_)) => {}
                    Err(error) => panic!("seed {seed}: {error}"),
                }
            });
            runs.push((task, killed.map(|after| (start + after, number))));
        }
        let mut kills: Vec<_> = runs
            .iter()
            .filter_map(|(task, at)| Some(((*at)?, task.abort_handle())))
            .collect();
        kills.sort_by_key(|((at, _), _)| *at);
        for ((at, number), task) in kills {
            timeline.until(at).await;
            task.abort();
            simulation.github.is_over(&format!("run {number}"));
            for stack in &stacks {
                simulation.check_nothing_forgotten(stack).await;
            }
        }
        for (task, _) in runs {
            if let Err(error) = task.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        for stack in &stacks {
            simulation.check_nothing_forgotten(stack).await;
        }
        // Late writes land; then a run without any fault goes over both stacks and converges.
        timeline.sleep(Duration::from_secs(200)).await;
        let states = simulation.truth();
        for stack in &stacks {
            simulation.check_nothing_forgotten(stack).await;
            let wanted = BTreeSet::from(["a".to_owned(), "z".to_owned()]);
            loop {
                // It may give back the lease instead of committing, as any run.
                simulation.run(&states, stack, &wanted).await.unwrap();
                let loaded = states.load(stack).await.unwrap().unwrap();
                if loaded.state.input_digest == Some(digest_of(&wanted)) {
                    assert!(loaded.pending.is_empty());
                    break;
                }
            }
            let outside = simulation.world().outside.get(stack).cloned().unwrap_or_default();
            let loaded = states.load(stack).await.unwrap().unwrap();
            assert_eq!(names(&loaded.state), outside, "seed {seed}");
            let known = states.read_all().await.unwrap();
            assert_eq!(
                known.entries[stack].settled_digest(),
                Some(digest_of(&wanted)),
                "seed {seed}"
            );
            assert_eq!(
                states.rebuild_index().await.unwrap().entries[stack].settled_digest(),
                Some(digest_of(&wanted))
            );
        }
        let world = simulation.world();
        (world.commits, world.takeovers, world.lost)
    })
    .await
}

#[test]
fn no_schedule_breaks_the_promises() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (from, count) = match number("KONVERGE_MODEL_SEED") {
        Some(seed) => (seed, 1),
        None => (0, number("KONVERGE_MODEL_SEEDS").unwrap_or(300)),
    };
    let workers = std::thread::available_parallelism()
        .map_or(1, |n| n.get() as u64)
        .min(4);
    let totals: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|worker| {
                scope.spawn(move || {
                    let mut totals = (0, 0, 0);
                    for seed in (from..from + count).filter(|seed| seed % workers == worker) {
                        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                        let (commits, takeovers, lost) = runtime.block_on(simulate(seed));
                        totals = (totals.0 + commits, totals.1 + takeovers, totals.2 + lost);
                    }
                    totals
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let (commits, takeovers, lost) = totals.into_iter().fold((0, 0, 0), |sum, one| {
        (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2)
    });
    println!(
        "{count} schedules: {commits} commits, {takeovers} after an interruption, {lost} runs lost their lease"
    );
    if count >= 100 {
        assert!(
            commits > 0 && takeovers > 0 && lost > 0,
            "the schedules do not reach what they are for"
        );
    }
}
