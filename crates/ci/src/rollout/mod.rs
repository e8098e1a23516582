//! Rollouts in a job: decides which pending stacks may be applied now. A rollout is no orchestrator but a filter for
//! the stacks of an apply: the record in the store has its progress, [`konverge_policy::rollout`] decides the next
//! step, and any run can continue it.

mod approval;
mod carried_commit;
mod driver;
mod gates;
mod guarded;
mod outcomes;
mod pending;
mod preview;
mod rollback;
mod wave_apply;
mod wave_approver;

pub(crate) use carried_commit::CarriedCommit;
pub(crate) use driver::{PendingRollouts, RolloutRecords, run};
pub(crate) use guarded::GuardedTargets;
pub(crate) use outcomes::RolloutEvent;
pub use preview::sentences;
