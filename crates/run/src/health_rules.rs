//! The user's readiness rules, read from the revision whose `konverge.yaml` names their folder. In `ci` that is the
//! default branch.

use std::path::PathBuf;

use crate::{RunContext, health_evaluator};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        file_source::{BlobId, FileKind, Source},
    },
};
use konverge_config::Config;
use konverge_kubernetes::health::HealthRules;

/// Reads the rules in the folder `apply.health_rules`; none if the key is not set.
///
/// # Errors
/// The folder has no rule, or an invalid one.
pub fn load(run: &RunContext, config: &Config, source: &dyn Source) -> Result<HealthRules, UserError> {
    let mut files = Vec::new();
    for (inside, path, blob) in list_rules(config, source) {
        let text = source
            .read(blob)
            .map_err(|error| UserError::from_error(ErrorKind::Config, error).context(&path))?;
        files.push((
            inside,
            path.to_string(),
            String::from_utf8_lossy(&text).into_owned(),
        ));
    }
    let rules = HealthRules::from_files(files)?;
    match &config.apply.health_rules {
        Some(folder) if rules.is_empty() => Err(UserError::new(
            ErrorKind::Config,
            format!(
                "apply.health_rules: there is no rule in `{}`",
                folder.escape_debug()
            ),
        )
        .hint("put `<group>/<Kind>/health.lua`, `health.cel.yaml` or `health.k` into this folder, or remove the key")),
        _ => Ok(rules.with_evaluator(health_evaluator::new(run, config))),
    }
}

/// Returns true if two revisions have the same rules in the configured folder.
pub fn same(config: &Config, one: &dyn Source, other: &dyn Source) -> bool {
    list_rules(config, one) == list_rules(config, other)
}

/// Lists the rules: the path inside the folder, the path in the repository, and the content.
fn list_rules(config: &Config, source: &dyn Source) -> Vec<(PathBuf, RepoPath, BlobId)> {
    let Some(folder) = config.apply.health_rules.as_deref().and_then(RepoPath::normalize) else {
        return Vec::new();
    };
    let below = format!("{folder}/");
    let is_rule = |path: &RepoPath, kind| kind == FileKind::File && path.file_name().starts_with("health.");
    let files = source.files().iter();
    files
        .filter(|(path, entry)| is_rule(path, entry.kind))
        .filter_map(|(path, entry)| {
            let inside = path.as_str().strip_prefix(&below)?;
            Some((PathBuf::from(inside), path.clone(), entry.blob))
        })
        .collect()
}
