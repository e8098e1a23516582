//! The use cases, one file each: they connect the rooms. Only this room sees all others.
//!
//! [`RunContext`] is the context of every use case; a [`Session`] opens a request; [`Planner`] plans one
//! target.

mod adoption;
pub mod affected;
mod app_stacks;
mod applied_spec;
pub mod apply;
pub mod apply_limits;
pub mod apply_scope;
pub mod caches;
pub mod check;
pub mod ci;
pub mod cluster_selection;
mod collisions;
pub mod compiler;
mod context;
pub mod demo;
pub mod doctor;
pub mod drift;
pub mod graph;
pub mod health;
mod health_rules;
mod identities;
pub mod init;
mod kcl_health;
mod lease_wait;
pub mod matrix;
mod module_binaries;
mod module_runner;
mod named_stacks;
pub mod open;
mod ownership;
pub mod plan_documents;
mod planner;
mod policy_sets;
pub mod preview;
pub mod redact;
mod remote_cache;
mod rescue;
mod revision;
mod runtime_factory;
mod secret_references;
pub mod selection;
mod skipped_removals;
mod spec_source;
pub mod stack_order;
pub mod state;
mod state_backend;
pub mod status;
pub mod suggestions;
mod target;
pub mod toolchains;

pub use context::{Notes, RunContext, StepCounter, repository_root};
pub use identities::{Renamed, renamed_stacks};
pub use open::{OpenRequest, Session};
pub use ownership::StackClaims;
pub use planner::{Planner, TargetPlan};
pub use revision::{AnalysisCache, OpenRevision, RevisionSpec};
pub use secret_references::SecretReferences;
pub use skipped_removals::SkippedRemovals;
pub use spec_source::SpecSource;
pub use state_backend::{KeyUse, StateBackend, repository_id};
pub use target::{Selection, StackSelector, Target};
