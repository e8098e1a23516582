//! The interface between the engine and the infrastructure: one trait, implemented by `kubernetes` and
//! `terraform`.
//!
//! The engine cuts the graph of a stack into batches (resources of one runtime that can be planned together)
//! and hands each to its runtime. A runtime never decides the order and never sees the format of the state.

mod failures;
mod true_values;

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, HashSet},
    fmt,
    sync::Arc,
};

use async_trait::async_trait;
use serde_json::Value;

pub use self::{
    failures::{PlanFailure, RecordFailure},
    true_values::TrueValues,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, FieldPath, ResourceId, StackId,
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

/// The stack for which a runtime is called, with the data that every call needs.
#[derive(Debug, Clone, PartialEq)]
pub struct StackScope {
    /// The owner of the resources.
    pub stack: StackId,
    /// Earlier identities of the stack: an object whose owner is one of them belongs to this stack.
    pub earlier: Vec<StackId>,
    /// The runtimes' own data, by key: from the state, and from [`ApplySink::runtime_data`] in this run.
    pub data: BTreeMap<String, Value>,
    /// Paths of Kubernetes objects that are not compared (`stacks[].ignore`): once an object exists, they
    /// stay unchanged.
    pub ignore: Vec<FieldPath>,
    /// The resources that references read. A runtime need not return the values of any other resource.
    pub read: Arc<HashSet<ResourceId>>,
    /// The planned changes of earlier batches, during planning only. None of them is applied yet.
    pub pending: Arc<Vec<EarlierChange>>,
    /// The hooks of the desired resources.
    pub hooks: Arc<HookTasks>,
    /// Tells which secret references the resources have.
    pub references: StackReferences,
    /// True for a drift check: the plan is never applied. If the server refuses a resource, the resource is compared
    /// without the server's validation.
    pub only_compares: bool,
}

/// A resource that an earlier batch of a plan creates or changes.
#[derive(Debug, Clone, PartialEq)]
pub struct EarlierChange {
    /// The cluster, for Kubernetes.
    pub cluster: Option<ClusterName>,
    /// The desired resource.
    pub resource: Resource,
    /// True if the resource is created or replaced.
    pub creates: bool,
}

/// The dependencies of a resource that may not exist yet, or not be visible yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// During planning: all resources that are applied earlier. A server's refusal that one of them may resolve is not
    /// final.
    Planned(Vec<ResourceId>),
    /// During the apply: the dependencies that this run has created or changed. A server may not see them yet.
    Done(Vec<ResourceId>),
}

impl Default for Needs {
    fn default() -> Self {
        Self::Planned(Vec::new())
    }
}

impl StackScope {
    /// Returns true if the owner in the mark of an object is an earlier identity of this stack.
    pub fn was(&self, owner: &str) -> bool {
        self.earlier.iter().any(|earlier| earlier.as_str() == owner)
    }
}

/// One resource, as the engine passes it to a runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The resource to plan or apply.
    pub id: ResourceId,
    /// The cluster, for Kubernetes; `None` for Terraform.
    pub cluster: Option<ClusterName>,
    /// The resource as last applied, from the state.
    pub prior: Option<Recorded>,
    /// The desired resource; `None` for a deletion. References to other batches are resolved (unknown values are
    /// `$unknown`). References inside the batch stay text for a runtime that resolves them itself
    /// ([`Granularity::Segment`]).
    pub desired: Option<Resource>,
    /// The dependencies that may not exist yet.
    pub needs: Needs,
}

impl Item {
    /// Returns true if several stacks of the project share the object, by the desired or else by the recorded resource.
    pub fn is_shared(&self) -> bool {
        match (&self.desired, &self.prior) {
            (Some(desired), _) => desired.is_shared(),
            (None, prior) => prior.as_ref().is_some_and(Recorded::is_shared),
        }
    }

    /// Returns true if the desired object was generated for all stacks of the project.
    pub fn is_generated(&self) -> bool {
        let desired = self.desired.as_ref();
        desired.is_some_and(|desired| desired.sharing == Sharing::Project)
    }
}

