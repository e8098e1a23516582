//! `secrets` in `konverge.yaml`: the stores that references may name, and which stacks may read which paths.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    config_problem::{Problem, problem},
    key_recipients::{self, StateRecipient},
    stack_glob::glob_problem,
    token_address::is_safe,
};
use konverge_base::model::ClusterName;
use konverge_secrets::GENERATED;

/// The secret stores. A Spec refers to a secret by `ref+STORE://PATH#/KEY` and never contains it. Only the
/// default branch's file counts.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Secrets")]
pub struct SecretsConfig {
    /// The store that `ref://NAME/KEY` means.
    pub default: Option<String>,
    /// The reaction of an apply to a secret whose version changed since it was written. Default: `write`.
    pub rotation: Rotation,
    /// The stores by name.
    pub stores: BTreeMap<String, SecretStoreConfig>,
}

/// The reaction of an apply to a secret whose version changed since it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rotation {
    /// The new version is written, without a review of its own.
    #[default]
    #[serde(alias = "follow")]
    Write,
    /// The new version is shown in previews and drift reports, and is not written.
    #[serde(alias = "notify")]
    Leave,
    /// The new version is a change that needs a review.
    Stop,
}

/// One secret store.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SecretStore")]
pub struct SecretStoreConfig {
    /// The kind of the store.
    pub kind: SecretStoreKind,
    /// The address. `vault`: `https://vault.example.com`; `azure`: `https://NAME.vault.azure.net`; `aws`,
    /// `ssm`, `gcp`, `alikms`: of a private endpoint. Default: the public one.
    #[serde(default)]
    pub address: Option<String>,
    /// `aws`, `ssm`, `alikms`: the region. Default: `AWS_REGION` of the job, or `ALIBABA_CLOUD_REGION`.
    #[serde(default)]
    pub region: Option<String>,
    /// `vault`: the mount of the KV engine. Default: the first component of a path.
    #[serde(default)]
    pub mount: Option<String>,
    /// `vault`: the version of the KV engine, 1 or 2. Default: 2.
    #[serde(default)]
    pub kv: Option<u32>,
    /// `vault`: the namespace, for servers that have them.
    #[serde(default)]
    pub namespace: Option<String>,
    /// `vault`, `aws`, `ssm`: how the job logs in. Default: with the token in `VAULT_TOKEN`, or the usual variables of
    /// AWS.
    #[serde(default)]
    pub auth: Option<SecretAuthConfig>,
    /// `kubernetes`: the cluster, by its name under `clusters`. Default: the only one.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub cluster: Option<ClusterName>,
    /// `sops`: the keys that files may be encrypted to, besides `SOPS_AGE_KEY`: `awskms:ARN`, `gcpkms:NAME`,
    /// `azurekv:VAULT/keys/NAME`, `vault-transit:STORE/MOUNT/KEY`. No other key is asked.
    #[serde(default)]
    pub keys: Vec<String>,
    /// The fields of a Kubernetes object that may contain a reference. Default: `secrets`.
    #[serde(default)]
    pub into: SecretTarget,
    /// The paths that stacks may read. Nothing may be read without a rule.
    #[serde(default)]
    pub allow: Vec<SecretRule>,
}

/// The fields of a Kubernetes object that may contain a reference to a secret of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretTarget {
    /// In `data` and `stringData` of a Secret.
    #[default]
    Secrets,
    /// In any field that does not identify an object. Anyone who can read the object can read the value.
    Any,
}

/// The login of a job to a secret store. Credentials come from its environment, never from this file.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SecretAuth")]
pub struct SecretAuthConfig {
    /// The login method of the store.
    pub method: SecretAuthMethod,
    /// The mount of the method in Vault. Default: its name.
    #[serde(default)]
    pub mount: Option<String>,
    /// `jwt`: the role; for AWS, its ARN.
    #[serde(default)]
    pub role: Option<String>,
    /// `jwt`: the role of previews and drift checks, which read versions only. Default: `role`.
    #[serde(default)]
    pub preview_role: Option<String>,
    /// `jwt`: the audience of GitHub's OIDC token. Default: GitHub's own; for AWS `sts.amazonaws.com`.
    #[serde(default)]
    pub audience: Option<String>,
}

