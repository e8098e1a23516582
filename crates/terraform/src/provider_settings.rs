//! The settings of a provider that a Spec may choose: location, labels and retries. All other settings belong
//! to the job. The job's identity may be allowed to act as many others, and a provider sends its credentials
//! to the address in its configuration. So a Spec that chose an identity, an address, a file or a command
//! could use the rights of another team. `konverge.yaml` on the default branch lists further settings that
//! Specs may choose.

use serde_json::Value;

use super::{
    address_shape::{AddressShape, address_shape},
    error::{TerraformError, of_resource},
    options::TerraformOptions,
    providers::{ProviderRef, full_source},
};
use konverge_base::{
    error::ErrorKind,
    model::{FieldPath, ResourceId},
};
use konverge_secrets::SecretTemplate;

/// Settings that a Spec may choose, by the name of the provider. They are at the top of the configuration,
/// and include everything below them. The names are those of the published schemas.
const FREE: [(&str, &str); 10] = [
    (
        "aws awscc",
        "allowed_account_ids default_tags forbidden_account_ids ignore_tags max_retries region retry_mode \
         s3_force_path_style s3_us_east_1_regional_endpoint s3_use_path_style skip_credentials_validation \
         skip_get_ec2_platforms skip_metadata_api_check skip_region_validation skip_requesting_account_id sts_region \
         tag_policy_compliance token_bucket_rate_limiter_capacity use_dualstack_endpoint use_fips_endpoint user_agent",
    ),
    (
        "google google-beta",
        "add_terraform_attribution_label batching billing_project default_labels poll_interval project region \
         request_reason request_timeout scopes terraform_attribution_label_addition_strategy user_project_override zone",
    ),
    (
        "azurerm azapi azurestack",
        "default_location default_name default_tags disable_correlation_request_id disable_default_output \
         disable_terraform_partner_id enable_preflight environment features ignore_no_op_changes location \
         maximum_busy_retry_attempts partner_id resource_provider_registrations resource_providers_to_register \
         skip_credentials_validation skip_provider_registration storage_use_azuread subscription_id",
    ),
    ("azuread", "disable_terraform_partner_id environment partner_id"),
    (
        "alicloud",
        "client_connect_timeout client_read_timeout configuration_source max_retry_timeout region skip_region_validation",
    ),
    ("kubernetes", "experiments ignore_annotations ignore_labels"),
    ("helm", "burst_limit debug experiments helm_driver qps"),
    (
        "vault",
        "max_lease_ttl_seconds max_retries max_retries_ccc namespace skip_child_token skip_get_vault_version token_name \
         vault_version_override",
    ),
    (
        "github",
        "max_per_page max_retries organization owner parallel_requests read_delay_ms retry_delay_ms retryable_errors \
         write_delay_ms",
    ),
    // For OpenStack, `cloud` is not in the list: it selects an entry in a file with credentials.
    (
        "openstack",
        "disable_no_cache_header enable_logging endpoint_type max_retries region use_octavia",
    ),
];

/// Settings that a Spec may choose for each provider without a row in [`FREE`].
const FREE_ELSEWHERE: &str = "annotations connect_timeout default_annotations default_labels default_tags ignore_tags \
     labels location max_retries poll_interval project region request_timeout retries tags timeout user_agent zone";

/// Last words of settings from which providers build a host name. A plain word always gives a host of the
/// provider's own service.
const PLACES: [&str; 4] = ["environment", "location", "region", "zone"];

/// Last words of credentials. Their value may be a reference to a secret, or else any text.
const CREDENTIALS: [&str; 11] = [
    "code",
    "email",
    "key",
    "login",
    "passphrase",
    "password",
    "secret",
    "signature",
    "token",
    "user",
    "username",
];

/// Parts of the names of settings that decide where requests go or which server is trusted. Even if
/// `konverge.yaml` allows such a setting by name, its value must be listed too. A rough list is enough,
/// because settings that are in no list are refused anyway.
const DESTINATIONS: [&str; 20] = [
    "addr",
    "audience",
    "authorit",
    "broker",
    "cabundle",
    "cacert",
    "connectionstring",
    "endpoint",
    "gateway",
    "host",
    "insecure",
    "issuer",
    "protocol",
    "prox",
    "scheme",
    "server",
    "ssl",
    "tls",
    "url",
    "verif",
];

/// Words that indicate such a destination only as a whole word of the name.
const DESTINATION_WORDS: [&str; 5] = ["ca", "dsn", "ip", "uri", "uris"];

/// Addresses that name a permission; no request is ever sent to them.
const SCOPES: &str = "https://www.googleapis.com/auth/";

/// The list by which a Spec may choose a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllowedBy {
    Nobody,
    /// `terraform.credential_settings`, by the name of the setting or of a block around it.
    Name,
    /// The setting is in [`FREE`] or [`FREE_ELSEWHERE`].
    List,
}

/// Names and values that `konverge.yaml` allows a Spec to set for one provider.
struct Rules<'a> {
    names: &'a [String],
    values: Vec<&'a str>,
}

