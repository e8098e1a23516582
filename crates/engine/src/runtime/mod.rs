//! The interface between the engine and the infrastructure: one trait, implemented by `kubernetes` and
//! `terraform`.
//!
//! The engine cuts the graph of a stack into batches (resources of one runtime that can be planned together)
//! and hands each to its runtime. A runtime never decides the order and never sees the format of the state.

mod true_values;
mod typed_failures;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::Value;

pub use self::{
    true_values::TrueValues,
    typed_failures::{StoreUnavailable, ToolUnavailable},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId, StackId,
        apply_result::Waiting,
        health::Health,
        hook::HookTasks,
        note::Note,
        plan::{Action, ResourcePlan},
        spec::{Resource, RuntimeKind, Sharing},
        stack_status::ObjectStatus,
        state::Recorded,
    },
};
use konverge_secrets::StackReferences;

/// The stack of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct StackScope {
    /// The owner of the resources.
    pub stack: StackId,
    /// Earlier identities of the stack: an object whose owner is one of them belongs to this stack.
    pub earlier: Vec<StackId>,
    /// The runtimes' own data, from the state and from [`ApplySink::runtime_data`] in this run.
    pub data: BTreeMap<String, Value>,
    /// Paths of Kubernetes objects that are not compared (`stacks[].ignore`): once an object exists, they
    /// stay unchanged.
    pub ignore: Vec<String>,
    /// The resources that references read: the values of others need not be kept.
    pub read: Arc<HashSet<ResourceId>>,
    /// The changes of earlier batches, during planning. None of them exists yet.
    pub pending: Arc<Vec<EarlierChange>>,
    /// The hooks of the desired resources.
    pub hooks: Arc<HookTasks>,
    /// Answers questions about the references to secrets in the resources.
    pub references: StackReferences,
    /// True if the plan is only compared with live objects, and never applied. A resource that the server refuses is
    /// compared without it.
    pub only_compares: bool,
}

/// A resource that an earlier batch of a plan creates or changes.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierChange {
    /// The cluster, for Kubernetes.
    pub cluster: Option<ClusterName>,
    /// The desired resource.
    pub resource: Resource,
    /// True if it is created or replaced.
    pub creates: bool,
}

/// The dependencies of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// During planning: everything that is applied earlier. A refusal that an earlier resource may resolve is not
    /// final.
    Planned(Vec<ResourceId>),
    /// During the apply: the dependencies that this run has created or changed. A server may not know them
    /// yet.
    Done(Vec<ResourceId>),
}

impl Default for Needs {
    fn default() -> Self {
        Self::Planned(Vec::new())
    }
}

impl StackScope {
    /// Returns true if the owner in an object is this stack under an earlier identity.
    pub fn was(&self, owner: &str) -> bool {
        self.earlier.iter().any(|earlier| earlier.as_str() == owner)
    }
}

/// One resource, as the engine passes it to a runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The resource.
    pub id: ResourceId,
    /// The cluster, for Kubernetes; `None` for Terraform.
    pub cluster: Option<ClusterName>,
    /// The resource as last applied, from the state.
    pub prior: Option<Recorded>,
    /// The desired resource; `None` for a deletion. References to other batches are resolved (unknown values are
    /// `$unknown`). References inside the batch stay text for a runtime that resolves them itself
    /// ([`Granularity::Segment`]).
    pub desired: Option<Resource>,
    /// The dependencies of the resource.
    pub needs: Needs,
}

impl Item {
    /// Returns true if the stacks of a project share the object: as desired, or else as recorded.
    pub fn is_shared(&self) -> bool {
        match (&self.desired, &self.prior) {
            (Some(desired), _) => desired.is_shared(),
            (None, prior) => prior.as_ref().is_some_and(Recorded::is_shared),
        }
    }

    /// Returns true if generation made the desired object for all stacks of the project.
    pub fn is_generated(&self) -> bool {
        let desired = self.desired.as_ref();
        desired.is_some_and(|desired| desired.sharing == Sharing::Project)
    }
}

/// How a runtime applies resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Each resource separately; the engine schedules (Kubernetes).
    Resource,
    /// A batch as a whole; the runtime schedules inside it (Terraform).
    Segment,
}

/// A live object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// The resource.
    pub id: ResourceId,
    /// The live object; `None` if it does not exist. For Terraform what its state says.
    pub live: Option<Value>,
    /// The health of the object, with a short reason (masked).
    pub health: (Health, String),
    /// The event that the object waits for, if that event happens outside its cluster.
    pub waiting: Option<Waiting>,
    /// True if the Spec itself suspends the object, so that it is as desired.
    pub is_suspended_by_spec: bool,
}

