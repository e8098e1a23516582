//! Rollouts in a job: which pending stacks may go now. A rollout is a filter over the stacks that an apply finds, no orchestrator:
//! the record in the store says how far it is, [`konverge_rollout`] decides the next step, and any run continues there. Who may
//! approve what is up to the job, behind [`JobPolicies`] and [`CommitReviews`].

mod approval;
mod carried_commit;
mod driver;
mod gates;
mod guarded;
mod job;
mod pending;
mod readiness;
mod records;
mod reviews;
mod rollback;
mod wave_apply;
mod wave_approver;

pub use carried_commit::{CarriedCommit, OlderCommit};
pub use driver::{EndedRollouts, PendingRollouts, run};
pub use guarded::GuardedTargets;
pub use job::{JobPolicies, RolloutJob};
pub use records::{RolloutRecords, overdue_rollouts};
pub use reviews::{CommitReviews, GateDigest};
