//! Data against a schema, by the core's own validation: the work of `kcl vet`.

use std::path::Path;

use super::{
    CompileRequest, KclDiagnostic, KclError, Pool,
    compile::external_packages,
    diagnostic,
    protocol::{ValidateCodeArgs, ValidateCodeResult},
};
use konverge_base::model::RepoPath;

/// The variable of the schema's program that gets the data. Another name could be one of the program.
const VARIABLE: &str = "_konverge_data";

/// A schema of a package.
#[derive(Debug, Clone, Copy)]
pub struct SchemaPlace<'a> {
    /// The folder of the package.
    pub folder: &'a RepoPath,
    /// The name of the schema.
    pub name: &'a str,
}

impl Pool {
    /// Validates a JSON file of the request, whose mapping must match `schema`.
    /// Returns why it does not. The pool needs [`super::PoolOptions::temporary_files`]: the core
    /// makes an empty file in each call.
    ///
    /// # Errors
    /// The worker is lost.
    pub async fn validate(
        &self,
        request: &CompileRequest,
        schema: SchemaPlace<'_>,
        data: &RepoPath,
    ) -> Result<Vec<KclDiagnostic>, KclError> {
        let message = |root: &Path| ValidateCodeArgs {
            datafile: root.join(data).display().to_string(),
            // Some cores read the whole package of the repository instead of a single file.
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
