//! The engine: makes a plan of what is recorded, what is wanted and what is there, and carries it out in order.
//!
//! It knows neither which runtime does the work nor where the state lies: [`RuntimeRegistry`] holds the one, [`Journal`] stands
//! for the other. A stack's graph is cut into [`stages`], each planned as a whole; [`apply`] walks the same graph with a
//! ready queue, so that independent branches go on when one fails. What Terraform could not plan holds back what waits
//! for it in the same way ([`assembly`]).

mod batches;
mod executor;
mod interrupted_replacement;
mod journal;
mod normalize;
mod ownership;
mod plan;
mod plan_builder;
mod plan_nodes;
mod registry;
mod schedule;
mod secret_propagation;
mod spec_diff;
mod stages;

pub use executor::{ApplyRequest, apply};
pub use journal::{Journal, NoReview, Review};
pub use ownership::{NoOtherStacks, OtherStacks, OwnerClaim, ReleasedObjects};
pub use plan::{EnginePlan, PlanRequest, plan};
pub use registry::RuntimeRegistry;
pub use schedule::Schedule;
pub use spec_diff::plan_against_spec;
