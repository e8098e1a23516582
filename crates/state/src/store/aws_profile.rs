//! Reads Amazon's shared credentials files, for the profile that `AWS_PROFILE` names.

use std::{collections::BTreeMap, path::PathBuf};

use konverge_base::variables;

/// Returns the environment with the values of the profile for variables that are not set.
///
/// Rules: <https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>. Only values from the files are
/// used (keys, session token, region, web identity). `sso_*` and `credential_process` are not executed.
pub(super) fn environment(environment: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut merged = environment.clone();
    let set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
    if set(variables::AWS_ACCESS_KEY_ID) || set(variables::AWS_WEB_IDENTITY_TOKEN_FILE) {
        return merged;
    }
    let name = environment
        .get(variables::AWS_PROFILE)
        .map_or("default", String::as_str);
    let file = |variable: &str, default: &str| {
        environment.get(variable).map(PathBuf::from).or_else(|| {
            let home = environment.get(variables::HOME)?;
            Some(PathBuf::from(home).join(".aws").join(default))
        })
    };
    let places = [
        (file(variables::AWS_CONFIG_FILE, "config"), profile_heading(name)),
        (
            file(variables::AWS_SHARED_CREDENTIALS_FILE, "credentials"),
            name.to_owned(),
        ),
    ];
    for (path, heading) in places {
        let text = path
            .and_then(|path| std::fs::read_to_string(path).ok())
            .unwrap_or_default();
        for (key, value) in section(&text, &heading) {
            let variable = match key {
                "aws_access_key_id" => variables::AWS_ACCESS_KEY_ID,
                "aws_secret_access_key" => variables::AWS_SECRET_ACCESS_KEY,
                "aws_session_token" => variables::AWS_SESSION_TOKEN,
                "region" => variables::AWS_REGION,
                "role_arn" => variables::AWS_ROLE_ARN,
                "web_identity_token_file" => variables::AWS_WEB_IDENTITY_TOKEN_FILE,
                "role_session_name" => variables::AWS_ROLE_SESSION_NAME,
                "endpoint_url" => variables::AWS_ENDPOINT_URL,
                _ => continue,
            };
            if !set(variable) {
                merged.insert(variable.to_owned(), value.to_owned());
            }
        }
    }
    merged
}

fn profile_heading(name: &str) -> String {
    if name == "default" {
        name.to_owned()
    } else {
        format!("profile {name}")
    }
}

/// Returns the `key = value` lines below `[heading]`.
fn section<'a>(text: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = name.trim() == heading;
        } else if inside
            && !trimmed.starts_with(['#', ';'])
            && let Some((key, value)) = trimmed.split_once('=')
        {
            found.push((key.trim(), value.trim()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_fills_what_the_environment_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let credentials = folder.path().join("credentials");
        std::fs::write(
            &credentials,
            "[default]\naws_access_key_id = WRONG\n[ci]\n# a comment = x\naws_access_key_id=AKIA1\naws_secret_access_key = s=1\n",
        )
        .unwrap();
        let config = folder.path().join("config");
        std::fs::write(&config, "[profile ci]\nregion = eu-west-1\n").unwrap();
        let mut variables = BTreeMap::from([
            ("AWS_PROFILE".to_owned(), "ci".to_owned()),
            (
                "AWS_SHARED_CREDENTIALS_FILE".to_owned(),
                credentials.display().to_string(),
            ),
            ("AWS_CONFIG_FILE".to_owned(), config.display().to_string()),
        ]);
        let merged = environment(&variables);
        assert_eq!(merged["AWS_ACCESS_KEY_ID"], "AKIA1");
        assert_eq!(merged["AWS_SECRET_ACCESS_KEY"], "s=1");
        assert_eq!(merged["AWS_REGION"], "eu-west-1");
        variables.insert("AWS_ACCESS_KEY_ID".to_owned(), "OWN".to_owned());
        assert_eq!(environment(&variables)["AWS_ACCESS_KEY_ID"], "OWN");
    }
}
