//! Generates KCL models of custom resources, built-in Kubernetes kinds and Terraform resources from their schemas.
//!
//! Three readers ([`read_crds`], [`read_openapi`], [`read_terraform`]) translate a document to [`ModelRoot`]s, a
//! small typed schema. [`generate`] writes them as KCL: one package for each version, one file for each kind, and
//! equal object schemas only once. All functions are pure: from parsed documents to the text of files.
//!
//! Two rules hold. First, a check accepts everything that the server accepts: a keyword that KCL cannot express
//! exactly is left out and counted at the top of the file. Second, a default is only documentation, because a
//! default in KCL would become a field that the stack owns.

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
