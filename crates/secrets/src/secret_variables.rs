//! The environment: which variables are passed to the programs of a run, and which values are secret. One
//! list for both, because a provider may print everything it is given.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Secrets, secret_names, token_patterns};
use konverge_base::variables;

/// The content of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VariableKind {
    /// Nothing secret.
    Setting,
    /// A credential.
    Credential,
    /// A secret if its name says so.
    ByName,
}

/// The environment variables that Terraform and its providers get. A name that ends in `*` is a prefix.
///
/// The network and its certificates; the credentials of AWS, Google Cloud, Azure, Alibaba Cloud, Tencent
/// Cloud, Huawei Cloud, Oracle Cloud, DigitalOcean, Cloudflare, Hetzner and Vault as their providers document
/// them; Terraform's tokens for private registries; the runner's endpoint for OIDC tokens, which cloud
/// providers exchange for credentials.
const PASSED: [(&str, VariableKind); 33] = [
    (variables::PATH, VariableKind::Setting),
    ("LANG", VariableKind::Setting),
    ("LC_ALL", VariableKind::Setting),
    ("TZ", VariableKind::Setting),
    (variables::HTTP_PROXY, VariableKind::Setting),
    (variables::HTTPS_PROXY, VariableKind::Setting),
    (variables::NO_PROXY, VariableKind::Setting),
    ("http_proxy", VariableKind::Setting),
    ("https_proxy", VariableKind::Setting),
    ("no_proxy", VariableKind::Setting),
    (variables::SSL_CERT_FILE, VariableKind::Setting),
    (variables::SSL_CERT_DIR, VariableKind::Setting),
    ("AWS_*", VariableKind::ByName),
    ("GOOGLE_*", VariableKind::ByName),
    ("GCLOUD_*", VariableKind::ByName),
    ("CLOUDSDK_*", VariableKind::ByName),
    ("ARM_*", VariableKind::ByName),
    ("AZURE_*", VariableKind::ByName),
    ("ALICLOUD_*", VariableKind::ByName),
    ("ALIBABA_CLOUD_*", VariableKind::ByName),
    ("TENCENTCLOUD_*", VariableKind::ByName),
    ("HW_*", VariableKind::ByName),
    ("HUAWEICLOUD_*", VariableKind::ByName),
    ("OCI_*", VariableKind::ByName),
    ("DIGITALOCEAN_*", VariableKind::ByName),
    ("CLOUDFLARE_*", VariableKind::ByName),
    ("HCLOUD_*", VariableKind::ByName),
    (variables::VAULT_ADDR, VariableKind::Setting),
    (variables::VAULT_TOKEN, VariableKind::Credential),
    (variables::VAULT_NAMESPACE, VariableKind::Setting),
    ("TF_TOKEN_*", VariableKind::Credential),
    (variables::ACTIONS_ID_TOKEN_REQUEST_URL, VariableKind::Setting),
    (
        variables::ACTIONS_ID_TOKEN_REQUEST_TOKEN,
        VariableKind::Credential,
    ),
];

/// Credentials of this program whose names do not say so.
const OWN: [&str; 9] = [
    "INPUT_KUBECONFIG",
    variables::KONVERGE_KUBECONFIG,
    variables::KONVERGE_REVIEW_KEY,
    variables::KONVERGE_AGE_IDENTITY,
    variables::SOPS_AGE_KEY,
    variables::VAULT_SECRET_ID,
    variables::GOOGLE_SERVICE_ACCOUNT_KEY,
    variables::PGPASSWORD,
    variables::MYSQL_PWD,
];

/// The prefixes of the variables with which a run itself logs in: no reference may read such a variable.
const OF_RUN: [&str; 15] = [
    "KONVERGE_",
    "INPUT_",
    "GITHUB_",
    "GH_",
    "GITEA_",
    variables::GITLAB_TOKEN,
    "CI_",
    "ACTIONS_",
    "RUNNER_",
    "VAULT_",
    "SOPS_",
    "KUBE",
    "GIT_",
    "OSS_",
    variables::PGUSER,
];

/// Suffixes that mean a credential only in the environment of cloud tools: ids that come with a key, files by
/// content, certificates with their key.
const ENDS: [&str; 7] = [
    "ACCESS_KEY_ID",
    "SECRET_ID",
    "KEY",
    "KEY_CONTENT",
    "KEYFILE_JSON",
    "CLIENT_CERTIFICATE",
    "ACCESS_KEY_SECRET",
];

