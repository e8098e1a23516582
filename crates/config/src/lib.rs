//! `konverge.yaml`: the configuration of a repository, its schema, and the effective settings of each stack.
//!
//! The file is optional and is at the root of the repository. In `ci` everything that grants permissions
//! (state, clusters, sandbox, core, Terraform, policy) comes from the file of the default branch, see
//! [`Config::with_power_from`].

mod addresses;
mod code_changes;
mod core_install;
mod duration;
mod effective;
mod key_recipients;
mod parse;
mod permission_changes;
mod policy_sets;
mod problems;
mod schema;
mod secrets;
mod state_recipients;
mod token_address;
mod types;

pub use code_changes::{SetConfig, SetRule};
pub use core_install::CoreInstall;
pub use duration::Span;
pub use effective::{ClusterChoice, EffectiveStack};
pub use key_recipients::StateRecipient;
pub use parse::{ConfigError, FILE_NAME};
pub use schema::json_schema;
pub use secrets::{
    Rotation, SecretAuthConfig, SecretAuthMethod, SecretRule, SecretStoreConfig, SecretStoreKind,
    SecretTarget, SecretsConfig,
};
pub use types::{
    Apply, BrokenBase, ChecksConfig, ClusterConfig, Config, ConflictsConfig, DataCheckConfig, Drift,
    DriftPolicy, FreezeConfig, Kcl, LeaseConfig, ModuleConfig, Notify, NotifyKind, PolicyConfig,
    PolicyEnforcement, PolicyExceptionConfig, PolicyInput, PolicyLanguage, PolicyOverriders, PolicySetConfig,
    Provider, Reconcile, RegoVersion, Sandbox, StackRule, State, TerraformConfig,
};
