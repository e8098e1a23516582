//! For tests: a runtime whose objects are in memory.
//!
//! A server adds `ip` to an object when it creates it. An object with another `size` must be replaced. What is in
//! `password` is secret. An id without a namespace gets `shop`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{Journal, LatePlan, Review};
use crate::runtime::{
    AppliedResource, ApplySink, Foreign, Granularity, Item, Needs, ObservedObject, PlanFailure,
    PlannedResource, RecordFailure, Runtime, StackScope,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId,
        apply_result::{WaitReason, Waiting},
        event::{EventSink, RunEvent},
        hook::{HOOK_STAMP, HookTime},
        masked_value,
        plan::{Action, FieldChange, ResourcePlan},
        spec::{Resource, RuntimeKind},
        state::{JournalEntry, Recorded},
    },
};

const PROMOTION: Waiting = Waiting {
    reason: WaitReason::Promotion,
    until: None,
    wave: None,
};

/// The errors that a run makes, and when it is stopped.
#[derive(Default)]
pub(super) struct Faults {
    /// The names of objects that cannot be planned, for a reason that stops the stack.
    pub refused: BTreeSet<&'static str>,
    /// The names of objects that cannot be planned because a tool is missing.
    pub without_tool: BTreeSet<&'static str>,
    /// The names of objects that cannot be written.
    pub broken: BTreeSet<&'static str>,
    /// The names of objects that are deleted for their replacement, and cannot be created again.
    pub half_replaced: BTreeSet<&'static str>,
    /// The names of objects that are not ready yet when they are planned again.
    pub unready: BTreeSet<&'static str>,
    /// Objects with the mark of another stack.
    pub foreign: BTreeSet<&'static str>,
    /// The object after whose write the run is asked to stop.
    pub stops_after: Option<&'static str>,
    /// The object after whose write the journal accepts no more entries.
    pub journal_ends_after: Option<&'static str>,
    /// True if another run has the lease now, but the journal does not report it.
    pub lease_lost: bool,
    /// These are written, reported with their record, and do not become ready.
    pub never_ready: BTreeSet<&'static str>,
    /// The names of objects that are written, and then wait for promotion.
    pub waiting: BTreeSet<&'static str>,
    /// Pairs of objects: when the first one is written, the second one disappears.
    pub takes_away: BTreeMap<&'static str, &'static str>,
    /// The names of objects that are reported as gone while they are replaced.
    pub reported_gone: BTreeSet<&'static str>,
}

/// The objects of a server, and the operations on them.
#[derive(Default)]
pub(super) struct World {
    pub objects: BTreeMap<String, Map<String, Value>>,
    pub faults: Faults,
    pub writes: Vec<String>,
    /// The calls that apply something, each with its resources.
    pub batches: Vec<Vec<String>>,
    /// The changes of earlier stages that each plan got, by resource.
    pub pending: BTreeMap<String, Vec<String>>,
    /// The changed dependencies that each applied resource got.
    pub needs: BTreeMap<String, Needs>,
    pub journal: Vec<JournalEntry>,
    pub journal_ended: bool,
    pub events: Vec<RunEvent>,
    pub reviewed: Vec<ResourcePlan>,
    pub refuses_late_plans: bool,
    /// The stamps of the runs of hooks that succeeded.
    pub stamps: BTreeMap<String, String>,
}

/// The objects, and the operations on them so far.
#[derive(Clone)]
pub(super) struct MemoryRuntime {
    granularity: Granularity,
    world: Arc<Mutex<World>>,
    pub(super) cancel: CancellationToken,
}

/// The id of a resource by its name.
pub(super) fn id(name: &str) -> ResourceId {
    format!("v1:ConfigMap:shop:{name}").parse().unwrap()
}

/// A resource; the keys of `more` are attributes.
pub(super) fn resource(name: &str, more: Value) -> Resource {
    let mut attributes = masked_value::object([
        ("apiVersion", json!("v1")),
        ("kind", json!("ConfigMap")),
        ("metadata", json!({"name": name, "namespace": "shop"})),
    ]);
    attributes.extend(more.as_object().unwrap().clone());
    Resource::new(id(name), RuntimeKind::Kubernetes, attributes)
}

/// Returns the resource with a dependency on another one.
pub(super) fn after(mut resource: Resource, on: &str) -> Resource {
    resource.depends_on.push(id(on));
    resource
}

/// A reference to an attribute of another resource.
pub(super) fn reference(name: &str, attribute: &str) -> String {
    format!("$kusion_path.{}.{attribute}", id(name))
}

fn passwords(value: &Map<String, Value>) -> Vec<String> {
    let password = value.get("password").and_then(Value::as_str);
    password.into_iter().map(str::to_owned).collect()
}

impl MemoryRuntime {
    pub(super) fn new(granularity: Granularity) -> Self {
        Self {
            granularity,
            world: Arc::default(),
            cancel: CancellationToken::new(),
        }
    }

