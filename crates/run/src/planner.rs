//! [`Planner`]: what all plans of a run share, and what it looks up in the store.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    RunBuilder, RunContext, SecretReferences, StateBackend,
    cluster_selection::{self, GivenCluster, Live},
    logins::Logins,
    renamed_stacks::{self, Renamed},
    spec_source::SpecSource,
    stack_claims::StackClaims,
    stack_runtimes::StackRuntimes,
};
use konverge_base::{
    error::UserError,
    model::{ClusterName, StackId, stack::Stack},
};
use konverge_config::Config;
use konverge_secrets::Secrets;
use konverge_state::{IndexedStates, Proven, Versioned};

/// Plans the targets of a run, from inputs that all plans share.
pub struct Planner {
    /// The run that the plans are made in.
    pub run: RunContext,
    /// The effective configuration.
    pub config: Config,
    /// The source of Specs.
    pub wanted: SpecSource,
    /// The recorded states; `None` if the run has none (a pull request from a fork).
    pub backend: Option<StateBackend>,
    /// The Kubernetes and Terraform runtimes of each stack.
    pub(crate) runtimes: StackRuntimes,
    /// The login of each stack for its live infrastructure.
    pub(crate) logins: Logins,
    /// The references to secrets, with the stores that are read.
    pub references: Arc<SecretReferences>,
    /// The setting that decides if plans query the live infrastructure.
    pub live: Live,
    /// The clusters that are not in the configuration.
    pub given: GivenCluster,
    /// The claims of the other stacks, loaded on demand.
    pub claims: StackClaims,
    /// The recorded identities that stacks continue, loaded on demand.
    pub renamed: Renamed,
    /// True for a rollback, which applies an earlier version again.
    pub rolls_back: bool,
}

impl RunBuilder<'_> {
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

impl Planner {
    /// Returns the secrets of this run, for masking.
    pub fn secrets(&self) -> &Secrets {
        self.backend
            .as_ref()
            .map_or(&self.run.secrets, |backend| &backend.secrets)
    }

    /// Returns the state document of an identity; `None` also if the run has no states.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn stored(&self, stack: &StackId) -> Result<Option<Versioned>, UserError> {
        match &self.backend {
            Some(backend) => Ok(backend.states.load(stack).await?),
            None => Ok(None),
        }
    }

    /// Returns the state document of a stack, recorded under its identity or under the one that it continues.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn recorded(&self, stack: &StackId) -> Result<Option<Versioned>, UserError> {
        let Some(backend) = &self.backend else {
            return Ok(None);
        };
        let own = backend.states.load(stack).await?;
        if own.as_ref().is_some_and(|own| !own.state.is_blank()) {
            return Ok(own);
        }
        let Some(earlier) = self.earlier_identity(stack).await? else {
            return Ok(own);
        };
        Ok(backend.states.load(&earlier).await?.or(own))
    }

    /// Returns the cluster of a stack; `None` if no cluster is queried for it.
    ///
    /// # Errors
    /// The configuration and the command line do not determine the cluster.
    pub(crate) fn cluster_of(&self, stack: &Stack) -> Result<Option<ClusterName>, UserError> {
        cluster_selection::cluster_of(&self.config, stack, &self.given, self.live)
    }

    /// Returns each stack of the head that is recorded under another identity, with that identity.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn renamed_stacks(
        &self,
        known: &Proven<IndexedStates>,
    ) -> Result<BTreeMap<StackId, StackId>, UserError> {
        match (self.wanted.head(), &self.backend) {
            (Some(head), Some(backend)) => renamed_stacks::renamed_stacks(backend, &head.layout, known).await,
            _ => Ok(BTreeMap::new()),
        }
    }

    /// Returns the identity under which a stack of the head is recorded, if that differs from the stack's identity.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn earlier_identity(&self, stack: &StackId) -> Result<Option<StackId>, UserError> {
        match (self.wanted.head(), &self.backend) {
            (Some(head), Some(backend)) => self.renamed.earlier(backend, &head.layout, stack).await,
            _ => Ok(None),
        }
    }
}
