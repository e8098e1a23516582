//! The progress of rollouts, from their newest records and `konverge.yaml`, for the portal and for `konverge rollout`.

use std::collections::BTreeSet;

use super::seen::writer;
use konverge_base::{error::UserError, model::rollout::RolloutRecord};
use konverge_config::{Config, WaveConfig};
use konverge_portal::{BegunRollout, RolloutProgress, RolloutView, RolloutsDocument, WaveStanding, WaveView};
use konverge_rollout::{NextPlans, asking_gates, bake_end, overdue_warning};
use konverge_run::StateBackend;
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
        overdue: overdue_warning(config, record).is_some(),
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
