//! The settings of published providers, in many spellings and places.

use serde_json::json;

use super::check_settings;
use konverge_base::error::{ErrorKind, UserError};

/// A published provider: settings that a Spec may choose, and others that are the job's.
type Published = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The names of settings in published schemas.
const PUBLISHED: [Published; 25] = [
    (
        "aws",
        &[
            "region",
            "default_tags",
            "ignore_tags",
            "allowed_account_ids",
            "max_retries",
            "retry_mode",
            "skip_metadata_api_check",
        ],
        &[
            "access_key",
            "secret_key",
            "token",
            "profile",
            "assume_role",
            "assume_role_with_web_identity",
        ],
    ),
    (
        "google",
        &[
            "project",
            "region",
            "zone",
            "billing_project",
            "user_project_override",
            "scopes",
            "default_labels",
            "batching",
            "request_timeout",
        ],
        &[
            "access_token",
            "impersonate_service_account",
            "impersonate_service_account_delegates",
            "external_credentials",
        ],
    ),
    (
        "google-beta",
        &["project", "region", "zone"],
        &["access_token", "impersonate_service_account"],
    ),
    (
        "azurerm",
        &[
            "features",
            "subscription_id",
            "environment",
            "partner_id",
            "storage_use_azuread",
            "resource_provider_registrations",
        ],
        &[
            "client_id",
            "client_secret",
            "client_certificate",
            "client_certificate_password",
            "tenant_id",
            "auxiliary_tenant_ids",
            "use_msi",
            "use_cli",
            "use_oidc",
            "use_aks_workload_identity",
            "oidc_token",
            "oidc_request_token",
            "ado_pipeline_service_connection_id",
        ],
    ),
    (
        "azuread",
        &["environment", "partner_id"],
        &[
            "client_id",
            "client_secret",
            "client_certificate",
            "tenant_id",
            "use_msi",
            "use_cli",
            "use_oidc",
            "oidc_token",
        ],
    ),
    (
        "alicloud",
        &["region", "skip_region_validation", "client_read_timeout"],
        &[
            "access_key",
            "secret_key",
            "security_token",
            "ecs_role_name",
            "profile",
            "assume_role",
            "assume_role_with_oidc",
            "account_id",
        ],
    ),
    (
        "kubernetes",
        &["ignore_annotations", "ignore_labels", "experiments"],
        &[
            "username",
            "password",
            "token",
            "client_certificate",
            "client_key",
            "config_context",
            "config_context_auth_info",
            "config_context_cluster",
        ],
    ),
    (
        "helm",
        &["debug", "helm_driver", "burst_limit", "qps"],
        &["kubernetes", "registries", "registry"],
    ),
    (
        "vault",
        &["namespace", "max_lease_ttl_seconds", "max_retries", "token_name"],
        &[
            "token",
            "auth_login",
            "auth_login_userpass",
            "auth_login_aws",
            "auth_login_gcp",
            "auth_login_jwt",
            "client_auth",
            "headers",
        ],
    ),
    (
        "github",
        &["owner", "organization", "max_retries", "read_delay_ms"],
        &["token", "app_auth"],
    ),
    // The names decide, but for `openstack`.
    (
        "tencentcloud",
        &["region"],
        &[
            "secret_id",
            "secret_key",
            "security_token",
            "profile",
            "cam_role_name",
            "assume_role",
            "assume_role_with_saml",
            "assume_role_with_web_identity",
        ],
    ),
    (
        "huaweicloud",
        &["region"],
        &[
            "enterprise_project_id",
            "access_key",
            "secret_key",
            "security_token",
            "user_name",
            "user_id",
            "password",
            "assume_role",
            "agency_token",
            "profile",
        ],
    ),
    (
        "oci",
        &["region"],
        &[
            "retry_duration_seconds",
            "tenancy_ocid",
            "user_ocid",
            "fingerprint",
            "private_key",
            "private_key_password",
            "auth",
            "config_file_profile",
        ],
    ),
    (
        "openstack",
        &["region", "use_octavia"],
        &[
            "user_name",
            "user_id",
            "password",
            "token",
            "tenant_id",
            "tenant_name",
            "application_credential_id",
            "application_credential_secret",
            "user_domain_name",
            "cloud",
        ],
    ),
    (
        "opentelekomcloud",
        &["region", "max_retries"],
        &[
            "access_key",
            "security_token",
            "agency_name",
            "agency_domain_name",
            "delegated_project",
        ],
    ),
    ("akamai", &[], &["cache_enabled", "config_section"]),
    (
        "argocd",
        &[],
        &[
            "port_forward",
            "core",
            "auth_token",
            "use_local_config",
            "context",
        ],
    ),
    (
        "digitalocean",
        &[],
        &[
            "requests_per_second",
            "token",
            "spaces_access_id_token",
            "spaces_secret_key",
        ],
    ),
    (
        "cloudflare",
        &["retries"],
        &["rps", "api_token", "api_key", "api_user_service_key", "email"],
    ),
    ("hcloud", &["poll_interval"], &["token"]),
    (
        "datadog",
        &[],
        &[
            "validation_mode",
            "api_key",
            "app_key",
            "aws_access_key_id",
            "cloud_provider_auth_token",
        ],
    ),
    (
        "postgresql",
        &["connect_timeout"],
        &[
            "port",
            "sslmode",
            "username",
            "password",
            "aws_rds_iam_auth",
            "aws_rds_iam_profile",
            "aws_rds_iam_provider_role_arn",
            "gcp_iam_impersonate_service_account",
        ],
    ),
    (
        "snowflake",
        &[],
        &[
            "warehouse",
            "user",
            "password",
            "role",
            "private_key",
            "private_key_passphrase",
            "token",
            "authenticator",
            "profile",
        ],
    ),
    (
        "databricks",
        &[],
        &[
            "http_timeout_seconds",
            "profile",
            "token",
            "client_id",
            "client_secret",
            "azure_client_id",
            "azure_tenant_id",
            "azure_use_msi",
            "google_service_account",
            "auth_type",
        ],
    ),
    (
        "mongodbatlas",
        &[],
        &[
            "is_mongodbgov_cloud",
            "public_key",
            "private_key",
            "assume_role",
            "secret_name",
            "aws_access_key_id",
        ],
    ),
];

