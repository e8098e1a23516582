//! `konverge config`: the schema of konverge.yaml, and a validation of the file.

use std::io::ErrorKind as ErrorOf;

use clap::Subcommand;
use serde_json::Value;

use super::CliContext;
use konverge_base::error::{ErrorKind, UserError};
use konverge_config::{Config, FILE_NAME, json_schema};
use konverge_report::escape;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge config check                             is konverge.yaml valid, and what does it mean?
  konverge config schema > konverge.schema.json     for an editor")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print the JSON Schema of konverge.yaml
    Schema,
    /// Validate konverge.yaml and print the effective settings; a key that is not printed has its default
    Check,
}

/// Runs the command.
///
/// # Errors
/// `check`: the file cannot be read or is invalid.
pub(super) fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    match args.action {
        Action::Schema => {
            let text = serde_json::to_string_pretty(&json_schema()).expect("plain data");
            context.print(&format!("{text}\n"));
        }
        Action::Check => {
            let path = context.repo_dir().join(FILE_NAME);
            if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
                return Err(UserError::new(
                    ErrorKind::Config,
                    format!(
                        "{} is not a regular file, so it would not be read",
                        path.display()
                    ),
                )
                .hint("replace the link by the file itself: links are not followed"));
            }
            let text = std::fs::read_to_string(&path).map_err(|error| {
                let (kind, hint) = match error.kind() {
                    ErrorOf::NotFound => (
                        ErrorKind::Usage,
                        "`konverge init` writes the file; without it the defaults apply",
                    ),
                    ErrorOf::InvalidData => (ErrorKind::Config, "save the file as UTF-8"),
                    _ => (ErrorKind::Config, "let the user of this run read the file"),
                };
                UserError::from_error(kind, error)
                    .context(path.display())
                    .hint(hint)
            })?;
            let read = serde_json::to_value(Config::parse(&text)?).expect("plain data");
            context.print(&escape::yaml(&without_unset(read)));
        }
    }
    Ok(0)
}

/// Removes the keys that are not set, and those that are empty. Inside the items of a list an empty list stays: in a
/// rule for stacks it overrides an earlier rule's list.
fn without_unset(value: Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Object(keys) => keys.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match value {
        Value::Object(keys) => {
            let keys = keys.into_iter().filter(|(_, value)| !value.is_null());
            let keys = keys.map(|(key, value)| (key, without_unset(value)));
            keys.filter(|(_, value)| !is_empty(value)).collect()
        }
        items => without_nulls(items),
    }
}

/// Removes the keys that are not set.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let keys = keys.into_iter().filter(|(_, value)| !value.is_null());
            keys.map(|(key, value)| (key, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}
