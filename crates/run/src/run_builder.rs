//! [`RunBuilder`]: the only way to open a run. A command or a job sets its inputs, and then opens the infrastructure
//! alone, or the planner for all plans of the run. Each cluster is connected to once.

use std::sync::Arc;

use crate::{
    RunContext, StateBackend,
    cluster_selection::{GivenCluster, Live},
    compiler::Compilers,
    stack_claims::StackClaims,
};
use konverge_base::model::file_source::Source;
use konverge_config::Config;

/// A run whose inputs are being set.
pub struct RunBuilder<'a> {
    /// The context of the run.
    pub run: &'a RunContext,
    /// The effective configuration.
    pub config: Config,
    /// The setting that decides if the live infrastructure is queried.
    pub live: Live,
    /// The clusters that are not in the configuration.
    pub given: GivenCluster,
    /// The revision from which files that the configuration names are read, such as readiness rules.
    pub rule_files: Option<Arc<dyn Source>>,
    /// The states. Their key encrypts the secrets in the Terraform state.
    pub backend: Option<StateBackend>,
    /// True if an apply waits until its objects are ready.
    pub waits: bool,
    /// The claims of the other stacks.
    pub claims: StackClaims,
}

impl<'a> RunBuilder<'a> {
    /// Creates a run with this effective configuration, without states and readiness rules. It waits for readiness.
    pub fn new(run: &'a RunContext, config: Config) -> Self {
        Self {
            run,
            config,
            live: Live::default(),
            given: GivenCluster::default(),
            rule_files: None,
            backend: None,
            waits: true,
            claims: StackClaims::default(),
        }
    }

    /// Returns compilers with the limits of this configuration.
    pub fn compilers(&self) -> Compilers {
        Compilers::new(self.run, &self.config)
    }
}
