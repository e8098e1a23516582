//! Files as an artifact in an OCI registry, as Argo CD and Flux read them: one layer, whose type Argo CD knows, and
//! Flux's annotations. The bytes depend on the files alone, so equal files have equal digests. Only a delivery moves a
//! tag, from a digest that it pushed.

mod artifact;
mod error;
mod reference;
mod registry;

pub use artifact::Artifact;
pub use error::PublishError;
pub use reference::ArtifactReference;
pub use registry::{Published, RegistryClient, RegistryLimits};
