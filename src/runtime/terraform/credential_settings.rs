//! Provider settings that name a command or a credentials file on the machine where Konverge runs. A Spec
//! that sets one would run that command, or authenticate with any credentials found there. Both are
//! configured by the job, through its environment.

use serde_json::Value;

use super::error::TerraformError;
use crate::model::{ResourceId, masked_value::join_path};

/// Settings that name a command, or lead to one.
const COMMANDS: [&str; 7] = [
    "exec",
    "command",
    "commands",
    "credential_process",
    "credential_source",
    "executable",
    "process",
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

/// Returns an error for a configuration with such a setting, unless `konverge.yaml` on the default branch
/// allows it by name.
pub(super) fn check(
    id: &ResourceId,
    configuration: &Value,
    allowed: &[String],
) -> Result<(), TerraformError> {
    match find(configuration, "", allowed) {
        None => Ok(()),
        Some((path, setting)) => Err(TerraformError::CredentialSetting {
            id: id.clone(),
            path,
            setting,
        }),
    }
}

/// The path and the name of the first such setting.
fn find(value: &Value, path: &str, allowed: &[String]) -> Option<(String, String)> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, member)| {
            let path = join_path(path, key);
            if allowed.contains(key) || is_empty(member) {
                return None;
            }
            if names_command_or_file(key) || chooses_destination(key, member) {
                return Some((path, key.clone()));
            }
            find(member, &path, allowed)
        }),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(at, item)| find(item, &format!("{path}/{at}"), allowed))
        }
        _ => None,
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
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::{ErrorKind, UserError};
    use serde_json::json;

    fn check_settings(configuration: &Value, allowed: &[&str]) -> Result<(), TerraformError> {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        check(&"a:b:c_d:e".parse().unwrap(), configuration, &allowed)
    }

    #[test]
    fn commands_and_files_are_refused_by_name() {
        let account =
            json!({"type": "external_account", "credential_source": {"executable": {"command": "id"}}});
        for (setting, configuration) in [
            ("credential_process", json!({"credential_process": "id"})),
            ("exec", json!({"exec": {"api_version": "v1", "command": "id"}})),
            (
                "exec",
                json!({"kubernetes": [{"host": "h", "exec": [{"command": "id"}]}]}),
            ),
            (
                "shared_config_files",
                json!({"shared_config_files": ["/root/.aws/config"]}),
            ),
            ("shared_credentials_file", json!({"shared_credentials_file": "x"})),
            ("config_path", json!({"config_path": "~/.kube/config"})),
            ("config_paths", json!({"config_paths": ["a"]})),
            ("token_file", json!({"auth": {"token_file": "/run/token"}})),
            (
                "web_identity_token_file",
                json!({"assume_role": [{"web_identity_token_file": "/run/token"}]}),
            ),
            ("private_key_path", json!({"private_key_path": "/k.pem"})),
            (
                "client_certificate_path",
                json!({"client_certificate_path": "/c"}),
            ),
            ("oidc_token_file_path", json!({"oidc_token_file_path": "/c"})),
            ("credentials", json!({"credentials": "/run/key.json"})),
            ("credentials", json!({"credentials": account.to_string()})),
        ] {
            let error = check_settings(&configuration, &[]).unwrap_err();
            let failure = UserError::from(error);
            assert_eq!(failure.kind, ErrorKind::Policy);
            assert!(failure.message.contains(setting), "{failure}");
            assert!(
                failure
                    .hints
                    .iter()
                    .any(|hint| hint.contains("terraform.credential_settings"))
            );
            assert!(
                !failure.message.contains("/run"),
                "the value is not shown: {failure}"
            );
            check_settings(&configuration, &[setting]).unwrap();
        }
    }

    #[test]
    fn other_settings_are_the_specs_to_choose() {
        let account = json!({"type": "service_account", "private_key": "k"}).to_string();
        for configuration in [
            json!({}),
            json!({"region": "eu-west-1", "profile": "shop", "assume_role": [{"role_arn": "arn:x", "session_name": "s"}]}),
            json!({"host": "https://h", "token": "t", "insecure": true}),
            json!({"credentials": account, "project": "p"}),
            json!({"config_path": null, "exec": [], "token_file": ""}),
            json!({"features": {"key_vault": {"purge": true}}}),
        ] {
            check_settings(&configuration, &[]).unwrap();
        }
        assert!(check_settings(&json!({"exec": {"command": "x"}, "config_path": "y"}), &["exec"]).is_err());
    }
}