/// A planned resource: what is shown, and what the runtime needs to execute exactly that.
#[derive(Debug, Clone)]
pub struct PlannedResource {
    /// The planned item.
    pub item: Item,
    /// The plan that is shown and reviewed; masked.
    pub public: ResourcePlan,
    /// The true values of the plan, for policy sets.
    pub truth: TrueValues,
    /// The record after success (secrets masked), without `depends_on`, which the engine adds; `None` for a
    /// deletion.
    pub recorded: Option<Recorded>,
    /// The object belongs to another stack: this plan is allowed only if that stack has released it.
    pub foreign: Option<Foreign>,
    /// The reason why the object must not be deleted. It may leave its stack if another stack takes it.
    pub protected: Option<UserError>,
    /// Nothing would change, but the earlier apply did not see the object become ready. An apply waits until it is
    /// ready.
    pub unready: bool,
    /// The health of the live object by its own status, in a plan that is only compared.
    pub health: Option<ObjectStatus>,
    /// The plan depends on earlier resources of the plan: when those are applied, it is planned again.
    pub provisional: bool,
    /// The values that references of later batches read: the expected object, with `$unknown` for what only
    /// the server knows. May be omitted if nobody reads it ([`StackScope::read`]). Not masked: never print or
    /// store it.
    pub expected: Option<Value>,
    /// The secret texts in `expected`, in every form in which a reference may read them: values that contain
    /// one are masked. Never print or store them.
    pub sensitive: Vec<String>,
    /// The places in `expected` whose values the provider calls sensitive, also before they are known: `true`, or an
    /// object or a list with the places below.
    pub sensitive_paths: Value,
    /// The runtime's own data for the apply; not masked.
    pub preparation: Preparation,
}

impl PlannedResource {
    /// Plans to remove only the record; the live object stays.
    pub fn forgotten(stack: &StackId, item: Item, kind: RuntimeKind, note: String) -> Self {
        let mut public = ResourcePlan::new(stack, item.id.clone(), kind, Action::Forget, Vec::new());
        public.cluster.clone_from(&item.cluster);
        public.notes.push(note);
        Self {
            item,
            public,
            truth: TrueValues::default(),
            recorded: None,
            foreign: None,
            protected: None,
            unready: false,
            health: None,
            provisional: false,
            expected: None,
            sensitive: Vec::new(),
            sensitive_paths: Value::Null,
            preparation: Preparation::none(),
        }
    }
}

/// The runtime's own data for the apply, as a type of the runtime. Shared, so that a plan is cheap to copy.
#[derive(Clone, Default)]
pub struct Preparation(Option<Arc<dyn Any + Send + Sync>>);

impl Preparation {
    /// Creates a preparation without data.
    pub fn none() -> Self {
        Self::default()
    }

    /// Wraps what a runtime prepared.
    pub fn new<T: Any + Send + Sync>(prepared: T) -> Self {
        Self(Some(Arc::new(prepared)))
    }

    /// Returns true if nothing was prepared.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns what the runtime prepared.
    ///
    /// # Errors
    /// Nothing of this type was prepared: the plan is of another runtime.
    pub fn get<T: Any>(&self) -> Result<&T, UserError> {
        let prepared = self.0.as_ref().and_then(|prepared| prepared.downcast_ref());
        prepared
            .ok_or_else(|| UserError::new(ErrorKind::Internal, "the plan was not prepared by this runtime"))
    }
}

impl fmt::Debug for Preparation {
    /// Prints no contents: they hold secrets in clear.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "prepared"
        } else {
            "not prepared"
        })
    }
}

/// The ownership mark of another stack on a live object.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// The owner in the mark.
    pub owner: String,
    /// The error if that stack has not released the object.
    pub refusal: UserError,
}

/// A resource after the apply.
#[derive(Debug, Clone)]
pub struct AppliedResource {
    /// The resource.
    pub id: ResourceId,
    /// The record (secrets masked), without `depends_on`; `None` if the object is gone.
    pub recorded: Option<Recorded>,
    /// The values that references read: the live object as the server returned it. Not masked.
    pub live: Option<Value>,
    /// The secret texts in `live`, as in [`PlannedResource::sensitive`].
    pub sensitive: Vec<String>,
    /// The condition that the object waits for, as text. The object is written and not ready; the runtime plans it as
    /// unready until the condition holds.
    pub waiting: Option<(Waiting, String)>,
}

