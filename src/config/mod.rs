//! `konverge.yaml`: what a repository tells Konverge, its schema, and what follows from it for each stack.
//!
//! The file is optional and lies at the repository's root. In `ci` whatever grants power (state, clusters, sandbox,
//! core, Terraform, policy) is taken from the protected branch's file, see [`Config::with_power_from`].

mod duration;
mod effective;
mod parse;
mod power;
mod schema;
mod types;

pub use duration::Span;
pub use effective::{ClusterChoice, EffectiveStack};
pub use parse::{ConfigError, FILE_NAME};
pub use schema::json_schema;
pub use types::{
    Apply, ClusterConfig, Config, ConflictsConfig, Drift, DriftPolicy, FreezeConfig, Kcl, LeaseConfig,
    Notify, NotifyKind, PolicyConfig, Provider, Reconcile, Sandbox, StackRule, State, TerraformConfig,
};
