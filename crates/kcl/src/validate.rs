//! Validates data against a KCL schema with the core's own validation, as `kcl vet` does.

use std::path::Path;

use super::{
    CompileRequest, KclDiagnostic, KclError, Pool,
    compile::external_packages,
    diagnostic,
    protocol::{ValidateCodeArgs, ValidateCodeResult},
};
use konverge_base::model::RepoPath;

/// The variable that gets the data. The name is unusual, because the schema's program may define any other name.
const VARIABLE: &str = "_konverge_data";

/// A schema in a package.
#[derive(Debug, Clone, Copy)]
pub struct SchemaPlace<'a> {
    /// The folder of the package.
    pub folder: &'a RepoPath,
    /// The name of the schema.
    pub name: &'a str,
}

impl Pool {
    /// Validates a JSON file of the request against `schema`. Returns the error text if the file does not match.
    ///
    /// The pool needs [`super::PoolOptions::temporary_files`], because the core creates an empty file in each call.
    ///
    /// # Errors
    /// The connection to the worker is lost.
    pub async fn validate(
        &self,
        request: &CompileRequest,
        schema: SchemaPlace<'_>,
        data: &RepoPath,
    ) -> Result<Vec<KclDiagnostic>, KclError> {
        let message = |root: &Path| ValidateCodeArgs {
            datafile: root.join(data).display().to_string(),
            // The folder is passed, not a file: some cores read the whole package in any case.
            file: root.join(schema.folder).display().to_string(),
            schema: schema.name.to_owned(),
            attribute_name: VARIABLE.to_owned(),
            format: "json".to_owned(),
            external_pkgs: external_packages(request, root),
        };
        match self
            .call::<_, ValidateCodeResult>(request, "ValidateCode", message)
            .await
        {
            Ok((result, _)) if result.success => Ok(Vec::new()),
            Ok((result, root)) => Ok(diagnostic::read(&result.err_message, &root)),
            Err(KclError::Code(diagnostics)) => Ok(diagnostics),
            Err(other) => Err(other),
        }
    }
}
