//! `konverge serve`: the pages and the JSON of the portal over HTTP, with login and permissions.
//!
//! This crate has no access to a store, a cluster or a cloud. It reads through a [`PortalSource`], and writes
//! through [`PortalActions`]. It has no credentials for the forge.

mod access;
mod actions;
mod answer;
mod api;
mod cache;
mod client_address;
mod documents;
mod guard;
mod login;
mod metrics;
mod operations;
mod pages;
mod provider;
mod rate_limit;
mod server;
mod session;
mod shared;
mod sign_in;
mod source;

pub use actions::{PortalActions, PortalRequest, UnlockResult};
pub use login::LoginSettings;
pub use provider::SignInError;
pub use server::{ListenError, Portal, listen};
pub use session::{PORTAL_KEY_VARIABLE, ShortKey};
pub use source::PortalSource;
