//! Publishes files as an artifact in an OCI registry, in the form that Argo CD and Flux read: one layer with a type
//! that Argo CD knows, and Flux's annotations. The bytes depend only on the files, so equal files have equal digests.
//! Only a delivery moves a tag, and only away from a digest that it has pushed itself.

mod artifact;
mod error;
mod reference;
mod registry;

pub use artifact::Artifact;
pub use error::PublishError;
pub use reference::ArtifactReference;
pub use registry::{Published, RegistryClient};
