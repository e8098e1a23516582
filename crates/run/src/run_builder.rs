//! [`RunBuilder`]: the only way to open a run. A command or a job sets its inputs, and then opens the infrastructure
//! alone, or the planner for all plans of the run. Each cluster is connected to once.

use std::sync::Arc;

use crate::{
    Planner, RunContext, StateBackend,
    cluster_selection::{GivenCluster, Live},
    compiler::Compilers,
    infrastructure::{self, Infrastructure},
    logins::Logins,
    other_stack_claims::StackClaims,
    renamed_stacks::Renamed,
    secret_fetch::SecretReferences,
    spec_source::SpecSource,
    stack_runtimes::StackRuntimes,
};
use konverge_base::{error::UserError, model::file_source::Source};
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

    /// Opens the infrastructure alone, whatever `live` says.
    ///
    /// # Errors
    /// A setting is invalid.
    pub async fn connect(&self) -> Result<Infrastructure, UserError> {
        infrastructure::connect(self).await
    }

    /// Opens the planner for a source of Specs. With [`Live::Never`], no cluster or provider is connected to.
    ///
    /// # Errors
    /// A setting is invalid.
    pub async fn planner(self, wanted: SpecSource) -> Result<Planner, UserError> {
        let infrastructure = match self.live {
            Live::Never => None,
            Live::Auto | Live::Required => Some(self.connect().await?),
        };
        let Self {
            run,
            config,
            live,
            given,
            rule_files,
            backend,
            claims,
            ..
        } = self;
        // References to SOPS files are resolved in the planned revision. A Spec from a file has no such files.
        let files = match &wanted {
            SpecSource::Compiled { head, .. } => Some(Arc::clone(&head.source)),
            SpecSource::File(_) => rule_files,
        };
        let secrets = backend.as_ref().map_or(&run.secrets, |backend| &backend.secrets);
        let clusters = infrastructure.as_ref().map(|parts| &parts.kubernetes);
        let references = SecretReferences::new(run, &config.secrets, secrets.clone(), files, clusters);
        let runtimes = infrastructure.map(StackRuntimes::new);
        Ok(Planner {
            logins: Logins::new(run, &config, secrets.clone()),
            run: run.clone(),
            config,
            wanted,
            backend,
            runtimes: runtimes.unwrap_or_default(),
            references: Arc::new(references),
            live,
            given,
            claims,
            renamed: Renamed::default(),
            rolls_back: false,
        })
    }
}
