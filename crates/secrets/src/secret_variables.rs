//! Decides which environment variables are passed to the programs of a run, and which values are secret. Both use one
//! list, because a provider may print everything that it is given.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::{Secrets, secret_names, secret_paths::each_named_text, token_patterns};
use konverge_base::variables;

/// The kind of content of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VariableKind {
    /// A setting that is not secret.
    Setting,
    /// A credential, always secret.
    Credential,
    /// A value that is secret if its name says so.
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

/// The variables of Konverge that contain credentials although their names do not say so.
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

/// The prefixes of the variables with which a run logs in itself. No secret reference may read such a variable.
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

/// The suffixes that mean a credential only in the environment of cloud tools: ids that belong to a key, files by
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

/// Returns true if only providers read a variable, to log in or to find their service. Terraform itself does not need
/// it.
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

/// Returns true if the run or its programs log in with this variable: to GitHub, a cloud, a store or a cluster.
pub fn is_of_run(name: &str) -> bool {
    is_passed(name) || OWN.contains(&name) || OF_RUN.iter().any(|start| name.starts_with(start))
}

/// Learns every credential of an environment: those that are passed on, those that Konverge reads, those whose
/// names say so, and passwords in URLs, such as that of a proxy.
pub fn learn_environment(secrets: &Secrets, environment: &BTreeMap<String, String>) {
    for (name, value) in environment {
        if is_credential(name) {
            learn_credential(secrets, name, value);
        }
        for part in token_patterns::secret_parts(value) {
            secrets.learn(&value[part]);
        }
        // Such as `authorization=Bearer%20TOKEN,dataset=shop`: only the last word of a credential header is secret.
        if name.starts_with("OTEL_EXPORTER_OTLP") && name.ends_with("HEADERS") {
            let headers = value.split(',').filter_map(|header| header.split_once('='));
            let is_proof = |header: &str| {
                let header = header.to_lowercase();
                ["auth", "key", "token", "secret", "team"]
                    .iter()
                    .any(|word| header.contains(word))
            };
            for (_, value) in headers.filter(|(header, _)| is_proof(header)) {
                learn_last_word(secrets, &percent_decode_str(value.trim()).decode_utf8_lossy());
            }
        }
        // git's `http.extraheader`: the last word is the credential.
        if name.starts_with("GIT_CONFIG_VALUE_") && value.to_lowercase().contains("authorization") {
            learn_last_word(secrets, value);
        }
    }
}

fn learn_last_word(secrets: &Secrets, text: &str) {
    if let Some(word) = text.split_whitespace().next_back() {
        secrets.learn(word)
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

/// Learns one credential. A path to a credential file is not a secret. In a document, such as Google's
/// credentials, each secret is learned separately.
fn learn_credential(secrets: &Secrets, name: &str, value: &str) {
    if value.starts_with('/') && !value.contains('\n') {
        return;
    }
    // An id, or the value of another program's variable, may be an ordinary word. Masking such a word in all output
    // would hide unrelated text, so only values that are not words are masked everywhere.
    let is_ours = OWN.contains(&name) || name.starts_with("KONVERGE_") || name.starts_with("INPUT_");
    if is_ours || classify(name).is_some() {
        if name.ends_with("_ID") && !OWN.contains(&name) {
            // An id such as `minio-admin` is masked only in values and messages, and not if it is an ordinary word.
            secrets.learn_named(value)
        } else {
            secrets.learn(value)
        }
    } else {
        secrets.learn_unless_word(value)
    }
    if let Ok(document) = serde_json::from_str::<Value>(value) {
        each_named_text(&document, &mut |text| secrets.learn(text));
    }
}

#[cfg(test)]
#[path = "secret_variables_tests.rs"]
mod tests;