    pub(super) fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn plan_item(&self, scope: &StackScope, mut item: Item) -> Result<PlannedResource, PlanFailure> {
        let mut world = self.world();
        let name = item.id.name().to_owned();
        let unready = world.faults.unready.contains(name.as_str());
        if world.faults.refused.contains(name.as_str()) {
            return Err(
                UserError::new(ErrorKind::Kubernetes, format!("{name} is not valid"))
                    .hint("fix it")
                    .into(),
            );
        }
        if world.faults.without_tool.contains(name.as_str()) {
            return Err(PlanFailure {
                error: Box::new(UserError::new(ErrorKind::Terraform, "no executable")),
                stops_stack: false,
            });
        }
        let pending = scope.pending.iter();
        let pending = pending
            .map(|earlier| earlier.resource.id.name().to_owned())
            .collect();
        world.pending.insert(name.clone(), pending);
        let live = world.objects.get(item.id.as_str()).cloned();
        if let (Some(task), Some(desired)) = (scope.hooks.get(&item.id), &mut item.desired) {
            desired.attributes["metadata"]["annotations"][HOOK_STAMP] = json!(task.stamp());
        }
        let wanted = item.desired.as_ref().map(|desired| desired.attributes.clone());
        let without_ip = live.clone().map(|mut live| {
            live.remove("ip");
            live
        });
        let due = scope
            .hooks
            .get(&item.id)
            .map(|task| match world.stamps.get(&name) {
                _ if !task.may_run => Action::Unchanged,
                Some(stamp) if task.is_done_by(stamp) => Action::Unchanged,
                _ => Action::Run,
            });
        let action = match (&without_ip, &wanted) {
            (None, None) => Action::Forget,
            (Some(_), None) => Action::Delete,
            (None, Some(_)) => Action::Create,
            (Some(live), Some(wanted)) if live == wanted => Action::Unchanged,
            (Some(live), Some(wanted)) if live.get("size") != wanted.get("size") => Action::Replace,
            (Some(_), Some(_)) => Action::Update,
        };
        let action = due.unwrap_or(action);
        let change = FieldChange::whole(without_ip.map(Value::Object), wanted.clone().map(Value::Object));
        let changes = match action {
            Action::Unchanged | Action::Forget => Vec::new(),
            _ => vec![change],
        };
        let mut public = ResourcePlan::new(
            &scope.stack,
            item.id.clone(),
            RuntimeKind::Kubernetes,
            action,
            changes,
        );
        public.cluster.clone_from(&item.cluster);
        if action == Action::Replace {
            public.replace = vec!["/size".into()];
        }
        let recorded = item.desired.as_ref().map(|desired| Recorded {
            cluster: item.cluster.clone(),
            ..Recorded::new(
                item.id.clone(),
                RuntimeKind::Kubernetes,
                desired.attributes.clone(),
            )
        });
        let expected = wanted.clone().map(|mut wanted| {
            let ip = live.as_ref().and_then(|live| live.get("ip").cloned());
            wanted.insert("ip".to_owned(), ip.unwrap_or_else(masked_value::unknown));
            Value::Object(wanted)
        });
        let foreign = world.faults.foreign.contains(name.as_str()).then(|| Foreign {
            owner: "other/prod".to_owned(),
            refusal: UserError::new(ErrorKind::Policy, format!("{name} belongs to another stack")),
        });
        Ok(PlannedResource {
            recorded,
            foreign,
            unready,
            expected,
            sensitive: wanted.as_ref().map(passwords).unwrap_or_default(),
            ..PlannedResource::new(item, public)
        })
    }

