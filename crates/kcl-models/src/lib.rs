//! KCL models of custom resources, of Kubernetes' own kinds and of Terraform resources, made from their schemas. The crate
//! `konverge-model-sources` reads these, and writes the models.
//!
//! Three readers ([`read_crds`], [`read_openapi`], [`read_terraform`]) translate a document into [`ModelRoot`]s: a
//! small typed schema. [`generate`] writes them as KCL: one package for each version, one file for each kind, equal
//! object schemas once. Everything is pure: parsed documents in, the text of files out.
//!
//! Two rules hold. A check in a model accepts what the server accepts: what KCL cannot say exactly is left out, and the
//! head of the file counts it by keyword. A default is documentation, because a default in KCL becomes a field that
//! the stack owns.

mod checks;
mod crd;
mod docs;
mod documents;
mod error;
mod intern;
mod json_checks;
mod json_schema;
mod model_difference;
mod names;
mod openapi;
mod packages;
mod patterns;
mod provider_record;
mod required;
mod schema;
mod terraform;
mod writer;

pub use crd::{is_crd, read_crds};
pub use documents::read_documents;
pub use error::ModelError;
pub use model_difference::{ModelDifference, PropertyChange, differences};
pub use names::{is_package_path, package_segment};
pub use openapi::read_openapi;
pub use packages::{GenerateOptions, HEAD, ModelFiles, generate};
pub use provider_record::{ProviderVersion, record_provider};
pub use schema::{
    ModelObject, ModelProperty, ModelRoot, ModelType, ModelValue, PackageName, Presence, SchemaName,
    ValueCheck,
};
pub use terraform::read_terraform;
