//! Encryption recipients: the entries of `state.encrypt_to`, and the keys of a secret store of kind `sops`.

use super::{
    config_problem::{Problem, problem},
    token_address::is_safe,
};

/// A recipient to whom states and files are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateRecipient {
    /// An age recipient: `age1…`.
    Age(String),
    /// A key of AWS KMS: `awskms:ARN`.
    AwsKms {
        /// The key's ARN.
        arn: String,
        /// The region in the ARN.
        region: String,
    },
    /// A symmetric key of Google Cloud KMS: `gcpkms:projects/P/locations/L/keyRings/R/cryptoKeys/K`.
    GoogleKms(String),
    /// An RSA key of an Azure Key Vault: `azurekv:https://NAME.vault.azure.net/keys/KEY`.
    AzureKeyVault {
        /// The address of the vault.
        vault: String,
        /// The key's full name.
        name: String,
    },
    /// A symmetric key of Alibaba Cloud KMS: `alikms:acs:kms:REGION:ACCOUNT:key/ID`.
    AliKms {
        /// The key's ARN.
        arn: String,
        /// The region in the ARN.
        region: String,
    },
    /// A key of the transit engine of a Vault: `vault-transit:STORE/MOUNT/KEY`.
    VaultTransit {
        /// The name of the store under `secrets.stores`.
        store: String,
        /// The mount path of the transit engine.
        mount: String,
        /// Name of the key in the engine.
        key: String,
    },
}

impl StateRecipient {
    /// Parses an entry. The error is the reason and a hint.
    pub(super) fn parse(text: &str) -> Result<Self, (&'static str, &'static str)> {
        let text = text.trim();
        let is_plain = |part: &str| {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            !part.is_empty() && !part.starts_with('.') && part.chars().all(is_plain)
        };
        match text.split_once(':') {
            None => Ok(Self::Age(text.to_owned())),
            Some(("awskms", arn)) => {
                let wrong = (
                    "is not the ARN of a key",
                    "write `awskms:arn:aws:kms:REGION:ACCOUNT:key/ID`, or `alias/NAME` at the end",
                );
                let parts: Vec<_> = arn.splitn(6, ':').collect();
                let [
                    "arn",
                    "aws" | "aws-cn" | "aws-us-gov",
                    "kms",
                    region,
                    account,
                    key,
                ] = parts[..]
                else {
                    return Err(wrong);
                };
                let is_key = key.split('/').count() > 1 && key.split('/').all(is_plain);
                let kind = key.split('/').next().unwrap_or_default();
                let is_digit = |c: char| c.is_ascii_digit();
                if !is_key
                    || !matches!(kind, "key" | "alias")
                    || !is_plain(region)
                    || account.is_empty()
                    || !account.chars().all(is_digit)
                {
                    return Err(wrong);
                }
                Ok(Self::AwsKms {
                    arn: arn.to_owned(),
                    region: region.to_owned(),
                })
            }
            Some(("gcpkms", name)) => match name.split('/').collect::<Vec<_>>()[..] {
                [
                    "projects",
                    project,
                    "locations",
                    place,
                    "keyRings",
                    ring,
                    "cryptoKeys",
                    key,
                ] if [project, place, ring, key].into_iter().all(is_plain) => {
                    Ok(Self::GoogleKms(name.to_owned()))
                }
                _ => Err((
                    "is not the name of a key",
                    "write `gcpkms:projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY`",
                )),
            },
            Some(("azurekv", address)) => match address.rsplit_once("/keys/") {
                // The address must not name a version of the key: the key would stay at this version when it is
                // rotated.
                Some((vault, name)) if is_safe(vault) && is_host(vault) && is_plain(name) => {
                    Ok(Self::AzureKeyVault {
                        vault: vault.to_owned(),
                        name: name.to_owned(),
                    })
                }
                _ => Err((
                    "is not the address of a key, without a version",
                    "write `azurekv:https://NAME.vault.azure.net/keys/KEY`",
                )),
            },
            Some(("alikms", arn)) => match arn.split(':').collect::<Vec<_>>()[..] {
                ["acs", "kms", region, account, key]
                    if is_plain(region)
                        && !account.is_empty()
                        && account.bytes().all(|byte| byte.is_ascii_digit())
                        && matches!(key.split_once('/'), Some(("key", id)) if is_plain(id)) =>
                {
                    Ok(Self::AliKms {
                        arn: arn.to_owned(),
                        region: region.to_owned(),
                    })
                }
                _ => Err((
                    "is not the ARN of a key",
                    "write `alikms:acs:kms:REGION:ACCOUNT:key/ID`",
                )),
            },
            Some(("vault-transit", place)) => {
                let parts: Vec<_> = place.split('/').collect();
                match parts[..] {
                    [store, ref mount @ .., key]
                        if !mount.is_empty() && parts.iter().all(|part| is_plain(part)) =>
                    {
                        Ok(Self::VaultTransit {
                            store: store.to_owned(),
                            mount: mount.join("/"),
                            key: key.to_owned(),
                        })
                    }
                    _ => Err((
                        "does not name a store, a mount and a key",
                        "write `vault-transit:STORE/transit/KEY`, with a store of `secrets.stores`",
                    )),
                }
            }
            Some(_) => Err((
                "is neither an age recipient nor a key that is known",
                "write `age1…`, `awskms:ARN`, `gcpkms:NAME`, `azurekv:ADDRESS`, `alikms:ARN` or `vault-transit:STORE/MOUNT/KEY`",
            )),
        }
    }
}

