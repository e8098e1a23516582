#[path = "provider_settings_published_tests.rs"]
mod published;
#[path = "provider_settings_random_tests.rs"]
mod random;
#[path = "provider_settings_schema_tests.rs"]
mod schema;

use serde_json::json;

use super::*;
use konverge_base::error::{ErrorKind, UserError};
use konverge_secrets::{HashKey, Secrets};

/// What the default branch allows.
fn allowing(
    names: &[&str],
    addresses: &[(&str, &[&str])],
    identities: &[(&str, &[&str])],
) -> TerraformOptions {
    let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    let listed = |lists: &[(&str, &[&str])]| {
        let lists = lists.iter();
        lists
            .map(|(source, values)| ((*source).to_owned(), owned(values)))
            .collect()
    };
    let mut options = TerraformOptions::new(Secrets::new(HashKey::derive("test")));
    options.credential_settings = owned(names);
    options.provider_addresses = listed(addresses);
    options.provider_identities = listed(identities);
    options
}

fn check_with(
    provider: &str,
    configuration: &Value,
    options: &TerraformOptions,
) -> Result<(), TerraformError> {
    let provider = ProviderRef {
        source: format!("registry.terraform.io/any/{provider}"),
        version: "1.0.0".to_owned(),
    };
    check(&"a:b:c_d:e".parse().unwrap(), &provider, configuration, options)
}

fn check_settings(provider: &str, configuration: &Value, names: &[&str]) -> Result<(), TerraformError> {
    check_with(provider, configuration, &allowing(names, &[], &[]))
}

