//! Settings of a provider that decide where its requests go, or which server it trusts: addresses, proxies, certificate
//! authorities, switches that turn a check off. A provider takes its credentials from the job's environment, so a Spec
//! that chooses such a setting could have them sent to a server of its author. The default branch's `konverge.yaml`
//! lists the values that a provider may have, under `terraform.provider_addresses`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    address_shape::{AddressShape, address_shape},
    error::TerraformError,
    providers::{ProviderRef, full_source},
};
use konverge_base::{
    model::{ResourceId, masked_value::join_path},
    secrets::SecretTemplate,
};

/// Words of a setting's name that say that its value is an address.
const ADDRESS: [&str; 25] = [
    "address",
    "addresses",
    "addr",
    "addrs",
    "audience",
    "broker",
    "brokers",
    "domain",
    "domains",
    "dsn",
    "endpoint",
    "endpoints",
    "gateway",
    "host",
    "hostname",
    "hostnames",
    "hosts",
    "ip",
    "issuer",
    "proxies",
    "proxy",
    "server",
    "servers",
    "uri",
    "uris",
];

/// The same at the end of a word, since names such as `baseurl` have no separator.
const ADDRESS_ENDS: [&str; 8] = [
    "url",
    "urls",
    "uri",
    "proxy",
    "endpoint",
    "endpoints",
    "hostname",
    "server",
];

/// Settings that providers make a host name of. A plain word stays with the provider's own hosts.
const PLACES: [&str; 11] = [
    "cloud",
    "environment",
    "instance",
    "location",
    "partition",
    "realm",
    "region",
    "site",
    "subdomain",
    "workspace",
    "zone",
];

/// Last words of settings that hold a name or data. A text with dots is ordinary there.
const TEXTS: [&str; 39] = [
    "account",
    "accounts",
    "alias",
    "annotation",
    "annotations",
    "arn",
    "bucket",
    "catalog",
    "cluster",
    "comment",
    "context",
    "database",
    "description",
    "group",
    "groups",
    "id",
    "ids",
    "label",
    "labels",
    "level",
    "mode",
    "name",
    "names",
    "namespace",
    "owner",
    "policy",
    "prefix",
    "principal",
    "profile",
    "project",
    "role",
    "schema",
    "scope",
    "scopes",
    "session",
    "subject",
    "suffix",
    "tag",
    "tags",
];

/// Last words of settings that say who asks: a part of the credentials.
const LOGINS: [&str; 4] = ["email", "login", "user", "username"];

/// Last words of settings that prove who asks.
const SECRETS: [&str; 7] = [
    "code",
    "key",
    "passphrase",
    "password",
    "secret",
    "signature",
    "token",
];

/// Addresses that name a permission, and are never asked for anything.
const SCOPES: &str = "https://www.googleapis.com/auth/";

/// What a setting decides.
#[derive(Clone, Copy)]
enum Decides {
    /// Where requests go, or which authority is believed: any text does.
    Target,
    /// A part of a host name.
    Place,
    /// Which protocol is spoken: any but `https`.
    Protocol,
    /// Whether the server is checked. The check holds if the switch has this value.
    Check(bool),
    /// Nothing of that kind: a name, or data such as tags. A provider may still put it into a host name.
    Text,
    /// As a text, below one: `tags` have any keys, and what stands there is written into every object.
    Data,
    /// As a text, but it says who asks.
    Login,
    /// Nothing of that kind: it proves who asks.
    Secret,
    /// Its name does not say: the value's form decides.
    Unknown,
}

/// Refuses a configuration with such a value, unless the default branch lists it for this provider.
pub(super) fn check(
    id: &ResourceId,
    provider: &ProviderRef,
    configuration: &Value,
    allowed: &BTreeMap<String, Vec<String>>,
) -> Result<(), TerraformError> {
    let listed = allowed
        .iter()
        .filter(|(source, _)| full_source(source) == provider.source);
    let listed: Vec<&str> = listed
        .flat_map(|(_, values)| values)
        .map(String::as_str)
        .collect();
    match find(configuration, ("", ""), Decides::Unknown, &listed) {
        None => Ok(()),
        Some(path) => Err(TerraformError::ProviderAddress {
            id: id.clone(),
            path,
            provider: provider.source.clone(),
        }),
    }
}

