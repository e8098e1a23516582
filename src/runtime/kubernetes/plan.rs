//! Plans items: finds them, proves what is unchanged, and has the server say what the rest becomes.

mod decide;
mod prove;

pub(super) use decide::record;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures::{
    StreamExt as _, TryStreamExt as _,
    stream::{self, FuturesUnordered},
};
use serde_json::{Map, Value};

use super::{
    cluster::Cluster,
    discovery::{Discovery, ResourceType},
    error::ApiError,
    health::{self, Health, Weight},
    identity::{self, Name},
    jobs,
    live::{self, Raw},
    runtime::Kubernetes,
    surroundings, triage,
};
use crate::{
    error::{ErrorKind, Failure},
    model::ClusterName,
    runtime::{Item, Observed, Planned, Scope},
};

/// Dry-runs prepared at once; what is in flight is bounded by the cluster's own budget.
const AT_ONCE: usize = 64;

/// An item on its way to a plan.
struct Task {
    /// Among the items of the call.
    place: usize,
    item: Item,
    subject: Subject,
    /// What is there.
    raw: Option<Raw>,
}

/// What could be said of an item without asking the server.
enum Proof {
    /// Nothing would come of it.
    Unchanged(usize, Box<Planned>),
    /// The server has to say.
    Open(Box<Task>),
}

/// An item with what is known of its kind.
pub(super) struct Subject {
    pub cluster: Arc<Cluster>,
    /// `None` if the cluster does not know the kind.
    pub of: Option<Arc<ResourceType>>,
    /// Its API as a version of it that does not answer, if for that reason the kind is not known.
    pub silent: Option<String>,
    pub name: Name,
}

impl Subject {
    /// Looks an item's kind up.
    pub async fn of(runtime: &Kubernetes, item: &Item) -> Result<Self, Failure> {
        let cluster = Arc::clone(runtime.cluster(item.cluster.as_ref())?);
        let discovery = cluster.discovery().await?;
        let desired = item.desired.as_ref().map(|d| &d.attributes);
        let object = desired.or_else(|| item.prior.as_ref().map(|prior| &*prior.attributes));
        let nothing = Map::new();
        let object = object.unwrap_or(&nothing);
        let of = lookup(&discovery, object, desired.is_some())
            .map_err(|message| Failure::new(ErrorKind::Spec, message))?;
        let name = match &of {
            Some(of) => Name::of(object, of),
            None => Name {
                group: group(object).to_owned(),
                kind: identity::text(object, "kind").to_owned(),
                namespace: identity::metadata(object, "namespace").to_owned(),
                name: identity::metadata(object, "name").to_owned(),
            },
        };
        let silent = match &of {
            Some(_) => None,
            None => discovery.silent(&name.group).map(str::to_owned),
        };
        Ok(Self {
            cluster,
            of,
            silent,
            name,
        })
    }

