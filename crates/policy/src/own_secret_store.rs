//! The check of the `secretStore` in a Spec (Kusion 0.12 and later). It must equal the default store of
//! `konverge.yaml`: otherwise the author of the Spec could choose the server that receives the job's token.

use serde_json::{Map, Value};

use konverge_base::error::{ErrorKind, UserError};
use konverge_config::{SecretStoreConfig, SecretStoreKind, SecretsConfig};

/// The maximum length of a text of the Spec that a message quotes.
const SHOWN: usize = 120;

/// Checks that the secret store of a Spec is the default store.
///
/// # Errors
/// Another store; the hint names the keys to write.
pub(super) fn check(config: &SecretsConfig, store: &Map<String, Value>) -> Result<(), UserError> {
    let provider = store.get("provider").and_then(Value::as_object);
    let only = provider.and_then(|provider| match provider.len() {
        1 => provider.iter().next(),
        _ => None,
    });
    let default = config.default.as_ref().and_then(|name| config.stores.get(name));
    let wanted = only.map(|(name, settings)| (name, keys(name, settings)));
    if let (Some((_, Some(wanted))), Some(default)) = (&wanted, default)
        && wanted.is(default)
    {
        return Ok(());
    }
    let named = wanted.as_ref().map(|(name, _)| format!(" (`{}`)", shown(name)));
    let message = format!(
        "the Spec brings its own secret store{}, which is not the default store of konverge.yaml",
        named.unwrap_or_default()
    );
    let example = match &wanted {
        Some((name, Some(wanted))) => {
            let name = shown(name);
            format!(
                "`secrets: {{default: {name}, stores: {{{name}: {{{}}}}}}}`",
                wanted.text()
            )
        }
        _ => "`secrets.default` and `secrets.stores`".to_owned(),
    };
    Err(UserError::new(ErrorKind::Secret, message)
        .hint("remove `secretStore` from the Spec: only konverge.yaml configures secret stores")
        .hint(format!(
            "if the store is trusted, write {example} into the default branch's konverge.yaml"
        )))
}

/// A secret store as a Spec describes it, translated to the keys of `konverge.yaml`.
struct DescribedStore {
    kind: SecretStoreKind,
    address: Option<String>,
    region: Option<String>,
    mount: Option<String>,
    kv: Option<u32>,
}

/// Translates the settings of a provider. Returns `None` for a provider that Konverge does not support, and for
/// settings that `konverge.yaml` does not have.
fn keys(provider: &str, settings: &Value) -> Option<DescribedStore> {
    let settings = settings.as_object()?;
    let text = |key: &str| settings.get(key).and_then(Value::as_str).map(str::to_owned);
    let (kind, known): (_, &[&str]) = match provider {
        "vault" => (SecretStoreKind::Vault, &["server", "path", "version"]),
        "aws" => (SecretStoreKind::Aws, &["region"]),
        "alicloud" => (SecretStoreKind::AliKms, &["region"]),
        // The job logs in with its own identity, so the tenant and the cloud of the Spec are ignored.
        "azure" => (
            SecretStoreKind::Azure,
            &["vaultUrl", "tenantId", "environmentType"],
        ),
        _ => return None,
    };
    let address = match kind {
        SecretStoreKind::Azure => Some(text("vaultUrl")?),
        _ => text("server"),
    };
    let kv = match settings.get("version").map(Value::as_str) {
        None => None,
        Some(Some("v1")) => Some(1),
        Some(Some("v2")) => Some(2),
        Some(_) => return None,
    };
    let is_known = settings.keys().all(|key| known.contains(&key.as_str()));
    is_known.then(|| DescribedStore {
        kind,
        address,
        region: text("region"),
        mount: text("path"),
        kv,
    })
}

impl DescribedStore {
    /// Returns true if this description equals the configured store.
    fn is(&self, store: &SecretStoreConfig) -> bool {
        let bare = |text: &Option<String>| text.as_deref().map(|text| text.trim_end_matches('/').to_owned());
        self.kind == store.kind
            && bare(&self.address) == bare(&store.address)
            && self.region == store.region
            && (self.mount.is_none() || bare(&self.mount) == bare(&store.mount))
            && self.kv.is_none_or(|kv| kv == store.kv.unwrap_or(2))
    }

