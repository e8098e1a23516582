//! `konverge.yaml`: the configuration of a repository, its schema, and the effective settings of each stack.
//!
//! The file is optional and is at the root of the repository. In `konverge ci`, everything that grants permissions
//! (state, clusters, sandbox, core, Terraform, policy) is read from the file of the default branch, see
//! [`Config::with_power_from`].

mod addresses;
mod code_changes;
mod config_problem;
mod delivery;
mod duration;
mod effective;
mod ended_names;
mod hooks;
mod key_recipients;
mod logins;
mod models;
mod notify;
mod notify_receivers;
mod outputs;
mod parse;
mod permission_changes;
mod policy_sets;
mod portal;
mod problems;
mod production;
mod proxy_range;
mod rollout_waves;
mod rollouts;
mod schema;
mod secrets;
mod setting_changes;
#[cfg(test)]
mod setting_changes_tests;
mod stack_glob;
mod state_recipients;
mod token_address;
mod types;

pub use code_changes::{SetConfig, SetRule};
pub use delivery::{DeliveryConfig, DeliveryTool};
pub use duration::Span;
pub use effective::{ClusterChoice, EffectiveStack, StackRules};
pub use ended_names::standing_names;
pub use hooks::{HookTool, HookWorkflow, Hooks, WorkflowTime};
pub use key_recipients::StateRecipient;
pub use logins::{AlibabaLoginConfig, AwsLoginConfig, AzureLoginConfig, GoogleLoginConfig, LoginConfig};
pub use models::{ModelSourceConfig, ModelsConfig};
pub use notify::Notify;
pub use outputs::{OutputRule, OutputsConfig};
pub use parse::{ConfigError, FILE_NAME};
pub use permission_changes::StackSides;
pub use portal::{PortalConfig, PortalGrants, PortalLogin, PortalRole, PortalRoleRule, PortalWorkload};
pub use production::ProductionFolders;
pub use proxy_range::ProxyRange;
pub use rollout_waves::{InSeveralRollouts, RolloutMatcher};
pub use rollouts::{
    AtOnce, GateApproval, GateConfig, InvalidAtOnce, OnFailure, PrometheusConfig, RolloutConfig, WaveConfig,
};
pub use schema::json_schema;
pub use secrets::{
    Rotation, SecretAuthConfig, SecretAuthMethod, SecretRule, SecretStoreConfig, SecretStoreKind,
    SecretTarget, SecretsConfig,
};
pub use stack_glob::StackGlob;
pub use types::{
    Apply, BrokenBase, ChecksConfig, ClusterConfig, Config, ConflictsConfig, CoreInstall, DataCheckConfig,
    Drift, DriftPolicy, EndedNameConfig, FreezeConfig, Kcl, LeaseConfig, ModuleConfig, PolicyConfig,
    PolicyEnforcement, PolicyExceptionConfig, PolicyInput, PolicyLanguage, PolicyOverriders, PolicySetConfig,
    Provider, Reconcile, RegoVersion, Sandbox, StackPolicy, StackRule, State, TerraformConfig,
};
