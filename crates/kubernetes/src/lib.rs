//! The Kubernetes runtime: reads objects by LIST, proves locally which are unchanged, lets the server compute
//! the other changes (server-side apply with dry-run), and applies with the same request.
//!
//! Nothing here predicts a change: local knowledge (`noop_detection`) may only prove that there is none.
//! Every change is the server's own response, compared with the live object (`object_diff`).

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

/// Konverge's name as a field manager.
pub const FIELD_MANAGER: &str = "konverge";
/// The annotation that names the owner of an object.
const OWNER: &str = "konverge/stack";
/// The annotation that forbids deleting or replacing an object.
const PROTECT: &str = "konverge/protect";
/// The annotation that keeps an object in the cluster when it is removed from the Spec.
const KEEP: &str = "konverge/keep";
/// The annotation with the paths of secret values outside a Secret's data (`into: any`), as a JSON list.
const SECRET_PLACES: &str = "konverge/secret-places";
