//! Compares generated model files with the files of a revision.

use std::collections::BTreeSet;

use konverge_base::{
    error::UserError,
    model::{RepoPath, file_source::Source},
};
use konverge_config::ModelSourceConfig;
use konverge_kcl_models::{ModelDifference, ModelFiles, PropertyChange, differences};

/// The maximum number of differences that are listed of one file.
const MOST_LISTED: usize = 20;

/// A file of models that differs from what its source generates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaleModel {
    /// The file of the model.
    pub file: RepoPath,
    /// The differences, one sentence each.
    pub differences: Vec<String>,
}

impl StaleModel {
    /// Returns the entry for a source whose digest changed although its models are the same.
    pub(super) fn moved_source(entry: &ModelSourceConfig, version: Option<&str>) -> Self {
        let version = version
            .map(|version| format!(" (version {version})"))
            .unwrap_or_default();
        let what = format!(
            "the source has changed{version}, and the models are the same: import the models again to record the hash of the source"
        );
        Self {
            file: entry.folder().unwrap_or_default(),
            differences: vec![what],
        }
    }
}

/// Returns the files of an entry that differ from the generated ones.
///
/// # Errors
/// A file cannot be read.
pub(super) fn stale_files(
    source: &dyn Source,
    entry: &ModelSourceConfig,
    generated: &ModelFiles,
) -> Result<Vec<StaleModel>, UserError> {
    let folder = entry.folder().unwrap_or_default();
    let mut paths: BTreeSet<RepoPath> = source
        .files()
        .keys()
        .filter(|path| path.is_within(&folder))
        .cloned()
        .collect();
    paths.extend(generated.keys().filter_map(|path| folder.join(path)));
    let mut stale = Vec::new();
    for file in paths {
        let content = source.read_path(&file);
        let content = content?;
        let written = content.map(|content| String::from_utf8_lossy(&content).into_owned());
        let wanted = file.relative_to(&folder).and_then(|path| generated.get(path));
        let listed = match (&written, wanted) {
            (Some(written), Some(wanted)) if written == wanted => continue,
            (Some(written), Some(wanted)) => {
                let found = differences(written, wanted);
                if found.is_empty() {
                    vec!["its documentation or its layout differs from the source".to_owned()]
                } else {
                    shorten(found.iter().map(describe).collect())
                }
            }
            (None, _) => vec!["the file is missing".to_owned()],
            (Some(_), None) => vec!["the source does not give this file any more".to_owned()],
        };
        stale.push(StaleModel {
            file,
            differences: listed,
        });
    }
    Ok(stale)
}

fn shorten(mut listed: Vec<String>) -> Vec<String> {
    let more = listed.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        listed.truncate(MOST_LISTED);
        listed.push(format!("{more} more properties differ"));
    }
    listed
}

/// Describes a difference. The old text is the model, the new one what the source generates.
fn describe(found: &ModelDifference) -> String {
    let name = match found.property.as_str() {
        "" => format!("schema `{}`", found.schema),
        property => match property.strip_prefix("check ") {
            Some(check) => format!("the check `{}: {check}`", found.schema),
            None => format!("`{}.{property}`", found.schema),
        },
    };
    match &found.change {
        PropertyChange::Added { .. } => format!("{name} is missing"),
        PropertyChange::Removed { .. } => format!("{name} is not in the source"),
        PropertyChange::Changed { from, to } => {
            format!("{name} is `{to}` in the source, not `{from}`")
        }
    }
}
