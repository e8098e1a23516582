//! The use cases, one file each: what happens between the rooms. The only place that sees all of them.
//!
//! [`Run`] is what every use case is given; a [`Session`] opens what was asked for; [`Planning`] plans one target.

pub mod affected;
pub mod apply;
mod kcl_health;
pub mod compiler;
pub mod apply_limits;
pub mod caches;
pub mod check;
pub mod ci;
pub mod cluster_selection;
mod collisions;
pub mod toolchains;
pub mod doctor;
pub mod drift;
pub mod graph;
pub mod health;
mod health_rules;
pub(crate) mod skipped_removals;
mod identities;
mod runtime_factory;
pub mod init;
mod applied_spec;
pub mod redact;
mod ownership;
pub mod stack_order;
mod planner;
pub mod preview;
mod rescue;
mod context;
pub mod selection;
pub mod open;
pub mod matrix;
mod remote_cache;
pub mod state;
mod state_backend;
pub mod status;
mod target;
mod lease_wait;
mod revision;

pub use identities::{Renamed, renamed_stacks};
pub use ownership::Claims;
pub use planner::{Planned, Planning, Wanted};
pub use context::{Notes, Run};
pub use open::{Request, Session};
pub use state_backend::{KeyUse, Memory, repository_id};
pub use target::{Selection, Target};
pub use revision::{At, Knowledge, Workspace, repository_root};
