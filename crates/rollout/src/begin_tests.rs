use jiff::Timestamp;
use konverge_base::model::RepoPath;

use super::{
    super::{RolloutCommand, RolloutCommandError, WaveRules, command},
    *,
};
use konverge_base::model::Digest;

fn now() -> ClockReading {
    ClockReading {
        local: Timestamp::UNIX_EPOCH,
        server: None,
    }
}

fn stack(content: &str) -> RolloutStack {
    RolloutStack {
        folder: RepoPath::root(),
        input: Some(Digest::of_bytes(content.as_bytes())),
        before: None,
    }
}

fn changed(stacks: &[(&str, usize, &str)]) -> BTreeMap<StackId, ChangedStack> {
    let one = |(id, wave, content): &(&str, usize, &str)| {
        let changed = ChangedStack {
            wave: *wave,
            stack: stack(content),
        };
        (id.parse().unwrap(), changed)
    };
    stacks.iter().map(one).collect()
}

fn started(stacks: &[(&str, usize, &str)], prior: Option<&RolloutRecord>) -> Option<RolloutRecord> {
    started_at('a', stacks, prior)
}

/// Begins a rollout with the commit that has this letter.
fn started_at(
    letter: char,
    stacks: &[(&str, usize, &str)],
    prior: Option<&RolloutRecord>,
) -> Option<RolloutRecord> {
    let rules = RolloutRules {
        digest: Digest::of_bytes(b"rules"),
        waves: vec![WaveRules::default(); 2],
        rolls_back: false,
    };
    let wave_of = |id: &StackId, _: &RolloutStack| Some(usize::from(!id.as_str().ends_with("canary")));
    let commit = letter.to_string().repeat(40).parse().unwrap();
    let start = RolloutStart {
        name: "web",
        commit: &commit,
        rules: &rules,
        changed: &changed(stacks),
        prior,
        now: now(),
    };
    begin(&start, wave_of)
}

fn in_phase(record: &RolloutRecord, phase: RolloutPhase) -> RolloutRecord {
    RolloutRecord {
        phase,
        ..record.clone()
    }
}

#[test]
fn a_rollout_begins_with_what_an_unfinished_one_has_begun() {
    let first = started(&[("a/canary", 0, "one"), ("a/prod", 1, "one")], None).unwrap();
    for phase in [
        RolloutPhase::Applying,
        RolloutPhase::Baking,
        RolloutPhase::Gate,
        RolloutPhase::RollingBack,
    ] {
        let running = in_phase(&first, phase);
        assert_eq!(started(&[("a/prod", 1, "two")], Some(&running)), None, "{phase}");
    }
    let waves = |record: &RolloutRecord| record.waves.iter().map(BTreeMap::len).collect::<Vec<_>>();
    let aborted = in_phase(&first, RolloutPhase::Aborted);
    let next = started(&[("a/prod", 1, "one")], Some(&aborted)).unwrap();
    assert_eq!(
        (waves(&next), next.wave),
        (vec![1, 1], 0),
        "the canary bakes again"
    );
    let done = in_phase(&first, RolloutPhase::Done);
    let next = started(&[("a/prod", 1, "two")], Some(&done)).unwrap();
    assert_eq!(waves(&next), [0, 1]);
    assert_eq!(started(&[], None), None);
}

#[test]
fn what_failed_is_held_until_something_newer_comes_or_somebody_resumes() {
    let stacks = [("a/canary", 0, "one"), ("a/prod", 1, "one")];
    let first = started(&stacks, None).unwrap();
    let failed = RolloutRecord {
        held: first.contents().collect(),
        ..in_phase(&first, RolloutPhase::Stopped)
    };
    assert_eq!(started(&stacks, Some(&failed)), None);
    assert_eq!(started(&stacks[1..], Some(&failed)), None);
    let newer = started(&[("a/canary", 0, "one"), ("a/prod", 1, "two")], Some(&failed)).unwrap();
    // It fails too, and is aborted: what failed before is still held.
    let aborted = in_phase(&newer, RolloutPhase::Aborted);
    assert_eq!(started(&stacks, Some(&aborted)), None);
    let resumed = command(&failed, RolloutCommand::Resume, "fixed", now()).unwrap();
    assert_eq!((resumed.phase, resumed.held.len()), (RolloutPhase::Applying, 0));
    let lifted = command(&aborted, RolloutCommand::Resume, "fixed", now()).unwrap();
    assert!(started(&stacks, Some(&lifted)).is_some());
    // One that stopped without a failure waits for a person.
    let edited = in_phase(&first, RolloutPhase::Stopped);
    assert_eq!(started(&[("a/prod", 1, "two")], Some(&edited)), None);
}

