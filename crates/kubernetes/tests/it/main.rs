//! The engine and the Kubernetes runtime on a real API server. One binary: a file per subject.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::print_stdout)]

mod support;

mod engine;
mod kubernetes;
