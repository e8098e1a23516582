//! Measurements: queries Prometheus' HTTP API for one number. The caller decides what the number means.
//!
//! A response that is not exactly one number is never treated as one: no series, NaN, several series, and responses
//! with warnings are separate results. A request is sent once; the caller repeats it if necessary.

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
