//! The engine: makes a plan of what is recorded, what is wanted and what is there, and carries it out in order.
//!
//! It knows neither which runtime does the work nor where the state lies: [`Runtimes`] holds the one, [`Journal`] stands
//! for the other. A stack's graph is cut into [`stages`], each planned as a whole; [`apply`] walks the same graph with a
//! ready queue, so that independent branches go on when one fails. What Terraform could not plan holds back what waits
//! for it in the same way ([`assembly`]).

mod executor;
mod plan_builder;
mod interrupted_replacement;
mod secret_propagation;
mod plan_nodes;
mod journal;
mod ownership;
mod plan;
mod normalize;
mod registry;
mod schedule;
mod stages;
mod spec_diff;
mod batches;

pub use executor::{ApplyRequest, apply};
pub use journal::{Journal, NoReview, Review};
pub use ownership::{Alone, Claim, Neighbours, Released};
pub use plan::{EnginePlan, PlanRequest, plan};
pub use registry::Runtimes;
pub use schedule::Schedule;
pub use spec_diff::plan_against_spec;