/// The method by which a job logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretAuthMethod {
    /// The OIDC token that GitHub gives the job.
    Jwt,
    /// `VAULT_ROLE_ID` and `VAULT_SECRET_ID`.
    AppRole,
    /// `VAULT_TOKEN`.
    Token,
}

/// The kind of a secret store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretStoreKind {
    /// Environment variables of the job: `ref+env://NAME`.
    Env,
    /// Secrets of a cluster: `ref+k8s://NAMESPACE/NAME#/KEY`.
    Kubernetes,
    /// The KV engine of HashiCorp Vault or OpenBao: `ref+vault://MOUNT/PATH#/KEY`.
    Vault,
    /// AWS Secrets Manager: `ref+awssecrets://NAME#/KEY`.
    Aws,
    /// The Parameter Store of AWS Systems Manager: `ref+awsssm:///PATH#/KEY`.
    Ssm,
    /// Files of the repository that SOPS encrypted: `ref+sops://PATH#/KEY`.
    Sops,
    /// Google Secret Manager: `ref+gcpsecrets://PROJECT/NAME#/KEY`.
    Gcp,
    /// A vault of Azure Key Vault: `ref+azurekeyvault://NAME#/KEY`.
    Azure,
    /// The secrets of Alibaba Cloud KMS: `ref+alikms://NAME#/KEY`.
    AliKms,
}

impl std::fmt::Display for SecretStoreKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

impl SecretStoreKind {
    /// Returns the kind with this name in a vals reference (`ref+WORD://`).
    pub fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "env" => Self::Env,
            "k8s" | "kubernetes" => Self::Kubernetes,
            "vault" | "openbao" => Self::Vault,
            "aws" | "awssecrets" => Self::Aws,
            "ssm" | "awsssm" => Self::Ssm,
            "sops" => Self::Sops,
            "gcp" | "gcpsecrets" => Self::Gcp,
            "azure" | "azurekeyvault" => Self::Azure,
            "alikms" => Self::AliKms,
            _ => return None,
        })
    }
}

/// The stacks that may read certain paths of a store.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRule {
    /// A glob for the folder of a stack: `appops/payments/**`. A pull request could choose an identity.
    pub stacks: String,
    /// A glob for the path in the store, such as `payments/*`.
    pub paths: String,
}

impl SecretsConfig {
    /// Returns true if a store is a Vault.
    pub(super) fn is_vault(&self, name: &str) -> bool {
        let store = self.stores.get(name);
        store.is_some_and(|store| store.kind == SecretStoreKind::Vault)
    }

    /// Returns the first problem, with a hint. `clusters` returns true for a configured cluster.
    pub(super) fn problem(&self, clusters: impl Fn(&ClusterName) -> bool) -> Option<Problem> {
        if let Some(name) = self
            .default
            .as_ref()
            .filter(|name| !self.stores.contains_key(*name))
        {
            return problem(format!(
                "secrets.default: there is no store `{}` under secrets.stores",
                name.escape_debug()
            ))
            .hint("define the store under `secrets.stores`, or name a defined one");
        }
        let mut stores = self.stores.iter();
        stores.find_map(|(name, store)| {
            let keys = || {
                let key = format!("secrets.stores.{name}.keys");
                key_recipients::keys_problem(&key, &store.keys, |store| self.is_vault(store))
            };
            store.problem(name, &clusters).or_else(keys)
        })
    }
}

impl SecretStoreConfig {
    /// Returns the keys of a store of kind `sops`. Invalid entries are skipped: they were refused when the file was
    /// read.
    pub fn key_services(&self) -> Vec<StateRecipient> {
        let keys = self.keys.iter();
        keys.filter_map(|text| StateRecipient::parse(text).ok()).collect()
    }

