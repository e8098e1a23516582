//! Rollouts as pure functions: which stacks may be applied now, and what people read about it. They use the record of a
//! rollout, the observed stacks and gates, and the clocks. The caller (`rollout-driver`) reads and writes the records;
//! each change is a new document.

mod begin;
mod commands;
mod elapsed;
mod event;
mod gate;
mod next_plans;
mod not_applied;
mod overdue;
mod preview_sentences;
mod record_progress;
mod rules;
mod step;

pub use begin::{ChangedStack, RolloutStart, begin, held_stacks};
pub use commands::{RolloutCommand, RolloutCommandError, command};
pub use event::RolloutEvent;
pub use gate::read_gate;
pub use next_plans::NextPlans;
pub use not_applied::{carries, held_outcome, left_rollout_outcome, waiting_outcome};
pub use preview_sentences::preview_sentences;
pub use record_progress::{asking_gates, bake_end, overdue_warning};
pub use rules::{GateRules, RolloutRules, WaveRules};
pub use step::{GateReading, RolloutFacts, RolloutStep, RolloutWait, StackReadiness, step};

#[cfg(test)]
mod simulation_approvals_tests;
#[cfg(test)]
mod simulation_failures_tests;
#[cfg(test)]
mod simulation_history_tests;
#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod simulation_world_tests;