/// The path of the first such value; `path` and `name` are those of `value`.
fn find(value: &Value, (path, name): (&str, &str), decides: Decides, listed: &[&str]) -> Option<String> {
    match value {
        Value::Object(map) => map.iter().find_map(|(key, member)| {
            let within = match (decides_of(key), decides) {
                // Everything below `endpoints` is an endpoint.
                (_, Decides::Target) => Decides::Target,
                // The keys below `tags` are anybody's.
                (Decides::Unknown | Decides::Login | Decides::Secret, Decides::Text | Decides::Data) => {
                    Decides::Data
                }
                (own, _) => own,
            };
            find(member, (&join_path(path, key), key), within, listed)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, item)| find(item, (&format!("{path}/{at}"), name), decides, listed)),
        _ => {
            let text = match value {
                Value::String(text) => text.trim().to_owned(),
                Value::Null => String::new(),
                other => other.to_string(),
            };
            // The value of a switch is allowed only together with its name: `true` would allow each of them.
            let is_switch = matches!(decides, Decides::Check(_));
            let refused = !text.is_empty()
                && changes_destination(&text, value.is_string(), decides)
                && (is_switch || !listed.contains(&text.as_str()))
                && !listed.contains(&format!("{name}={text}").as_str());
            refused.then(|| path.to_owned())
        }
    }
}

fn changes_destination(text: &str, is_text: bool, decides: Decides) -> bool {
    // The value of a secret is not known here: only credentials by their names take it. A provider writes other texts,
    // such as tags, into its objects.
    if is_text && matches!(decides, Decides::Secret | Decides::Login) && is_secret_reference(text) {
        return false;
    }
    let is_address = is_text && (text.contains("://") || text.starts_with("//")) && !text.starts_with(SCOPES);
    is_address
        || match decides {
            Decides::Target => is_text,
            Decides::Place => is_text && !is_plain_word(text),
            Decides::Protocol => is_text && !text.eq_ignore_ascii_case("https"),
            Decides::Check(holds) => !text.eq_ignore_ascii_case(&holds.to_string()),
            Decides::Text | Decides::Data | Decides::Login => {
                is_text && address_shape(text) == AddressShape::Whole
            }
            Decides::Secret => false,
            Decides::Unknown => is_text && address_shape(text) != AddressShape::None,
        }
}

/// Returns true for a text that stays with the provider's own hosts as a part of a host name.
fn is_plain_word(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
    text.chars().all(is_plain)
}

/// Returns true if the rule of this file decides about a value, and no other rule has to.
pub(super) fn is_address_setting(name: &str, value: &Value) -> bool {
    match decides_of(name) {
        Decides::Target | Decides::Protocol => value.is_string(),
        Decides::Place => value.as_str().is_some_and(|text| !is_plain_word(text)),
        Decides::Check(_) => true,
        _ => false,
    }
}

/// Returns true if a setting is a credential by its name, and its value is a reference to a secret and nothing else.
pub(super) fn is_referenced_credential(name: &str, value: &Value) -> bool {
    matches!(decides_of(name), Decides::Secret | Decides::Login)
        && value.as_str().is_some_and(is_secret_reference)
}

/// Returns true if a text is a reference to a secret and nothing else.
fn is_secret_reference(text: &str) -> bool {
    let template = SecretTemplate::parse(text).ok().flatten();
    template.is_some_and(|template| template.whole().is_some())
}

/// What a setting decides, by its name.
fn decides_of(name: &str) -> Decides {
    let words = words(name);
    let any = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    let last = words.last().map(String::as_str).unwrap_or_default();
    if any(&["insecure", "unverified"]) {
        return Decides::Check(false);
    }
    let checks = any(&["verify", "verification", "validate"]);
    let of_server = any(&[
        "tls",
        "ssl",
        "https",
        "cert",
        "certs",
        "certificate",
        "certificates",
        "server",
        "host",
    ]);
    let off = any(&["skip", "disable", "disabled", "ignore", "no", "without", "allow"]);
    if off && (checks || of_server) {
        return Decides::Check(false);
    }
    if (checks && of_server) || last == "verify" {
        return Decides::Check(true);
    }
    let of_authority =
        any(&["ca", "cas", "cacert", "cacerts", "cabundle"]) || any(&["authority", "authorities"]);
    let ends = |word: &String| ADDRESS_ENDS.iter().any(|end| word.ends_with(end));
    // The id or the name of a domain is not an address.
    let of_domain = any(&["domain", "domains"]) && !matches!(last, "domain" | "domains");
    let of_connection = any(&["connection"]) && any(&["string", "strings"]);
    if of_authority || of_connection || (any(&ADDRESS) && !of_domain) || words.iter().any(ends) {
        return Decides::Target;
    }
    match last {
        "protocol" | "scheme" => Decides::Protocol,
        last if PLACES.contains(&last) => Decides::Place,
        last if SECRETS.contains(&last) => Decides::Secret,
        last if LOGINS.contains(&last) => Decides::Login,
        "id" if any(&["client"]) => Decides::Login,
        last if TEXTS.contains(&last) || last == "version" => Decides::Text,
        _ => Decides::Unknown,
    }
}