/// The ids of the stacks of each wave.
fn ids(record: &RolloutRecord) -> Vec<String> {
    let wave = |wave: &BTreeMap<StackId, RolloutStack>| {
        let ids: Vec<_> = wave.keys().map(StackId::as_str).collect();
        ids.join(" ")
    };
    record.waves.iter().map(wave).collect()
}

/// A record of a rollout that failed, with what failed before it.
fn failed(record: &RolloutRecord) -> RolloutRecord {
    RolloutRecord {
        held: record.held.iter().cloned().chain(record.contents()).collect(),
        ..in_phase(record, RolloutPhase::Stopped)
    }
}

#[test]
fn a_push_to_other_stacks_of_the_rollout_does_not_lift_what_failed() {
    let both = [("a/canary", 0, "one"), ("a/prod", 1, "one")];
    let first = failed(&started(&both, None).unwrap());
    let with_b = [both[0], both[1], ("b/canary", 0, "new")];
    let other = started_at('b', &with_b, Some(&first)).unwrap();
    assert_eq!(ids(&other), ["b/canary", ""]);
    // Whether it ends well or fails: what failed is held still.
    let done = RolloutRecord {
        held: other.held_without_own(),
        ..in_phase(&other, RolloutPhase::Done)
    };
    let inputs = |stacks: &[(&str, usize, &str)]| {
        let changed = changed(stacks).into_iter();
        changed.map(|(id, changed)| (id, changed.stack.input)).collect()
    };
    assert_eq!(held_stacks(Some(&done), &inputs(&with_b)).len(), 2);
    assert_eq!(started_at('b', &both, Some(&done)), None);
    let other = failed(&other);
    assert_eq!(started_at('b', &with_b, Some(&other)), None);
    // Each of the two is lifted by its own newer change alone, with all that failed beside it.
    let fixed = [both[0], both[1], ("b/canary", 0, "newer")];
    let next = started_at('c', &fixed, Some(&other)).unwrap();
    assert_eq!(ids(&next), ["b/canary", ""]);
    let fixed = [both[0], ("a/prod", 1, "two"), ("b/canary", 0, "new")];
    let next = started_at('c', &fixed, Some(&other)).unwrap();
    assert_eq!(ids(&next), ["a/canary", "a/prod"]);
}

#[test]
fn a_command_that_makes_no_sense_is_refused() {
    use RolloutCommand::{Abort, Pause, Resume};
    let first = started(&[("a/canary", 0, "one")], None).unwrap();
    let paused = command(&first, Pause, "why", now()).unwrap();
    assert!(paused.paused && paused.why == "why");
    assert!(!command(&paused, Resume, "", now()).unwrap().paused);
    for (record, wanted, error) in [
        (&first, Resume, RolloutCommandError::Running),
        (&paused, Pause, RolloutCommandError::Paused),
        (
            &in_phase(&first, RolloutPhase::Done),
            Abort,
            RolloutCommandError::Over,
        ),
        (
            &in_phase(&first, RolloutPhase::Aborted),
            Resume,
            RolloutCommandError::Over,
        ),
        (
            &in_phase(&first, RolloutPhase::RollingBack),
            Abort,
            RolloutCommandError::RollingBack,
        ),
    ] {
        assert_eq!(command(record, wanted, "", now()), Err(error), "{wanted:?}");
    }
    // Plans that were approved must be approved again.
    let both = started(&[("a/canary", 0, "one"), ("a/prod", 1, "one")], None).unwrap();
    let approved = RolloutRecord {
        wave: 1,
        begun_waves: 2,
        approved: BTreeMap::from([("a/prod".parse().unwrap(), Digest::of_bytes(b"plan"))]),
        ..in_phase(&both, RolloutPhase::Stopped)
    };
    let again = command(&approved, Resume, "", now()).unwrap();
    assert_eq!(
        (again.wave, again.phase, again.approved.len(), again.begun_waves),
        (0, RolloutPhase::Gate, 0, 2)
    );
    // What the next wave has got belongs to the rollout that follows.
    let aborted = command(&again, Abort, "", now()).unwrap();
    let next = started(&[("a/canary", 0, "two")], Some(&aborted)).unwrap();
    assert!(next.waves[1].contains_key(&"a/prod".parse::<StackId>().unwrap()));
    let untouched = RolloutRecord {
        begun_waves: 1,
        ..aborted
    };
    let next = started(&[("a/canary", 0, "two")], Some(&untouched)).unwrap();
    assert_eq!(next.waves[1].len(), 0);
}