/// Returns true if an address has no path.
fn is_host(address: &str) -> bool {
    url::Url::parse(address).is_ok_and(|url| matches!(url.path(), "" | "/")) && !address.ends_with('/')
}

/// Returns the first problem of a list of keys, with a hint. `is_vault` returns true for a store that is a Vault.
pub(super) fn keys_problem(key: &str, keys: &[String], is_vault: impl Fn(&str) -> bool) -> Option<Problem> {
    keys.iter().find_map(|text| {
        let shown = text.escape_debug();
        let store = match StateRecipient::parse(text) {
            Err((why, hint)) => return problem(format!("{key}: `{shown}` {why}")).hint(hint),
            Ok(StateRecipient::VaultTransit { store, .. }) => store,
            Ok(_) => return None,
        };
        (!is_vault(&store)).then_some(())?;
        problem(format!(
            "{key}: `{shown}` names `{store}`, which is not a Vault under secrets.stores"
        ))
        .hint("define the store under `secrets.stores` with `kind: vault`, or name a store of that kind")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_named_in_full() {
        let arn = "arn:aws:kms:eu-central-1:123456789012:key/1234abcd-12ab";
        assert_eq!(
            StateRecipient::parse(&format!("awskms:{arn}")),
            Ok(StateRecipient::AwsKms {
                arn: arn.to_owned(),
                region: "eu-central-1".to_owned()
            })
        );
        assert_eq!(
            StateRecipient::parse("vault-transit:db/team/transit/state"),
            Ok(StateRecipient::VaultTransit {
                store: "db".to_owned(),
                mount: "team/transit".to_owned(),
                key: "state".to_owned()
            })
        );
        for wrong in [
            "awskms:alias/state",
            "awskms:arn:aws:s3:eu-central-1:123456789012:key/x",
            "awskms:arn:aws:kms:eu-central-1:123456789012:key/../x",
            "awskms:arn:aws:kms:evil.example.com/:123456789012:key/x",
            "awskms:arn:aws:kms:eu-central-1::key/x",
            "vault-transit:db/state",
            "vault-transit:db//state",
            "vault-transit:db/transit/..",
            "vault-transit:https://vault.example.com/transit/state",
            "gpg:ABCD",
            "gcpkms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1",
            "gcpkms:projects/../locations/l/keyRings/r/cryptoKeys/k",
            "azurekv:http://acme.vault.azure.net/keys/k",
            "azurekv:https://u:p@acme.vault.azure.net/keys/k",
            "azurekv:https://acme.vault.azure.net/a/keys/k",
            "azurekv:https://acme.vault.azure.net/keys/k/0123",
            "azurekv:https://acme.vault.azure.net/keys/..",
            "alikms:acs:kms:evil.example.com/:1:key/x",
            "alikms:acs:oss:cn-hangzhou:1:key/x",
            "alikms:acs:kms:cn-hangzhou:1:alias/x",
        ] {
            assert!(StateRecipient::parse(wrong).is_err(), "{wrong}");
        }
    }
}
