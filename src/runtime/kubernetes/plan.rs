//! Plans items: reads the live objects, proves what is unchanged, and lets the server compute the rest.

mod planner;
mod prefilter;

pub(super) use planner::record;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, FuturesUnordered},
};
use serde_json::{Map, Value};

use self::planner::ServerRefusal;
use super::{
    cluster::Cluster,
    cluster_identity::{self, AppliedObject},
    completed_jobs, crd_validation,
    discovery::ResourceType,
    error::ApiError,
    error_classify,
    fetch::{self, RawObject},
    health::{self, Health, Weight},
    object_ref::{self, ObjectRef},
    related_fetch,
    runtime::Kubernetes,
};
use crate::{
    error::{ErrorKind, UserError},
    model::{ClusterName, ResourceId, plan::Action, spec::Resource},
    runtime::{Item, Needs, ObservedObject, PlannedResource, StackScope},
};

/// How many times a kind is looked up that this run defined a moment ago.
const TRIES: u32 = 8;
/// The number of dry-runs prepared at once; the cluster's limit bounds the concurrent requests.
const AT_ONCE: usize = 64;

/// An item during planning.
struct Task {
    /// Its index in the call.
    place: usize,
    item: Item,
    subject: PlanItem,
    /// The live object.
    raw: Option<RawObject>,
}

/// The result of the local proof.
enum Proof {
    /// An apply would change nothing.
    Unchanged(usize, Box<PlannedResource>),
    /// The server must decide.
    Open(Box<Task>),
}

/// An item with its kind.
pub(super) struct PlanItem {
    pub cluster: Arc<Cluster>,
    /// `None` if the cluster does not know the kind, or serves it only in other versions.
    pub of: Option<Arc<ResourceType>>,
    /// The cluster's preferred version of a kind that it does not serve in the desired version.
    pub other: Option<Arc<ResourceType>>,
    /// The version of its API group that does not answer, if the kind is unknown for that reason.
    pub silent: Option<String>,
    pub name: ObjectRef,
}

impl PlanItem {
    /// Looks up the kind of an item. A desired object must be served in its version; a recorded one is looked
    /// up in any served version.
    pub async fn resolve(runtime: &Kubernetes, item: &Item) -> Result<Self, UserError> {
        let cluster = Arc::clone(runtime.cluster(item.cluster.as_ref())?);
        let discovery = cluster.discovery().await?;
        let desired = item.desired.as_ref().map(|d| &d.attributes);
        let object = desired.or_else(|| item.prior.as_ref().map(|prior| &*prior.attributes));
        let nothing = Map::new();
        let object = object.unwrap_or(&nothing);
        let (api_version, kind) = (
            object_ref::text(object, "apiVersion"),
            object_ref::text(object, "kind"),
        );
        let exact = discovery.exact(api_version, kind).cloned();
        let any = discovery.any_version(api_version, kind).cloned();
        let (of, other) = match (exact, any) {
            (Some(exact), _) => (Some(exact), None),
            (None, any) if desired.is_some() => (None, any),
            (None, any) => (any, None),
        };
        let name = match of.as_ref().or(other.as_ref()) {
            Some(of) => ObjectRef::from_object(object, of),
            None => ObjectRef {
                group: group(object).to_owned(),
                kind: kind.to_owned(),
                namespace: object_ref::metadata(object, "namespace").to_owned(),
                name: object_ref::metadata(object, "name").to_owned(),
            },
        };
        let silent = match of.as_ref().or(other.as_ref()) {
            Some(_) => None,
            None => discovery.silent(&name.group).map(str::to_owned),
        };
        Ok(Self {
            cluster,
            of,
            other,
            silent,
            name,
        })
    }

    /// As [`PlanItem::resolve`]. A kind or a version that this run defined appears in discovery with a delay,
    /// so it is looked up again until `stop` returns true.
    pub async fn awaited(
        runtime: &Kubernetes,
        item: &Item,
        mut stop: impl FnMut(u32) -> bool,
    ) -> Result<Self, UserError> {
        let mut wait = Duration::from_millis(50);
        for attempt in 0.. {
            let subject = Self::resolve(runtime, item).await?;
            if subject.of.is_some() || stop(attempt) {
                return Ok(subject);
            }
            subject.cluster.api.interrupt.pause(wait).await;
            wait = (wait * 2).min(Duration::from_secs(2));
            subject.cluster.forget_discovery().await;
        }
        unreachable!("the loop ends by returning")
    }

    /// The type by which a live object can be read.
    pub fn readable(&self) -> Option<&Arc<ResourceType>> {
        self.of.as_ref().or(self.other.as_ref())
    }

    /// The error that the cluster does not serve the desired version.
    pub fn not_served(&self, api_version: &str) -> UserError {
        let kind = &self.name.kind;
        let message = match &self.other {
            Some(other) => format!(
                "the cluster does not serve `{kind}` as `{api_version}` (any more); it does as `{}`",
                other.api_version()
            ),
            None => format!(
                "cluster `{}` does not know the kind of {}",
                self.cluster.api.name,
                self.title()
            ),
        };
        UserError::new(ErrorKind::Spec, message)
    }

