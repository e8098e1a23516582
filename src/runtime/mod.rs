//! What the engine knows of the outside: one trait, kept by [`kubernetes`] and [`terraform`].
//!
//! The engine cuts a stack's graph into segments (resources of one runtime that can be planned together) and hands
//! each to its runtime. A runtime never decides the order and never sees the state's format.

pub mod kubernetes;
pub mod terraform;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    error::UserError,
    model::{
        ClusterName, ResourceId, StackId,
        health::Health,
        plan::{Action, ResourcePlan},
        spec::{Resource, RuntimeKind},
        state::Recorded,
    },
};

/// The stack that a call is about.
#[derive(Debug, Clone, PartialEq)]
pub struct StackScope {
    /// Whose resources these are.
    pub stack: StackId,
    /// Identities that the stack had before: an object that names one of them as its owner is this stack's.
    pub earlier: Vec<StackId>,
    /// The runtimes' own data: as the state holds it, with what [`ApplySink::runtime_data`] was given in this run.
    pub data: BTreeMap<String, Value>,
    /// Paths of Kubernetes objects that are not compared (`stacks[].ignore`): once an object is there, they stay as they
    /// are.
    pub ignore: Vec<String>,
    /// Whom references read: what becomes of the others need not be remembered.
    pub read: Arc<HashSet<ResourceId>>,
    /// While a plan is made: what earlier segments of it create or change. Nothing of it is there yet.
    pub pending: Arc<Vec<Pending>>,
}

/// A resource that an earlier segment of a plan creates or changes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    /// Its cluster, for Kubernetes.
    pub cluster: Option<ClusterName>,
    /// As wanted.
    pub resource: Resource,
}

/// What a resource waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// While a plan is made: all that comes before it. A refusal that one of these would lift is not final.
    Planned(Vec<ResourceId>),
    /// While a plan is carried out: what this run has created or changed of it. A server may not know of it yet.
    Done(Vec<ResourceId>),
}

impl Default for Needs {
    fn default() -> Self {
        Self::Planned(Vec::new())
    }
}

impl StackScope {
    /// Whether an owner, as an object names it, is this stack under an earlier identity.
    pub fn was(&self, owner: &str) -> bool {
        self.earlier.iter().any(|earlier| earlier.as_str() == owner)
    }
}

/// One resource as the engine hands it to a runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Its id.
    pub id: ResourceId,
    /// The cluster, for Kubernetes; `None` for Terraform.
    pub cluster: Option<ClusterName>,
    /// As last applied, from the state.
    pub prior: Option<Recorded>,
    /// As wanted: references to other segments are resolved (not yet known values are `$unknown`), references inside
    /// the segment are left as text for a runtime that resolves them itself ([`Granularity::Segment`]).
    /// `None` if it is to go.
    pub desired: Option<Resource>,
    /// What it waits for.
    pub needs: Needs,
}

/// How a runtime likes its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Each resource is applied by itself; the engine schedules (Kubernetes).
    Resource,
    /// A segment is applied as one; the runtime schedules inside it (Terraform).
    Segment,
}

/// What stands outside.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// The resource.
    pub id: ResourceId,
    /// What is there; `None` if nothing is. For Terraform what its state says.
    pub live: Option<Value>,
    /// How it is doing, with a few words why (masked).
    pub health: (Health, String),
}

/// A planned resource: what is shown, and what the runtime needs to do exactly that.
#[derive(Debug, Clone)]
pub struct PlannedResource {
    /// What was planned.
    pub item: Item,
    /// What is shown and reviewed; masked.
    pub public: ResourcePlan,
    /// As it is to be recorded if it ends well (secrets masked), without `depends_on`, which the engine fills in;
    /// `None` if it will be gone.
    pub recorded: Option<Recorded>,
    /// It belongs to another stack: this may be done only if that one has let go of it.
    pub foreign: Option<Foreign>,
    /// Why it may not be deleted: that it leaves its stack is no harm if another one takes it.
    pub protected: Option<UserError>,
    /// Nothing would change, but whoever wrote it did not see it become ready: an apply waits for that.
    pub unready: bool,
    /// It could only be judged by what the plan does before it: when that is done, it is planned again.
    pub provisional: bool,
    /// What references of later segments read: the object as it is expected to become, with `$unknown` for what only
    /// the server knows. May be left out where nobody reads it ([`StackScope::read`]). Not masked: never printed, never
    /// stored.
    pub expected: Option<Value>,
    /// Texts of `expected` that are secret, each in every form in which a reference may read it: what carries one is
    /// masked. Never printed, never stored.
    pub sensitive: Vec<String>,
    /// The runtime's own preparation, given back to it at apply; not masked.
    pub private: Value,
}

