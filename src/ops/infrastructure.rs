//! The runtimes of a run, under the configuration in force.

use super::{
    Memory, Run,
    clusters::{GivenCluster, Live},
};
use crate::{config::Config, engine::Runtimes, error::Failure};

/// Clusters and Terraform; nothing is connected to before it is needed.
///
/// # Errors
/// A setting can not be used.
pub(super) fn runtimes(
    _run: &Run,
    _config: &Config,
    _given: &GivenCluster,
    _live: Live,
    _memory: &Memory,
) -> Result<Runtimes, Failure> {
    Ok(Runtimes::new())
}
