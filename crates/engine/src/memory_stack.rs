//! For tests: a stack with its state on a [`MemoryRuntime`].

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    ApplyRequest, EnginePlan, PlanRequest, RuntimeRegistry,
    memory_runtime::{Faults, MemoryRuntime, id},
};
use crate::runtime::{Granularity, Needs};
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        apply_result::{ResourceResult, StackOutcome},
        event::RunEvent,
        hook::HookRules,
        plan::ResourcePlan,
        spec::{Resource, Spec},
        state::{JournalEntry, StackState},
    },
};
use konverge_secrets::{HashKey, Secrets, StackReferences};

/// A stack with its state on such a runtime.
pub(super) struct MemoryStack {
    pub state: StackState,
    pub secrets: Secrets,
    pub hooks: HookRules,
    runtime: MemoryRuntime,
}

impl MemoryStack {
    pub(crate) fn new() -> Self {
        Self::on(Granularity::Resource)
    }

    /// Creates a stack on a runtime that plans or applies resources with this granularity.
    pub(crate) fn on(granularity: Granularity) -> Self {
        Self {
            state: StackState::empty("shop/prod".parse().unwrap(), RepoPath::root()),
            secrets: Secrets::new(HashKey::derive("test")),
            hooks: HookRules {
                service_accounts: vec!["default".to_owned()],
                ..HookRules::default()
            },
            runtime: MemoryRuntime::new(granularity),
        }
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.runtime.world().faults = faults;
    }

    pub(crate) fn refuse_late_plans(&self) {
        self.runtime.world().refuses_late_plans = true;
    }

    pub(crate) fn runtimes(&self) -> RuntimeRegistry {
        RuntimeRegistry::new().with(Arc::new(self.runtime.clone()))
    }

    pub(crate) async fn try_plan(&self, resources: &[Resource]) -> Result<EnginePlan, UserError> {
        let runtimes = self.runtimes();
        let request = PlanRequest {
            stack: self.state.stack.clone(),
            folder: RepoPath::root(),
            spec: Spec {
                resources: resources.to_vec(),
                secret_stores: Vec::new(),
                outputs: serde_json::Map::new(),
                notes: Vec::new(),
            },
            outputs: std::collections::BTreeMap::new(),
            state: &self.state,
            runtimes: &runtimes,
            ignore: &[],
            cluster: Some("main".parse().unwrap()),
            events: &self.runtime,
            hooks: self.hooks.clone(),
            references: StackReferences::default(),
            secrets: &self.secrets,
            only_compares: false,
        };
        super::plan(request).await?.without_other_stacks().await
    }

    pub(crate) async fn plan(&self, resources: &[Resource]) -> EnginePlan {
        self.try_plan(resources).await.unwrap()
    }

    /// Carries out a plan, and keeps what the journal says.
    pub(crate) async fn apply(&mut self, plan: EnginePlan) -> StackOutcome {
        self.apply_allowing(plan, false).await
    }

    pub(crate) async fn apply_allowing(&mut self, plan: EnginePlan, allow_empty: bool) -> StackOutcome {
        let outcome = super::apply(ApplyRequest {
            plan,
            review: &self.runtime,
            journal: &self.runtime,
            events: &self.runtime,
            cancel: self.runtime.cancel.clone(),
            parallelism: 1,
            allow_empty,
        })
        .await
        .outcome;
        for entry in self.journal() {
            match entry {
                JournalEntry::Done { recorded } => self.state.put(recorded),
                JournalEntry::Gone { id } => self.state.remove(&id),
                JournalEntry::Begun { id, replacement } => drop(self.state.begun.insert(id, replacement)),
                _ => {}
            }
        }
        outcome
    }

    /// Plans and applies resources that nothing is wrong with.
    pub(crate) async fn apply_all(&mut self, resources: &[Resource]) -> StackOutcome {
        let outcome = self.apply(self.plan(resources).await).await;
        if let Some(failure) = &outcome.error {
            panic!("{}", failure.message);
        }
        outcome
    }

    pub(crate) fn object(&self, name: &str) -> Option<Map<String, Value>> {
        self.runtime.world().objects.get(id(name).as_str()).cloned()
    }

    /// Returns the writes since the last call, such as `create a`.
    pub(crate) fn writes(&self) -> Vec<String> {
        std::mem::take(&mut self.runtime.world().writes)
    }

    /// The calls of the runtime since the last call, each with the resources that it got.
    pub(crate) fn batches(&self) -> Vec<Vec<String>> {
        std::mem::take(&mut self.runtime.world().batches)
    }

    pub(crate) fn journal(&self) -> Vec<JournalEntry> {
        self.runtime.world().journal.clone()
    }

    pub(crate) fn events(&self) -> Vec<RunEvent> {
        self.runtime.world().events.clone()
    }

    /// Returns the plans that were checked against the review during an apply.
    pub(crate) fn reviewed(&self) -> Vec<ResourcePlan> {
        self.runtime.world().reviewed.clone()
    }

    /// Returns the changed dependencies that an applied resource got.
    pub(crate) fn needs(&self, name: &str) -> Needs {
        self.runtime.world().needs[name].clone()
    }

    /// The pending resources of earlier stages that the plan of a resource got.
    pub(crate) fn pending(&self, name: &str) -> Vec<String> {
        self.runtime
            .world()
            .pending
            .get(name)
            .cloned()
            .unwrap_or_default()
    }
}

/// The result and the message of a resource; `None` if nothing is reported.
pub(super) fn result<'a>(outcome: &'a StackOutcome, name: &str) -> Option<(ResourceResult, &'a str)> {
    let found = outcome.resources.iter().find(|outcome| outcome.id == id(name))?;
    Some((found.result, found.message.as_deref().unwrap_or_default()))
}