    /// A refusal of the server as a person reads it.
    pub fn refusal(&self, error: &ApiError) -> Failure {
        triage::refusal(error, &self.cluster.api.name, &self.title())
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
    identity::text(object, "apiVersion")
        .split_once('/')
        .map_or("", |(group, _)| group)
}

/// What is wanted must be served in the version it names; what was recorded is looked for in whichever version is.
fn lookup(
    discovery: &Discovery,
    object: &Map<String, Value>,
    wanted: bool,
) -> Result<Option<Arc<ResourceType>>, String> {
    let (api_version, kind) = (
        identity::text(object, "apiVersion"),
        identity::text(object, "kind"),
    );
    let any = discovery.any_version(api_version, kind);
    match (wanted, discovery.exact(api_version, kind), any) {
        (true, None, Some(other)) => Err(format!(
            "the cluster does not serve `{kind}` as `{api_version}` (any more); it does as `{}`",
            other.api_version()
        )),
        (_, exact, any) => Ok(exact.or(any).cloned()),
    }
}

/// What stands there, one answer per item.
pub(super) async fn observe(runtime: &Kubernetes, items: &[Item]) -> Result<Vec<Observed>, Failure> {
    let mut subjects = Vec::with_capacity(items.len());
    for item in items {
        subjects.push(Subject::of(runtime, item).await?);
    }
    let found = look(&subjects.iter().map(Some).collect::<Vec<_>>()).await?;
    let observed = items
        .iter()
        .zip(&subjects)
        .zip(found)
        .map(|((item, subject), raw)| async move {
            let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
            let health = match &live {
                Some(live) => health(runtime, subject, live).await,
                None if subject.silent.is_some() => (Health::Unknown, "its API does not answer".to_owned()),
                None if item.prior.as_ref().is_some_and(jobs::went_by_itself) => (
                    Health::Ready,
                    "it completed, and its time to live took it away".to_owned(),
                ),
                None => (Health::Failed, "it is not there".to_owned()),
            };
            Ok(Observed {
                id: item.id.clone(),
                live,
                health,
            })
        });
    let observed: Vec<_> = observed.collect();
    stream::iter(observed).buffered(AT_ONCE).try_collect().await
}

/// The verdict on an object; what stands around it is looked at only if it does not get on.
async fn health(runtime: &Kubernetes, subject: &Subject, live: &Value) -> (Health, String) {
    let Some(of) = &subject.of else {
        return (Health::Unknown, String::new());
    };
    let rules = &runtime.options.rules;
    let mut verdict = health::assess(live, &surroundings::known(of), rules).await;
    if !matches!(verdict.health, Health::Ready | Health::Suspended) {
        let around = surroundings::look(&subject.cluster, of, live).await;
        verdict = health::assess(live, &around, rules).await;
    }
    // What an apply would not wait for is no reason to worry.
    let health = match verdict.weight {
        Weight::Advisory => Health::Ready,
        _ => verdict.health,
    };
    (health, runtime.secrets.mask(&verdict.message))
}

/// What is there of each subject, in order; nothing for one that could not be made out.
async fn look(subjects: &[Option<&Subject>]) -> Result<Vec<Option<Raw>>, Failure> {
    let mut by_cluster: BTreeMap<&ClusterName, Vec<usize>> = BTreeMap::new();
    for (place, subject) in subjects.iter().enumerate() {
        if let Some(subject) = subject.filter(|subject| subject.of.is_some()) {
            by_cluster
                .entry(&subject.cluster.api.name)
                .or_default()
                .push(place);
        }
    }
    let mut found: Vec<Option<Raw>> = subjects.iter().map(|_| None).collect();
    for places in by_cluster.into_values() {
        let here: Vec<&Subject> = places.iter().filter_map(|&place| subjects[place]).collect();
        let asked: Vec<_> = here
            .iter()
            .filter_map(|s| Some((&s.name, s.of.as_ref()?)))
            .collect();
        let Some(one) = here.first() else { continue };
        for (place, raw) in places.into_iter().zip(live::read(&one.cluster, &asked).await?) {
            found[place] = raw;
        }
    }
    Ok(found)
}

/// Plans items; one answer per item, in order.
pub(super) async fn plan(
    runtime: &Kubernetes,
    scope: &Scope,
    items: Vec<Item>,
) -> Result<Vec<Result<Planned, Failure>>, Failure> {
    let mut subjects = Vec::with_capacity(items.len());
    for item in &items {
        subjects.push(match Subject::of(runtime, item).await {
            Ok(subject) => Ok(subject),
            // An item that is wrong takes no other down; a cluster that does not answer does.
            Err(failure) if failure.kind == ErrorKind::Spec || failure.kind == ErrorKind::Config => {
                Err(failure)
            }
            Err(failure) => return Err(failure),
        });
    }
    let looked_up: Vec<_> = subjects.iter().map(|s| s.as_ref().ok()).collect();
    // What the proofs hold under is asked for while the objects are listed.
    let (found, ()) = tokio::join!(look(&looked_up), ask_environments(&items, &looked_up));
    let found = found?;
    let absent = absent_namespaces(&looked_up, &found);
    let planner = decide::Planner {
        runtime,
        scope,
        definitions: wanted(&items, "CustomResourceDefinition").cloned().collect(),
        namespaces: wanted(&items, "Namespace")
            .map(|namespace| identity::metadata(namespace, "name").to_owned())
            .collect(),
        absent: Mutex::new(absent),
    };
    let mut answers: Vec<Option<Result<Planned, Failure>>> = Vec::new();
    let mut tasks = Vec::with_capacity(items.len());
    for (place, ((item, subject), raw)) in items.into_iter().zip(subjects).zip(found).enumerate() {
        answers.push(match subject {
            Ok(subject) => {
                tasks.push(Task {
                    place,
                    item,
                    subject,
                    raw,
                });
                None
            }
            Err(failure) => Some(Err(failure)),
        });
    }
    let mut open = Vec::new();
    for proof in planner.prove_all(tasks).await? {
        match proof {
            Proof::Unchanged(place, planned) => answers[place] = Some(Ok(*planned)),
            Proof::Open(task) => open.push(task),
        }
    }
    let mut open = open.into_iter();
    let mut asking = FuturesUnordered::new();
    loop {
        for task in open.by_ref().take(AT_ONCE - asking.len()) {
            let planner = &planner;
            asking.push(async move { (task.place, planner.decide(*task).await) });
        }
        let Some((place, answer)) = asking.next().await else {
            break;
        };
        answers[place] = Some(answer);
    }
    let missing = || Err(Failure::new(ErrorKind::Internal, "a resource was not planned"));
    Ok(answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(missing))
        .collect())
}

/// Asks each cluster on which something was applied before for what bears on its answers. Whoever needs the answer finds
/// it, or asks again and hears why there is none.
async fn ask_environments(items: &[Item], subjects: &[Option<&Subject>]) {
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

/// The Namespaces of the plan that are not there.
fn absent_namespaces(
    subjects: &[Option<&Subject>],
    found: &[Option<Raw>],
) -> BTreeSet<(ClusterName, String)> {
    let missing = subjects.iter().zip(found).filter(|(_, raw)| raw.is_none());
    missing
        .filter_map(|(subject, _)| subject.as_ref())
        .filter(|subject| subject.name.kind == "Namespace" && subject.name.group.is_empty())
        .map(|subject| (subject.cluster.api.name.clone(), subject.name.name.clone()))
        .collect()
}

/// The wanted objects of a kind.
fn wanted<'a>(items: &'a [Item], kind: &'static str) -> impl Iterator<Item = &'a Map<String, Value>> {
    let wanted = items
        .iter()
        .filter_map(|item| Some(&item.desired.as_ref()?.attributes));
    wanted.filter(move |object| identity::text(object, "kind") == kind)
}