    /// Converts a refusal of the server for a person.
    pub fn refusal(&self, error: &ApiError) -> UserError {
        error_classify::refusal(error, &self.cluster.api.name, &self.title())
    }

    /// `Deployment `ns/web``, for messages.
    pub fn title(&self) -> String {
        match self.name.namespace() {
            Some(namespace) => format!("{} `{namespace}/{}`", self.name.kind, self.name.name),
            None => format!("{} `{}`", self.name.kind, self.name.name),
        }
    }
}

fn group(object: &Map<String, Value>) -> &str {
    object_ref::text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group)
}

/// Reads the live objects, one result per item.
pub(super) async fn observe(
    runtime: &Kubernetes,
    scope: &StackScope,
    items: &[Item],
) -> Result<Vec<ObservedObject>, UserError> {
    let mut subjects = Vec::with_capacity(items.len());
    for item in items {
        subjects.push(PlanItem::resolve(runtime, item).await?);
    }
    let looked_up: Vec<_> = subjects.iter().map(Some).collect();
    let found = fetch_live(&looked_up).await;
    let found = of_the_same_cluster(scope, items, &looked_up, found).await?;
    let observed = items
        .iter()
        .zip(&subjects)
        .zip(found)
        .map(|((item, subject), raw)| async move {
            let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
            let health = match &live {
                Some(live) => health(runtime, subject, live).await,
                None if subject.silent.is_some() => (Health::Unknown, "its API does not answer".to_owned()),
                None if item.prior.as_ref().is_some_and(completed_jobs::went_by_itself) => (
                    Health::Ready,
                    "it completed, and its time to live took it away".to_owned(),
                ),
                None => (Health::Failed, "it is not there".to_owned()),
            };
            Ok(ObservedObject {
                id: item.id.clone(),
                live,
                health,
            })
        });
    let observed: Vec<_> = observed.collect();
    stream::iter(observed).buffered(AT_ONCE).try_collect().await
}

/// The health of an object. Related objects are read only if it is not ready.
async fn health(runtime: &Kubernetes, subject: &PlanItem, live: &Value) -> (Health, String) {
    let Some(of) = &subject.of else {
        return (Health::Unknown, String::new());
    };
    let rules = &runtime.options.rules;
    let mut verdict = health::assess(live, &related_fetch::known_related(of), rules).await;
    if !matches!(verdict.health, Health::Ready | Health::Suspended) {
        let around = related_fetch::fetch_related(&subject.cluster, of, live).await;
        verdict = health::assess(live, &around, rules).await;
    }
    // A problem that an apply would not wait for is not reported as one.
    let health = match verdict.weight {
        Weight::Advisory => Health::Ready,
        _ => verdict.health,
    };
    (health, runtime.secrets.mask(&verdict.message))
}

/// The live objects, if the clusters are those of the stack's last apply. If they are not, errors of the
/// wrong cluster do not matter.
async fn of_the_same_cluster(
    scope: &StackScope,
    items: &[Item],
    subjects: &[Option<&PlanItem>],
    found: Result<Vec<Option<RawObject>>, UserError>,
) -> Result<Vec<Option<RawObject>>, UserError> {
    let nothing = Vec::new();
    let live = found.as_ref().unwrap_or(&nothing);
    let applied = items.iter().zip(subjects).enumerate();
    let applied = applied.filter_map(|(place, (item, subject))| {
        Some(AppliedObject {
            prior: item.prior.as_ref()?,
            cluster: subject.as_ref()?.cluster.as_ref(),
            live: live.get(place).and_then(Option::as_ref),
        })
    });
    cluster_identity::check(scope, applied, found.is_ok()).await?;
    found
}

/// The live object of each item, in order; `None` for an item that could not be resolved.
async fn fetch_live(subjects: &[Option<&PlanItem>]) -> Result<Vec<Option<RawObject>>, UserError> {
    let mut by_cluster: BTreeMap<&ClusterName, Vec<usize>> = BTreeMap::new();
    for (place, subject) in subjects.iter().enumerate() {
        if let Some(subject) = subject.filter(|subject| subject.readable().is_some()) {
            by_cluster
                .entry(&subject.cluster.api.name)
                .or_default()
                .push(place);
        }
    }
    let mut found: Vec<Option<RawObject>> = subjects.iter().map(|_| None).collect();
    for places in by_cluster.into_values() {
        let here: Vec<&PlanItem> = places.iter().filter_map(|&place| subjects[place]).collect();
        let asked: Vec<_> = here
            .iter()
            .filter_map(|s| Some((&s.name, s.readable()?)))
            .collect();
        let Some(one) = here.first() else { continue };
        for (place, raw) in places.into_iter().zip(fetch::read(&one.cluster, &asked).await?) {
            found[place] = raw;
        }
    }
    Ok(found)
}

