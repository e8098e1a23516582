//! The rules of a rollout and its waves, from the configuration.

use std::{collections::BTreeMap, time::Duration};

use konverge_base::model::Digest;
use konverge_config::{AtOnce, GateConfig, OnFailure, RolloutConfig, Span};

/// The configured rules of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutRules {
    /// The digest of the configuration.
    pub digest: Digest,
    /// The waves in their order.
    pub waves: Vec<WaveRules>,
    /// True if the stacks of a failed wave are rolled back to their earlier content.
    pub rolls_back: bool,
}

/// The rules of one wave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WaveRules {
    /// Maximum number of stacks of the wave that are applied at the same time; `None` for all.
    pub at_once: Option<AtOnce>,
    /// Time for which the stacks of the wave must stay ready.
    pub bake: Duration,
    /// The gates before the next wave.
    pub gates: Vec<GateRules>,
}

/// The rules of one gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateRules {
    /// Name of the gate.
    pub name: String,
    /// Maximum time for which the gate may be unclear; `None` for no limit.
    pub deadline: Option<Duration>,
}

impl RolloutRules {
    /// Creates the rules of a configured rollout.
    pub fn from_config(rollout: &RolloutConfig, gates: &BTreeMap<String, GateConfig>) -> Self {
        let waves = rollout.waves.iter().map(|wave| WaveRules {
            at_once: wave.at_once,
            bake: wave.bake.map_or(Duration::ZERO, Span::duration),
            gates: wave
                .gates
                .iter()
                .map(|name| GateRules {
                    name: name.clone(),
                    deadline: gates.get(name).and_then(GateConfig::deadline).map(Span::duration),
                })
                .collect(),
        });
        Self {
            digest: rollout.digest(gates),
            waves: waves.collect(),
            rolls_back: rollout.on_failure == OnFailure::Rollback,
        }
    }
}
