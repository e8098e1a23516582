use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use super::{
    super::{
        Clock, LeaseWatch,
        fixture::{self, HandClock, QuickClock},
    },
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::error::UserError;

fn options(over_vanished: bool) -> LeaseOptions {
    LeaseOptions {
        wait: Duration::ZERO,
        over_vanished,
        ..LeaseOptions::default()
    }
}

#[tokio::test]
async fn a_lease_whose_state_is_gone_is_taken_only_if_the_index_says_that_it_ended() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let run = || fixture::states(&store, &Arc::<HandClock>::default());
    let stack = fixture::stack("shop/prod");
    let states = run();
    let known = states.read_all().await.unwrap();
    states.maintain_index(&known).await.unwrap();
    let lease = states.acquire(&stack, options(false)).await.unwrap();
    lease.journal(fixture::created("a")).await.unwrap();
    lease.commit(fixture::state(&stack, &["a"]), &[]).await.unwrap();
    states.save_index().await.unwrap();
    store.delete(&keys::state(&stack, 1)).await.unwrap();

    let refused = run().acquire(&stack, options(false)).await.err();
    assert!(
        matches!(refused, Some(StateError::Vanished { serial: 1, .. })),
        "{refused:?}"
    );
    // This one works now: its epoch is later than what the index says.
    let lease = run().acquire(&stack, options(true)).await.unwrap();
    let refused = run().acquire(&stack, options(true)).await.err();
    assert!(matches!(refused, Some(StateError::Held { .. })), "{refused:?}");
    let shown = UserError::from(refused.unwrap());
    let way_out = format!("konverge state unlock shop/prod --lease {}", lease.id());
    assert!(
        shown.hints.iter().any(|hint| hint.contains(&way_out)),
        "{shown:?}"
    );
    lease.check().unwrap();
}

#[tokio::test]
async fn unlocking_needs_the_id_of_the_lease_that_is_held() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let states = fixture::states(&store, &Arc::<HandClock>::default());
    let stack = fixture::stack("shop/prod");
    let nobody = states.unlock(&stack, "1-abc", "why").await.unwrap_err();
    assert!(nobody.to_string().contains("nobody holds"), "{nobody}");
    let lease = states.acquire(&stack, options(false)).await.unwrap();
    let other = states.unlock(&stack, "1-abc", "why").await.unwrap_err();
    assert!(other.to_string().contains(lease.id()), "{other}");
    assert!(states.holder(&stack).await.unwrap().is_some());
    states.unlock(&stack, lease.id(), "why").await.unwrap();
    assert!(states.holder(&stack).await.unwrap().is_none());
}

/// A run that waits, on a clock of which every pause is over at once.
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<QuickClock>,
    states: StateStore,
    stack: StackId,
}

impl Bench {
    fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let clock = Arc::<QuickClock>::default();
        Self {
            states: fixture::states(&store, &Arc::default()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>),
            stack: fixture::stack("shop/prod"),
            store,
            clock,
        }
    }

    /// Another run, whose clock stands still.
    fn other(&self) -> StateStore {
        fixture::states(&self.store, &Arc::default())
    }

    async fn hold(&self, epoch: u64, renewal: u64, term: Duration) {
        hold(&self.store, &self.states, epoch, renewal, term).await;
    }
}

