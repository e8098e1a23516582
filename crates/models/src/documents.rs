//! Reads documents of any kind, each with the matching reader.

use serde_json::Value;

use crate::{
    crd::{is_crd, read_crds},
    error::ModelError,
    openapi::read_openapi,
    schema::ModelRoot,
    terraform::read_terraform,
};

/// Reads CRDs, OpenAPI documents and provider schemas. Other documents are skipped.
///
/// # Errors
/// See [`read_crds`], [`read_openapi`] and [`read_terraform`]; also if none of the documents can be read.
pub fn read_documents(documents: &[Value]) -> Result<Vec<ModelRoot>, ModelError> {
    let with = |keys: &'static [&'static str]| {
        documents
            .iter()
            .filter(|document| keys.iter().any(|key| document.get(key).is_some()))
            .collect::<Vec<_>>()
    };
    let mut roots = Vec::new();
    for document in with(&["provider_schemas"]) {
        roots.extend(read_terraform(document)?);
    }
    let openapi = with(&["components", "definitions"]);
    if !openapi.is_empty() {
        roots.extend(read_openapi(openapi)?);
    }
    let has_crds = |document: &Value| {
        is_crd(document)
            || document
                .get("items")
                .and_then(Value::as_array)
                .is_some_and(|items| items.iter().any(is_crd))
    };
    if documents.iter().any(has_crds) {
        roots.extend(read_crds(documents)?);
    }
    if roots.is_empty() {
        Err(ModelError::Nothing("CRD, OpenAPI document or provider schema"))
    } else {
        Ok(roots)
    }
}
