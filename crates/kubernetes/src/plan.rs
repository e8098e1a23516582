//! Plans items: reads the live objects, proves which are unchanged, and lets the server compute the others.

pub(super) mod dry_run;
mod ending_containers;
mod object_planner;
pub(super) mod observe;
mod planner;
mod prefilter;
mod rollout_impact;
pub(super) mod same_cluster;
mod secret_placeholders;

pub(super) use object_planner::record;
pub(super) use planner::unreadable_error;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex},
};

use futures::{StreamExt as _, stream::FuturesUnordered};

use self::{
    ending_containers::EndingContainers,
    object_planner::{Named, NamespaceNote, ObjectPlanner, ServerRefusal},
    observe::{fetch_live, of_the_same_cluster, own_health},
    prefilter::{PlanTask, Proof},
    secret_placeholders::stand_in,
};
use super::{
    api::{cluster::Cluster, clusters::Kubernetes},
    object::{
        fetch::RawObject,
        object_ref,
        plan_item::{PlanItem, ResolveError},
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, GroupKind, ResourceId, plan::Action, spec::Resource},
};
use konverge_engine::runtime::{Item, Needs, PlannedResource, StackScope};

/// Maximum number of lookups of a kind that this run has just defined.
const TRIES: u32 = 8;
/// Number of dry-runs prepared concurrently. The cluster's limit bounds the concurrent requests.
const AT_ONCE: usize = 64;

/// Plans items. Returns one result for each item, in the same order.
pub(super) async fn plan(
    runtime: &Kubernetes,
    scope: &StackScope,
    items: Vec<Item>,
) -> Result<Vec<Result<PlannedResource, UserError>>, UserError> {
    let mut subjects = Vec::with_capacity(items.len());
    for item in &items {
        let subject = match &item.needs {
            Needs::Done(done) if !done.is_empty() => {
                PlanItem::awaited(runtime, item, |attempt| attempt >= TRIES).await
            }
            _ => PlanItem::resolve(runtime, item).await,
        };
        subjects.push(match subject {
            Ok(subject) => Ok(subject),
            Err(ResolveError::NoCluster(failure)) => Err(failure),
            Err(ResolveError::NoAnswer(failure)) => return Err(failure),
        });
    }
    let looked_up: Vec<_> = subjects.iter().map(|s| s.as_ref().ok()).collect();
    // The guards need requests, which are sent while the objects are listed.
    let (found, ()) = tokio::join!(fetch_live(&looked_up), ask_environments(&items, &looked_up));
    // Checked before anything is planned: on another cluster all objects of the stack would seem to be gone,
    // and would be created again.
    let found = of_the_same_cluster(scope, &items, &looked_up, found).await?;
    let mut health = if scope.only_compares {
        own_health(runtime, &items, &looked_up, &found).await
    } else {
        Vec::new()
    };
    let absent = absent_namespaces(&looked_up, &found);
    let mut planner = ObjectPlanner {
        runtime,
        scope,
        definitions: Vec::new(),
        namespaces: wanted_namespaces(scope, &items),
        absent: Mutex::new(absent),
        ending: EndingContainers::from_live(&looked_up, &found),
        names: names(scope, &items),
    };
    // Earlier batches of this plan are not applied yet, but their definitions and Namespaces must be known to
    // this one.
    for pending in scope.pending.iter() {
        let cluster = &runtime.cluster(pending.cluster.as_ref())?.api.name;
        planner.define(cluster, &pending.resource.attributes, true);
        if pending.creates {
            planner.ending.add_created(cluster, &pending.resource.attributes);
        }
    }
    let mut results = PlanResults {
        planned: items.iter().map(|_| None).collect(),
        refusals: Vec::new(),
    };
    let (mut defining, mut others) = (Vec::new(), Vec::with_capacity(items.len()));
    for (place, ((mut item, subject), raw)) in items.into_iter().zip(subjects).zip(found).enumerate() {
        let subject = match subject {
            Ok(subject) => stand_in(runtime, scope, &mut item, subject, raw.as_ref()).await,
            failed => failed,
        };
        match subject {
            Ok(subject) => {
                let desired = item.desired.as_ref();
                let defines = desired.is_some_and(|d| GroupKind::defined_by(&d.attributes).is_some());
                let task = PlanTask {
                    place,
                    item,
                    subject,
                    raw,
                    guard: None,
                };
                if defines {
                    defining.push(task);
                } else {
                    others.push(task);
                }
            }
            Err(failure) => results.planned[place] = Some(Err(failure)),
        }
    }
    // CustomResourceDefinitions are planned first, because they decide how their objects are validated.
    let places: Vec<_> = defining.iter().map(|task| task.place).collect();
    results.finish_tasks(&planner, defining).await?;
    for place in places {
        if let Some(Ok(planned)) = &results.planned[place]
            && let (Some(cluster), Some(desired)) = (&planned.public.cluster, &planned.item.desired)
        {
            let changes = planned.public.action != Action::Unchanged;
            planner.define(cluster, &desired.attributes, changes);
        }
    }
    results.finish_tasks(&planner, others).await?;
    results.say_once(planner.namespace_notes());
    // Refusals are resolved last, because one may be about an object that was planned later.
    let mut planned = results.finish(scope);
    for (planned, health) in planned.iter_mut().zip(&mut health) {
        if let Ok(planned) = planned {
            planned.health = health.take();
        }
    }
    Ok(planned)
}

