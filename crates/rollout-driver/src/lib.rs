//! Rollouts in a job: decides which pending stacks may be applied now. A rollout is no orchestrator but a filter for
//! the stacks of an apply: the record in the store has its progress, [`konverge_rollout`] decides the next step, and
//! any run can continue it. Who may approve what is up to the job: it implements [`JobPolicies`] and [`CommitReviews`].

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
pub use driver::{EndedRollouts, run};
pub use guarded::GuardedTargets;
pub use job::{JobPolicies, RolloutJob};
pub use records::{RolloutRecords, overdue_rollouts};
pub use reviews::{CommitReviews, GateDigest};