/// Returns an error for a configuration with a setting or a value that the Spec may not choose.
pub(super) fn check(
    id: &ResourceId,
    provider: &ProviderRef,
    configuration: &Value,
    options: &TerraformOptions,
) -> Result<(), TerraformError> {
    let listed = [&options.provider_addresses, &options.provider_identities];
    let listed = listed.into_iter().flatten();
    let values = listed.filter(|(source, _)| full_source(source) == provider.source);
    let rules = Rules {
        names: &options.credential_settings,
        values: values
            .flat_map(|(_, values)| values)
            .map(String::as_str)
            .collect(),
    };
    let free = free_settings(provider.name());
    let mut settings = configuration.as_object().into_iter().flatten();
    let refused = settings.find_map(|(name, value)| {
        let allowed = if free.split(' ').any(|free| free == name) {
            AllowedBy::List
        } else {
            AllowedBy::Nobody
        };
        rules.find_refused(value, &FieldPath::root(), name, allowed)
    });
    let Some((path, setting)) = refused else {
        return Ok(());
    };
    let provider = &provider.source;
    let what = format!(
        "`{id}` configures {provider} with `{}`, whose value a Spec may not choose; a Spec chooses no identity of a provider, and no address, file or command, because it could use the job's credentials for another team or send them elsewhere",
        path.as_str().escape_debug()
    );
    Err(of_resource(ErrorKind::Policy, id, what)
        .hint(format!(
            "remove the setting from `extensions.providerMeta`: the platform team sets it in the job's environment; a Spec may choose {}, but no address in them",
            free.replace(' ', ", ")
        ))
        .hint(format!(
            "to let Specs choose it, the platform team adds the allowed values (for a switch: `NAME=VALUE`) to the default branch's konverge.yaml, as `provider_identities: {{{provider}: [VALUE]}}` of a rule for this stack or of `terraform`, or, for an address, in the same way under `terraform.provider_addresses`; any value but an address: `terraform.credential_settings: [{}]`",
            setting.escape_debug()
        ))
        .hint("a credential may be a reference to a secret that this stack may read, such as `ref+STORE://PATH#/KEY`")
        .into())
}

/// Returns the settings that a Spec may choose, by the provider's name without host and namespace.
fn free_settings(provider: &str) -> &'static str {
    let found = FREE
        .iter()
        .find(|(names, _)| names.split(' ').any(|name| name == provider));
    found.map_or(FREE_ELSEWHERE, |(_, free)| free)
}

impl Rules<'_> {
    /// Returns the path and name of the first refused setting: this one, or one below it. `above` is the path
    /// of the object around it.
    fn find_refused(
        &self,
        value: &Value,
        above: &FieldPath,
        name: &str,
        allowed: AllowedBy,
    ) -> Option<(FieldPath, String)> {
        let is_named = self.names.iter().any(|known| known == name);
        let allowed = match allowed {
            AllowedBy::List => AllowedBy::List,
            // Everything below a setting such as `endpoints` is a destination too.
            _ if is_destination(name) => AllowedBy::Nobody,
            AllowedBy::Nobody if is_named => AllowedBy::Name,
            allowed => allowed,
        };
        self.find_in_value(value, &above.join(name), name, allowed)
    }

    fn find_in_value(
        &self,
        value: &Value,
        path: &FieldPath,
        name: &str,
        allowed: AllowedBy,
    ) -> Option<(FieldPath, String)> {
        let is_refused = match value {
            // An empty block can select a login method, so it is refused where no value is allowed.
            Value::Object(map) if map.is_empty() => allowed == AllowedBy::Nobody,
            Value::Object(map) => {
                let mut members = map.iter();
                return members.find_map(|(key, member)| self.find_refused(member, path, key, allowed));
            }
            Value::Array(items) => {
                let mut items = items.iter().enumerate();
                return items.find_map(|(at, item)| self.find_in_value(item, &path.item(at), name, allowed));
            }
            Value::Null => false,
            Value::String(text) => self.refuses(name, text.trim(), true, allowed),
            other => self.refuses(name, &other.to_string(), false, allowed),
        };
        is_refused.then(|| (path.clone(), name.to_owned()))
    }

    fn refuses(&self, name: &str, text: &str, is_text: bool, allowed: AllowedBy) -> bool {
        // The value of a switch must be listed as `NAME=VALUE`: `true` alone would allow all switches.
        let is_listed = |value: &str| self.values.contains(&value);
        if text.is_empty() || is_listed(&format!("{name}={text}")) || (is_text && is_listed(text)) {
            return false;
        }
        let name = name.to_lowercase();
        let last = name.rsplit(['_', '-']).next().unwrap_or_default();
        // The client id of an application selects an identity: with the job's own token, a provider needs no
        // secret to act as that application.
        let is_application = name.ends_with("client_id");
        let is_credential = CREDENTIALS.contains(&last) || is_application;
        let may_refer = match allowed {
            AllowedBy::Nobody => is_credential && !is_application,
            AllowedBy::Name => is_credential,
            // A secret in such a setting would become readable, because providers write tags and labels into
            // their objects.
            AllowedBy::List => false,
        };
        // The value of a secret reference is unknown here, so its form cannot be checked.
        if may_refer && is_secret_reference(text) {
            return false;
        }
        let is_url = (text.contains("://") || text.starts_with("//")) && !text.starts_with(SCOPES);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_ ".contains(c);
        let leaves_its_place = PLACES.contains(&last) && !text.chars().all(is_plain);
        is_url
            || leaves_its_place
            || match allowed {
                AllowedBy::Nobody => true,
                AllowedBy::Name => !is_credential && address_shape(text) != AddressShape::None,
                AllowedBy::List => address_shape(text) == AddressShape::Whole,
            }
    }
}

fn is_destination(name: &str) -> bool {
    let name = name.to_lowercase().replace('-', "_");
    let joined = name.replace('_', "");
    DESTINATIONS.iter().any(|part| joined.contains(part))
        || name.split('_').any(|word| DESTINATION_WORDS.contains(&word))
        || joined.trim_end_matches('s').ends_with("domain")
}

/// Returns true if a text is a reference to a secret and nothing else.
fn is_secret_reference(text: &str) -> bool {
    let template = SecretTemplate::parse(text).ok().flatten();
    template.is_some_and(|template| template.whole().is_some())
}

#[cfg(test)]
#[path = "provider_settings_tests.rs"]
mod tests;