/// Plans items; one result per item, in order.
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
            // An invalid item does not affect the others; a cluster that does not answer does.
            Err(failure) if failure.kind == ErrorKind::Spec || failure.kind == ErrorKind::Config => {
                Err(failure)
            }
            Err(failure) => return Err(failure),
        });
    }
    let looked_up: Vec<_> = subjects.iter().map(|s| s.as_ref().ok()).collect();
    // The guards are queried while the objects are listed.
    let (found, ()) = tokio::join!(fetch_live(&looked_up), ask_environments(&items, &looked_up));
    let found = of_the_same_cluster(scope, &items, &looked_up, found).await?;
    let absent = absent_namespaces(&looked_up, &found);
    let mut planner = planner::ObjectPlanner {
        runtime,
        scope,
        definitions: Vec::new(),
        namespaces: wanted_objects(&items, "Namespace")
            .map(|namespace| object_ref::metadata(namespace, "name").to_owned())
            .collect(),
        absent: Mutex::new(absent),
        names: names(scope, &items),
    };
    for pending in scope.pending.iter() {
        let cluster = &runtime.cluster(pending.cluster.as_ref())?.api.name;
        planner.define(cluster, &pending.resource.attributes, true);
    }
    let mut answers = Answers {
        planned: items.iter().map(|_| None).collect(),
        refusals: Vec::new(),
    };
    let (mut defining, mut others) = (Vec::new(), Vec::with_capacity(items.len()));
    for (place, ((item, subject), raw)) in items.into_iter().zip(subjects).zip(found).enumerate() {
        match subject {
            Ok(subject) => {
                let desired = item.desired.as_ref();
                let defines = desired.is_some_and(|d| crd_validation::names(&d.attributes).is_some());
                let task = Task {
                    place,
                    item,
                    subject,
                    raw,
                };
                if defines {
                    defining.push(task);
                } else {
                    others.push(task);
                }
            }
            Err(failure) => answers.planned[place] = Some(Err(failure)),
        }
    }
    // The plan of a CRD determines how its objects are validated.
    let places: Vec<_> = defining.iter().map(|task| task.place).collect();
    answers.settle(&planner, defining).await?;
    for place in places {
        if let Some(Ok(planned)) = &answers.planned[place]
            && let (Some(cluster), Some(desired)) = (&planned.public.cluster, &planned.item.desired)
        {
            let changes = planned.public.action != Action::Unchanged;
            planner.define(cluster, &desired.attributes, changes);
        }
    }
    answers.settle(&planner, others).await?;
    Ok(answers.finish(scope))
}

/// The names of desired objects that others may depend on.
fn names(scope: &StackScope, items: &[Item]) -> HashMap<ResourceId, planner::Named> {
    let pending = scope.pending.iter().map(|pending| &pending.resource);
    let wanted = items.iter().filter_map(|item| item.desired.as_ref());
    let named = |resource: &Resource| {
        let named = planner::Named {
            kind: object_ref::text(&resource.attributes, "kind").to_owned(),
            name: object_ref::metadata(&resource.attributes, "name").to_owned(),
        };
        (resource.id.clone(), named)
    };
    pending.chain(wanted).map(named).collect()
}

/// The results of a call, in the order of its items.
struct Answers {
    planned: Vec<Option<Result<PlannedResource, UserError>>>,
    /// The server's refusals that earlier resources of the plan may resolve, by index.
    refusals: Vec<(usize, ServerRefusal)>,
}

impl Answers {
    async fn settle(
        &mut self,
        planner: &planner::ObjectPlanner<'_>,
        tasks: Vec<Task>,
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

    /// Makes a refusal final unless the plan creates or changes what it is about.
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

/// Queries the guards of each cluster that has applied objects. Whoever needs a guard finds it, or queries
/// again and gets the error.
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
            tracing::debug!(%failure, "the environment could not be asked for yet");
        }
    }
}

/// The Namespaces of the plan that do not exist.
fn absent_namespaces(
    subjects: &[Option<&PlanItem>],
    found: &[Option<RawObject>],
) -> BTreeSet<(ClusterName, String)> {
    let missing = subjects.iter().zip(found).filter(|(_, raw)| raw.is_none());
    missing
        .filter_map(|(subject, _)| subject.as_ref())
        .filter(|subject| subject.name.kind == "Namespace" && subject.name.group.is_empty())
        .map(|subject| (subject.cluster.api.name.clone(), subject.name.name.clone()))
        .collect()
}

/// The desired objects of a kind.
fn wanted_objects<'a>(items: &'a [Item], kind: &'static str) -> impl Iterator<Item = &'a Map<String, Value>> {
    let wanted = items
        .iter()
        .filter_map(|item| Some(&item.desired.as_ref()?.attributes));
    wanted.filter(move |object| object_ref::text(object, "kind") == kind)
}