    async fn write(
        &self,
        planned: &PlannedResource,
        sink: &dyn ApplySink,
    ) -> Result<AppliedResource, UserError> {
        let id = &planned.item.id;
        let name = id.name();
        sink.check_lease().await?;
        let fails = |why: &str| UserError::new(ErrorKind::Kubernetes, format!("{name} {why}"));
        if self.world().faults.broken.contains(name) {
            return Err(fails("cannot be written"));
        }
        let action = planned.public.action;
        if action == Action::Replace {
            sink.replacing(id).await?;
            self.world().objects.remove(id.as_str());
            if self.world().faults.reported_gone.contains(name) {
                sink.absent(id).await?;
            }
            if self.world().faults.half_replaced.contains(name) {
                return Err(fails("cannot be created again"));
            }
        }
        for message in ["waiting", "waiting", "ready"] {
            sink.progress(id, message);
        }
        let (live, never_ready, waiting) = {
            let mut world = self.world();
            let word = json!(action);
            world.writes.push(format!("{} {name}", word.as_str().unwrap()));
            let live = planned.item.desired.as_ref().map(|desired| {
                let mut live = desired.attributes.clone();
                live.insert("ip".to_owned(), json!(format!("10.0.0.{}", world.writes.len())));
                live
            });
            match &live {
                Some(live) => drop(world.objects.insert(id.as_str().to_owned(), live.clone())),
                None => drop(world.objects.remove(id.as_str())),
            }
            if let Some(other) = world.faults.takes_away.remove(name) {
                world.objects.remove(self::id(other).as_str());
            }
            if world.faults.stops_after == Some(name) {
                self.cancel.cancel();
            }
            world.journal_ended |= world.faults.journal_ends_after == Some(name);
            let waiting = world.faults.waiting.contains(name).then_some(PROMOTION);
            (live, world.faults.never_ready.contains(name), waiting)
        };
        // The record has the values that were sent, as that of a server.
        let recorded = planned.recorded.clone().zip(planned.item.desired.as_ref());
        let recorded = recorded.map(|(recorded, desired)| Recorded {
            attributes: Arc::new(desired.attributes.clone()),
            ..recorded
        });
        if let Some(recorded) = recorded.clone().filter(|_| never_ready) {
            sink.record_written(id, recorded).await?;
            sink.runtime_data("last", json!(name)).await?;
            return Err(fails("does not become ready"));
        }
        Ok(AppliedResource {
            id: id.clone(),
            recorded,
            sensitive: live.as_ref().map(passwords).unwrap_or_default(),
            live: live.map(Value::Object),
            waiting: waiting.map(|waiting| (waiting, "paused, waits for promotion".to_owned())),
        })
    }
}

#[async_trait]
impl Runtime for MemoryRuntime {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Kubernetes
    }

    fn granularity(&self) -> Granularity {
        self.granularity
    }

    async fn prepare(
        &self,
        _: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        let prepare = |mut resource: Resource| {
            let old = resource.id.clone();
            if let [version, kind, name] = old.as_str().split(':').collect::<Vec<_>>()[..] {
                resource.id = format!("{version}:{kind}:shop:{name}").parse().unwrap();
            }
            (old, resource)
        };
        Ok(resources.into_iter().map(prepare).collect())
    }

    async fn observe(&self, _: &StackScope, _: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        Ok(Vec::new())
    }

    /// A runtime of whole batches knows it only by a plan, as Terraform does.
    async fn find_missing(&self, items: &[Item], _: &[Recorded]) -> Result<Vec<ResourceId>, UserError> {
        let world = self.world();
        let is_gone = |item: &&Item| !world.objects.contains_key(item.id.as_str());
        let gone = items.iter().filter(is_gone).map(|item| item.id.clone());
        match self.granularity {
            Granularity::Resource => Ok(gone.collect()),
            Granularity::Segment => Ok(Vec::new()),
        }
    }

    async fn to_remember(
        &self,
        _: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        Ok(Some(("clusters".to_owned(), json!(clusters))))
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, PlanFailure>>, UserError> {
        Ok(items
            .into_iter()
            .map(|item| self.plan_item(scope, item))
            .collect())
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        let names = planned.iter().map(|planned| planned.item.id.name().to_owned());
        self.world().batches.push(names.collect());
        for planned in planned {
            let name = planned.item.id.name().to_owned();
            self.world().needs.insert(name, planned.item.needs.clone());
            let result = if sink.cancelled() {
                Err(UserError::new(ErrorKind::Interrupted, "not tried"))
            } else {
                self.write(&planned, sink).await
            };
            if let (Ok(_), Some(task)) = (&result, scope.hooks.get(&planned.item.id)) {
                let name = planned.item.id.name().to_owned();
                self.world().stamps.insert(name, task.stamp());
            }
            let leaves = scope
                .hooks
                .get(&planned.item.id)
                .is_some_and(|task| task.time == HookTime::PreDestroy);
            let result = result.map(|applied| AppliedResource {
                recorded: applied.recorded.filter(|_| !leaves),
                ..applied
            });
            sink.record_result(&planned.item.id, result).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Journal for MemoryRuntime {
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError> {
        let mut world = self.world();
        if world.journal_ended {
            return Err(UserError::new(ErrorKind::Store, "the lease is lost"));
        }
        world.journal.extend(entries);
        Ok(())
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure> {
        Ok(self.intend(vec![entry]).await?)
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        let world = self.world();
        if world.journal_ended || world.faults.lease_lost {
            Err(UserError::new(ErrorKind::Store, "the lease is lost"))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl Review for MemoryRuntime {
    async fn check(&self, plan: LatePlan<'_>) -> Result<(), UserError> {
        let mut world = self.world();
        world.reviewed.push(plan.shown.clone());
        if world.refuses_late_plans {
            Err(UserError::new(ErrorKind::Unreviewed, "nobody reviewed this"))
        } else {
            Ok(())
        }
    }
}

impl EventSink for MemoryRuntime {
    fn event(&self, event: RunEvent) {
        self.world().events.push(event);
    }
}
