//! The key `models` of `konverge.yaml`. The import rewrites this block; every other line stays.

use std::path::Path;

use konverge_base::{
    checkout::{self, Existing},
    error::{ErrorKind, UserError},
    yaml,
};
use konverge_config::{Config, FILE_NAME, ModelSourceConfig, ModelsConfig};
use serde_json::json;

/// Adds an entry, or replaces the entry of the same folder.
///
/// # Errors
/// The file cannot be read or written, or holds `models` in a form that only a person can edit.
pub(super) fn write(root: &Path, known: &ModelsConfig, entry: ModelSourceConfig) -> Result<(), UserError> {
    let failed =
        |error: std::io::Error| UserError::from_error(ErrorKind::Config, error).at(FILE_NAME, None, None);
    let mut sources = known.sources.clone();
    sources.retain(|source| source.into != entry.into);
    sources.push(entry);
    sources.sort_by(|a, b| a.into.cmp(&b.into));
    let models = ModelsConfig { sources };
    let content = checkout::read(root, Path::new(FILE_NAME))
        .map_err(failed)?
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&content);
    let updated = replace_block(&text, &models);
    let is_read = yaml::from_str::<Config>(&updated).is_ok_and(|config| config.models == models);
    if !is_read {
        let block = block(&models);
        return Err(UserError::new(
            ErrorKind::Config,
            "the source of the models cannot be recorded in this file",
        )
        .at(FILE_NAME, None, None)
        .hint(format!(
            "the models are written; put this into the file yourself:\n{block}"
        )));
    }
    if updated != text {
        checkout::write(root, Path::new(FILE_NAME), updated.as_bytes(), Existing::Replace).map_err(failed)?;
    }
    Ok(())
}

fn block(models: &ModelsConfig) -> String {
    yaml::to_string(&json!({"models": models}))
}

/// Returns the text with another `models:` block: the unindented line, and the indented lines below it. Empty lines at
/// its end do not belong to the block.
fn replace_block(text: &str, models: &ModelsConfig) -> String {
    let (mut before, mut after) = (String::new(), String::new());
    let (mut is_inside, mut is_past) = (false, false);
    let mut empty = String::new();
    for line in text.split_inclusive('\n') {
        let starts = line.starts_with("models:");
        let is_of_block = line.starts_with([' ', '-', '\t']);
        if starts && !is_past {
            (is_inside, is_past) = (true, true);
        } else if is_inside && line.trim().is_empty() {
            empty.push_str(line);
        } else if is_inside && is_of_block {
            empty.clear();
        } else {
            is_inside = false;
            after.push_str(&std::mem::take(&mut empty));
            let part = if is_past { &mut after } else { &mut before };
            part.push_str(line);
        }
    }
    if !before.is_empty() && !before.ends_with('\n') {
        before.push('\n');
    }
    before + &block(models) + &after
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_block_of_models_changes() {
        let models = ModelsConfig {
            sources: vec![ModelSourceConfig {
                from: vec!["crds".to_owned()],
                into: "base/pkg/argo".to_owned(),
                ..ModelSourceConfig::default()
            }],
        };
        let written = block(&models);
        for (text, expected) in [
            ("", written.clone()),
            ("version: 1 # one", format!("version: 1 # one\n{written}")),
            (
                "version: 1\nmodels:\n  sources:\n  - into: x\n\n# the rest\nkcl:\n  x: 1\n",
                format!("version: 1\n{written}\n# the rest\nkcl:\n  x: 1\n"),
            ),
            (
                "models: {sources: []}\nversion: 1\n",
                format!("{written}version: 1\n"),
            ),
        ] {
            assert_eq!(replace_block(text, &models), expected, "{text}");
        }
    }
}
