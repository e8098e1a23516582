use std::time::Duration;

use jiff::Timestamp;
use konverge_base::model::{RepoPath, rollout::RolloutStack};
use konverge_config::AtOnce;

use super::{
    super::{GateRules, RolloutCommand, command},
    *,
};

fn reading(second: i64) -> ClockReading {
    let at = Timestamp::from_second(1_800_000_000 + second).unwrap();
    ClockReading {
        local: at,
        server: Some(at),
    }
}

fn rules() -> RolloutRules {
    let gate = |name: &str, deadline| GateRules {
        name: name.to_owned(),
        deadline,
    };
    RolloutRules {
        digest: Digest::of_bytes(b"rules"),
        waves: vec![
            WaveRules {
                at_once: Some(AtOnce::Stacks(1)),
                bake: Duration::from_secs(600),
                gates: vec![gate("slo", Some(Duration::from_secs(900))), gate("go", None)],
            },
            WaveRules::default(),
        ],
        rolls_back: false,
    }
}

fn record(phase: RolloutPhase) -> RolloutRecord {
    let stack = || RolloutStack {
        folder: RepoPath::root(),
        input: None,
        before: None,
    };
    let wave = |ids: &[&str]| ids.iter().map(|id| (id.parse().unwrap(), stack())).collect();
    RolloutRecord {
        rollout: "web".to_owned(),
        commit: "a".repeat(40).parse().unwrap(),
        rules: Digest::of_bytes(b"rules"),
        waves: vec![wave(&["a/canary", "b/canary"]), wave(&["a/prod"])],
        wave: 0,
        phase,
        paused: false,
        since: reading(0),
        why: String::new(),
        approved: BTreeMap::new(),
        approvals: BTreeSet::new(),
        planned: BTreeMap::new(),
        begun_waves: 1,
        ready: BTreeSet::new(),
        unready_since: BTreeMap::new(),
        held: BTreeSet::new(),
        measured: BTreeMap::new(),
    }
}

/// What is seen, with everything well.
struct Seen {
    rules: RolloutRules,
    pending: BTreeSet<StackId>,
    failed: BTreeMap<StackId, String>,
    changed: BTreeSet<StackId>,
    planned: Option<BTreeMap<StackId, Digest>>,
    health: BTreeMap<StackId, StackReadiness>,
    gates: BTreeMap<String, GateReading>,
    now: i64,
}

impl Seen {
    fn well() -> Self {
        let ready = |id: &str| (id.parse().unwrap(), StackReadiness::Ready);
        let pass = |name: &str| (name.to_owned(), GateReading::Pass(String::new()));
        Self {
            rules: rules(),
            pending: BTreeSet::new(),
            failed: BTreeMap::new(),
            changed: BTreeSet::new(),
            planned: None,
            health: ["a/canary", "b/canary"].map(ready).into(),
            gates: ["slo", "go"].map(pass).into(),
            now: 0,
        }
    }

    fn step(&self, record: &RolloutRecord) -> RolloutStep {
        let facts = RolloutFacts {
            rules: Some(&self.rules),
            pending: &self.pending,
            failed: &self.failed,
            changed: &self.changed,
            health: Some(&self.health),
            gates: &self.gates,
            planned: self.planned.as_ref(),
            now: reading(self.now),
            watched: None,
        };
        step(record, &facts)
    }
}

fn next(step: RolloutStep) -> (usize, RolloutPhase) {
    match step {
        RolloutStep::Advance(record) => (record.wave, record.phase),
        other => panic!("{other:?}"),
    }
}

fn is_wait(step: &RolloutStep) -> bool {
    matches!(step, RolloutStep::Wait(_))
}

