use serde_json::json;

use super::*;
use konverge_base::error::{ErrorKind, UserError};

fn check_settings(provider: &str, configuration: &Value, allowed: &[&str]) -> Result<(), TerraformError> {
    let provider = ProviderRef {
        source: format!("registry.terraform.io/any/{provider}"),
        version: "1.0.0".to_owned(),
    };
    let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
    check(&"a:b:c_d:e".parse().unwrap(), &provider, configuration, &allowed)
}

#[test]
fn commands_and_files_are_refused_by_name() {
    let account = json!({"type": "external_account", "credential_source": {"executable": {"command": "id"}}});
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
        // SSH runs a proxy command.
        ("ssh_opts", json!({"ssh_opts": ["-o", "ProxyCommand=/run/evil"]})),
        ("edgerc", json!({"edgerc": "/run/edgerc"})),
        ("credentials", json!({"credentials": "/run/key.json"})),
        ("credentials", json!({"credentials": account.to_string()})),
    ] {
        let error = check_settings("thing", &configuration, &[]).unwrap_err();
        let failure = UserError::from(error);
        assert_eq!(failure.kind, ErrorKind::Policy);
        assert!(failure.message.contains(setting), "{failure}");
        let hints = failure.hints.join("\n");
        assert!(hints.contains("terraform.credential_settings"), "{hints}");
        assert!(
            !failure.message.contains("/run"),
            "the value is not shown: {failure}"
        );
        check_settings("thing", &configuration, &[setting]).unwrap();
    }
}

#[test]
fn other_settings_are_the_specs_to_choose() {
    for configuration in [
        json!({}),
        json!({"region": "eu-west-1", "host": "https://h", "insecure": true, "project": "p"}),
        json!({"config_path": null, "exec": [], "token_file": "", "profile": "", "assume_role": []}),
        json!({"features": {"network": {"purge": true}}, "user_agent": "x", "max_retries": 3}),
        // The keys below tags and labels are anybody's.
        json!({"default_tags": [{"tags": {"role": "web", "path": "/x"}}], "labels": {"profile": "x"}}),
        // The rules of the default branch say which stack may read a secret.
        json!({"token": "ref+db://pay/api#/x", "login": [{"username": "ref+db://pay/api#/u", "password": "ref+db://pay/api#/x"}]}),
    ] {
        check_settings("thing", &configuration, &[]).unwrap();
    }
    let two = json!({"exec": {"command": "x"}, "config_path": "y"});
    assert!(check_settings("thing", &two, &["exec"]).is_err());
}

/// A published provider: the settings that a Spec may choose, and those that decide who the provider acts as.
type Published = (&'static str, &'static [&'static str], &'static [&'static str]);

/// The names of settings in published schemas. Commands and files are above, addresses are in `provider_addresses`.
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
        &["region", "enterprise_project_id"],
        &[
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
        &["region", "retry_duration_seconds"],
        &[
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
    ("akamai", &["cache_enabled"], &["config_section"]),
    (
        "argocd",
        &["port_forward", "core"],
        &["auth_token", "use_local_config", "context"],
    ),
    (
        "digitalocean",
        &["requests_per_second"],
        &["token", "spaces_access_id_token", "spaces_secret_key"],
    ),
    (
        "cloudflare",
        &["rps", "retries"],
        &["api_token", "api_key", "api_user_service_key", "email"],
    ),
    ("hcloud", &["poll_interval"], &["token"]),
    (
        "datadog",
        &["validation_mode"],
        &[
            "api_key",
            "app_key",
            "aws_access_key_id",
            "cloud_provider_auth_token",
        ],
    ),
    (
        "postgresql",
        &["port", "connect_timeout"],
        &[
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
        &["warehouse"],
        &[
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
        &["http_timeout_seconds"],
        &[
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
        &["is_mongodbgov_cloud"],
        &[
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

/// The names that only the list of a well-known provider refuses: they say nothing of an identity.
const BY_LIST: [&str; 6] = [
    "account_id",
    "cloud",
    "kubernetes",
    "registries",
    "registry",
    "ado_pipeline_service_connection_id",
];

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
            let by_list = BY_LIST.contains(name);
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
                    let places = [
                        (provider, &at_top),
                        (provider, &nested),
                        ("thing", &at_top),
                        ("thing", &nested),
                    ];
                    let known = free_settings(provider).is_some();
                    for (provider, configuration) in places
                        .into_iter()
                        .filter(|(name, _)| !by_list || (known && *name != "thing"))
                    {
                        let failure = check_settings(provider, configuration, &[]).map_err(UserError::from);
                        let failure = failure.expect_err(&format!("{provider} {configuration}"));
                        assert_eq!(failure.kind, ErrorKind::Policy);
                    }
                }
            }
        }
    }
}

#[test]
fn a_refused_identity_is_named_with_its_path_and_a_way_out() {
    for (provider, path, configuration) in [
        (
            "aws",
            "/assume_role/0/role_arn",
            json!({"region": "eu-west-1", "assume_role": [{"role_arn": "arn:aws:iam::1:role/evil"}]}),
        ),
        ("aws", "/profile", json!({"profile": "evil"})),
        (
            "google",
            "/impersonate_service_account",
            json!({"impersonate_service_account": "evil@shop.iam.gserviceaccount.com"}),
        ),
        // What a version of tomorrow adds is not the Spec's.
        ("aws", "/something_new", json!({"something_new": "evil"})),
        (
            "helm",
            "/kubernetes/0/username",
            json!({"kubernetes": [{"username": "evil", "password": "ref+db://pay/api#/x"}]}),
        ),
        (
            "vault",
            "/headers/0/value",
            json!({"headers": [{"name": "", "value": "evil"}]}),
        ),
        ("thing", "/auth/0/type", json!({"auth": [{"type": "evil"}]})),
        (
            "thing",
            "/credentials",
            json!({"credentials": "{\"type\": \"service_account\", \"private_key\": \"evil\"}"}),
        ),
        ("thing", "/token", json!({"token": "xref+db://evil"})),
    ] {
        let failure = UserError::from(check_settings(provider, &configuration, &[]).unwrap_err());
        assert!(
            failure.message.contains(&format!("`{path}`")) && failure.message.contains("no identity"),
            "{failure}"
        );
        assert!(
            !failure.message.contains("evil"),
            "the value is not shown: {failure}"
        );
        let hints = failure.hints.join("\n");
        assert!(
            hints.contains("the job's environment") && hints.contains("terraform.credential_settings"),
            "{hints}"
        );
        assert_eq!(
            provider == "aws",
            hints.contains("a Spec may choose allowed_account_ids,"),
            "{hints}"
        );
    }
    // The default branch allows a name with all that is below it.
    let role = json!({"assume_role": [{"role_arn": "arn:aws:iam::1:role/x", "session_name": "s"}]});
    check_settings("aws", &role, &["assume_role"]).unwrap();
    assert!(check_settings("aws", &role, &["role"]).is_err());
}
