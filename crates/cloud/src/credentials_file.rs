//! [`CredentialsFile`]: the file that `GOOGLE_APPLICATION_CREDENTIALS` names. Commands in the file are not
//! executed.
//!
//! <https://google.aip.dev/auth/4112>, <https://google.aip.dev/auth/4117>

use std::{collections::BTreeMap, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{
    CloudEnvironment, CloudError,
    http_client::{self, LoginClient},
};
use konverge_base::variables;

/// The variable with the path of the file.
pub(super) const VARIABLE: &str = variables::GOOGLE_APPLICATION_CREDENTIALS;

/// A credentials file of Google Cloud.
#[derive(Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CredentialsFile {
    ExternalAccount(ExternalAccount),
    ServiceAccount(ServiceAccountKey),
}

/// Settings to exchange a token of another issuer, such as GitHub, for a token of Google.
#[derive(Clone, Deserialize)]
pub(super) struct ExternalAccount {
    pub audience: String,
    pub subject_token_type: String,
    pub token_url: String,
    pub service_account_impersonation_url: Option<String>,
    credential_source: SubjectSource,
}

/// The key of a service account.
#[derive(Clone, Deserialize)]
pub(super) struct ServiceAccountKey {
    pub client_email: String,
    pub private_key_id: Option<String>,
    pub private_key: String,
    pub token_uri: Option<String>,
}

/// The source of the other issuer's token.
#[derive(Clone, Deserialize)]
struct SubjectSource {
    file: Option<PathBuf>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    format: Option<SubjectFormat>,
}

#[derive(Clone, Deserialize)]
struct SubjectFormat {
    subject_token_field_name: Option<String>,
}

impl CredentialsFile {
    /// Reads the file that the environment names, or the key in a variable; `None` if neither is set.
    pub(crate) fn of_environment(environment: &CloudEnvironment) -> Option<Result<Self, CloudError>> {
        if let Some(path) = environment.var(VARIABLE) {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| CloudError::setting(VARIABLE, error));
            return Some(text.and_then(|text| Self::parse(VARIABLE, &text)));
        }
        let variable = [
            variables::GOOGLE_CREDENTIALS,
            variables::GOOGLE_SERVICE_ACCOUNT_KEY,
        ];
        let mut variables = variable
            .iter()
            .filter_map(|name| Some((name, environment.var(name)?)));
        variables.next().map(|(name, text)| Self::parse(name, text))
    }

    /// Parses a file or a variable. The parser's message is left out of the error, because it quotes the
    /// content.
    fn parse(setting: &str, text: &str) -> Result<Self, CloudError> {
        serde_json::from_str(text).map_err(|_| {
            let why = "it is neither the key of a service account nor the description of a workload identity (`external_account`)";
            CloudError::setting(setting, why)
        })
    }
}

impl ExternalAccount {
    /// Reads the other issuer's token.
    pub(crate) async fn subject_token(&self, client: &LoginClient) -> Result<String, CloudError> {
        let source = &self.credential_source;
        let what = "the job's own token";
        let found = match (&source.file, &source.url) {
            (Some(file), _) => {
                let read = tokio::fs::read_to_string(file).await;
                read.map_err(|error| CloudError::setting(file.display().to_string(), error))?
            }
            (None, Some(url)) => {
                let request = source
                    .headers
                    .iter()
                    .fold(client.get(url), |request, (name, value)| {
                        request.header(name, value)
                    });
                http_client::text(request, what).await?
            }
            (None, None) => {
                let why = "its `credential_source` is neither a file nor a URL; commands are not run";
                return Err(CloudError::setting(VARIABLE, why));
            }
        };
        let format = source.format.as_ref();
        match format.and_then(|format| format.subject_token_field_name.as_ref()) {
            None => Ok(found.trim().to_owned()),
            Some(field) => {
                let document: Value = serde_json::from_str(&found)
                    .map_err(|_| CloudError::refused(what, "the answer is not JSON"))?;
                http_client::field(&document, field, what)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTERNAL: &str = r#"{"type": "external_account", "audience": "a", "subject_token_type": "t",
        "token_url": "https://sts.googleapis.com/v1/token", "credential_source": SOURCE}"#;

    fn external(source: &str) -> ExternalAccount {
        match CredentialsFile::parse(VARIABLE, &EXTERNAL.replace("SOURCE", source)) {
            Ok(CredentialsFile::ExternalAccount(account)) => account,
            _ => panic!("{source} is a source"),
        }
    }

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn an_error_about_the_file_does_not_quote_it() {
        for text in [
            "s3cret",
            "{}",
            r#"{"type": "s3cret"}"#,
            r#"{"type": "authorized_user", "refresh_token": "s3cret"}"#,
            r#"{"type": "service_account", "client_email": {"s3cret": 1}}"#,
        ] {
            let Err(error) = CredentialsFile::parse(VARIABLE, text) else {
                panic!("{text} is no credentials file")
            };
            let said = konverge_base::error::chain(&error);
            assert!(said.starts_with(VARIABLE) && !said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn the_file_goes_before_the_key_in_a_variable() {
        let key = r#"{"type": "service_account", "client_email": "of-the-variable", "private_key": "k"}"#;
        let of_file = file(&key.replace("of-the-variable", "of-the-file"));
        let email = |environment: &CloudEnvironment| match CredentialsFile::of_environment(environment) {
            Some(Ok(CredentialsFile::ServiceAccount(key))) => Some(key.client_email),
            _ => None,
        };
        let both = CloudEnvironment::default()
            .with(VARIABLE, of_file.path().display().to_string().as_str())
            .with(variables::GOOGLE_CREDENTIALS, key);
        assert_eq!(email(&both).as_deref(), Some("of-the-file"));
        assert_eq!(
            email(&both.clone().without(&[VARIABLE])).as_deref(),
            Some("of-the-variable")
        );
        assert!(CredentialsFile::of_environment(&CloudEnvironment::default()).is_none());
        // A file that is not there is an error: the key in a variable is another identity.
        drop(of_file);
        assert!(matches!(CredentialsFile::of_environment(&both), Some(Err(_))));
    }

    #[tokio::test]
    async fn the_token_of_another_issuer_is_read_from_a_file_in_its_format() {
        let client = LoginClient::new().unwrap();
        let token = async |text: &str, format: &str| {
            let of_issuer = file(text);
            let source = serde_json::json!({"file": of_issuer.path()});
            let source = source.to_string().replace('}', &format!("{format}}}"));
            external(&source).subject_token(&client).await
        };
        let json = r#", "format": {"type": "json", "subject_token_field_name": "token"}"#;
        assert_eq!(token("abc\n", "").await, Ok("abc".to_owned()));
        assert_eq!(token(r#"{"token": "abc"}"#, json).await, Ok("abc".to_owned()));
        for wrong in ["abc", r#"{"other": "s3cret"}"#, r#"{"token": 1}"#] {
            let error = token(wrong, json).await.unwrap_err();
            assert!(!konverge_base::error::chain(&error).contains("s3cret"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_command_of_the_file_is_not_run() {
        let client = LoginClient::new().unwrap();
        let account = external(r#"{"executable": {"command": "touch /tmp/konverge-was-here"}}"#);
        let error = account.subject_token(&client).await.unwrap_err();
        let said = konverge_base::error::chain(&error);
        assert!(said.ends_with("commands are not run"), "{said}");
    }
}
