//! Rollouts in a job: which pending stacks may go now. A rollout is a filter over the stacks that an apply finds, no orchestrator:
//! the record in the store says how far it is, [`konverge_policy::rollout`] decides the next step, and any run continues there.

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
pub(crate) use driver::{EndedRollouts, RolloutRecords, run};
pub(crate) use guarded::GuardedTargets;
pub(crate) use outcomes::RolloutEvent;
pub use preview::sentences;
