//! The state and its stores, on real ones. One binary: a file per subject.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

mod support;

mod state;
mod store;
