//! The vocabulary of all other crates: the plain data that flows ([`model`]), errors, YAML, and a few small
//! things around processes and files.

pub mod atomic_file;
pub mod checkout;
pub mod error;
pub mod interrupt;
mod kernel;
pub mod model;
pub mod process;
pub mod retry;
pub mod spans;
pub mod variables;
pub mod yaml;
