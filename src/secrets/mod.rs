//! Secrets: which values are secret, and how they are masked in everything that leaves the process.
//!
//! There is one [`Secrets`] registry per run. *Learned* values (a token, a resolved reference, the data of a
//! Kubernetes Secret) are masked wherever they occur in text. *Places* that are secret by shape, schema or
//! name are replaced by a keyed short hash, so that a reviewer sees only whether they changed.

mod encodings;
mod environment;
mod registry;
mod secret_names;
mod secret_paths;
mod token_patterns;

pub use environment::{is_passed, learn_environment};
pub use registry::{HashKey, Secrets};
pub use secret_names::is_secret_name;
pub use secret_paths::{
    is_last_applied, mask_object, mask_provider, mask_resource, mask_terraform, named_texts, secret_texts,
};
pub use token_patterns::without_secrets;