    fn text(&self) -> String {
        let quoted = |key: &str, value: &Option<String>| {
            let value = value.as_ref()?;
            Some(format!("{key}: \"{}\"", shown(value)))
        };
        let kv = self.kv.filter(|kv| *kv == 1).map(|_| "kv: 1".to_owned());
        let kind = Some(format!("kind: {}", self.kind));
        let keys = [
            kind,
            quoted("address", &self.address),
            quoted("region", &self.region),
            quoted("mount", &self.mount),
            kv,
        ];
        keys.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_config::Config;
    use serde_json::json;

    const VAULT: &str =
        "secrets: {default: db, stores: {db: {kind: vault, address: 'https://v.example', mount: secret}}}";

    fn judge(config: &str, store: Value) -> Result<(), String> {
        let config = Config::parse(config).unwrap().secrets;
        let refusal = check(&config, store.as_object().unwrap());
        refusal.map_err(|refusal| format!("{} — {}", refusal.message, refusal.hints.join(" ")))
    }

    #[test]
    fn the_configured_store_may_be_described_again() {
        for vault in [
            json!({"server": "https://v.example"}),
            json!({"server": "https://v.example/", "path": "secret", "version": "v2"}),
        ] {
            assert_eq!(
                judge(VAULT, json!({"provider": {"vault": vault}})),
                Ok(()),
                "{vault}"
            );
        }
        let aws = "secrets: {default: aws, stores: {aws: {kind: aws, region: eu-central-1}}}";
        let described = |region: &str| json!({"provider": {"aws": {"region": region}}});
        assert_eq!(judge(aws, described("eu-central-1")), Ok(()));
        assert!(judge(aws, described("us-east-1")).is_err());
        let azure =
            "secrets: {default: kv, stores: {kv: {kind: azure, address: 'https://a.vault.azure.net'}}}";
        let described =
            |address: &str| json!({"provider": {"azure": {"vaultUrl": address, "tenantId": "t-1"}}});
        assert_eq!(judge(azure, described("https://a.vault.azure.net/")), Ok(()));
        assert!(judge(azure, described("https://b.vault.azure.net")).is_err());
        let ali = "secrets: {default: kms, stores: {kms: {kind: alikms, region: cn-hangzhou}}}";
        let described = |region: &str| json!({"provider": {"alicloud": {"region": region}}});
        assert_eq!(judge(ali, described("cn-hangzhou")), Ok(()));
        assert!(judge(ali, described("cn-beijing")).is_err());
    }

    #[test]
    fn another_store_is_refused_with_the_key_to_write() {
        let vault = |settings: Value| json!({"provider": {"vault": settings}});
        let refused = judge(
            "{}",
            vault(json!({"server": "https://evil.example", "version": "v1"})),
        )
        .unwrap_err();
        for part in [
            "its own secret store (`vault`)",
            "secrets: {default: vault, stores: {vault: {kind: vault, address: \"https://evil.example\", kv: 1}}}",
        ] {
            assert!(refused.contains(part), "{refused}");
        }
        for other in [
            vault(json!({"server": "https://evil.example"})),
            vault(json!({"server": "https://v.example.evil.example"})),
            vault(json!({"server": "https://v.example", "path": "other"})),
            vault(json!({"server": "https://v.example", "version": "v1"})),
            vault(json!({"server": "https://v.example", "version": 2})),
            vault(json!({"server": "https://v.example", "role": "root"})),
            vault(json!({})),
            json!({"provider": {"vault": {"server": "https://v.example"}, "aws": {}}}),
            json!({"provider": {"azure": {}}}),
            json!({"provider": {"azure": {"vaultUrl": "https://v.example"}}}),
            json!({"provider": {"fake": {"data": []}}}),
            json!({"provider": {"aws": {"region": "eu-central-1", "profile": "admin"}}}),
            json!({"provider": "vault"}),
            json!({"vault": {"server": "https://v.example"}}),
        ] {
            let refused = judge(VAULT, other.clone()).unwrap_err();
            assert!(
                refused.contains("brings its own secret store"),
                "{other}: {refused}"
            );
        }
        let hostile = judge("{}", json!({"provider": {"a`\n::error::": {}}})).unwrap_err();
        assert!(!hostile.contains('\n'), "{hostile}");
    }
}
