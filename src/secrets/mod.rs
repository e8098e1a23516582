//! Secrets: which values are secret, and what stands for them in everything that leaves the process.
//!
//! One [`Secrets`] registry per run. Values it has *learned* (a token, a resolved reference, a Kubernetes Secret's data)
//! are masked wherever they turn up in text; *places* that are secret by their type are replaced by a keyed short hash,
//! so that a reviewer sees *changed* or *same* and nothing else.

mod kubernetes;
mod registry;

pub use kubernetes::{is_last_applied, mask_object, secret_texts};
pub use registry::{HashKey, Secrets};