/// Returns the desired resources, after those of earlier batches.
fn desired<'a>(scope: &'a StackScope, items: &'a [Item]) -> impl Iterator<Item = &'a Resource> {
    let pending = scope.pending.iter().map(|pending| &pending.resource);
    pending.chain(items.iter().filter_map(|item| item.desired.as_ref()))
}

/// Returns the names of desired objects that others may depend on.
fn names(scope: &StackScope, items: &[Item]) -> HashMap<ResourceId, Named> {
    let named = |resource: &Resource| {
        let named = Named {
            is_role: matches!(
                GroupKind::from_attributes(&resource.attributes),
                GroupKind::ROLE | GroupKind::CLUSTER_ROLE
            ),
            name: object_ref::metadata(&resource.attributes, "name").to_owned(),
        };
        (resource.id.clone(), named)
    };
    desired(scope, items).map(named).collect()
}

/// The results of a call, in the order of its items.
struct PlanResults {
    planned: Vec<Option<Result<PlannedResource, UserError>>>,
    /// Refusals of the server that earlier resources of the plan may resolve, by index.
    refusals: Vec<(usize, ServerRefusal)>,
}

impl PlanResults {
    async fn finish_tasks(
        &mut self,
        planner: &ObjectPlanner<'_>,
        tasks: Vec<PlanTask>,
    ) -> Result<(), UserError> {
        let mut open = Vec::new();
        for proof in planner.prove_all(tasks).await? {
            match proof {
                Proof::Unchanged(place, planned) => self.planned[place] = Some(Ok(*planned)),
                Proof::Open(task) => open.push(task),
            }
        }
        let mut open = open.into_iter();
        let mut asking = FuturesUnordered::new();
        loop {
            for task in open.by_ref().take(AT_ONCE - asking.len()) {
                asking.push(async move { (task.place, planner.decide(*task).await) });
            }
            let Some((place, answer)) = asking.next().await else {
                return Ok(());
            };
            self.planned[place] = Some(answer.map(|(planned, refusal)| {
                self.refusals.extend(refusal.map(|refusal| (place, refusal)));
                planned
            }));
        }
    }

    /// Keeps each of these notes only at the first resource that has it, and drops notes that an earlier call
    /// already gave.
    fn say_once(&mut self, mut notes: Vec<NamespaceNote>) {
        for planned in self.planned.iter_mut().flatten().flatten() {
            planned
                .public
                .notes
                .retain(|note| match notes.iter_mut().find(|known| known.text == *note) {
                    Some(known) => !std::mem::replace(&mut known.is_said, true),
                    None => true,
                });
        }
    }

    /// Converts a refusal to an error, unless the plan creates or changes an object that it is about.
    fn finish(mut self, scope: &StackScope) -> Vec<Result<PlannedResource, UserError>> {
        if !self.refusals.is_empty() {
            let planned = self.planned.iter().flatten().flatten();
            let changing = planned
                .filter(|planned| {
                    planned.item.desired.is_some() && planned.public.action != Action::Unchanged
                })
                .map(|planned| planned.item.id.clone());
            let pending = scope.pending.iter().map(|pending| pending.resource.id.clone());
            let changing: HashSet<_> = changing.chain(pending).collect();
            for (place, refusal) in std::mem::take(&mut self.refusals) {
                if !refusal.lifted_by.iter().any(|id| changing.contains(id)) {
                    self.planned[place] = Some(Err(refusal.failure));
                }
            }
        }
        let missing = || Err(UserError::new(ErrorKind::Internal, "a resource was not planned"));
        let planned = self.planned.into_iter();
        planned.map(|answer| answer.unwrap_or_else(missing)).collect()
    }
}

/// Queries the guards of each cluster that has applied objects. The results are cached; on an error, later
/// callers query again.
async fn ask_environments(items: &[Item], subjects: &[Option<&PlanItem>]) {
    let mut clusters: Vec<&Arc<Cluster>> = Vec::new();
    for (item, subject) in items.iter().zip(subjects) {
        if let (Some(_), Some(subject)) = (&item.prior, subject)
            && !clusters.iter().any(|known| Arc::ptr_eq(known, &subject.cluster))
        {
            clusters.push(&subject.cluster);
        }
    }
    for cluster in clusters {
        if let Err(failure) = cluster.environment().await {
            tracing::debug!(%failure, "failed to read the version and the admission settings of the cluster, which may be needed later");
        }
    }
}

/// Returns the Namespaces of the plan that do not exist.
fn absent_namespaces(
    subjects: &[Option<&PlanItem>],
    found: &[Option<RawObject>],
) -> BTreeSet<(ClusterName, String)> {
    let missing = subjects.iter().zip(found).filter(|(_, raw)| raw.is_none());
    missing
        .filter_map(|(subject, _)| subject.as_ref())
        .filter(|subject| subject.name.group_kind() == GroupKind::NAMESPACE)
        .map(|subject| (subject.cluster.api.name.clone(), subject.name.name.clone()))
        .collect()
}

/// Returns the names of the desired Namespaces, including those of earlier batches.
fn wanted_namespaces(scope: &StackScope, items: &[Item]) -> Vec<String> {
    let objects = desired(scope, items).map(|resource| &resource.attributes);
    let namespaces = objects.filter(|object| GroupKind::from_attributes(object) == GroupKind::NAMESPACE);
    namespaces
        .map(|namespace| object_ref::metadata(namespace, "name").to_owned())
        .collect()
}
