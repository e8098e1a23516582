//! Decides if a rollout should have advanced long ago. The run that should advance it may never be triggered and so
//! cannot report that; therefore every other run checks.

use std::time::Duration;

use jiff::Timestamp;
use konverge_base::model::rollout::{RolloutPhase, RolloutRecord};

use super::rules::RolloutRules;

/// The time after the end of a bake or of a deadline at which a rollout becomes overdue.
const GRACE: Duration = Duration::from_secs(3600);

/// Returns the time at which the bake of the current wave ends, by the clock of the machine that wrote the record;
/// `None` if the rollout does not bake.
pub fn bakes_until(record: &RolloutRecord, rules: &RolloutRules) -> Option<Timestamp> {
    let wave = rules.waves.get(record.wave)?;
    let bakes = record.phase == RolloutPhase::Baking && !record.paused && rules.digest == record.rules;
    bakes.then(|| record.since.local.checked_add(wave.bake).ok())?
}

/// Returns the time from which a rollout is overdue, by the clock of the machine that wrote the record; `None` if it
/// has ended or waits for a person.
pub fn overdue_from(record: &RolloutRecord, rules: &RolloutRules) -> Option<Timestamp> {
    let wave = rules.waves.get(record.wave)?;
    let takes = match record.phase {
        _ if record.paused => return None,
        RolloutPhase::Done | RolloutPhase::Aborted | RolloutPhase::Stopped => return None,
        RolloutPhase::Applying | RolloutPhase::RollingBack => Duration::ZERO,
        RolloutPhase::Baking => wave.bake,
        RolloutPhase::Gate => {
            let deadlines = wave.gates.iter().map(|gate| gate.deadline);
            let deadlines: Option<Vec<_>> = deadlines.collect();
            deadlines?.into_iter().max().unwrap_or_default()
        }
    };
    record.since.local.checked_add(takes + GRACE).ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use konverge_base::model::{Digest, rollout::ClockReading};

    use super::{
        super::{GateRules, WaveRules},
        *,
    };

    fn hours(phase: RolloutPhase, deadlines: &[Option<u64>]) -> Option<i64> {
        let gate = |deadline: &Option<u64>| GateRules {
            name: "slo".to_owned(),
            deadline: deadline.map(|hours| Duration::from_secs(hours * 3600)),
        };
        let rules = RolloutRules {
            digest: Digest::of_bytes(b"rules"),
            waves: vec![WaveRules {
                at_once: None,
                bake: Duration::from_secs(2 * 3600),
                gates: deadlines.iter().map(gate).collect(),
            }],
            rolls_back: false,
        };
        let since = ClockReading {
            local: Timestamp::UNIX_EPOCH,
            server: None,
        };
        let commit = "a".repeat(40).parse().unwrap();
        let record = RolloutRecord {
            phase,
            ..RolloutRecord::at_start("web", commit, rules.digest, vec![BTreeMap::new()], since)
        };
        let paused = RolloutRecord {
            paused: true,
            ..record.clone()
        };
        assert_eq!(overdue_from(&paused, &rules), None);
        overdue_from(&record, &rules).map(|at| at.as_second() / 3600)
    }

    #[test]
    fn only_what_waits_for_no_person_is_overdue() {
        assert_eq!(hours(RolloutPhase::Applying, &[]), Some(1));
        assert_eq!(hours(RolloutPhase::RollingBack, &[]), Some(1));
        assert_eq!(hours(RolloutPhase::Baking, &[]), Some(3));
        assert_eq!(hours(RolloutPhase::Gate, &[]), Some(1));
        assert_eq!(hours(RolloutPhase::Gate, &[Some(1), Some(4)]), Some(5));
        assert_eq!(
            hours(RolloutPhase::Gate, &[Some(1), None]),
            None,
            "an approval takes as long as it takes"
        );
        for phase in [RolloutPhase::Stopped, RolloutPhase::Done, RolloutPhase::Aborted] {
            assert_eq!(hours(phase, &[]), None, "{phase}");
        }
    }
}
