//! The Kubernetes runtime: reads by LIST, proves locally what is unchanged, lets the server compute the rest
//! (server-side apply, dry-run), and applies with the same request.
//!
//! Nothing here predicts a change: local knowledge ([`noop_detection`]) may only prove that there is none.
//! Everything else is the server's own answer, compared with the live object ([`object_diff`]).

mod admission;
mod admission_parameters;
mod apply;
mod built_in_groups;
mod client;
mod cluster;
mod cluster_identity;
mod clusters;
mod completed_jobs;
mod conflict_path;
mod connect;
mod crd_validation;
mod creation;
mod delete;
mod discovery;
mod dry_run;
mod early_failure;
mod error;
mod error_classify;
mod fetch;
mod field_leftovers;
mod field_owner;
mod field_ownership;
mod field_takeover;
pub mod health;
mod json_ref;
mod kubeconfig;
mod list_page;
mod managed_fields;
mod noop_detection;
mod noop_guard;
mod object_diff;
mod object_record;
mod object_ref;
mod observe;
mod options;
mod plan;
mod plan_item;
mod precondition;
mod readiness;
mod related_fetch;
mod rollout_impact;
mod runtime;
mod same_cluster;
mod secret_references;
mod volume_expansion;
mod watches;

pub use clusters::Kubernetes;
pub use connect::{ClusterAccess, ClusterCredentials, KubeconfigText};
pub use options::{Conflicts, Options};
pub use same_cluster::forget_clusters;

/// Our name as a field manager.
const FIELD_MANAGER: &str = "konverge";
/// The annotation that names the owner of an object.
const OWNER: &str = "konverge/stack";
/// The annotation that forbids to delete or replace an object.
const PROTECT: &str = "konverge/protect";
/// The annotation that keeps an object when it leaves the Spec.
const KEEP: &str = "konverge/keep";
