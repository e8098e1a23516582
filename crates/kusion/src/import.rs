//! Converts a workspace from one of Kusion's backends to a file for the repository.

use serde_json::Value;

use super::{KusionError, Workspace, context_keys, workspace};
use konverge_base::{model::RepoPath, yaml};

/// A workspace file for the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedText {
    /// The text of the file.
    pub text: String,
    /// The keys of `context` that were left out, because they hold credentials.
    pub left_out: Vec<String>,
}

/// Reads a Kusion workspace and leaves out credentials, which have no place in a repository.
///
/// # Errors
/// The text is not a workspace of Kusion 0.12 or later.
pub fn import_text(file: &RepoPath, text: &str) -> Result<ImportedText, KusionError> {
    let wrong = |line, message| KusionError::Workspace {
        file: file.to_string(),
        line,
        message,
    };
    let value = workspace::read(text).map_err(|error| wrong(error.line, error.message))?;
    let mut value = value.unwrap_or_default();
    let mut left_out = Vec::new();
    if let Some(context) = value.get_mut("context").and_then(Value::as_object_mut) {
        for key in context_keys::credentials_in_clear(context.iter()) {
            context.shift_remove(&key);
            left_out.push(key);
        }
    }
    if !value.is_object() {
        return Err(wrong(None, "it is not a mapping".to_owned()));
    }
    Workspace::parse(file, &yaml::to_string(&value))?;
    if let Some(document) = value.as_object_mut() {
        // Kusion writes unset keys as null or as an empty mapping.
        document.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
    let text = yaml::to_string(&value);
    Ok(ImportedText { text, left_out })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_left_out_and_the_rest_is_kept() {
        let file = RepoPath::normalize("workspaces/dev.yaml").unwrap();
        let text = "modules:\n  service:\n    path: p\n    version: '1'\n    configs: {default: {replicas: 2}}\nsecretStore: null\ncontext:\n  KUBECONFIG_PATH: /k\n  AWS_SECRET_ACCESS_KEY: s3cret\n  AWS_ACCESS_KEY_ID: ref://aws/id\n  GITHUB_TOKEN: s3cret\n  ALICLOUD_SECRET_KEY: 123456\n  mail: {password: s3cret}\n  region: x\n";
        let imported = import_text(&file, text).unwrap();
        assert_eq!(
            imported.left_out,
            [
                "AWS_SECRET_ACCESS_KEY",
                "GITHUB_TOKEN",
                "ALICLOUD_SECRET_KEY",
                "mail"
            ]
        );
        assert!(
            !imported.text.contains("s3cret")
                && !imported.text.contains("123456")
                && imported.text.contains("region")
                && imported.text.contains("KUBECONFIG_PATH")
        );
        let again = import_text(&file, &imported.text).unwrap();
        assert_eq!(again.text, imported.text);
        assert!(import_text(&file, "runtimes: {}\n").is_err());
        assert!(import_text(&file, "[]\n").is_err());
    }
}