impl PlannedResource {
    /// Only the record goes; what stands outside stays.
    pub fn forgotten(stack: &StackId, item: Item, kind: RuntimeKind, note: String) -> Self {
        let mut public = ResourcePlan::new(stack, item.id.clone(), kind, Action::Forget, Vec::new());
        public.cluster.clone_from(&item.cluster);
        public.notes.push(note);
        Self {
            item,
            public,
            recorded: None,
            foreign: None,
            protected: None,
            unready: false,
            provisional: false,
            expected: None,
            sensitive: Vec::new(),
            private: Value::Null,
        }
    }
}

/// Another stack's mark on what stands outside.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The owner, as the mark names it.
    pub owner: String,
    /// What is to be said if it has not let go.
    pub refusal: UserError,
}

/// A resource after apply.
#[derive(Debug, Clone)]
pub struct AppliedResource {
    /// The resource.
    pub id: ResourceId,
    /// As it is to be recorded (secrets masked), without `depends_on`; `None` if it is gone.
    pub recorded: Option<Recorded>,
    /// What references read: the live object as the server answered. Not masked.
    pub live: Option<Value>,
    /// Texts of `live` that are secret, as in [`PlannedResource::sensitive`].
    pub sensitive: Vec<String>,
}

/// Takes what a runtime finished, as soon as it did. The engine journals it.
#[async_trait]
pub trait ApplySink: Send + Sync {
    /// A few words on a resource still under way.
    fn progress(&self, id: &ResourceId, message: &str);

    /// The resource is there as wanted, and only its readiness is waited for: it is journalled now, so that a failure
    /// or a kill while waiting does not forget it.
    async fn record_written(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError>;

    /// Its old object is about to be deleted, to be recreated. What was agreed to is kept before this returns: if the run
    /// does not come to the end, the next one plans a mere creation.
    async fn replacing(&self, id: &ResourceId) -> Result<(), UserError> {
        let _ = id;
        Ok(())
    }

    /// A resource that was to be made is not there: nothing of it is remembered. What failed and is not said to be
    /// absent may be there.
    async fn absent(&self, id: &ResourceId) -> Result<(), UserError> {
        let _ = id;
        Ok(())
    }

    /// One resource ended.
    async fn record_result(
        &self,
        id: &ResourceId,
        result: Result<AppliedResource, UserError>,
    ) -> Result<(), UserError>;

    /// The runtime's own data for the stack changed; already encrypted where it may hold secrets.
    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), UserError>;

    /// Whether the run has been asked to stop: no new operation may start.
    fn cancelled(&self) -> bool;

    /// Asks whether the lease still holds, before a write to the outside.
    async fn fence(&self) -> Result<(), UserError>;
}

/// One kind of infrastructure.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Which resources it takes.
    fn kind(&self) -> RuntimeKind;

    /// How it likes its work.
    fn granularity(&self) -> Granularity;

    /// Normalises and checks desired resources before the graph is made: resolves a missing namespace, refuses what
    /// can never be applied (`generateName`). Ids may change; the old id is returned with the new resource. All of them
    /// lie in `cluster`.
    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError>;

    /// Looks, and writes nothing. One answer per item, in order.
    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError>;

    /// What the state is to hold of the places where resources lie, by its key in [`StackScope::data`]; written down before the
    /// first of them is touched. `None` if it holds that already.
    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        let _ = (scope, clusters);
        Ok(None)
    }

    /// Plans a segment, and writes nothing. Resources of the stack that are not among the items belong to other
    /// segments and are left alone; items that are to go come in segments of their own, after all others. One answer per item, in order; an item that cannot be planned is its own
    /// failure and takes no other down.
    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, UserError>>, UserError>;

    /// Does what was planned, and waits until it is ready or failed. Every item ends in exactly one
    /// [`ApplySink::ended`]. An error of the whole call means that nothing more can be done with this runtime.
    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError>;
}
