//! The progress of rollouts, from their newest records and `konverge.yaml`, for the portal and for `konverge rollout`.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::seen::writer;
use crate::{StateBackend, overdue_rollouts::overdue};
use konverge_base::{
    error::UserError,
    model::{
        Digest,
        rollout::{RolloutPhase, RolloutRecord},
    },
};
use konverge_config::{Config, GateConfig, WaveConfig};
use konverge_policy::rollout::{NextPlans, RolloutRules, bakes_until};
use konverge_portal::{BegunRollout, RolloutProgress, RolloutView, RolloutsDocument, WaveStanding, WaveView};
use konverge_state::StoredRollout;

/// Reads all rollouts: those in `konverge.yaml`, and those that have a record.
///
/// # Errors
/// Errors of the store.
pub async fn read_rollouts(backend: &StateBackend, config: &Config) -> Result<RolloutsDocument, UserError> {
    let stored = backend.states.rollouts().await?;
    let configured = config.rollouts.iter().map(|rollout| &rollout.name);
    let names: BTreeSet<_> = configured.chain(stored.keys()).collect();
    let rollouts = names
        .into_iter()
        .map(|name| rollout_view(backend, config, name, stored.get(name)));
    Ok(RolloutsDocument {
        version: 1,
        rollouts: rollouts.collect(),
        notices: Vec::new(),
    })
}

/// Returns the view of one rollout. `stored` is its newest record; `None` if it was never begun.
pub fn rollout_view(
    backend: &StateBackend,
    config: &Config,
    name: &str,
    stored: Option<&StoredRollout>,
) -> RolloutView {
    let begun = |stored| RolloutProgress::Begun(Box::new(begun(backend, config, stored)));
    RolloutView {
        rollout: name.to_owned(),
        configured: config.rollouts.iter().any(|rollout| rollout.name == name),
        progress: stored.map_or_else(RolloutProgress::never_begun, begun),
    }
}

fn begun(backend: &StateBackend, config: &Config, stored: &StoredRollout) -> BegunRollout {
    let record = &stored.record;
    let approve = asking_gates(config, record);
    let approvers = approve.keys().filter_map(|gate| {
        let approval = config.gates.get(gate)?.approve.as_ref()?;
        Some((gate.clone(), approval.by.clone()))
    });
    let mask = |text: &String| backend.secrets.mask(text);
    let measured = record.measured.iter();
    BegunRollout {
        phase: record.phase,
        paused: record.paused,
        commit: record.commit.clone(),
        wave: record.wave + 1,
        waves: waves(config, record),
        since: record.since.local,
        until: bake_end(config, record),
        why: mask(&record.why),
        overdue: overdue(config, stored).is_some(),
        gates: measured.map(|(gate, said)| (gate.clone(), mask(said))).collect(),
        approvers: approvers.collect(),
        unplanned: if approve.is_empty() {
            BTreeSet::new()
        } else {
            NextPlans::new(record, None).missing
        },
        approve,
        held: record.held.iter().map(|held| held.stack.clone()).collect(),
        number: stored.number,
        writer: writer(stored.writer.clone()),
        folders: record
            .stacks()
            .map(|(_, id, stack)| (id.clone(), stack.folder.clone()))
            .collect(),
    }
}

/// Returns the gates that wait for people, each with the digest to approve; `None` if a plan is missing.
pub fn asking_gates(config: &Config, record: &RolloutRecord) -> BTreeMap<String, Option<Digest>> {
    let wave = configured_wave(config, record, record.wave);
    let gates = wave
        .filter(|_| record.phase == RolloutPhase::Gate)
        .map(|wave| &wave.gates);
    let asks_people = |gate: &&String| {
        config
            .gates
            .get(*gate)
            .is_some_and(|gate: &GateConfig| gate.approve.is_some())
    };
    let plans = NextPlans::new(record, None);
    let gates = gates.into_iter().flatten().filter(asks_people);
    gates
        .map(|gate| (gate.clone(), plans.approval(record, gate)))
        .collect()
}

/// Returns the end of the bake time of the current wave.
pub fn bake_end(config: &Config, record: &RolloutRecord) -> Option<Timestamp> {
    let mut rollouts = config.rollouts.iter();
    let rollout = rollouts.find(|rollout| rollout.name == record.rollout)?;
    bakes_until(record, &RolloutRules::from_config(rollout, &config.gates))
}

fn configured_wave<'a>(config: &'a Config, record: &RolloutRecord, number: usize) -> Option<&'a WaveConfig> {
    let mut rollouts = config.rollouts.iter();
    let rollout = rollouts.find(|rollout| rollout.name == record.rollout)?;
    rollout.waves.get(number)
}

fn waves(config: &Config, record: &RolloutRecord) -> Vec<WaveView> {
    let waves = record.waves.iter().enumerate();
    waves
        .map(|(number, stacks)| {
            let configured = configured_wave(config, record, number);
            WaveView {
                wave: number + 1,
                is: wave_standing(record, number),
                stacks: stacks.keys().cloned().collect(),
                bake: configured.and_then(|wave| Some(wave.bake?.to_string())),
                gates: configured.map(|wave| wave.gates.clone()).unwrap_or_default(),
            }
        })
        .collect()
}

/// Returns the standing of a wave, by its number from 0.
pub fn wave_standing(record: &RolloutRecord, number: usize) -> WaveStanding {
    match number.cmp(&record.wave) {
        std::cmp::Ordering::Less => WaveStanding::Done,
        std::cmp::Ordering::Equal if record.phase.is_over() => WaveStanding::Last,
        std::cmp::Ordering::Equal => WaveStanding::Now,
        std::cmp::Ordering::Greater => WaveStanding::Later,
    }
}