/// The words of a name, in lower case: `base_url`, `base-url` and `baseUrl` have two.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before_small) {
            words.push(String::new());
        }
        before_small = c.is_lowercase() || c.is_numeric();
        if c.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use konverge_base::error::{ErrorKind, UserError};

    const HERE: &str = "registry.terraform.io/hashicorp/vault";

    fn checked(configuration: &Value, allowed: &[(&str, &[&str])]) -> Result<(), TerraformError> {
        let provider = ProviderRef {
            source: HERE.to_owned(),
            version: "5.0.0".to_owned(),
        };
        let owned = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
        let allowed = allowed
            .iter()
            .map(|(source, values)| ((*source).to_owned(), owned(values)));
        check(
            &"a:b:c_d:e".parse().unwrap(),
            &provider,
            configuration,
            &allowed.collect(),
        )
    }

    #[test]
    fn a_secret_decides_no_destination() {
        for name in ["token", "password", "api_key", "client_id", "username"] {
            assert!(
                checked(&json!({name: "ref+db://pay/api#/x"}), &[]).is_ok(),
                "{name}"
            );
            let around = "https://evil.example/ref+db://pay/api#/x";
            assert!(checked(&json!({name: around}), &[]).is_err(), "{name}");
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
            assert!(checked(&configuration, &[]).is_err(), "{configuration}");
        }
        assert!(
            checked(
                &json!({"login": {"username": "a", "password": "ref+db://pay/api#/x"}}),
                &[]
            )
            .is_ok()
        );
        for name in ["endpoint", "host", "anything", "region", "insecure", "proxy_url"] {
            let configuration = json!({name: "ref+db://pay/api#/x"});
            assert!(checked(&configuration, &[]).is_err(), "{name}");
            assert!(
                checked(&configuration, &[(HERE, &["ref+db://pay/api#/x"])]).is_ok() || name == "insecure"
            );
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
            ("/list/1", json!({"list": ["a", "evil.example"]})),
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
            let failure = UserError::from(checked(&configuration, &[]).unwrap_err());
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

    #[test]
    fn other_settings_are_no_addresses() {
        for configuration in [
            json!({}),
            json!({"region": "eu-west-1", "profile": "shop.dev", "use_fips_endpoint": true, "skip_region_validation": true, "skip_metadata_api_check": true}),
            json!({"assume_role": [{"role_arn": "arn:aws:iam::1:role/x", "session_name": "s"}]}),
            json!({"insecure": false, "skip_tls_verify": "false", "ssl_verify": true, "scheme": "https"}),
            json!({"host": "", "endpoints": [], "url": null, "ca_certificate": ""}),
            json!({"scopes": ["https://www.googleapis.com/auth/cloud-platform"], "project": "acme.com:shop"}),
            json!({"features": {"key_vault": {"purge_soft_delete_on_destroy": true}}}),
            json!({"project_domain_id": "default", "token": "t", "password": "p?x", "username": "ada.lovelace"}),
            json!({"impersonate_service_account": "x@shop.iam.gserviceaccount.com"}),
            json!({"default_tags": [{"tags": {"Owner": "team.shop", "Cost": "acme.example"}}], "default_labels": {"a": "b.example"}}),
            json!({"allowed_ranges": ["10.0.0.0/8"], "what": "1.2.3", "bucket": "logs.acme.example", "org_name": "acme.shop"}),
            json!({"access_key": "abc.defg/hi", "client_secret": "a.bc:80", "api_token": "x.yz/1"}),
            json!({"what": "credentials.json", "other": "v1.33", "more": "acme.com:shop", "last": "a.b c"}),
        ] {
            checked(&configuration, &[]).unwrap();
        }
    }

    #[test]
    fn a_value_is_allowed_for_its_provider_alone() {
        let ours = json!({"address": "https://vault.acme.example", "skip_tls_verify": true});
        let values: &[&str] = &["https://vault.acme.example", "skip_tls_verify=true"];
        for source in ["hashicorp/vault", "HashiCorp/Vault", HERE] {
            checked(&ours, &[(source, values)]).unwrap();
        }
        for (source, values) in [
            ("hashicorp/vault", &values[..1]),
            ("hashicorp/vault", &values[1..]),
            ("hashicorp/vault", &["https://vault.acme.example", "true"]),
            (
                "hashicorp/vault",
                &["https://vault.acme.example/", "skip_tls_verify=true"],
            ),
            ("hashicorp/aws", values),
            ("evil.example/hashicorp/vault", values),
            ("vault", values),
        ] {
            assert!(
                checked(&ours, &[(source, values)]).is_err(),
                "{source} {values:?}"
            );
        }
        let theirs = json!({"address": "https://vault.acme.example.evil.example"});
        assert!(checked(&theirs, &[("hashicorp/vault", values)]).is_err());
    }
}
