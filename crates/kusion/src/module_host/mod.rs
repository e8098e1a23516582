//! Runs Kusion modules: one sandboxed process for each call.
//!
//! A module is a program of HashiCorp's go-plugin. [`generate`] starts it in the [`konverge_sandbox`], reads
//! the handshake that it prints, asks it once over gRPC, and ends it with everything that it may have started. A
//! published module keeps what it computed, so no process is asked twice.
//!
//! This room knows the protocol. It does not know which module an application needs, who may run it, or what its answer
//! means (`crates/kusion/src/`, `crates/run/src/`).

mod error;
mod grpc;
mod handshake;
mod messages;
mod plugin;
mod plugin_output;

pub use error::ModuleError;
pub use messages::{ModuleReply, ModuleRequest};
pub use plugin::{ModuleLimits, ModuleRun, ModuleSetup, generate};
