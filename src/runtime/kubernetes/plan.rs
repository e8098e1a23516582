//! Plans items: finds them, proves what is unchanged, and has the server say what the rest becomes.

mod decide;

pub(super) use decide::record;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use futures::{StreamExt as _, stream};
use serde_json::{Map, Value};

use super::{
    cluster::Cluster,
    discovery::{Discovery, ResourceType},
    error::ApiError,
    health::{self, Health, Weight},
    identity::{self, Name},
    live,
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

/// An item with what is known of its kind.
pub(super) struct Subject {
    pub cluster: Arc<Cluster>,
    /// `None` if the cluster does not know the kind.
    pub of: Option<ResourceType>,
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
        let object = desired.or_else(|| item.prior.as_ref().map(|prior| &prior.attributes));
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
) -> Result<Option<ResourceType>, String> {
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
    let mut found = look(&subjects.iter().collect::<Vec<_>>()).await?;
    let observed = items.iter().zip(&subjects).map(|(item, subject)| {
        let live = found.remove(&(subject.cluster.api.name.clone(), subject.name.clone()));
        async move {
            let health = match &live {
                Some(live) => health(runtime, subject, live).await,
                None if subject.silent.is_some() => (Health::Unknown, "its API does not answer".to_owned()),
                None => (Health::Failed, "it is not there".to_owned()),
            };
            Observed {
                id: item.id.clone(),
                live,
                health,
            }
        }
    });
    let observed: Vec<_> = observed.collect();
    Ok(stream::iter(observed).buffered(AT_ONCE).collect().await)
}

/// The verdict on an object; what stands around it is looked at only if it does not get on.
async fn health(runtime: &Kubernetes, subject: &Subject, live: &Value) -> (Health, String) {
    let Some(of) = &subject.of else {
        return (Health::Unknown, String::new());
    };
    let rules = &runtime.options.rules;
    let mut verdict = health::judge(live, &surroundings::known(of), rules);
    if !matches!(verdict.health, Health::Ready | Health::Suspended) {
        let around = surroundings::look(&subject.cluster, of, live).await;
        verdict = health::judge(live, &around, rules);
    }
    // What an apply would not wait for is no reason to worry.
    let health = match verdict.weight {
        Weight::Advisory => Health::Ready,
        _ => verdict.health,
    };
    (health, runtime.secrets.mask(&verdict.message))
}

type Found = HashMap<(ClusterName, Name), Value>;

async fn look(subjects: &[&Subject]) -> Result<Found, Failure> {
    type Asked<'a> = (&'a Arc<Cluster>, Vec<(Name, ResourceType)>);
    let mut by_cluster: BTreeMap<&ClusterName, Asked<'_>> = BTreeMap::new();
    for subject in subjects {
        let entry = by_cluster
            .entry(&subject.cluster.api.name)
            .or_insert((&subject.cluster, Vec::new()));
        entry
            .1
            .extend(subject.of.clone().map(|of| (subject.name.clone(), of)));
    }
    let mut found = Found::new();
    for (name, (cluster, asked)) in by_cluster {
        let live = live::read(cluster, &asked).await?;
        found.extend(
            live.into_iter()
                .map(|(object, value)| ((name.clone(), object), value)),
        );
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
    let mut found = look(
        &subjects
            .iter()
            .filter_map(|s| s.as_ref().ok())
            .collect::<Vec<_>>(),
    )
    .await?;
    let definitions: Vec<Map<String, Value>> = items
        .iter()
        .filter_map(|item| item.desired.as_ref())
        .filter(|d| identity::text(&d.attributes, "kind") == "CustomResourceDefinition")
        .map(|d| d.attributes.clone())
        .collect();
    let namespaces: Vec<String> = items
        .iter()
        .filter_map(|item| item.desired.as_ref())
        .filter(|d| identity::text(&d.attributes, "kind") == "Namespace")
        .map(|d| identity::metadata(&d.attributes, "name").to_owned())
        .collect();
    let planner = decide::Planner {
        runtime,
        scope,
        definitions,
        namespaces,
    };
    let plans = items.into_iter().zip(subjects).map(|(item, subject)| {
        let planner = &planner;
        let live = subject
            .as_ref()
            .ok()
            .and_then(|s| found.remove(&(s.cluster.api.name.clone(), s.name.clone())));
        async move { planner.decide(item, subject?, live).await }
    });
    let plans: Vec<_> = plans.collect();
    Ok(stream::iter(plans).buffered(AT_ONCE).collect().await)
}
