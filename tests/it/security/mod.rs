//! Hostile input, masking and the sandbox.

pub mod address_credentials;
pub mod alibaba;
pub mod aws;
pub mod canary;
mod canary_stores;
pub mod checkout;
mod checkout_addresses;
pub mod core_dumps;
mod escaped_secrets;
pub mod fork_isolation;
pub mod google_azure;
pub mod injection;
pub mod masking;
pub mod module_sandbox;
pub mod plain_places;
pub mod proposed_stores;
pub mod sandbox;
mod secret_as_code;
pub mod secret_paths;
pub mod secret_references;
pub mod sops;
mod sops_key_services;
mod spec_previews;
pub mod state_encryption;
mod store_doctor;
pub mod vault;
mod vault_versions;