    /// Returns the first problem of a key of this store. Its text begins with the name of the key.
    fn key_problem(&self) -> Option<Problem> {
        use SecretStoreKind::{AliKms, Aws, Azure, Gcp, Sops, Ssm, Vault};
        let set = [
            (
                ".address",
                self.address.is_some(),
                [Vault, Aws, Ssm, Gcp, Azure, AliKms].as_slice(),
            ),
            (".region", self.region.is_some(), &[Aws, Ssm, AliKms]),
            (".mount", self.mount.is_some(), &[Vault]),
            (".kv", self.kv.is_some(), &[Vault]),
            (".namespace", self.namespace.is_some(), &[Vault]),
            (".auth", self.auth.is_some(), &[Vault, Aws, Ssm]),
            (".keys", !self.keys.is_empty(), &[Sops]),
        ];
        let mut set = set.into_iter();
        if let Some((key, ..)) = set.find(|(_, is_set, kinds)| *is_set && !kinds.contains(&self.kind)) {
            let why = format!("a store of kind `{}` has no such key", self.kind);
            return wrong(key, why, "remove the key");
        }
        match &self.address {
            Some(address) if !is_safe(address) => {
                return wrong(
                    ".address",
                    "is not an https address without a user, a password and a query",
                    "a token is sent to this address, so write `https://vault.example.com`",
                );
            }
            None if self.kind == Azure => {
                return wrong(
                    "",
                    "a store of kind `azure` needs an `address`",
                    "write `address: https://NAME.vault.azure.net`",
                );
            }
            None if self.kind == Vault => {
                return wrong(
                    "",
                    "a store of kind `vault` needs an `address`",
                    "write `address: https://vault.example.com`",
                );
            }
            _ => {}
        }
        if !matches!(self.kv, None | Some(1 | 2)) {
            return wrong(".kv", "`kv` must be 1 or 2", "write 1 or 2");
        }
        // Without `mount`, a path could name any address of Vault's API, such as that of logins or of another engine.
        if self.kv == Some(1) && self.mount.is_none() {
            return wrong(
                ".kv",
                "an engine of version 1 needs `mount`",
                "write the mount, such as `mount: kv`; the paths of secrets are below the mount",
            );
        }
        let is_region = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if let Some(region) = &self.region
            && !region.chars().all(is_region)
        {
            let why = format!("`{}` is not the name of a region", region.escape_debug());
            return wrong(".region", why, "write `region: eu-central-1`");
        }
        self.auth_problem()
    }

    fn auth_problem(&self) -> Option<Problem> {
        let auth = self.auth.as_ref()?;
        let is_aws = self.kind != SecretStoreKind::Vault;
        if is_aws && (auth.method != SecretAuthMethod::Jwt || auth.mount.is_some()) {
            return wrong(
                ".auth",
                "for AWS, `auth` needs `method: jwt` and a role; without `auth` the environment variables of the job are used",
                "write `auth: {method: jwt, role: \"arn:aws:iam::ACCOUNT:role/NAME\"}`",
            );
        }
        if auth.method == SecretAuthMethod::Jwt && auth.role.is_none() {
            let hint = "name the role that trusts this repository";
            return wrong(".auth", "`jwt` needs a `role`", hint);
        }
        let mut roles = auth.role.iter().chain(&auth.preview_role);
        let foreign = roles.find(|role| is_aws && !role.starts_with("arn:"))?;
        let why = format!("`{}` is not the ARN of a role", foreign.escape_debug());
        wrong(".auth", why, "write `arn:aws:iam::ACCOUNT:role/NAME`")
    }

