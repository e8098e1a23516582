//! The Kubernetes runtime: reads by LIST, proves locally what is unchanged, lets the server compute the rest
//! (server-side apply, dry-run), and applies with the same request.
//!
//! Nothing here predicts a change: local knowledge (`noop_detection`) may only prove that there is none.
//! Everything else is the server's own answer, compared with the live object (`object_diff`).

mod api;
pub mod health;
mod object;
mod object_apply;
mod plan;
mod runtime;

pub use api::clusters::{Kubernetes, SecretData};
pub use api::connect::{ClusterAccess, ClusterCredentials, KubeconfigText};
pub use api::openapi::ClusterSchemas;
pub use api::options::{Conflicts, Options};
pub use object::object_ref::mark_owner;
pub use plan::same_cluster::forget_clusters;

/// Our name as a field manager.
pub const FIELD_MANAGER: &str = "konverge";
/// The annotation that names the owner of an object.
const OWNER: &str = "konverge/stack";
/// The annotation that forbids to delete or replace an object.
const PROTECT: &str = "konverge/protect";
/// The annotation that keeps an object when it leaves the Spec.
const KEEP: &str = "konverge/keep";
/// The annotation that names the plain places of an object with values of secrets (`into: any`), as a JSON list of paths.
const SECRET_PLACES: &str = "konverge/secret-places";
