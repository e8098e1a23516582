//! Secrets: which values are secret, and what stands for them in everything that leaves the process.
//!
//! One [`Secrets`] registry per run. Values it has *learned* (a token, a resolved reference, a Kubernetes Secret's data)
//! are masked wherever they turn up in text; *places* that are secret by shape, schema or name are replaced by a keyed
//! short hash, so that a reviewer sees *changed* or *same* and nothing else.

mod encodings;
mod names;
mod places;
mod registry;
mod shapes;
mod variables;

pub use names::is_secret_name;
pub use places::{
    is_last_applied, mask_object, mask_provider, mask_resource, mask_terraform, named_texts, secret_texts,
};
pub use registry::{HashKey, Secrets};
pub use shapes::without_secrets;
pub use variables::{is_passed, learn_environment};
