//! Measurements: asks Prometheus' HTTP API for one number. What the number means is up to the caller.
//!
//! An answer that is not one number is never one: no series, NaN, several series, and an answer with warnings, which
//! may be incomplete, are told apart. A request is sent once; the caller asks again when it wants to.

mod address;
mod answer;
#[cfg(test)]
mod answer_tests;
mod error;
mod prometheus;
#[cfg(test)]
mod prometheus_tests;

pub use answer::Measurement;
pub use error::MetricsError;
pub use prometheus::Prometheus;
