//! [`Terraform`]: the state that all steps of the runtime share.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsString,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use tokio::sync::OnceCell;

use super::{
    AllowedProvider, Binary, StateEncryption, TerraformError, TerraformOptions,
    installation::Installation,
    prepared_plan::PreparedPlan,
    provider_login::{ProcessCredentials, ProviderLogin},
    providers::{ProviderRef, full_source},
    renamed::CreatedResource,
    state_cache::OpenStates,
};
use konverge_base::{
    error::UserError,
    model::{ResourceId, StackId, plan::Action},
};

/// The runtime of Terraform resources, for any number of stacks.
pub struct Terraform {
    pub(super) options: TerraformOptions,
    /// Created at the first use: a run without Terraform resources needs no executable. All logins share the
    /// installation.
    toolbox: Arc<OnceCell<Installation>>,
    prepared: Mutex<HashMap<String, PreparedPlan>>,
    moves: Mutex<HashMap<StackId, HashMap<ResourceId, ResourceId>>>,
    /// The Terraform states of the stacks that are being applied. Shared, because several batches of one
    /// stack write the same document.
    pub(super) books: OpenStates,
    tokens: AtomicU64,
}

impl Terraform {
    /// Creates a runtime. Terraform is looked for at its first use.
    pub fn new(options: TerraformOptions) -> Self {
        Self {
            options,
            toolbox: Arc::default(),
            prepared: Mutex::default(),
            moves: Mutex::default(),
            books: OpenStates::default(),
            tokens: AtomicU64::new(0),
        }
    }

    /// Returns a runtime for stacks with their own login, whose Specs may also set these identities of
    /// providers. The installation is shared.
    #[must_use]
    pub fn under(
        &self,
        login: Option<Arc<dyn ProviderLogin>>,
        identities: &BTreeMap<String, Vec<String>>,
    ) -> Self {
        let mut options = self.options.clone();
        options.login = login;
        options.allow_identities(identities);
        Self {
            toolbox: Arc::clone(&self.toolbox),
            ..Self::new(options)
        }
    }

    /// Returns the Terraform executable.
    ///
    /// # Errors
    /// The executable does not exist, or is too old.
    pub async fn binary(&self) -> Result<&Binary, UserError> {
        Ok(&self.toolbox().await?.binary)
    }

    /// Installs an allowed provider and returns its schemas, as `terraform providers schema -json` prints them;
    /// `None` if the provider is not allowed in this version. The provider gets no credentials.
    ///
    /// # Errors
    /// The provider cannot be installed, or the executable fails.
    pub async fn print_schemas(&self, source: &str, version: &str) -> Result<Option<String>, UserError> {
        let wanted = ProviderRef {
            source: full_source(source),
            version: version.trim_start_matches('v').to_owned(),
        };
        let is_wanted = |allowed: &&AllowedProvider| {
            full_source(&allowed.source) == wanted.source
                && allowed.version.trim_start_matches('v') == wanted.version
        };
        let Some(allowed) = self.options.providers.iter().find(is_wanted) else {
            return Ok(None);
        };
        let set = BTreeMap::from([(wanted, allowed.hashes.clone())]);
        let toolbox = self.toolbox().await?;
        let installed = toolbox.install(&set, &self.options).await?;
        Ok(Some(toolbox.print_schemas(&installed, &self.options).await?))
    }

    pub(super) async fn toolbox(&self) -> Result<&Installation, TerraformError> {
        self.toolbox
            .get_or_try_init(|| Installation::open(&self.options))
            .await
    }

    /// Returns the variables that the providers log in with: those of the login, and those of the job that
    /// the login does not hide.
    pub(super) async fn credentials(&self) -> Result<ProcessCredentials, TerraformError> {
        let of_job = &self.toolbox().await?.credentials;
        let Some(login) = &self.options.login else {
            return Ok(ProcessCredentials {
                variables: of_job.clone(),
                expires: None,
            });
        };
        let given = login.credentials().await?;
        let is_shown = |name: &OsString| name.to_str().is_some_and(|name| !login.hides(name));
        let kept = of_job.iter().filter(|(name, _)| is_shown(name)).cloned();
        let variables = given.variables.into_iter();
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        Ok(ProcessCredentials {
            variables: kept.chain(variables).collect(),
            expires: given.lifetime.and_then(|left| Instant::now().checked_add(left)),
        })
    }

    /// Returns hints for the errors of a process that has just ended, if its credentials expired while it
    /// ran.
    pub(super) async fn expiry_hints(&self, credentials: &ProcessCredentials) -> Vec<String> {
        let have_expired = credentials.expires.is_some_and(|end| end <= Instant::now());
        match &self.options.login {
            Some(login) if have_expired => login.expiry_hints().await,
            _ => Vec::new(),
        }
    }

    /// Returns the encryption of the state, if a key is configured.
    pub(super) fn key(&self) -> Option<&dyn StateEncryption> {
        self.options.key.as_deref()
    }

    pub(super) fn next_token(&self) -> String {
        format!("plan-{}", self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a saved plan until it is applied or the same resources are planned again.
    pub(super) fn keep(&self, prepared: PreparedPlan) {
        let mut all = lock(&self.prepared);
        all.retain(|_, other| !other.is_for_the_same(&prepared));
        all.insert(prepared.token.clone(), prepared);
    }

    pub(super) fn take(&self, token: &str) -> Option<PreparedPlan> {
        lock(&self.prepared).remove(token)
    }

    /// Lists the resources that the kept plans of a stack create.
    pub(super) fn created_resources(&self, stack: &StackId) -> Vec<CreatedResource> {
        let all = lock(&self.prepared);
        let of_stack = all.values().filter(|prepared| prepared.stack == *stack);
        of_stack.flat_map(PreparedPlan::created).collect()
    }

    /// Lists the resources of a type that the kept plans of a stack delete.
    pub(super) fn deleted_resources(&self, stack: &StackId, kind: &str) -> Vec<ResourceId> {
        let all = lock(&self.prepared);
        let of_stack = all.values().filter(|prepared| prepared.stack == *stack);
        let deleted = of_stack.flat_map(|prepared| &prepared.ready);
        let deleted = deleted
            .filter(|ready| ready.action == Action::Delete && ready.subject.address.kind == kind)
            .map(|ready| ready.subject.id().clone());
        let mut ids: Vec<_> = deleted.collect();
        ids.sort();
        ids
    }

    pub(super) fn remember_move(&self, stack: &StackId, old: &ResourceId, new: &ResourceId) {
        lock(&self.moves)
            .entry(stack.clone())
            .or_default()
            .insert(old.clone(), new.clone());
    }

    pub(super) fn renamed_resources(&self, stack: &StackId) -> HashMap<ResourceId, ResourceId> {
        lock(&self.moves).get(stack).cloned().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}
