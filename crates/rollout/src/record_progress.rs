//! The progress of a record, beside `konverge.yaml` as it is now.

use std::collections::BTreeMap;

use jiff::Timestamp;
use konverge_base::model::{
    Digest,
    rollout::{RolloutPhase, RolloutRecord},
};
use konverge_config::{Config, RolloutConfig};

use super::{
    next_plans::NextPlans,
    overdue::{bakes_until, overdue_from},
    rules::RolloutRules,
};

fn configured<'a>(config: &'a Config, record: &RolloutRecord) -> Option<&'a RolloutConfig> {
    let mut rollouts = config.rollouts.iter();
    rollouts.find(|rollout| rollout.name == record.rollout)
}

/// Returns the end of the bake time of the current wave.
pub fn bake_end(config: &Config, record: &RolloutRecord) -> Option<Timestamp> {
    let rollout = configured(config, record)?;
    bakes_until(record, &RolloutRules::from_config(rollout, &config.gates))
}

/// Returns the gates that wait for people, each with the digest to approve; `None` if a plan is missing.
pub fn asking_gates(config: &Config, record: &RolloutRecord) -> BTreeMap<String, Option<Digest>> {
    let wave = configured(config, record).and_then(|rollout| rollout.waves.get(record.wave));
    let gates = wave
        .filter(|_| record.phase == RolloutPhase::Gate)
        .map(|wave| &wave.gates);
    let asks_people = |name: &&String| config.gates.get(*name).is_some_and(|gate| gate.approve.is_some());
    let plans = NextPlans::new(record, None);
    let gates = gates.into_iter().flatten().filter(asks_people);
    gates
        .map(|gate| (gate.clone(), plans.approval(record, gate)))
        .collect()
}

/// Returns the line about a rollout if its next step is overdue.
pub fn overdue_warning(config: &Config, record: &RolloutRecord) -> Option<String> {
    let rollout = configured(config, record)?;
    let from = overdue_from(record, &RolloutRules::from_config(rollout, &config.gates))?;
    (Timestamp::now() > from).then(|| {
        format!(
            "the rollout `{}` is overdue: {} is {} since {:.0}, and no run has moved it on since; start the workflow by `repository_dispatch` of the type `konverge-continue`",
            record.rollout,
            record.wave_title(),
            record.phase,
            record.since.local
        )
    })
}
