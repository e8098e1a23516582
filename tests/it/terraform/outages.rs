//! The store is away while Terraform works, and the run is killed: nothing that was made is forgotten, and nothing is
//! made twice in silence.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use konverge_base::{error::ErrorKind, model::spec::Resource};
use konverge_engine::runtime::Runtime;
use konverge_state::Sealer;
use konverge_terraform::STATE;
use nix::sys::signal::Signal;
use serde_json::json;

use super::{
    cli_fixture::{self, Place},
    runtime_fixture::{Rig, Sink, StateSeal},
};
use crate::support::{closable_proxy::Gate, faulty_store::Random, process::Outcome, s3::S3};

const NAMES: [&str; 5] = ["one", "two", "three", "four", "five"];

/// Five objects, each after the one before.
fn chain(rig: &Rig) -> Vec<Resource> {
    let mut wanted: Vec<Resource> = Vec::new();
    for name in NAMES {
        let mut object = rig.trace(name, json!({}));
        object.depends_on = wanted
            .last()
            .map(|before| before.id.clone())
            .into_iter()
            .collect();
        wanted.push(object);
    }
    wanted
}

/// Applies the chain while the store goes away as the second object is being made; it comes back when it was asked in
/// vain so many times.
async fn while_away(rig: &mut Rig, kind: ErrorKind, back_after: usize) -> Sink {
    std::fs::write(rig.path("two.hold"), "").unwrap();
    let planned = rig.plan(&chain(rig)).await.remove(0);
    let sink = Sink::default();
    let apply = rig.runtime.apply(&rig.scope, planned, &sink);
    let others = async {
        sink.until("the second object is made", |_| {
            rig.calls().contains(&"create two".to_owned())
        })
        .await;
        *sink.away.lock().unwrap() = Some(kind);
        // Terraform is asked to stop before the second one has ended.
        sink.until("the store was asked in vain", |sink| {
            sink.tries.load(Ordering::Relaxed) > 0
        })
        .await;
        std::fs::remove_file(rig.path("two.hold")).unwrap();
        sink.until("the store was asked in vain", |sink| {
            sink.tries.load(Ordering::Relaxed) >= back_after
        })
        .await;
        if kind == ErrorKind::Store {
            *sink.away.lock().unwrap() = None;
        }
    };
    let (result, ()) = tokio::join!(apply, others);
    assert_eq!(result.unwrap_err().kind, kind);
    rig.remember(&sink);
    sink
}

pub async fn a_store_that_comes_back(binary: PathBuf) {
    let key = Sealer::generate();
    let mut rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
    });
    let sink = while_away(&mut rig, ErrorKind::Store, 3).await;
    let made: Vec<_> = rig.calls();
    assert!(made.len() >= 2, "{made:?}");
    let book = key.open_value(&rig.scope.data[STATE]).unwrap();
    for (name, call) in NAMES.iter().zip(&made) {
        assert_eq!(*call, format!("create {name}"));
        assert!(sink.end_of(name).unwrap().is_ok(), "{name}");
        assert!(
            book["resources"][Place::trace_id(name)].is_object(),
            "{name}: {book}"
        );
    }
    assert_eq!(book.get("in_flight"), None, "what was not begun was not made");
    rig.apply(&chain(&rig)).await;
    assert_eq!(
        rig.calls(),
        NAMES.map(|name| format!("create {name}")),
        "each once"
    );
}

pub async fn what_can_not_be_stored_is_named(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let sink = while_away(&mut rig, ErrorKind::State, 1).await;
    let two = sink.end_of("two").unwrap().unwrap_err();
    let folder = rig.outside.path().display().to_string();
    assert!(
        two.message.contains(&format!("with the id `{folder}/two."))
            && two.message.contains("could not be stored: the store is away"),
        "{two}"
    );
}

/// Every line of a run's output.
fn lines(outcome: &Outcome) -> Vec<String> {
    let all = [&outcome.stdout, &outcome.stderr];
    all.into_iter()
        .flat_map(|text| text.lines())
        .map(str::to_owned)
        .collect()
}

