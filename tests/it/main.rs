//! The integration tests, one binary: a file per subject, run on the real parts that `scripts/parts install` puts in
//! place (`make test` does both).
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

mod support;

mod affected;
mod ci;
mod cli;
mod editor;
mod engine;
mod forges;
mod gitea;
mod gitlab;
mod kcl;
mod kubernetes;
mod meta;
mod policy;
mod portal;
mod security;
mod set;
mod state;
mod store;
mod terraform;
