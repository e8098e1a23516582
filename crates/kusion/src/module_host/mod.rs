//! Runs Kusion modules: one sandboxed process for each call.
//!
//! A module is a program of HashiCorp's go-plugin. [`generate`] starts it in the [`konverge_sandbox`], reads
//! the handshake, calls the module once over gRPC, and then kills it with all its children. A process is
//! never called twice, because published modules keep values from the first call.
//!
//! Only the protocol is here. Which module an application needs, who may run it and what its response means
//! is decided in `crates/kusion/src/` and `crates/run/src/`.

mod error;
mod grpc;
mod handshake;
mod messages;
mod plugin;
mod plugin_output;

pub use error::ModuleError;
pub use messages::{ModuleReply, ModuleRequest};
pub use plugin::{ModuleLimits, ModuleRun, ModuleSetup, generate};
