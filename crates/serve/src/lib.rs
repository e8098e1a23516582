//! `konverge serve`: the pages of the portal and their JSON over HTTP, and who may see and ask for what.
//!
//! This crate has no way to a store, a cluster or a cloud: it asks a [`PortalSource`], which reads, and [`PortalActions`],
//! which record what people ask for. It holds no credential of the forge.

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
