//! Kubernetes: looks by LIST, proves by itself what is unchanged, has the server say what the rest would become
//! (server-side apply, dry-run), and applies by the same request.
//!
//! Nothing here predicts a change: local knowledge ([`proof`]) may only say that there is none. Everything else is the
//! server's own answer, compared with what is there ([`change`]).

mod connect;
mod admission;
mod apply;
mod diff;
mod client;
mod cluster;
mod cluster_identity;
mod creation;
mod crd_validation;
mod delete;
mod discovery;
mod dry_run;
mod error;
mod volume_expansion;
mod field_ownership;
mod managed_fields;
mod built_in_groups;
mod noop_guard;
pub mod health;
mod object_ref;
mod completed_jobs;
mod kubeconfig;
mod fetch;
mod field_owner;
mod json_ref;
mod list_page;
mod plan;
mod noop_detection;
mod rollout_impact;
mod runtime;
mod precondition;
mod related_fetch;
mod error_classify;
mod readiness;

pub use connect::{ClusterAccess, Credentials};
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