#[test]
fn a_wave_applies_bakes_and_asks_its_gates() {
    let mut seen = Seen::well();
    seen.pending = ["a/canary", "b/canary", "a/prod"]
        .map(|id| id.parse().unwrap())
        .into();
    let apply = |ids: &[&str]| RolloutStep::Apply {
        stacks: ids.iter().map(|id| id.parse().unwrap()).collect(),
        at_once: 1,
    };
    // All that is left, for the order of `after` says which of them are the first.
    let both = apply(&["a/canary", "b/canary"]);
    assert_eq!(seen.step(&record(RolloutPhase::Applying)), both);
    seen.pending.remove(&"a/canary".parse::<StackId>().unwrap());
    assert_eq!(seen.step(&record(RolloutPhase::Applying)), apply(&["b/canary"]));
    seen.pending.remove(&"b/canary".parse::<StackId>().unwrap());
    assert_eq!(
        next(seen.step(&record(RolloutPhase::Applying))),
        (0, RolloutPhase::Baking)
    );
    seen.now = 599;
    assert!(is_wait(&seen.step(&record(RolloutPhase::Baking))));
    seen.now = 600;
    assert_eq!(
        next(seen.step(&record(RolloutPhase::Baking))),
        (0, RolloutPhase::Gate)
    );
    assert_eq!(
        next(seen.step(&record(RolloutPhase::Gate))),
        (1, RolloutPhase::Applying)
    );
    let last = RolloutRecord {
        wave: 1,
        begun_waves: 2,
        ..record(RolloutPhase::Gate)
    };
    seen.health
        .insert("a/prod".parse().unwrap(), StackReadiness::Ready);
    seen.pending.clear();
    assert_eq!(next(seen.step(&last)), (1, RolloutPhase::Done));
}

#[test]
fn nothing_that_is_unknown_passes() {
    let unclear = || GateReading::Unclear("no series".to_owned());
    let unapproved = || GateReading::Unapproved("the team cannot be read".to_owned());
    let cases: [fn(&mut Seen); 6] = [
        |seen| drop(seen.health.remove(&"a/canary".parse::<StackId>().unwrap())),
        |seen| drop(seen.gates.remove("go")),
        |seen| {
            drop(
                seen.gates
                    .insert("slo".to_owned(), GateReading::Unclear("NaN".to_owned())),
            )
        },
        |seen| {
            drop(
                seen.gates
                    .insert("go".to_owned(), GateReading::Unapproved(String::new())),
            )
        },
        |seen| {
            drop(seen.health.insert(
                "b/canary".parse().unwrap(),
                StackReadiness::Unready(String::new()),
            ))
        },
        |seen| seen.gates.clear(),
    ];
    for (number, case) in cases.iter().enumerate() {
        let mut seen = Seen::well();
        case(&mut seen);
        let stays = match seen.step(&record(RolloutPhase::Gate)) {
            RolloutStep::Wait(_) => true,
            // What is ready is written down for other jobs.
            RolloutStep::Advance(after) => {
                let same = RolloutRecord {
                    ready: after.ready.clone(),
                    unready_since: after.unready_since.clone(),
                    ..record(RolloutPhase::Gate)
                };
                *after == same && is_wait(&seen.step(&after))
            }
            _ => false,
        };
        assert!(stays, "{number}");
    }
    // After the deadline it stops; an approval without one waits on.
    let ready = RolloutRecord {
        ready: ["a/canary", "b/canary"].map(|id| id.parse().unwrap()).into(),
        ..record(RolloutPhase::Gate)
    };
    for (gate, reading, stops) in [("slo", unclear(), true), ("go", unapproved(), false)] {
        let mut seen = Seen::well();
        seen.gates.insert(gate.to_owned(), reading);
        seen.now = 901;
        let step = seen.step(&ready);
        assert_eq!(!is_wait(&step), stops, "{gate}: {step:?}");
    }
}

