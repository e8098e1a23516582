//! Kubernetes: looks by LIST, proves by itself what is unchanged, has the server say what the rest would become
//! (server-side apply, dry-run), and applies by the same request.
//!
//! Nothing here predicts a change: local knowledge ([`proof`]) may only say that there is none. Everything else is the
//! server's own answer, compared with what is there ([`change`]).

mod access;
mod admission;
mod apply;
mod change;
mod client;
mod cluster;
mod cluster_identity;
mod creation;
mod custom;
mod delete;
mod discovery;
mod dry_run;
mod error;
mod expansion;
mod field_ownership;
mod fields;
mod groups;
mod guard;
pub mod health;
mod identity;
mod jobs;
mod kubeconfig;
mod live;
mod managers;
mod node;
mod page;
mod plan;
mod proof;
mod rollout;
mod runtime;
mod seen;
mod surroundings;
mod triage;
mod wait;

pub use access::{ClusterAccess, Credentials};
pub use cluster_identity::forget_clusters;
pub use runtime::{Conflicts, Kubernetes, Options};

/// Our name as a field manager.
const FIELD_MANAGER: &str = "konverge";
/// The annotation that names the owner of an object.
const OWNER: &str = "konverge/stack";
/// The annotation that forbids to delete or replace an object.
const PROTECT: &str = "konverge/protect";
/// The annotation that keeps an object when it leaves the Spec.
const KEEP: &str = "konverge/keep";