async fn hold(store: &Arc<dyn Store>, states: &StateStore, epoch: u64, renewal: u64, term: Duration) {
    let held = LeaseDocument::Held {
        id: format!("{epoch}-abcd"),
        term_ms: u64::try_from(term.as_millis()).unwrap(),
        since: jiff::Timestamp::UNIX_EPOCH,
        serial: None,
    };
    let key = keys::lease(&fixture::stack("shop/prod"), epoch, renewal);
    let letter = states.letter("lease", &key, &held).unwrap();
    store.create(&key, letter.bytes).await.unwrap();
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn is_held<T>(result: &Result<T, StateError>) -> bool {
    matches!(result, Err(StateError::Held { .. }))
}

#[tokio::test]
async fn a_run_looks_again_each_twelfth_of_the_term_until_its_time_is_over() {
    let ms = Duration::from_millis;
    for (term, wait, pauses) in [
        (seconds(12), seconds(3), vec![seconds(1); 3]),
        (seconds(60), seconds(7), vec![seconds(5), seconds(2)]),
        (seconds(120), seconds(6), vec![seconds(5), seconds(1)]),
        (ms(600), ms(250), vec![ms(100), ms(100), ms(50)]),
        (seconds(60), Duration::ZERO, vec![]),
    ] {
        let bench = Bench::new();
        bench.hold(1, 0, term).await;
        let options = LeaseOptions {
            term,
            wait,
            ..LeaseOptions::default()
        };
        assert!(
            is_held(&bench.states.acquire(&bench.stack, options).await),
            "{term:?}"
        );
        assert_eq!(bench.clock.pauses(), pauses);
    }
}

#[tokio::test]
async fn a_silent_holder_is_taken_over_after_the_longer_of_both_terms() {
    for (theirs, ours, pauses) in [(60, 60, 12), (30, 60, 12), (84, 60, 17), (60, 24, 12)] {
        let bench = Bench::new();
        bench.hold(1, 0, seconds(theirs)).await;
        bench.hold(1, 1, seconds(theirs)).await;
        let options = LeaseOptions {
            term: seconds(ours),
            ..LeaseOptions::default()
        };
        let lease = bench.states.acquire(&bench.stack, options).await.unwrap();
        assert_eq!(lease.epoch(), 2);
        assert_eq!(bench.clock.pauses().len(), pauses, "{theirs} {ours}");
    }
}

/// What a watch saw, and what it says and does after so many seconds.
struct Script {
    seen: Mutex<Vec<(u64, u64)>>,
    verdict: WaitVerdict,
    at: u64,
    renewal_at: Option<u64>,
    store: Arc<dyn Store>,
    states: StateStore,
    stops: bool,
}

impl Script {
    fn new(bench: &Bench, verdict: WaitVerdict, at: u64) -> Self {
        Self {
            seen: Mutex::default(),
            verdict,
            at,
            renewal_at: None,
            store: Arc::clone(&bench.store),
            states: bench.other(),
            stops: false,
        }
    }

    async fn acquire(
        self,
        bench: &Bench,
        states: &StateStore,
    ) -> (Result<Lease, StateError>, Vec<(u64, u64)>) {
        let script = Arc::new(self);
        let options = LeaseOptions {
            watch: Some(Arc::clone(&script) as Arc<dyn LeaseWatch>),
            ..LeaseOptions::default()
        };
        let result = states.acquire(&bench.stack, options).await;
        let seen = script.seen.lock().unwrap().clone();
        (result, seen)
    }
}

#[async_trait]
impl LeaseWatch for Script {
    async fn waiting(&self, holder: &Holder, waited: Duration) -> WaitVerdict {
        let looks = {
            let mut seen = self.seen.lock().unwrap();
            seen.push((waited.as_secs(), holder.quiet.as_secs()));
            seen.len()
        };
        if self.renewal_at == Some(waited.as_secs()) {
            hold(&self.store, &self.states, 1, 1, seconds(60)).await;
        }
        if waited.as_secs() >= self.at && (looks > 1 || !self.stops) {
            self.verdict
        } else {
            WaitVerdict::KeepWaiting
        }
    }

    async fn stopped(&self) {
        if !self.stops {
            std::future::pending::<()>().await;
        }
    }
}

#[tokio::test]
async fn a_watch_sees_each_look_and_decides() {
    let bench = Bench::new();
    bench.hold(1, 0, seconds(60)).await;
    let gives_up = Script::new(&bench, WaitVerdict::GiveUp, 10);
    let (result, seen) = gives_up.acquire(&bench, &bench.states).await;
    assert!(is_held(&result));
    assert_eq!(seen, [(0, 0), (5, 5), (10, 10)]);

    let bench = Bench::new();
    bench.hold(1, 0, seconds(60)).await;
    let knows = Script::new(&bench, WaitVerdict::HolderIsOver, 5);
    let (result, seen) = knows.acquire(&bench, &bench.states).await;
    assert_eq!(result.unwrap().epoch(), 2);
    assert_eq!(seen, [(0, 0), (5, 5)]);
    assert_eq!(bench.clock.pauses(), [seconds(5)], "its predecessor is over");
}

#[tokio::test]
async fn a_holder_that_renews_is_silent_from_its_renewal_on() {
    let bench = Bench::new();
    bench.hold(1, 0, seconds(60)).await;
    let script = Script {
        renewal_at: Some(30),
        ..Script::new(&bench, WaitVerdict::KeepWaiting, 0)
    };
    let (result, seen) = script.acquire(&bench, &bench.states).await;
    assert_eq!(result.unwrap().epoch(), 2);
    // It is seen at the look after it.
    assert_eq!(seen[6..9], [(30, 30), (35, 0), (40, 5)]);
    assert_eq!(seen.last(), Some(&(90, 55)));
    assert_eq!(bench.clock.pauses().len(), 19, "and nobody else may be at work");
}

#[tokio::test]
async fn a_run_that_is_asked_to_stop_waits_no_longer() {
    let bench = Bench::new();
    bench.hold(1, 0, seconds(60)).await;
    let script = |verdict| Script {
        stops: true,
        ..Script::new(&bench, verdict, 0)
    };
    // The clock of this run stands still.
    let (result, seen) = script(WaitVerdict::GiveUp).acquire(&bench, &bench.other()).await;
    assert!(is_held(&result));
    assert_eq!(seen, [(0, 0), (0, 0)]);
    bench.other().unlock(&bench.stack, "1-abcd", "why").await.unwrap();
    let (result, _) = script(WaitVerdict::KeepWaiting)
        .acquire(&bench, &bench.other())
        .await;
    assert!(matches!(result, Err(StateError::Stopped(_))));
}

#[tokio::test]
async fn a_lease_is_free_if_its_own_state_document_ended_it() {
    let bench = Bench::new();
    let first = bench.states.acquire(&bench.stack, options(false)).await.unwrap();
    let held = bench.other().acquire(&bench.stack, options(false)).await;
    assert!(is_held(&held), "there is no document yet");
    first
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    let second = bench.states.acquire(&bench.stack, options(false)).await.unwrap();
    let held = bench.other().acquire(&bench.stack, options(false)).await;
    assert!(is_held(&held), "the document is of an earlier lease");
    bench
        .other()
        .unlock(&bench.stack, second.id(), "why")
        .await
        .unwrap();
    let third = bench.states.acquire(&bench.stack, options(false)).await.unwrap();
    assert_eq!(third.prior().unwrap().serial, 2);
    let held = bench.other().acquire(&bench.stack, options(false)).await;
    assert!(is_held(&held), "the document of a takeover ends nothing");
    third.release().await.unwrap();
    bench.other().acquire(&bench.stack, options(false)).await.unwrap();
}

#[tokio::test]
async fn a_lease_that_cannot_be_read_is_taken_over_on_request_alone() {
    let bench = Bench::new();
    let key = keys::lease(&bench.stack, 1, 0);
    bench.store.create(&key, "{".into()).await.unwrap();
    let refused = bench.states.acquire(&bench.stack, options(false)).await;
    assert!(matches!(refused, Err(StateError::Damaged { .. })));
    let over_damaged = LeaseOptions {
        over_damaged: true,
        ..options(false)
    };
    bench.states.acquire(&bench.stack, over_damaged).await.unwrap();
    assert_eq!(bench.clock.pauses(), [seconds(40)]);
}
