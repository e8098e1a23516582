//! The common types of all other crates: the plain data types ([`model`]), errors, secrets and their masking, YAML,
//! and helpers for processes and files.

pub mod atomic_file;
pub mod checkout;
pub mod error;
pub mod interrupt;
mod kernel;
pub mod model;
pub mod process;
pub mod retry;
pub mod secrets;
pub mod spans;
pub mod variables;
pub mod yaml;
