//! The engine: compares the recorded, the desired and the live resources to a plan, and executes the plan in
//! order.
//!
//! The engine does not know which runtime does the work or where the state is stored: [`RuntimeRegistry`] holds the
//! runtimes, [`Journal`] is the interface to the state. A stack's graph is cut into `stages`, each planned as a whole.
//! [`apply`] executes the same graph with a ready queue, so that independent branches continue when one fails. A
//! Terraform resource that cannot be planned holds back only its dependents and all deletions (`plan_builder`).

mod apply_order;
mod awaited_outputs;
mod changed_value;
mod delivered_secrets;
mod engine_plan;
mod executor;
#[cfg(test)]
mod executor_tests;
mod hook_destroy;
mod hook_plan;
mod hook_specs;
#[cfg(test)]
mod hook_tests;
mod interrupted_replacement;
mod journal;
#[cfg(test)]
mod memory_runtime;
#[cfg(test)]
mod memory_stack;
mod normalize;
mod ownership;
mod plan;
mod plan_builder;
mod plan_error;
mod plan_failures;
mod plan_nodes;
mod plan_request;
#[cfg(test)]
mod plan_tests;
mod planning_stages;
mod policy_input;
mod published_outputs;
mod registry;
mod resolve_attributes;
mod resource_cluster;
pub mod runtime;
mod schedule;
mod secret_masking;
mod secret_reference_check;
pub mod spec;
mod spec_diff;
#[cfg(test)]
mod tests;

pub use engine_plan::EnginePlan;
pub use executor::{Applied, ApplyRequest, apply};
pub use hook_specs::show_spec_hooks;
pub use journal::{Journal, NoReview, Review};
pub use ownership::{ClaimQuestion, ClaimedObject, HeldObjects, OwnerClaim};
pub use plan::{PlanAwaitingClaims, PlanStep, plan};
pub use plan_error::PlanError;
pub use plan_request::PlanRequest;
pub use policy_input::{LatePlan, TruePlan, desired_by_spec, true_spec_plan};
pub use published_outputs::{Publication, PublishedValue};
pub use registry::RuntimeRegistry;
pub use schedule::Schedule;
pub use spec::hooks::leave_out as leave_out_hooks;
pub use spec_diff::{ComparedSpecs, SpecMask, plan_against_spec};
