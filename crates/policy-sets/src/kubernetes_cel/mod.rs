//! Kubernetes' dialect of CEL: the libraries of its API server, and the loops and patterns that `cel` lacks.

mod addresses;
mod arguments;
pub(crate) mod conjuncts;
mod formats;
mod functions;
mod libraries;
mod pairs;
mod regex;
#[cfg(test)]
mod tests;
mod urls;

pub(crate) use functions::{add, compile, environment};
