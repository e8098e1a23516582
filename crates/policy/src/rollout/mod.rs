//! Rollouts: which stacks may be applied now. Pure functions of the record of a rollout, the observed stacks and
//! gates, and the clocks. The caller reads and writes the records; each change is a new document.

mod begin;
mod commands;
mod elapsed;
mod gate;
mod next_plans;
mod overdue;
mod rules;
mod step;

pub use begin::{ChangedStack, RolloutStart, begin, held_stacks};
pub use commands::{RolloutCommand, RolloutCommandError, command};
pub use elapsed::{ElapsedTime, elapsed};
pub use gate::{GateNumber, read_gate};
pub use next_plans::NextPlans;
pub use overdue::{bakes_until, overdue_from};
pub use rules::{GateRules, RolloutRules, WaveRules};
pub use step::{GateReading, RolloutFacts, RolloutStep, StackReadiness, step};

#[cfg(test)]
mod simulation_approvals_tests;
#[cfg(test)]
mod simulation_failures_tests;
#[cfg(test)]
mod simulation_history_tests;
#[cfg(test)]
#[cfg(test)]
#[cfg(test)]
mod simulation_tests;
#[cfg(test)]
mod simulation_world_tests;