/// `assume_role` in other spellings.
fn spellings(name: &str) -> [String; 6] {
    let words: Vec<&str> = name.split('_').collect();
    let capital = |word: &str| format!("{}{}", word[..1].to_uppercase(), &word[1..]);
    let camel: String = words.iter().map(|word| capital(word)).collect();
    [
        name.to_owned(),
        name.to_uppercase(),
        name.replace('_', "-"),
        name.replace('_', "__"),
        format!("{}{}", camel[..1].to_lowercase(), &camel[1..]),
        camel,
    ]
}

#[test]
fn a_spec_chooses_no_identity_of_a_published_provider() {
    for (provider, free, identities) in PUBLISHED {
        for name in free {
            for value in [json!("shop"), json!(true), json!([{"a": "b"}])] {
                check_settings(provider, &json!({*name: value}), &[])
                    .unwrap_or_else(|_| panic!("{provider} {name}"));
            }
        }
        for name in identities {
            for spelling in spellings(name) {
                for value in [
                    json!("x"),
                    json!(true),
                    json!({"a": "x"}),
                    json!([{"a": {"b": ["x"]}}]),
                ] {
                    let at_top = json!({spelling.as_str(): value});
                    let nested = json!({"options": [{"more": [{spelling.as_str(): value}]}]});
                    // Another provider may have the same names.
                    for (provider, configuration) in [
                        (provider, &at_top),
                        (provider, &nested),
                        ("thing", &at_top),
                        ("thing", &nested),
                    ] {
                        let failure = check_settings(provider, configuration, &[]).map_err(UserError::from);
                        let failure = failure.expect_err(&format!("{provider} {configuration}"));
                        assert_eq!(failure.kind, ErrorKind::Policy);
                    }
                }
            }
        }
    }
}