/// Receives results of a runtime as soon as they exist. The engine writes them to the journal.
#[async_trait]
pub trait ApplySink: Send + Sync {
    /// The progress of a resource that is not finished.
    fn progress(&self, id: &ResourceId, message: &str);

    /// The object was written, and only its readiness is pending. It is recorded now, so that a failure or a
    /// kill during the wait does not lose it.
    async fn record_written(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError>;

    /// Records that something begins or ended that must not run twice. The record is stored before this returns, so
    /// that a kill at any later instant leaves it.
    async fn record_run(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        self.record_written(id, recorded).await
    }

    /// The old object is about to be deleted and recreated. The approved replacement is stored before this
    /// returns: if the run does not complete it, the next run plans only a creation.
    async fn replacing(&self, id: &ResourceId) -> Result<(), UserError> {
        let _ = id;
        Ok(())
    }

    /// A resource that was to be created certainly does not exist: its intent is withdrawn. Without this call
    /// a failed resource may exist.
    async fn absent(&self, id: &ResourceId) -> Result<(), UserError> {
        let _ = id;
        Ok(())
    }

    /// Records the result of a resource that is finished.
    async fn record_result(
        &self,
        id: &ResourceId,
        result: Result<AppliedResource, UserError>,
    ) -> Result<(), UserError>;

    /// The runtime's own data for the stack changed. It is already encrypted if it may contain secrets. An error with
    /// the source [`StoreUnavailable`] may be retried.
    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), UserError>;

    /// Returns true if the run was asked to stop: no new operation may start.
    fn cancelled(&self) -> bool;

    /// Returns an error if the lease is lost. Call it before every write to the infrastructure.
    async fn check_lease(&self) -> Result<(), UserError>;
}

/// Receives a runtime's notes on the whole run, which concern no resource. Drops them without a listener.
#[derive(Clone, Default)]
pub struct RunNotes(Option<Arc<NoteListener>>);

type NoteListener = dyn Fn(Note) + Send + Sync;

impl RunNotes {
    /// Sets the listener.
    pub fn new(listener: impl Fn(Note) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Says something that a reader should know.
    pub fn note(&self, text: &str) {
        self.say(Note::remark(text));
    }

    /// Says that something may be wrong.
    pub fn warning(&self, text: &str) {
        self.say(Note::warning(text));
    }

    fn say(&self, note: Note) {
        if let Some(listener) = &self.0 {
            listener(note);
        }
    }
}

impl std::fmt::Debug for RunNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunNotes")
    }
}

/// One kind of infrastructure.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// The kind of resources that it handles.
    fn kind(&self) -> RuntimeKind;

    /// Returns how the runtime applies resources.
    fn granularity(&self) -> Granularity;

    /// Normalizes and validates desired resources before the graph is built: adds a missing namespace,
    /// rejects what can never be applied (`generateName`). Ids may change; the old id is returned with the
    /// new resource. All resources are in `cluster`.
    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError>;

    /// Reads the live objects and writes nothing. One result per item, in order.
    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError>;

    /// Finds the items whose live object is not the recorded one any more: it is gone, is being deleted, or was
    /// recreated since. Each item has its record as `prior`. It must be cheap, because an apply asks it about all
    /// resources of a stack. `earlier` are the records, before the apply, of what it changed or deleted: what only
    /// deleted objects owned goes with them. A runtime that knows this only by a plan finds nothing.
    async fn find_missing(&self, items: &[Item], earlier: &[Recorded]) -> Result<Vec<ResourceId>, UserError> {
        let _ = (items, earlier);
        Ok(Vec::new())
    }

    /// Returns what the state must record about the targets of the resources (the clusters), with its key in
    /// [`StackScope::data`]. It is stored before the first of them is changed. `None` if it is already recorded.
    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        let _ = (scope, clusters);
        Ok(None)
    }

    /// Plans a batch and writes nothing. Other resources of the stack belong to other batches and are not
    /// changed; deletions come in batches of their own, after all others. One result per item, in order; an
    /// item that cannot be planned does not affect the others.
    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, UserError>>, UserError>;

    /// Executes a plan, and waits until each resource is ready or failed. Every item ends in exactly one
    /// [`ApplySink::record_result`]. An error of the whole call means that this runtime can do nothing more.
    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError>;
}
