//! Provider settings that name a command or a credentials file on the machine where Konverge runs, or that decide who
//! the provider acts as. A Spec that sets one would run that command, authenticate with any credentials found there, or
//! ask for the role of another team. All are configured by the job, through its environment.

use serde_json::Value;

use super::{
    error::TerraformError,
    provider_addresses::{is_address_setting, is_referenced_credential},
    provider_identities::{Chooser, chooser_by_name, chooser_of, free_settings},
    providers::ProviderRef,
};
use konverge_base::model::{ResourceId, masked_value::join_path};

/// Settings that name a command, or lead to one.
const COMMANDS: [&str; 9] = [
    "exec",
    "command",
    "commands",
    "credential_process",
    "credential_source",
    "edgerc",
    "executable",
    "process",
    "ssh_opts",
];

/// The last word of a setting that names a command, a file or a folder.
const ENDS: [&str; 12] = [
    "file",
    "files",
    "path",
    "paths",
    "dir",
    "dirs",
    "directory",
    "keyfile",
    "command",
    "process",
    "executable",
    "helper",
];

/// Google's types of credentials that contain their own key and refer to nothing else.
const OWN_KEY: [&str; 2] = ["service_account", "authorized_user"];

/// A setting that a Spec may not have.
struct RefusedSetting {
    path: String,
    name: String,
    kind: RefusedKind,
}

/// Why a Spec may not have a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RefusedKind {
    CommandOrFile,
    Identity,
}

/// Returns an error for a configuration with such a setting, unless `konverge.yaml` on the default branch
/// allows it by name.
pub(super) fn check(
    id: &ResourceId,
    provider: &ProviderRef,
    configuration: &Value,
    allowed: &[String],
) -> Result<(), TerraformError> {
    let Value::Object(settings) = configuration else {
        return Ok(());
    };
    let refused = settings.iter().find_map(|(name, value)| {
        let chooser = chooser_of(provider.name(), name);
        find_in_setting(("", name), value, chooser, allowed)
    });
    match refused {
        None => Ok(()),
        Some(RefusedSetting { path, name, kind }) => Err(match kind {
            RefusedKind::CommandOrFile => TerraformError::CredentialSetting {
                id: id.clone(),
                path,
                setting: name,
            },
            RefusedKind::Identity => TerraformError::ProviderIdentity {
                id: id.clone(),
                path,
                setting: name,
                provider: provider.source.clone(),
                free: free_settings(provider.name()),
            },
        }),
    }
}

/// The first such setting: this one, or one below it. `path` is the one of the object that has it.
fn find_in_setting(
    (path, name): (&str, &str),
    value: &Value,
    chooser: Chooser,
    allowed: &[String],
) -> Option<RefusedSetting> {
    if allowed.iter().any(|allowed| allowed == name) || is_empty(value) {
        return None;
    }
    let path = join_path(path, name);
    // The keys below `tags` are anybody's.
    if chooser != Chooser::Spec && (names_command_or_file(name) || chooses_destination(name, value)) {
        return Some(RefusedSetting {
            path,
            name: name.to_owned(),
            kind: RefusedKind::CommandOrFile,
        });
    }
    find_in_value((&path, name), value, chooser, allowed)
}

/// The first such setting in the value of a setting.
fn find_in_value(
    (path, name): (&str, &str),
    value: &Value,
    chooser: Chooser,
    allowed: &[String],
) -> Option<RefusedSetting> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, member)| {
            let within = match chooser {
                Chooser::Unknown => chooser_by_name(key),
                decided => decided,
            };
            find_in_setting((path, key), member, within, allowed)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| find_in_value((&format!("{path}/{at}"), name), item, chooser, allowed)),
        _ => {
            let is_refused = chooser == Chooser::Job
                && !is_empty(value)
                && !is_address_setting(name, value)
                && !is_referenced_credential(name, value);
            is_refused.then(|| RefusedSetting {
                path: path.to_owned(),
                name: name.to_owned(),
                kind: RefusedKind::Identity,
            })
        }
    }
}

fn names_command_or_file(key: &str) -> bool {
    let key = key.to_lowercase();
    let last = key.rsplit(['_', '-']).next().unwrap_or_default();
    COMMANDS.contains(&key.as_str()) || ENDS.contains(&last)
}

/// Returns true if `credentials` are a path, or a document that names a command, a file or an address to
/// fetch them from.
fn chooses_destination(key: &str, value: &Value) -> bool {
    if key.to_lowercase() != "credentials" {
        return false;
    }
    let Some(text) = value.as_str() else {
        return false;
    };
    let document = serde_json::from_str::<Value>(text).unwrap_or_default();
    let kind = document.get("type").and_then(Value::as_str).unwrap_or_default();
    !OWN_KEY.contains(&kind)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
#[path = "credential_settings_tests.rs"]
mod tests;
