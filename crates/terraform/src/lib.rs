//! Terraform (or OpenTofu) as a runtime.
//!
//! A batch of a stack becomes one root module (`module`). One `terraform plan` plans it (`plan`); its saved
//! plan is shown (`plan_convert`) and then applied unchanged (`apply`). Terraform's state is one encrypted
//! document in the state of the stack (`state_document`). Modules, states and saved plans in clear text exist
//! only in memory (`memfd`).
//!
//! A Spec can define resources, but cannot run commands: expressions in its texts stay text (`expression`),
//! arguments that run commands are refused (`module_resource`), and only listed providers are installed
//! (`resolve_items`).

mod address;
mod address_shape;
mod binary;
mod change_display;
mod command;
mod context;
mod data_loss;
mod diagnostics_map;
mod environment;
mod error;
mod expression;
mod installation;
mod log_messages;
mod masking;
mod memfd;
mod module;
mod module_resource;
mod options;
mod plan;
mod plan_apply;
mod plan_command;
mod plan_convert;
mod prepared_plan;
mod progress;
mod provider_cache;
mod provider_login;
mod provider_schema;
mod provider_settings;
mod providers;
mod refresh;
mod renamed;
mod resolve_items;
mod resource_state;
mod runtime;
mod saved_plan;
mod secret_changes;
mod secret_references;
mod state_cache;
mod state_document;
mod state_encryption;

pub use binary::{Binary, BinaryKind};
pub use context::Terraform;
pub use error::{Class, TerraformError};
pub use options::{AllowedProvider, TerraformOptions};
pub use provider_login::{ProviderCredentials, ProviderLogin};
pub use resolve_items::check_provider_settings;
pub use state_document::{STATE, forget};
pub use state_encryption::StateEncryption;
