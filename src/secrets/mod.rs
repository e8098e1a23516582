//! Secrets: which values are secret, and what stands for them in everything that leaves the process.
//!
//! One [`Secrets`] registry per run. Values it has *learned* (a token, a resolved reference, a Kubernetes Secret's data)
//! are masked wherever they turn up in text; *places* that are secret by shape, schema or name are replaced by a keyed
//! short hash, so that a reviewer sees *changed* or *same* and nothing else.

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
