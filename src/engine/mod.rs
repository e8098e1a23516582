//! The engine: makes a plan of what is recorded, what is wanted and what is there, and carries it out in order.
//!
//! It knows neither which runtime does the work nor where the state lies: [`Runtimes`] holds the one, [`Journal`] stands
//! for the other. A stack's graph is cut into [`stages`], each planned as a whole; [`apply`] walks the same graph with a
//! ready queue, so that independent branches go on when one fails. What Terraform could not plan holds back what waits
//! for it in the same way ([`assembly`]).

mod apply;
mod assembly;
mod begun;
mod carried;
mod drafts;
mod journal;
mod neighbours;
mod plan;
mod rename;
mod runtimes;
mod schedule;
mod stages;
mod structural;
mod units;

pub use apply::{ApplyRequest, apply};
pub use journal::{Journal, NoReview, Review};
pub use neighbours::{Alone, Claim, Neighbours, Released};
pub use plan::{EnginePlan, PlanRequest, plan};
pub use runtimes::Runtimes;
pub use schedule::Schedule;
pub use structural::plan_against_spec;