/// A stack may be unready for an hour, from the first look that sees so. How long no run looked does not count.
#[test]
fn a_stack_that_stays_unready_stops_its_wave_an_hour_after_the_first_look() {
    let canary: StackId = "a/canary".parse().unwrap();
    let looked = |now: i64, readiness: StackReadiness, record: &RolloutRecord| {
        let mut seen = Seen::well();
        seen.now = now;
        seen.health.insert(canary.clone(), readiness);
        // The wave waits for a person too, so that a look that sees it ready ends nothing.
        let nobody = GateReading::Unapproved("nobody yet".to_owned());
        seen.gates.insert("go".to_owned(), nobody);
        seen.step(record)
    };
    let unready = || StackReadiness::Unready("progressing".to_owned());
    let written = |step: RolloutStep| match step {
        RolloutStep::Advance(record) => *record,
        other => panic!("{other:?}"),
    };
    for phase in [RolloutPhase::Baking, RolloutPhase::Gate] {
        let late = 50 * 3600;
        let first = written(looked(late, unready(), &record(phase)));
        assert_eq!((first.phase, first.since), (phase, reading(0)));
        assert_eq!(
            first.unready_since,
            BTreeMap::from([(canary.clone(), reading(late))])
        );
        assert!(is_wait(&looked(late + 3600, unready(), &first)), "{phase}");
        assert_eq!(
            next(looked(late + 3601, unready(), &first)),
            (0, RolloutPhase::Stopped),
            "{phase}"
        );
        // It was ready in between: the time begins again.
        let ready = written(looked(late + 1800, StackReadiness::Ready, &first));
        assert_eq!((ready.phase, ready.unready_since.len()), (RolloutPhase::Gate, 0));
        let again = written(looked(late + 3601, unready(), &ready));
        assert_eq!(again.unready_since[&canary], reading(late + 3601), "{phase}");
        // A pause does not count.
        let paused = command(&first, RolloutCommand::Pause, "", reading(late)).unwrap();
        assert!(paused.unready_since.is_empty());
        // A job that does not see the stack neither ends the time nor fails the wave.
        let mut other = Seen::well();
        other.now = late + 9 * 3600;
        other.health.remove(&canary);
        let after = match other.step(&first) {
            RolloutStep::Advance(record) => record.unready_since,
            RolloutStep::Wait(_) => first.unready_since.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(after, first.unready_since, "{phase}");
    }
}

/// What goes wrong in a phase.
type Failure = (RolloutPhase, fn(&mut Seen));

#[test]
fn a_failure_stops_or_rolls_back_and_holds_what_was_brought() {
    let cases: [Failure; 3] = [
        (RolloutPhase::Applying, |seen| {
            drop(seen.failed.insert("a/canary".parse().unwrap(), "no".to_owned()))
        }),
        (RolloutPhase::Baking, |seen| {
            drop(seen.health.insert(
                "a/canary".parse().unwrap(),
                StackReadiness::Failed("crash".to_owned()),
            ))
        }),
        (RolloutPhase::Gate, |seen| {
            drop(
                seen.gates
                    .insert("slo".to_owned(), GateReading::Fail("value = 1".to_owned())),
            )
        }),
    ];
    for (phase, case) in cases {
        for rolls_back in [false, true] {
            let mut seen = Seen::well();
            // So that the health is looked at.
            seen.now = 600;
            seen.rules.rolls_back = rolls_back;
            case(&mut seen);
            let RolloutStep::Advance(after) = seen.step(&record(phase)) else {
                panic!("{phase}")
            };
            let expected = if rolls_back {
                RolloutPhase::RollingBack
            } else {
                RolloutPhase::Stopped
            };
            assert_eq!((after.phase, after.held.len()), (expected, 3), "{phase}");
        }
    }
}

#[test]
fn other_rules_and_a_pause_let_nothing_go() {
    let mut seen = Seen::well();
    seen.pending = BTreeSet::from(["a/canary".parse().unwrap()]);
    let paused = RolloutRecord {
        paused: true,
        ..record(RolloutPhase::Applying)
    };
    assert!(is_wait(&seen.step(&paused)));
    seen.rules.digest = Digest::of_bytes(b"others");
    for phase in [RolloutPhase::Applying, RolloutPhase::Baking, RolloutPhase::Gate] {
        let RolloutStep::Advance(after) = seen.step(&record(phase)) else {
            panic!("{phase}")
        };
        // An edit is not a failure: a person ends it.
        assert_eq!(
            (after.phase, after.held.len()),
            (RolloutPhase::Stopped, 0),
            "{phase}"
        );
    }
}

#[test]
fn a_clock_that_was_set_back_begins_the_bake_again() {
    let mut seen = Seen::well();
    seen.now = -5;
    assert_eq!(
        next(seen.step(&record(RolloutPhase::Baking))),
        (0, RolloutPhase::Baking)
    );
    seen.now = 0;
    let lonely = RolloutRecord {
        since: ClockReading {
            server: None,
            ..reading(-9000)
        },
        ..record(RolloutPhase::Baking)
    };
    assert_eq!(
        next(seen.step(&lonely)),
        (0, RolloutPhase::Baking),
        "one clock is not enough"
    );
}

/// The jobs of two environments: each sees its own stack, and what it saw serves the other.
#[test]
fn jobs_that_see_a_part_of_a_wave_measure_it_together() {
    let only = |id: &str| {
        let mut seen = Seen::well();
        seen.now = 600;
        seen.health.retain(|known, _| known.as_str() == id);
        seen
    };
    let (mut first, mut second) = (only("a/canary"), only("b/canary"));
    let RolloutStep::Advance(noted) = first.step(&record(RolloutPhase::Baking)) else {
        panic!("it writes what it saw")
    };
    assert_eq!((noted.phase, noted.since), (RolloutPhase::Baking, reading(0)));
    assert_eq!(noted.ready, BTreeSet::from(["a/canary".parse().unwrap()]));
    assert!(is_wait(&first.step(&noted)), "it cannot see the other stack");
    // What a job cannot see does not fail, however long it takes.
    first.now = 9 * 3600;
    assert!(is_wait(&first.step(&noted)));
    let RolloutStep::Advance(gate) = second.step(&noted) else {
        panic!("the second one sees the rest")
    };
    assert_eq!((gate.phase, gate.ready.len()), (RolloutPhase::Gate, 2));
    for seen in [&first, &second] {
        assert_eq!(next(seen.step(&gate)), (1, RolloutPhase::Applying));
    }
    // A stack that is not ready any more: its job says so, and the other one waits.
    let unready = StackReadiness::Unready("progressing".to_owned());
    second.health.insert("b/canary".parse().unwrap(), unready);
    let RolloutStep::Advance(lost) = second.step(&gate) else {
        panic!("it takes its word back")
    };
    assert_eq!((lost.phase, lost.ready.len()), (RolloutPhase::Gate, 1));
    first.now = 601;
    assert!(is_wait(&first.step(&lost)));
    let again = RolloutRecord {
        phase: RolloutPhase::Applying,
        ..(*gate).clone()
    };
    let RolloutStep::Advance(baking) = first.step(&again) else {
        panic!("every stack has the commit")
    };
    assert_eq!(baking.ready, BTreeSet::new(), "a new bake begins without them");
}

/// The digests of plans, by stack.
fn plans<const N: usize>(plans: [(&str, &str); N]) -> BTreeMap<StackId, Digest> {
    plans
        .map(|(id, plan)| (id.parse().unwrap(), Digest::of_bytes(plan.as_bytes())))
        .into()
}

/// A record at the gate before a wave of two environments.
fn before_two() -> RolloutRecord {
    let mut record = record(RolloutPhase::Gate);
    let stack = record.waves[1].values().next().unwrap().clone();
    record.waves[1].insert("b/prod".parse().unwrap(), stack);
    record.ready = record.waves[0].keys().cloned().collect();
    record
}

/// A job that makes these plans, and that was given these digests.
fn job<const N: usize>(record: &RolloutRecord, made: [(&str, &str); N], given: &[Digest]) -> RolloutStep {
    let mut seen = Seen::well();
    let own = plans(made);
    let reading = match NextPlans::new(record, Some(&own)).approval(record, "go") {
        None => GateReading::Unclear("a job has not planned yet".to_owned()),
        Some(digest) if given.contains(&digest) => GateReading::Approved(digest),
        Some(digest) => GateReading::Unapproved(digest.to_string()),
    };
    seen.gates.insert("go".to_owned(), reading);
    seen.planned = Some(own);
    seen.step(record)
}

fn noted(step: RolloutStep) -> RolloutRecord {
    match step {
        RolloutStep::Advance(next) => *next,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_approval_is_for_the_plans_of_all_environments() {
    let empty = before_two();
    let half = noted(job(&empty, [("a/prod", "one")], &[]));
    assert_eq!(
        (half.phase, half.since, &half.planned),
        (RolloutPhase::Gate, empty.since, &plans([("a/prod", "one")]))
    );
    let RolloutStep::Wait(RolloutWait { reason, .. }) = job(&half, [("a/prod", "one")], &[]) else {
        panic!()
    };
    assert_eq!(reason, WaitReason::Gate, "nobody can approve yet");
    let whole = noted(job(&half, [("b/prod", "one")], &[]));
    let shown = NextPlans::new(&whole, None).approval(&whole, "go").unwrap();
    assert!(is_wait(&job(&whole, [("b/prod", "one")], &[])));
    // Either job continues with it, and an environment without a stack of the wave too.
    let expected = plans([("a/prod", "one"), ("b/prod", "one")]);
    for step in [
        job(&whole, [("a/prod", "one")], &[shown]),
        job(&whole, [("b/prod", "one")], &[shown]),
        job(&whole, [], &[shown]),
    ] {
        let next = noted(step);
        assert_eq!(
            (next.wave, next.phase, &next.approved),
            (1, RolloutPhase::Applying, &expected)
        );
        assert_eq!((next.approvals, next.planned.len()), (BTreeSet::from([shown]), 0));
    }
    // A plan has changed since: the record has the new one, and the digest stands for nothing.
    let changed = noted(job(&whole, [("b/prod", "two")], &[shown]));
    assert_eq!((changed.wave, changed.phase), (0, RolloutPhase::Gate));
    assert_eq!(changed.planned, plans([("a/prod", "one"), ("b/prod", "two")]));
    // Nobody has approved anything yet.
    assert_eq!(
        changed.why,
        "the plan of b/prod has changed: an approval of the earlier plans does not count"
    );
    for step in [
        job(&changed, [("a/prod", "one")], &[shown]),
        job(&changed, [("b/prod", "two")], &[shown]),
        job(&changed, [], &[shown]),
    ] {
        assert!(is_wait(&step), "{step:?}");
    }
    // A stack that is not of the next wave counts for nothing.
    let other = job(&changed, [("b/prod", "two"), ("c/prod", "x")], &[]);
    assert!(is_wait(&other), "{other:?}");
    // A reading that is for other plans than those that the step sees does not pass.
    let mut seen = Seen::well();
    seen.gates.insert("go".to_owned(), GateReading::Approved(shown));
    assert!(is_wait(&seen.step(&changed)));
    assert!(is_wait(&seen.step(&half)));
}

#[test]
fn a_plan_that_is_not_the_approved_one_brings_the_rollout_back_to_its_gate() {
    let mut seen = Seen::well();
    seen.rules.rolls_back = true;
    seen.pending = BTreeSet::from(["b/prod".parse().unwrap()]);
    seen.changed.clone_from(&seen.pending);
    let applying = RolloutRecord {
        wave: 1,
        begun_waves: 2,
        phase: RolloutPhase::Applying,
        approved: plans([("a/canary", "one"), ("a/prod", "one"), ("b/prod", "one")]),
        approvals: BTreeSet::from([Digest::of_bytes(b"given")]),
        ..before_two()
    };
    let back = noted(seen.step(&applying));
    // Nothing failed, and what an earlier gate approved stays approved.
    assert_eq!(
        (back.wave, back.phase, back.begun_waves, back.held.len()),
        (0, RolloutPhase::Gate, 2, 0)
    );
    assert_eq!(back.approved, plans([("a/canary", "one")]));
    assert_eq!((back.planned.len(), back.ready.len()), (0, 0));
    assert!(back.why.contains("b/prod has changed"), "{}", back.why);
    // If it fails here, both waves get what they had; if another rollout begins, it begins with both.
    seen.gates
        .insert("slo".to_owned(), GateReading::Fail("value = 1".to_owned()));
    let failed = noted(seen.step(&back));
    assert_eq!(failed.phase, RolloutPhase::RollingBack);
    assert_eq!(
        seen.step(&failed),
        RolloutStep::RollBack(BTreeSet::from(["b/prod".parse().unwrap()]))
    );
    let before = RolloutRecord {
        begun_waves: 1,
        ..failed
    };
    assert_eq!(next(seen.step(&before)), (0, RolloutPhase::Stopped));
}

/// Waves that have begun are not forgotten, however far the rollout goes back.
#[test]
fn a_wave_that_has_begun_belongs_to_the_rollout_until_it_ends() {
    let mut seen = Seen::well();
    let (middle, last) = (seen.rules.waves[0].clone(), seen.rules.waves[1].clone());
    seen.rules.waves = vec![middle.clone(), middle, last];
    seen.rules.rolls_back = true;
    let mut third = record(RolloutPhase::Applying);
    let stack = third.waves[1].values().next().unwrap().clone();
    third.waves.push(
        ["a/last", "b/last"]
            .map(|id| (id.parse().unwrap(), stack.clone()))
            .into(),
    );
    (third.wave, third.begun_waves) = (2, 3);
    third.approved = plans([("a/prod", "one"), ("a/last", "one"), ("b/last", "one")]);
    // `a/last` has the commit already, and the plan of `b/last` changes.
    seen.pending = BTreeSet::from(["b/last".parse().unwrap()]);
    seen.changed.clone_from(&seen.pending);
    let second = noted(seen.step(&third));
    assert_eq!((second.wave, second.begun_waves), (1, 3));
    // The wave before loses the commit, and its plan changes too.
    seen.pending.insert("a/prod".parse().unwrap());
    let again = noted(seen.step(&second));
    assert_eq!((again.wave, again.phase), (1, RolloutPhase::Applying));
    seen.changed.insert("a/prod".parse().unwrap());
    let first = noted(seen.step(&again));
    // Or it fails there, and somebody resumes it.
    let stopped = RolloutRecord {
        phase: RolloutPhase::Stopped,
        ..second
    };
    let resumed = command(&stopped, RolloutCommand::Resume, "", reading(0)).unwrap();
    seen.pending.clear();
    seen.changed.clear();
    for back in [first, resumed] {
        assert_eq!(
            (back.wave, back.phase, back.begun_waves),
            (0, RolloutPhase::Gate, 3)
        );
        let onward = noted(seen.step(&RolloutRecord {
            ready: back.waves[0].keys().cloned().collect(),
            ..back
        }));
        assert_eq!((onward.wave, onward.begun_waves), (1, 3));
        let mut failing = Seen::well();
        failing.rules = seen.rules.clone();
        failing.failed.insert("a/prod".parse().unwrap(), "no".to_owned());
        failing.pending = BTreeSet::from(["a/last".parse().unwrap()]);
        let failed = noted(failing.step(&onward));
        assert_eq!(failed.phase, RolloutPhase::RollingBack);
        failing.failed.clear();
        assert_eq!(
            failing.step(&failed),
            RolloutStep::RollBack(BTreeSet::from(["a/last".parse().unwrap()]))
        );
    }
}
