//! Settings of a provider that decide who asks: roles, profiles, accounts of services, keys, tokens, ways to log in.
//! The job's own identity may be allowed to act as many others. A Spec that chose one of them could act for another
//! team. For well-known providers a Spec may set what is listed here and nothing else. For the other providers the
//! names of settings decide.

use super::provider_addresses::words;

/// The settings that a Spec may choose for a well-known provider: where it works, what it writes into its objects,
/// how often it tries. The names are those of the published schemas.
const FREE: [(&[&str], &[&str]); 10] = [
    (
        &["aws", "awscc"],
        &[
            "allowed_account_ids",
            "default_tags",
            "forbidden_account_ids",
            "ignore_tags",
            "max_retries",
            "region",
            "retry_mode",
            "s3_force_path_style",
            "s3_us_east_1_regional_endpoint",
            "s3_use_path_style",
            "skip_credentials_validation",
            "skip_get_ec2_platforms",
            "skip_metadata_api_check",
            "skip_region_validation",
            "skip_requesting_account_id",
            "sts_region",
            "tag_policy_compliance",
            "token_bucket_rate_limiter_capacity",
            "use_dualstack_endpoint",
            "use_fips_endpoint",
            "user_agent",
        ],
    ),
    (
        &["google", "google-beta"],
        &[
            "add_terraform_attribution_label",
            "batching",
            "billing_project",
            "default_labels",
            "poll_interval",
            "project",
            "region",
            "request_reason",
            "request_timeout",
            "scopes",
            "terraform_attribution_label_addition_strategy",
            "user_project_override",
            "zone",
        ],
    ),
    (
        &["azurerm", "azapi", "azurestack"],
        &[
            "default_location",
            "default_name",
            "default_tags",
            "disable_correlation_request_id",
            "disable_default_output",
            "disable_terraform_partner_id",
            "enable_preflight",
            "environment",
            "features",
            "ignore_no_op_changes",
            "location",
            "maximum_busy_retry_attempts",
            "partner_id",
            "resource_provider_registrations",
            "resource_providers_to_register",
            "skip_credentials_validation",
            "skip_provider_registration",
            "storage_use_azuread",
            "subscription_id",
        ],
    ),
    (
        &["azuread"],
        &["disable_terraform_partner_id", "environment", "partner_id"],
    ),
    (
        &["alicloud"],
        &[
            "client_connect_timeout",
            "client_read_timeout",
            "configuration_source",
            "max_retry_timeout",
            "protocol",
            "region",
            "skip_region_validation",
        ],
    ),
    (
        &["kubernetes"],
        &["experiments", "ignore_annotations", "ignore_labels"],
    ),
    (
        &["helm"],
        &["burst_limit", "debug", "experiments", "helm_driver", "qps"],
    ),
    (
        &["vault"],
        &[
            "max_lease_ttl_seconds",
            "max_retries",
            "max_retries_ccc",
            "namespace",
            "skip_child_token",
            "skip_get_vault_version",
            "token_name",
            "vault_version_override",
        ],
    ),
    (
        &["github"],
        &[
            "max_per_page",
            "max_retries",
            "organization",
            "owner",
            "parallel_requests",
            "read_delay_ms",
            "retry_delay_ms",
            "retryable_errors",
            "write_delay_ms",
        ],
    ),
    // Its `cloud` is an entry in a file with credentials.
    (
        &["openstack"],
        &[
            "disable_no_cache_header",
            "enable_logging",
            "endpoint_type",
            "max_retries",
            "region",
            "use_octavia",
        ],
    ),
];

/// Words of a setting's name that say that it decides who asks.
const WORDS: [&str; 51] = [
    "actor",
    "agency",
    "arn",
    "auth",
    "authn",
    "authorization",
    "bearer",
    "cert",
    "certificate",
    "certs",
    "context",
    "cookie",
    "cookies",
    "cred",
    "creds",
    "ctx",
    "delegate",
    "delegates",
    "delegation",
    "email",
    "external",
    "federation",
    "fingerprint",
    "header",
    "headers",
    "iam",
    "installation",
    "jwt",
    "kerberos",
    "key",
    "keys",
    "keytab",
    "login",
    "logon",
    "mfa",
    "msi",
    "otp",
    "passcode",
    "pem",
    "pfx",
    "pkcs12",
    "pwd",
    "role",
    "roles",
    "saml",
    "section",
    "sso",
    "subject",
    "tenancy",
    "tenant",
    "tenants",
];

/// The same anywhere in a name without its separators, since names such as `rolearn` have none.
const PARTS: [&str; 30] = [
    "accesskey",
    "accountkey",
    "actas",
    "apikey",
    "appid",
    "applicationid",
    "assume",
    "authenticat",
    "clientid",
    "clientkey",
    "credential",
    "delegated",
    "identit",
    "impersonat",
    "localconfig",
    "oauth",
    "oidc",
    "onbehalf",
    "passphrase",
    "passwd",
    "password",
    "principal",
    "privatekey",
    "profile",
    "rolearn",
    "runas",
    "secret",
    "serviceaccount",
    "token",
    "usecli",
];

/// Who decides about a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chooser {
    /// The Spec, with all that is below it.
    Spec,
    /// The job.
    Job,
    /// What is below it, by its names.
    Unknown,
}

/// Who decides about a setting at the top of the configuration of a provider, by its name without host and namespace.
pub(super) fn chooser_of(provider: &str, setting: &str) -> Chooser {
    match free_settings(provider) {
        Some(free) if free.contains(&setting) => Chooser::Spec,
        Some(_) => Chooser::Job,
        None => chooser_by_name(setting),
    }
}

/// The settings that a Spec may choose for a well-known provider.
pub(super) fn free_settings(provider: &str) -> Option<&'static [&'static str]> {
    let found = FREE.iter().find(|(names, _)| names.contains(&provider));
    found.map(|(_, free)| *free)
}

/// Who decides about a setting, by its name alone.
pub(super) fn chooser_by_name(setting: &str) -> Chooser {
    let words = words(setting);
    let last = words.last().map(String::as_str).unwrap_or_default();
    if matches!(last, "tags" | "labels" | "annotations") {
        return Chooser::Spec;
    }
    // A user agent is a text of the request that proves nothing.
    let of_agent = words.iter().any(|word| word == "agent");
    let is_user = |word: &str| word.starts_with("user") && !of_agent;
    let joined = words.concat();
    let is_identity = words
        .iter()
        .any(|word| WORDS.contains(&word.as_str()) || is_user(word))
        || PARTS.iter().any(|part| joined.contains(part));
    match is_identity {
        true => Chooser::Job,
        false => Chooser::Unknown,
    }
}
