//! Schemas of a Terraform provider, recorded as data in the repository.

use std::path::Path;

use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    model::RepoPath,
};
use konverge_config::Config;
use konverge_kcl_models::{ProviderVersion, record_provider};
use konverge_repo::git::Repository;
use konverge_run::{RunBuilder, RunContext};
use serde_json::Value;

use super::sources;

/// Writes a record of the schemas of resources of a provider (`[host/]namespace/name@version`), and returns its file:
/// `into`, or one in `schemas`. The schemas are what Terraform printed into the file `from`, or prints now.
///
/// # Errors
/// The provider may not run here, or does not have a resource, or the file is not a record.
pub async fn record(
    run: &RunContext,
    provider: &str,
    resources: &[String],
    from: Option<&str>,
    into: Option<&str>,
) -> Result<RepoPath, UserError> {
    let of = ProviderVersion::parse(provider).ok_or_else(|| {
        let what = format!("`{}` is not a provider with a version", provider.escape_debug());
        UserError::new(ErrorKind::Usage, what).hint("write the provider as in `hashicorp/aws@6.25.0`")
    })?;
    let repository = Repository::discover(&run.dir)?;
    let worktree = repository.worktree()?;
    let config = Config::load(worktree.as_ref())?;
    let file = match into {
        Some(into) => sources::repository_path(run, repository.root(), into).ok_or_else(|| {
            let what = format!("`{}` is not in the repository", into.escape_debug());
            UserError::new(ErrorKind::Usage, what).hint("give a file of the repository with `--into`")
        })?,
        None => RepoPath::root()
            .child("schemas")
            .child(&format!("{}.json", of.name())),
    };
    let failed = |error: std::io::Error| {
        UserError::from_error(ErrorKind::Layout, error).at(file.to_string(), None, None)
    };
    let place = Path::new(file.as_str());
    // Check the target first, because installing the provider takes long.
    let before = checkout::read(repository.root(), place).map_err(failed)?;
    if before.is_some_and(|text| !is_record(&text)) {
        return Err(
            UserError::new(ErrorKind::Usage, "this file is not a record of provider schemas")
                .at(file.to_string(), None, None)
                .hint("choose another file with `--into`"),
        );
    }
    let documents = match from {
        Some(from) => sources::read_outside(&run.dir.join(from))?,
        None => vec![printed(run, config, &of).await?],
    };
    let document = documents
        .iter()
        .find(|document| document.get("provider_schemas").is_some());
    let made = record_provider(document.unwrap_or(&Value::Null), &of, resources)?;
    let text = serde_json::to_string_pretty(&made);
    let text = text.map_err(|error| UserError::from_error(ErrorKind::Layout, error))?;
    run.begin_writes()?;
    checkout::write(
        repository.root(),
        place,
        format!("{text}\n").as_bytes(),
        Existing::Replace,
    )
    .map_err(failed)?;
    Ok(file)
}

fn is_record(text: &[u8]) -> bool {
    serde_json::from_slice::<Value>(text).is_ok_and(|document| document.get("recorded").is_some())
}

/// Returns the schemas of the provider as Terraform prints them. The provider is installed for this, and only a
/// listed one runs.
async fn printed(run: &RunContext, config: Config, of: &ProviderVersion) -> Result<Value, UserError> {
    let infrastructure = RunBuilder::new(run, config).connect().await?;
    let text = infrastructure
        .terraform
        .print_schemas(&of.address, &of.version)
        .await?;
    let text = text.ok_or_else(|| {
        let what = format!("the provider {} {} may not run here", of.address, of.version);
        UserError::new(ErrorKind::Config, what).hint(format!(
            "list it under `terraform.providers` in konverge.yaml: `- {{source: {}, version: {}}}`, or give `--from FILE`",
            of.address, of.version
        ))
    })?;
    serde_json::from_str(&text).map_err(|error| {
        UserError::from_error(ErrorKind::Terraform, error)
            .context("the answer of `terraform providers schema` cannot be read")
    })
}