fn says_may_exist(outcome: &Outcome, name: &str) -> bool {
    let title = format!("trace trace_object {name}: note: ");
    lines(outcome)
        .iter()
        .any(|line| line.contains(&title) && line.contains("may exist"))
}

async fn until_called(place: &Place, call: &str) {
    let started = Instant::now();
    while !place.calls().contains(&call.to_owned()) {
        assert!(started.elapsed() < Duration::from_secs(60), "never: {call}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn a_kill_before_terraform_said_anything(binary: PathBuf) {
    let place = Place::new(&binary);
    place.want(&[
        place.trace("one", json!({}), &[]),
        place.trace("two", json!({}), &["one"]),
    ]);
    std::fs::write(place.path("one.hold"), "").unwrap();
    let run = place.run("apply").arg("--yes").start();
    until_called(&place, "create one").await;
    run.signal(Signal::SIGKILL);
    assert_eq!(run.wait().code, None);
    cli_fixture::end_left_over(place.temporary.path());
    let book = place.book().await;
    for name in ["one", "two"] {
        assert_eq!(
            book["in_flight"][Place::trace_id(name)]["action"],
            "create",
            "{book}"
        );
    }
    std::fs::remove_file(place.path("one.hold")).unwrap();
    let outcome = place.run("apply").arg("--yes").run().expect(0);
    for name in ["one", "two"] {
        assert!(says_may_exist(&outcome, name), "{name}: {:?}", lines(&outcome));
    }
    assert_eq!(place.book().await.get("in_flight"), None);
    assert_eq!(place.preview()["summary"]["unchanged"], 2);
}

/// What happens to a run in the middle of its apply.
#[derive(Debug, Clone, Copy)]
struct Fault {
    /// After the first object was made, or after the start of the process.
    after_first: bool,
    wait: Duration,
    /// The store is away for so long.
    away: Option<Duration>,
    /// The run is killed after so much more.
    killed: Option<Duration>,
}

impl Fault {
    fn random(random: &Random) -> Self {
        let after_first = !random.permille(250);
        let kind = random.below(4);
        Self {
            after_first,
            wait: random.millis(if after_first { 1200 } else { 2500 }),
            away: (kind != 0).then(|| Duration::from_secs(1) + random.millis(7000)),
            killed: (kind < 2).then(|| random.millis(3000)),
        }
    }
}

impl Fault {
    /// A kill in the first moments of the work, before Terraform's first report is stored.
    fn early(random: &Random) -> Self {
        Self {
            after_first: true,
            wait: random.millis(60),
            away: None,
            killed: Some(random.millis(60)),
        }
    }
}

/// Histories that begin with an early kill.
const EARLY: [u64; 2] = [1, 2];

/// Seeds that found something once are kept here.
const SEEDS: [u64; 6] = [1, 2, 3, 5, 20_260_101, 20_261_122];

pub async fn kills_and_outages_at_random_moments(binary: PathBuf) {
    let seeds = match std::env::var("KONVERGE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => SEEDS.to_vec(),
    };
    for seed in seeds {
        println!("KONVERGE_SEED={seed}");
        one_history(&binary, seed, Fault::random).await;
    }
    for seed in EARLY {
        one_history(&binary, seed, Fault::early).await;
    }
}

async fn one_history(binary: &std::path::Path, seed: u64, fault: fn(&Random) -> Fault) {
    let random = Random::new(seed);
    let gate = Gate::before(S3::shared().endpoint()).await;
    let place = Place::behind(binary, S3::shared(), &gate, "6s");
    std::fs::write(place.path("slow"), "150").unwrap();
    // Each waits for the one before, or for none.
    let mut wanted = vec![place.trace(NAMES[0], json!({}), &[])];
    for pair in NAMES.windows(2) {
        let after: &[&str] = if random.permille(600) { &pair[..1] } else { &[] };
        wanted.push(place.trace(pair[1], json!({}), after));
    }
    place.want(&wanted);
    let fault = fault(&random);
    println!("{fault:?}");
    let run = place.run("apply").arg("--yes").start();
    let started = Instant::now();
    while fault.after_first && place.calls().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing is made");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    tokio::time::sleep(fault.wait).await;
    if fault.away.is_some() {
        gate.shut();
    }
    if let Some(wait) = fault.killed {
        tokio::time::sleep(wait).await;
        run.signal(Signal::SIGKILL);
    }
    let back = async {
        tokio::time::sleep(fault.away.unwrap_or_default()).await;
        gate.open();
    };
    let ended = tokio::task::spawn_blocking(move || run.wait());
    let (ended, ()) = tokio::join!(ended, back);
    println!("{:?}", lines(&ended.unwrap()));
    if fault.killed.is_some() {
        cli_fixture::end_left_over(place.temporary.path());
    }
    let preview = place.preview();
    let said = |name: &str| {
        let mut resources = preview["resources"].as_array().into_iter().flatten();
        resources.any(|resource| {
            resource["id"] == Place::trace_id(name) && resource["notes"].to_string().contains("may exist")
        })
    };
    let before = place.calls();
    let outcome = place.run("apply").arg("--yes").run().expect(0);
    let after = place.calls();
    for name in NAMES {
        let create = format!("create {name}");
        let made_before = before.contains(&create);
        let made = after.iter().filter(|call| **call == create).count();
        let twice = made_before && made > 1;
        assert!(made >= 1, "{name} was never made");
        assert!(
            !twice || (fault.killed.is_some() && said(name) && says_may_exist(&outcome, name)),
            "{name} was made twice, and nothing was said: {:?}",
            lines(&outcome)
        );
    }
    assert_eq!(place.preview()["summary"]["unchanged"], NAMES.len());
    let mut left = super::runtime_fixture::walk_all(&place.home.path().join("state"));
    // A preview makes the key of its markers.
    left.retain(|file| !file.ends_with("konverge/hash-key"));
    assert!(left.is_empty(), "the store has everything: {left:?}");
}

/// A whole run whose lease is lost in an outage: what it made is in a file, which the next run takes up.
pub async fn an_outage_that_outlives_the_lease(binary: PathBuf) {
    let gate = Gate::before(S3::shared().endpoint()).await;
    let place = Place::behind(&binary, S3::shared(), &gate, "6s");
    place.want(&[
        place.trace("one", json!({}), &[]),
        place.trace("two", json!({}), &["one"]),
    ]);
    std::fs::write(place.path("one.hold"), "").unwrap();
    let run = place.run("apply").arg("--yes").start();
    until_called(&place, "create one").await;
    gate.shut();
    std::fs::remove_file(place.path("one.hold")).unwrap();
    let outcome = tokio::task::spawn_blocking(move || run.wait())
        .await
        .unwrap()
        .expect(1);
    gate.open();
    let made = place.path("one.").display().to_string();
    let named = lines(&outcome).into_iter().find(|line| line.contains(&made));
    assert!(
        named.is_some_and(|line| line.contains("could not be stored")),
        "{:?}",
        lines(&outcome)
    );
    let rescue = super::runtime_fixture::walk_all(&place.home.path().join("state"));
    assert_eq!(rescue.len(), 1, "{rescue:?}");
    assert!(
        lines(&outcome)
            .iter()
            .any(|line| line.contains(&rescue[0].display().to_string())),
        "{:?}",
        lines(&outcome)
    );
    let kept = std::fs::read_to_string(&rescue[0]).unwrap();
    assert!(
        kept.contains("$age") && !kept.contains(&made),
        "it is sealed: {kept}"
    );

    let outcome = place.run("apply").arg("--yes").run().expect(0);
    assert!(
        lines(&outcome).iter().any(|line| line.contains("loaded data of")),
        "{:?}",
        lines(&outcome)
    );
    assert_eq!(place.calls(), ["create one", "create two"]);
    assert!(!rescue[0].exists());
    let actions = place.preview()["summary"].clone();
    assert_eq!(actions["unchanged"], 2, "{actions}");
}
