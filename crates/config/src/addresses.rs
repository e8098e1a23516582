//! The addresses in `konverge.yaml` to which a run sends credentials.

use std::collections::BTreeMap;

use super::{Config, key_recipients::StateRecipient};

/// The schemes of state stores that send the login of the run to the host in their URL.
const HOSTS: [&str; 4] = ["http", "https", "postgres", "mysql"];

/// The schemes of stores that send a token to their endpoint. S3 and OSS are not listed: a signature is valid for one
/// request only.
const TOKENS: [&str; 2] = ["gs", "az"];

impl Config {
    /// Returns the addresses to which a run sends credentials, by their configuration keys. Public addresses of clouds
    /// are left out: only the cloud itself answers there.
    pub fn addresses(&self) -> BTreeMap<String, String> {
        let mut addresses = BTreeMap::new();
        for (name, store) in &self.secrets.stores {
            let key = format!("secrets.stores.{name}");
            if let Some(address) = &store.address {
                addresses.insert(format!("{key}.address"), address.clone());
            }
            vaults(&mut addresses, &format!("{key}.keys"), store.key_services());
        }
        let recipients = self.state.recipients().into_iter().map(|(_, of)| of);
        vaults(&mut addresses, "state.encrypt_to", recipients.collect());
        if let Some(url) = &self.state.url {
            let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
            let takes_token = TOKENS.contains(&scheme);
            if HOSTS.contains(&scheme) || takes_token && url.contains("endpoint=") {
                addresses.insert("state.url".to_owned(), url.clone());
            }
            if let Some(endpoint) = self.state.options.get("endpoint").filter(|_| takes_token) {
                addresses.insert("state.options.endpoint".to_owned(), endpoint.clone());
            }
        }
        if let Some(url) = &self.portal.publish {
            let takes_token = TOKENS
                .iter()
                .any(|scheme| url.starts_with(&format!("{scheme}://")));
            if takes_token && url.contains("endpoint=") {
                addresses.insert("portal.publish".to_owned(), url.clone());
            }
        }
        for (provider, values) in &self.terraform.provider_addresses {
            for (at, value) in values.iter().enumerate() {
                let key = format!("terraform.provider_addresses.{provider}[{at}]");
                addresses.insert(key, value.clone());
            }
        }
        addresses
    }
}

/// Adds the addresses of Azure key vaults. Other recipients need no entry: a transit engine belongs to a store that is
/// listed already, and the other key services have public addresses.
fn vaults(addresses: &mut BTreeMap<String, String>, key: &str, keys: Vec<StateRecipient>) {
    for (at, recipient) in keys.into_iter().enumerate() {
        if let StateRecipient::AzureKeyVault { vault, .. } = recipient {
            addresses.insert(format!("{key}[{at}]"), vault);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_that_gets_credentials_has_its_key() {
        let text = "state:\n  url: gs://states\n  options: {endpoint: 'https://gs.acme.example'}\n  \
            encrypt_to: [age1zl0cp7wtcxk93hkgclsdm35wkxskphhvyfg5y73v5cwu6fvlkppsfyzmd2, 'azurekv:https://a.vault.azure.net/keys/k']\n\
            terraform: {provider_addresses: {hashicorp/vault: ['https://vault.acme.example']}}\n\
            secrets:\n  stores:\n    db: {kind: vault, address: 'https://v.acme.example', allow: []}\n    \
            files: {kind: sops, keys: ['azurekv:https://b.vault.azure.net/keys/k'], allow: []}\n    job: {kind: env, allow: []}\n";
        let config = Config::parse(text).unwrap();
        let found: Vec<_> = config.addresses().into_iter().collect();
        let expected = [
            ("secrets.stores.db.address", "https://v.acme.example"),
            ("secrets.stores.files.keys[0]", "https://b.vault.azure.net"),
            ("state.encrypt_to[1]", "https://a.vault.azure.net"),
            ("state.options.endpoint", "https://gs.acme.example"),
            (
                "terraform.provider_addresses.hashicorp/vault[0]",
                "https://vault.acme.example",
            ),
        ];
        let expected = expected.map(|(key, address)| (key.to_owned(), address.to_owned()));
        assert_eq!(found, expected);
        for (url, gets_credentials) in [
            ("s3://bucket/states", false),
            ("s3://bucket?endpoint=https://s3.acme.example", false),
            ("file:///var/states", false),
            ("gs://bucket", false),
            ("az://bucket?endpoint=https://az.acme.example", true),
            ("postgres://me@db.acme.example/states", true),
            ("https://states.acme.example", true),
        ] {
            let config = Config::parse(&format!("state: {{url: '{url}'}}\n")).unwrap();
            assert_eq!(!config.addresses().is_empty(), gets_credentials, "{url}");
        }
    }
}
