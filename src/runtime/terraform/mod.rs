//! Terraform (or OpenTofu) as a runtime.
//!
//! A batch of a stack becomes one root module ([`module`]). One `terraform plan` plans it ([`plan`]); its
//! saved plan is shown ([`plan_convert`]) and then applied unchanged ([`apply`]). Terraform's state is one
//! encrypted document in the state of the stack ([`state_document`]). Modules, states and saved plans in
//! clear text exist only in memory ([`memfd`]).
//!
//! A Spec can define resources, but not run anything: expressions in its texts stay text ([`expression`]),
//! arguments that run commands are refused ([`module_resource`]), and only listed providers are installed
//! ([`resolve_items`]).

mod address;
mod apply;
mod binary;
mod command;
mod credential_settings;
mod diagnostics_map;
mod diff;
mod environment;
mod error;
mod expression;
mod installation;
mod log_messages;
mod masking;
mod memfd;
mod module;
mod module_resource;
mod options;
mod plan;
mod plan_command;
mod plan_convert;
mod progress;
mod provider_addresses;
mod provider_cache;
mod providers;
mod refresh;
mod resolve_items;
mod resource_state;
mod saved_plan;
mod state_document;
mod state_encryption;

pub use binary::{Binary, BinaryKind};
pub use error::{Class, TerraformError};
pub use options::{AllowedProvider, TerraformOptions};
pub use state_document::{STATE, forget};
pub use state_encryption::StateEncryption;

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use tokio::sync::OnceCell;

use crate::{
    error::UserError,
    model::{
        ClusterName, ResourceId, StackId,
        spec::{Resource, RuntimeKind},
    },
    runtime::{ApplySink, Granularity, Item, ObservedObject, PlannedResource, Runtime, StackScope},
};

/// The runtime of Terraform resources; serves any number of stacks.
pub struct Terraform {
    options: TerraformOptions,
    /// Created at the first use: a run without Terraform resources needs no Terraform.
    toolbox: OnceCell<installation::Installation>,
    prepared: Mutex<HashMap<String, plan_convert::PreparedPlan>>,
    moves: Mutex<HashMap<StackId, HashMap<ResourceId, ResourceId>>>,
    /// The Terraform states of stacks during their apply: batches of one stack write the same document.
    books: apply::Books,
    tokens: AtomicU64,
}

impl Terraform {
    /// A runtime that has not looked for Terraform yet.
    pub fn new(options: TerraformOptions) -> Self {
        Self {
            options,
            toolbox: OnceCell::new(),
            prepared: Mutex::default(),
            moves: Mutex::default(),
            books: apply::Books::default(),
            tokens: AtomicU64::new(0),
        }
    }

    /// The executable.
    ///
    /// # Errors
    /// It does not exist, or it is too old.
    pub async fn binary(&self) -> Result<&Binary, UserError> {
        Ok(&self.toolbox().await?.binary)
    }

    async fn toolbox(&self) -> Result<&installation::Installation, TerraformError> {
        self.toolbox
            .get_or_try_init(|| installation::Installation::open(&self.options))
            .await
    }

    fn next_token(&self) -> String {
        format!("plan-{}", self.tokens.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a saved plan until it is applied or the same resources are planned again.
    fn keep(&self, prepared: plan_convert::PreparedPlan) {
        let mut all = lock(&self.prepared);
        all.retain(|_, other| !other.is_for_the_same(&prepared));
        all.insert(prepared.token.clone(), prepared);
    }

    fn take(&self, token: &str) -> Option<plan_convert::PreparedPlan> {
        lock(&self.prepared).remove(token)
    }

    fn remember_move(&self, stack: &StackId, old: &ResourceId, new: &ResourceId) {
        lock(&self.moves)
            .entry(stack.clone())
            .or_default()
            .insert(old.clone(), new.clone());
    }

    fn renamed_resources(&self, stack: &StackId) -> HashMap<ResourceId, ResourceId> {
        lock(&self.moves).get(stack).cloned().unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic while the lock is held")
}

#[async_trait]
impl Runtime for Terraform {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Terraform
    }

    fn granularity(&self) -> Granularity {
        Granularity::Segment
    }

    async fn prepare(
        &self,
        _: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        resources
            .into_iter()
            .map(|resource| {
                module_resource::parse_desired(&resource)?;
                Ok((resource.id.clone(), resource))
            })
            .collect()
    }

    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        Ok(refresh::observe(self, scope, items).await?)
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, UserError>>, UserError> {
        let answers = plan::plan(self, scope, items).await;
        Ok(answers
            .into_iter()
            .map(|answer| answer.map_err(UserError::from))
            .collect())
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        apply::apply(self, scope, planned, sink).await
    }
}