#[test]
fn commands_and_files_are_refused_by_name() {
    let account = json!({"type": "external_account", "credential_source": {"executable": {"command": "id"}}});
    for (setting, configuration) in [
        ("credential_process", json!({"credential_process": "id"})),
        ("exec", json!({"exec": {"api_version": "v1", "command": "id"}})),
        ("exec", json!({"kubernetes": [{"exec": [{"command": "id"}]}]})),
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
fn free_settings_are_the_specs_to_choose() {
    let tags = json!([{"tags": {"Owner": "team.shop", "Cost": "acme.example", "role": "web", "path": "/x", "host": "x"}}]);
    for (provider, configuration) in [
        ("thing", json!({})),
        (
            "thing",
            json!({"region": "eu-west-1", "project": "p", "zone": "a", "max_retries": 3}),
        ),
        (
            "thing",
            json!({"default_tags": tags, "labels": {"profile": "x"}, "user_agent": "x"}),
        ),
        // What is not set chooses nothing.
        (
            "thing",
            json!({"config_path": null, "exec": [], "token_file": "", "profile": "", "assume_role": []}),
        ),
        (
            "thing",
            json!({"host": "", "endpoints": [], "url": null, "ca_certificate": "", "list": [null, ""]}),
        ),
        // The rules of the default branch say which stack may read a secret.
        (
            "thing",
            json!({"token": "ref+db://pay/api#/x", "login": [{"username": "ref+db://pay/api#/u", "password": "ref+db://pay/api#/x"}]}),
        ),
        (
            "aws",
            json!({"region": "eu-west-1", "use_fips_endpoint": true, "skip_region_validation": true, "default_tags": tags}),
        ),
        (
            "google",
            json!({"scopes": ["https://www.googleapis.com/auth/cloud-platform"], "project": "acme.com:shop", "default_labels": {"a": "b.example"}}),
        ),
        (
            "azurerm",
            json!({"features": {"key_vault": {"purge_soft_delete_on_destroy": true}, "network": {}}}),
        ),
        ("azurerm", json!({"features": {}, "environment": "usgovernment"})),
    ] {
        check_settings(provider, &configuration, &[])
            .unwrap_or_else(|error| panic!("{configuration}: {error}"));
    }
    let two = json!({"exec": {"command": "x"}, "config_path": "y"});
    assert!(check_settings("thing", &two, &["exec"]).is_err());
    // A block without settings may be a way to log in.
    for configuration in [json!({"auth_login_aws": {}}), json!({"auth_login_aws": [{}]})] {
        assert!(check_settings("vault", &configuration, &[]).is_err());
        check_settings("vault", &configuration, &["auth_login_aws"]).unwrap();
    }
}

#[test]
fn a_setting_that_is_allowed_by_name_has_any_value_but_an_address() {
    for configuration in [
        json!({"token": "t", "password": "p?x", "username": "ada.lovelace", "client_id": "a.bc"}),
        json!({"impersonate_service_account": "x@shop.iam.gserviceaccount.com"}),
        json!({"allowed_ranges": ["10.0.0.0/8"], "what": "1.2.3", "port": 5432, "warehouse": true}),
        json!({"access_key": "abc.defg/hi", "client_secret": "a.bc:80", "api_token": "x.yz/1", "security_token": "x"}),
        json!({"what": "credentials.json", "other": "v1.33", "more": "acme.com:shop", "last": "a.b c"}),
    ] {
        let names: Vec<_> = configuration
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        check_settings("thing", &configuration, &names).unwrap();
        for name in &names {
            let others: Vec<_> = names.iter().copied().filter(|other| other != name).collect();
            assert!(
                check_settings("thing", &configuration, &others).is_err(),
                "{name}"
            );
        }
    }
    // A name with dots may be a host: its value is listed.
    let bucket = json!({"bucket": "logs.acme.example"});
    assert!(check_settings("thing", &bucket, &["bucket"]).is_err());
    let listed = allowing(&[], &[], &[("any/thing", &["bucket=logs.acme.example"])]);
    check_with("thing", &bucket, &listed).unwrap();
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
        ("aws", "/Default_tags", json!({"Default_tags": "evil"})),
        ("aws", "/x/region", json!({"x": {"region": "evil"}})),
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

#[test]
fn a_secret_decides_no_destination() {
    for name in ["token", "password", "api_key", "username"] {
        check_settings("thing", &json!({name: "ref+db://pay/api#/x"}), &[]).unwrap();
        let around = json!({name: "https://evil.example/ref+db://pay/api#/x"});
        assert!(check_settings("thing", &around, &[name]).is_err(), "{name}");
    }
    // What a provider writes into its objects can be read by others, and Terraform computes from it.
    for configuration in [
        json!({"default_tags": [{"tags": {"note": "ref+db://pay/api#/x"}}]}),
        json!({"tags": {"token": "ref+db://pay/api#/x"}}),
        json!({"tags": {"a": {"username": "ref+db://pay/api#/x"}}}),
        json!({"default_labels": {"a": "ref+db://pay/api#/x"}}),
        json!({"description": "ref+db://pay/api#/x"}),
        json!({"session_name": "ref+db://pay/api#/x"}),
        json!({"project_id": "ref+db://pay/api#/x"}),
    ] {
        assert!(
            check_settings("thing", &configuration, &[]).is_err(),
            "{configuration}"
        );
    }
    for name in ["endpoint", "host", "anything", "region", "insecure", "proxy_url"] {
        let configuration = json!({name: "ref+db://pay/api#/x"});
        assert!(
            check_settings("thing", &configuration, &[name]).is_err() || name == "anything",
            "{name}"
        );
        let listed = allowing(&[], &[("any/thing", &["ref+db://pay/api#/x"])], &[]);
        check_with("thing", &configuration, &listed).unwrap();
    }
}

/// With a login the provider has a token of the job: to name an application is to choose an identity.
#[test]
fn a_secret_chooses_no_application() {
    let reference = "ref+db://pay/api#/x";
    for provider in ["azurerm", "azuread", "azapi", "databricks", "thing"] {
        for configuration in [
            json!({"client_id": reference}),
            json!({"azure_client_id": reference}),
            json!({"auth": [{"client_id": reference}]}),
            json!({"client_id": reference, "client_secret": reference}),
        ] {
            let failure = check_settings(provider, &configuration, &[]).map_err(UserError::from);
            let failure = failure.expect_err(&format!("{provider} {configuration}"));
            assert!(failure.message.contains("client_id"), "{failure}");
            let names = ["client_id", "azure_client_id", "auth", "client_secret"];
            check_settings(provider, &configuration, &names).unwrap();
        }
    }
}

#[test]
fn what_sends_credentials_elsewhere_is_refused() {
    for (path, configuration) in [
        ("/endpoint", json!({"endpoint": "evil.example"})),
        (
            "/endpoints/0/sts",
            json!({"endpoints": [{"sts": "evil.example"}]}),
        ),
        ("/endpoints/0/sts", json!({"endpoints": [{"sts": "evil"}]})),
        ("/host", json!({"host": "evil.example"})),
        (
            "/kubernetes/0/host",
            json!({"kubernetes": [{"host": "10.0.0.1", "token": "x"}]}),
        ),
        ("/address", json!({"address": "evil.example:8200"})),
        ("/vault_addr", json!({"vault_addr": "evil.example"})),
        ("/server", json!({"server": "evil.example"})),
        ("/vsphere_server", json!({"vsphere_server": "evil.example"})),
        ("/http_proxy", json!({"http_proxy": "evil.example:3128"})),
        ("/proxy_url", json!({"proxy_url": "evil.example"})),
        ("/baseUrl", json!({"baseUrl": "evil.example"})),
        ("/baseurl", json!({"baseurl": "evil.example"})),
        ("/BASE-URL", json!({"BASE-URL": "evil.example"})),
        (
            "/storage_custom_endpoint",
            json!({"storage_custom_endpoint": "evil.example"}),
        ),
        (
            "/endpoint_overrides/identity",
            json!({"endpoint_overrides": {"identity": "evil.example"}}),
        ),
        ("/universe_domain", json!({"universe_domain": "evil.example"})),
        ("/metadata_host", json!({"metadata_host": "evil.example"})),
        (
            "/bootstrap_servers/1",
            json!({"bootstrap_servers": ["", "evil.example:9092"]}),
        ),
        // Whatever it is called.
        (
            "/auth/0/where",
            json!({"auth": [{"where": "https://evil.example"}]}),
        ),
        ("/what", json!({"what": "//evil.example"})),
        ("/what", json!({"what": "evil.example"})),
        ("/what", json!({"what": "evil.example:8200"})),
        ("/what", json!({"what": "evil.example/v1"})),
        ("/what", json!({"what": "203.0.113.9"})),
        ("/what", json!({"what": "2001:db8::1"})),
        (
            "/backend/0/where",
            json!({"backend": [{"where": "evil.example"}]}),
        ),
        ("/list/1", json!({"list": ["", "evil.example"]})),
        // The provider makes a host name of it, and this one ends early.
        ("/account_name", json!({"account_name": "evil.example/"})),
        ("/org_name", json!({"org_name": "evil.example#"})),
        ("/account", json!({"account": "x@evil.example?"})),
        // What a host name is made of.
        ("/region", json!({"region": "eu.evil.example/"})),
        ("/cloud", json!({"cloud": "evil.example"})),
        (
            "/assume_role/0/sts_region",
            json!({"assume_role": [{"sts_region": "x@evil.example#"}]}),
        ),
        // Whom it believes.
        ("/insecure", json!({"insecure": true})),
        ("/insecure", json!({"insecure": "true"})),
        (
            "/tls_insecure_skip_verify",
            json!({"tls_insecure_skip_verify": true}),
        ),
        ("/skip_tls_verify", json!({"skip_tls_verify": 1})),
        ("/allow_unverified_ssl", json!({"allow_unverified_ssl": true})),
        ("/disable_ssl", json!({"disable_ssl": true})),
        ("/ssl_verify", json!({"ssl_verify": false})),
        ("/verify", json!({"verify": false})),
        ("/scheme", json!({"scheme": "http"})),
        (
            "/cluster_ca_certificate",
            json!({"cluster_ca_certificate": "-----BEGIN"}),
        ),
        ("/ca_cert_pem", json!({"ca_cert_pem": "-----BEGIN"})),
        (
            "/certificate_authority_data",
            json!({"certificate_authority_data": "LS0t"}),
        ),
    ] {
        // A name that the default branch allows, with all below it, does not allow an address.
        let name = path.split('/').nth(1).unwrap();
        for names in [&[][..], &[name]] {
            let failure = UserError::from(check_settings("vault", &configuration, names).unwrap_err());
            assert_eq!(failure.kind, ErrorKind::Policy);
            assert!(failure.message.contains(path), "{path}: {failure}");
            let hints = failure.hints.join("\n");
            assert!(hints.contains("terraform.provider_addresses"), "{hints}");
            assert!(
                !failure.message.contains("evil"),
                "the value is not shown: {failure}"
            );
        }
    }
}

/// A Spec chooses where, not which server: the form of a free value counts too.
#[test]
fn a_free_setting_is_no_address() {
    for (provider, name) in [
        ("aws", "region"),
        ("aws", "sts_region"),
        ("google", "zone"),
        ("azurerm", "environment"),
        ("azurerm", "location"),
        ("alicloud", "region"),
        ("thing", "region"),
    ] {
        for value in [
            "x@evil.example#",
            "evil.example",
            "eu.evil.example/",
            "a/b",
            "a:1",
            "//x",
            "http://x",
        ] {
            let configuration = json!({name: value});
            assert!(
                check_settings(provider, &configuration, &[name]).is_err(),
                "{configuration}"
            );
        }
    }
    for value in [
        "https://evil.example",
        "evil.example:80",
        "x@evil.example?",
        "ref+db://pay/api#/x",
    ] {
        let configuration = json!({"default_tags": [{"tags": {"a": value}}], "project": value});
        assert!(
            check_settings("aws", &configuration, &[]).is_err(),
            "{configuration}"
        );
        assert!(
            check_settings("google", &configuration, &[]).is_err(),
            "{configuration}"
        );
    }
}

#[test]
fn a_value_is_allowed_for_its_provider_alone() {
    let ours = json!({"address": "https://vault.acme.example", "skip_tls_verify": true});
    let values: &[&str] = &["https://vault.acme.example", "skip_tls_verify=true"];
    for source in ["any/vault", "Any/Vault", "registry.terraform.io/any/vault"] {
        check_with("vault", &ours, &allowing(&[], &[(source, values)], &[])).unwrap();
        check_with("vault", &ours, &allowing(&[], &[], &[(source, values)])).unwrap();
    }
    for (source, values) in [
        ("any/vault", &values[..1]),
        ("any/vault", &values[1..]),
        ("any/vault", &["https://vault.acme.example", "true"]),
        (
            "any/vault",
            &["https://vault.acme.example/", "skip_tls_verify=true"],
        ),
        ("any/aws", values),
        ("evil.example/any/vault", values),
        ("vault", values),
    ] {
        let listed = allowing(&[], &[(source, values)], &[]);
        assert!(
            check_with("vault", &ours, &listed).is_err(),
            "{source} {values:?}"
        );
    }
    let listed = allowing(&[], &[("any/vault", values)], &[]);
    let theirs = json!({"address": "https://vault.acme.example.evil.example"});
    assert!(check_with("vault", &theirs, &listed).is_err());
}

#[test]
fn an_identity_is_allowed_by_its_value() {
    let ours = "arn:aws:iam::111122223333:role/apply";
    let role = |arn: &str| json!({"assume_role": [{"role_arn": arn, "session_name": "s"}]});
    let listed = allowing(&[], &[], &[("any/aws", &[ours, "session_name=s"])]);
    check_with("aws", &role(ours), &listed).unwrap();
    for other in [
        "arn:aws:iam::111122223333:role/apply2",
        "arn:aws:iam::1:role/x",
        "",
        "s",
    ] {
        let refused = check_with("aws", &role(other), &listed).is_err();
        assert_eq!(refused, !other.is_empty(), "{other}");
    }
    let external = json!({"assume_role": [{"role_arn": ours, "external_id": "x"}]});
    assert!(check_with("aws", &external, &listed).is_err());
    assert!(check_with("awscc", &role(ours), &listed).is_err());
}
