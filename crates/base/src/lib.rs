//! The common types of all other crates: the plain data types ([`model`]), errors, YAML, and helpers for processes and
//! files.

pub mod atomic_file;
pub mod checkout;
pub mod error;
pub mod interrupt;
mod kernel;
pub mod model;
pub mod process;
pub mod retry;
pub mod spans;
pub mod sync;
pub mod variables;
pub mod yaml;
