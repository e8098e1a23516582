//! `konverge serve`: the pages of the portal and their JSON over HTTP.
//!
//! This crate has no way to a store, a cluster or a cloud: it asks a [`PortalSource`], which reads. It writes nothing.

mod answer;
mod api;
mod cache;
mod metrics;
mod pages;
mod server;
mod shared;
mod source;

pub use server::{ListenError, Portal, listen};
pub use source::PortalSource;