/// The unit in which a runtime applies resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// The runtime applies each resource separately, and the engine schedules them (Kubernetes).
    Resource,
    /// The runtime applies a batch as a whole, and schedules inside it (Terraform).
    Segment,
}

/// A live object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedObject {
    /// The id of the resource.
    pub id: ResourceId,
    /// The live object; `None` if it does not exist. For Terraform the attributes in its state.
    pub live: Option<Value>,
    /// The health of the object, with a short reason (masked).
    pub health: (Health, String),
    /// The event outside the cluster that the object waits for, such as a promotion.
    pub waiting: Option<Waiting>,
    /// True if the Spec itself suspends the object: then being suspended is the desired state.
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
    /// The other stack that owns the live object. The plan is allowed only if that stack has released the object.
    pub foreign: Option<Foreign>,
    /// The error if the object is protected from deletion. It may still move to another stack.
    pub protected: Option<UserError>,
    /// True if nothing changes, but an earlier apply ended before the object was ready. The apply waits for it.
    pub unready: bool,
    /// The health of the live object by its own status. Only in a drift check.
    pub health: Option<ObjectStatus>,
    /// True if the plan depends on earlier resources of the plan: it is made again when they are applied.
    pub provisional: bool,
    /// The values that references of later batches read: the expected object, with `$unknown` for what only
    /// the server knows. May be omitted if nobody reads it ([`StackScope::read`]). Not masked: never print or
    /// store it.
    pub expected: Option<Value>,
    /// The secret texts in `expected`, in every form in which a reference may read them. Every value that contains
    /// one of them is masked. Never print or store them.
    pub sensitive: Vec<String>,
    /// The paths in `expected` whose values the provider calls sensitive, also before they are known: `true`, or an
    /// object or a list of the paths below.
    pub sensitive_paths: Value,
    /// The runtime's own data for the apply; not masked.
    pub preparation: Preparation,
}

impl PlannedResource {
    /// Creates a plan that removes only the record; the live object stays.
    pub fn forgotten(stack: &StackId, item: Item, kind: RuntimeKind, note: String) -> Self {
        let mut public = ResourcePlan::new(stack, item.id.clone(), kind, Action::Forget, Vec::new());
        public.cluster.clone_from(&item.cluster);
        public.notes.push(note);
        Self::new(item, public)
    }

    /// Creates a plan with only these parts.
    pub fn new(item: Item, public: ResourcePlan) -> Self {
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

    /// Wraps the data that a runtime prepared.
    pub fn new<T: Any + Send + Sync>(prepared: T) -> Self {
        Self(Some(Arc::new(prepared)))
    }

    /// Returns true if there is no data.
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the data that the runtime prepared.
    ///
    /// # Errors
    /// The data has another type: the plan belongs to another runtime.
    pub fn get<T: Any>(&self) -> Result<&T, UserError> {
        let prepared = self.0.as_ref().and_then(|prepared| prepared.downcast_ref());
        prepared
            .ok_or_else(|| UserError::new(ErrorKind::Internal, "the plan was not prepared by this runtime"))
    }
}

impl fmt::Debug for Preparation {
    /// Prints no contents: they may contain secrets in clear text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "prepared"
        } else {
            "not prepared"
        })
    }
}

/// The mark of another stack on a live object, which makes that stack the owner.
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
    /// The applied resource.
    pub id: ResourceId,
    /// The record (secrets masked), without `depends_on`; `None` if the object is gone.
    pub recorded: Option<Recorded>,
    /// The values that references read: the live object as the server returned it. Not masked.
    pub live: Option<Value>,
    /// The secret texts in `live`, as in [`PlannedResource::sensitive`].
    pub sensitive: Vec<String>,
    /// The event that the object waits for, with a description. The object is written but not ready, and every plan
    /// shows it as unready until the event happens.
    pub waiting: Option<(Waiting, String)>,
}

impl AppliedResource {
    /// Creates the result of a resource whose live values nobody reads.
    pub fn unread(id: ResourceId, recorded: Option<Recorded>) -> Self {
        Self {
            id,
            recorded,
            live: None,
            sensitive: Vec::new(),
            waiting: None,
        }
    }
}