/// Returns true if a variable is passed to Terraform and its providers.
pub fn is_passed(name: &str) -> bool {
    classify(name).is_some()
}

/// Returns true if only providers read a variable, to log in or to find their service: Terraform itself needs none of them.
pub fn is_provider_credential(name: &str) -> bool {
    let is_of_service = matches!(
        classify(name),
        Some(VariableKind::ByName | VariableKind::Credential)
    );
    let is_of_issuer = ["VAULT_", "ACTIONS_ID_TOKEN_"]
        .iter()
        .any(|start| name.starts_with(start));
    is_passed(name) && (is_of_service || is_of_issuer) && !name.starts_with("TF_TOKEN_")
}

/// Returns true if a run itself logs in with such a variable, or its programs do: to GitHub, to a cloud, to a store, to
/// a cluster.
pub fn is_of_run(name: &str) -> bool {
    is_passed(name) || OWN.contains(&name) || OF_RUN.iter().any(|start| name.starts_with(start))
}

/// Registers every credential of an environment: those passed on, those that this program reads, those whose
/// names say so, and passwords in URLs such as a proxy's.
pub fn learn_environment(secrets: &Secrets, environment: &BTreeMap<String, String>) {
    for (name, value) in environment {
        if is_credential(name) {
            learn_credential(secrets, name, value);
        }
        for part in token_patterns::secret_parts(value) {
            secrets.learn(&value[part]);
        }
        // `authorization=Bearer%20TOKEN,dataset=shop`: the last word of a credential is secret, and no other header is.
        if name.starts_with("OTEL_EXPORTER_OTLP") && name.ends_with("HEADERS") {
            let headers = value.split(',').filter_map(|header| header.split_once('='));
            let is_proof = |header: &str| {
                let header = header.to_lowercase();
                ["auth", "key", "token", "secret", "team"]
                    .iter()
                    .any(|word| header.contains(word))
            };
            for (_, value) in headers.filter(|(header, _)| is_proof(header)) {
                let decoded = percent_decode_str(value.trim()).decode_utf8_lossy();
                decoded
                    .split_whitespace()
                    .next_back()
                    .into_iter()
                    .for_each(|word| secrets.learn(word));
            }
        }
        // `http.extraheader` of git: the last word is the credential.
        if name.starts_with("GIT_CONFIG_VALUE_") && value.to_lowercase().contains("authorization") {
            value
                .split_whitespace()
                .next_back()
                .into_iter()
                .for_each(|word| secrets.learn(word));
        }
    }
}

fn classify(name: &str) -> Option<VariableKind> {
    let matches = |rule: &str| match rule.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == rule,
    };
    let found = PASSED.iter().find(|(rule, _)| matches(rule));
    found.map(|(_, holds)| *holds)
}

fn is_credential(name: &str) -> bool {
    match classify(name) {
        Some(VariableKind::Setting) => false,
        Some(VariableKind::Credential) => true,
        Some(VariableKind::ByName) => {
            secret_names::is_secret_name(name) || ENDS.iter().any(|end| name.ends_with(end))
        }
        None => OWN.contains(&name) || secret_names::is_secret_name(name),
    }
}

/// Registers one credential. A path to a credential is not secret itself. In a document, such as Google's
/// credentials, each secret is registered separately.
fn learn_credential(secrets: &Secrets, name: &str, value: &str) {
    if value.starts_with('/') && !value.contains('\n') {
        return;
    }
    // An id may be an ordinary word, and so may the value of another program's variable: only values that are
    // not words are masked everywhere.
    let is_ours = OWN.contains(&name) || name.starts_with("KONVERGE_") || name.starts_with("INPUT_");
    if is_ours || classify(name).is_some() {
        if name.ends_with("_ID") && !OWN.contains(&name) {
            // An id such as `minio-admin` is masked only in values and messages, and only if it is not a word.
            secrets.learn_named(value)
        } else {
            secrets.learn(value)
        }
    } else {
        secrets.learn_unless_word(value)
    }
    if let Ok(document) = serde_json::from_str::<Value>(value) {
        learn_document(secrets, &document);
    }
}

fn learn_document(secrets: &Secrets, document: &Value) {
    match document {
        Value::Object(map) => {
            for (key, member) in map {
                match member {
                    Value::String(text) if secret_names::is_secret_name(key) => secrets.learn(text),
                    other => learn_document(secrets, other),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| learn_document(secrets, item)),
        _ => {}
    }
}

#[cfg(test)]
#[path = "secret_variables_tests.rs"]
mod tests;