    fn problem(&self, name: &str, clusters: &dyn Fn(&ClusterName) -> bool) -> Option<Problem> {
        let key = format!("secrets.stores.{}", name.escape_debug());
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            return problem(format!(
                "{key}: the name of a store is made of letters, digits, `-` and `_`"
            ))
            .hint("in a reference, the name stands between `ref+` and `://`");
        }
        if name == GENERATED {
            return problem(format!(
                "{key}: `{GENERATED}` is reserved for values that have no store"
            ))
            .hint("give the store another name");
        }
        // A store must not have the name of another kind: a reference with this name would resolve to the wrong store.
        if SecretStoreKind::from_word(name).is_some_and(|kind| kind != self.kind) {
            return problem(format!(
                "{key}: the store name `{name}` is reserved for another kind than `{}`",
                self.kind
            ))
            .hint("give the store another name");
        }
        match &self.cluster {
            Some(_) if self.kind != SecretStoreKind::Kubernetes => {
                return problem(format!(
                    "{key}.cluster: a store of kind `{}` has no cluster",
                    self.kind
                ))
                .hint("remove the key");
            }
            Some(cluster) if !clusters(cluster) => {
                return problem(format!("{key}.cluster: `{cluster}` is not under `clusters`"))
                    .hint("define the cluster under `clusters`, or name a defined one");
            }
            _ => {}
        }
        if let Some((what, hint)) = self.key_problem() {
            return problem(format!("{key}{what}")).hint(hint);
        }
        let mut globs = self.allow.iter().flat_map(|rule| [&rule.stacks, &rule.paths]);
        globs.find_map(|glob| glob_problem(&format!("{key}.allow"), glob, "write `payments/**`"))
    }
}

fn wrong(field: &str, why: impl std::fmt::Display, hint: &str) -> Option<Problem> {
    problem(format!("{field}: {why}")).hint(hint)
}

#[cfg(test)]
mod tests {
    use crate::{Config, SecretStoreKind};

    #[test]
    fn a_store_denies_by_default() {
        let config = Config::parse("secrets: {stores: {job: {kind: env}}}").unwrap();
        let store = &config.secrets.stores["job"];
        assert_eq!((store.kind, store.allow.len()), (SecretStoreKind::Env, 0));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_key() {
        for (secrets, why) in [
            ("{default: x}", "secrets.default"),
            ("{stores: {'a b': {kind: env}}}", "letters"),
            ("{stores: {k8s: {kind: env}}}", "another kind"),
            ("{stores: {generated: {kind: env}}}", "have no store"),
            ("{stores: {job: {kind: env, cluster: a}}}", "no cluster"),
            (
                "{stores: {here: {kind: kubernetes, cluster: a}}}",
                "not under `clusters`",
            ),
            (
                "{stores: {job: {kind: env, allow: [{stacks: '[', paths: x}]}}}",
                "not a glob",
            ),
            ("{stores: {job: {kind: exec}}}", "exec"),
            (
                "{stores: {job: {kind: env, address: 'https://a'}}}",
                "no such key",
            ),
            ("{stores: {db: {kind: vault}}}", "needs an `address`"),
            (
                "{stores: {db: {kind: vault, address: 'http://vault.example'}}}",
                "is not an https address",
            ),
            (
                "{stores: {db: {kind: vault, address: 'https://u:p@v.example'}}}",
                "is not an https address",
            ),
            (
                "{stores: {db: {kind: vault, address: 'https://v.example', kv: 3}}}",
                "`kv` must be 1 or 2",
            ),
            (
                "{stores: {db: {kind: vault, address: 'https://v.example', kv: 1}}}",
                "needs `mount`",
            ),
            (
                "{stores: {db: {kind: vault, address: 'https://v.example', auth: {method: jwt}}}}",
                "needs a `role`",
            ),
            ("{stores: {job: {kind: env, allow: [{stacks: x}]}}}", "paths"),
            ("{stores: {a: {kind: aws, mount: x}}}", "no such key"),
            (
                "{stores: {db: {kind: vault, address: 'https://a', region: x}}}",
                "no such key",
            ),
            (
                "{stores: {a: {kind: ssm, region: 'evil.example/'}}}",
                "not the name of a region",
            ),
            (
                "{stores: {a: {kind: aws, address: 'http://a.example'}}}",
                "is not an https address",
            ),
            (
                "{stores: {a: {kind: aws, auth: {method: token}}}}",
                "needs `method: jwt` and a role",
            ),
            (
                "{stores: {a: {kind: aws, auth: {method: jwt, role: admin}}}}",
                "not the ARN of a role",
            ),
            ("{stores: {awssecrets: {kind: ssm}}}", "reserved for another kind"),
        ] {
            let error = Config::parse(&format!("secrets: {secrets}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(why), "{secrets}: {error}");
        }
    }
}