/// Receives results of a runtime as soon as they exist. The engine writes them to the journal.
#[async_trait]
pub trait ApplySink: Send + Sync {
    /// Reports the progress of a resource that is not finished.
    fn progress(&self, id: &ResourceId, message: &str);

    /// Records an object that is written and not ready yet. It is recorded before the wait, so that a failure or a kill
    /// during the wait does not lose it.
    async fn record_written(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError>;

    /// Records the start or the end of something that must not run twice, such as a hook. The record is stored before
    /// the call returns, so that it survives a kill at any later time.
    async fn record_run(&self, id: &ResourceId, recorded: Recorded) -> Result<(), UserError> {
        self.record_written(id, recorded).await
    }

    /// Announces that the old object will be deleted and created again. The approved replacement is stored before the
    /// call returns: if the run does not complete it, the next run would otherwise plan a creation that nobody
    /// reviewed.
    async fn replacing(&self, id: &ResourceId) -> Result<(), UserError> {
        let _ = id;
        Ok(())
    }

    /// Withdraws the intent of a resource that certainly was not created. Without this call a failed resource may
    /// exist.
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

    /// Stores the runtime's own data for the stack. The runtime has already encrypted it if it may contain secrets.
    async fn runtime_data(&self, key: &str, value: Value) -> Result<(), RecordFailure>;

    /// Returns true if the run was asked to stop: no new operation may start.
    fn cancelled(&self) -> bool;

    /// Returns an error if the lease is lost. Call it before every write to the infrastructure.
    async fn check_lease(&self) -> Result<(), UserError>;
}

/// Receives a runtime's notes on the whole run that belong to no resource. Without a listener they are dropped.
#[derive(Clone, Default)]
pub struct RunNotes(Option<Arc<NoteListener>>);

type NoteListener = dyn Fn(Note) + Send + Sync;

impl RunNotes {
    /// Creates a receiver that passes each note to `listener`.
    pub fn new(listener: impl Fn(Note) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    /// Sends a note that informs the reader.
    pub fn note(&self, text: &str) {
        self.say(Note::remark(text));
    }

    /// Sends a note that warns the reader: something may be wrong.
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

/// One kind of infrastructure, such as Kubernetes.
#[async_trait]
pub trait Runtime: Send + Sync {
    /// Returns the kind of resources that the runtime handles.
    fn kind(&self) -> RuntimeKind;

    /// Returns how the runtime applies resources.
    fn granularity(&self) -> Granularity;

    /// Normalizes and validates desired resources before the graph is built: adds a missing namespace,
    /// rejects what can never be applied (`generateName`). Ids may change, so each old id is returned with its
    /// new resource. All resources are in `cluster`.
    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError>;

    /// Reads the live objects and writes nothing. Returns one result per item, in order.
    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError>;

    /// Finds the items whose live object is no longer the recorded one: the object is gone, is being deleted, or was
    /// recreated.
    ///
    /// Each item has its record as `prior`. The call must be cheap, because an apply makes it for all resources of a
    /// stack. `earlier` are the old records of everything that the apply changed or deleted: an object all of whose
    /// owners are deleted disappears with them, and is not missing. A runtime that needs a plan to know this returns
    /// nothing.
    async fn find_missing(&self, items: &[Item], earlier: &[Recorded]) -> Result<Vec<ResourceId>, UserError> {
        let _ = (items, earlier);
        Ok(Vec::new())
    }

    /// Returns the data that the state must record about the clusters before the first change, with its key in
    /// [`StackScope::data`]. `None` if the data is already recorded.
    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        let _ = (scope, clusters);
        Ok(None)
    }

    /// Plans a batch and writes nothing. Returns one result per item, in order; an item that cannot be planned does not
    /// affect the others. Other resources of the stack belong to other batches; deletions come in batches of their own,
    /// after all others.
    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError>;

    /// Executes a plan, and waits until each resource is ready or failed. The runtime calls
    /// [`ApplySink::record_result`] exactly once for each item. An error of the whole call means that the runtime can
    /// do nothing more.
    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError>;
}
