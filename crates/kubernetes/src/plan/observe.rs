//! Reads the live objects of items, and their health.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;

use super::super::{
    api::clusters::Kubernetes,
    health::{self, Health, HealthVerdict, WaitPolicy},
    object::{
        completed_jobs,
        fetch::{self, RawObject},
        plan_item::PlanItem,
        related_fetch,
    },
};
use super::same_cluster::{self, AppliedObject};
use konverge_base::{
    error::UserError,
    model::{ClusterName, apply_result::Waiting, stack_status::ObjectStatus},
};
use konverge_engine::runtime::{Item, ObservedObject, StackScope};

/// Number of objects whose health is assessed concurrently. The cluster's limit bounds the concurrent
/// requests.
const AT_ONCE: usize = 64;

/// Reads the live objects. Returns one result for each item.
pub(crate) async fn observe(
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
    // On another cluster, all objects would be reported as missing.
    let found = of_the_same_cluster(scope, items, &looked_up, found).await?;
    let observed = items
        .iter()
        .zip(&subjects)
        .zip(found)
        .map(|((item, subject), raw)| async move {
            let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
            let (mut waiting, mut is_suspended_by_spec) = (None, false);
            let health = match &live {
                Some(live) => {
                    let (health, why, wait) = health(runtime, subject, live).await;
                    waiting = wait;
                    let is_suspended = health == Health::Suspended && waiting.is_none();
                    is_suspended_by_spec =
                        is_suspended && health::is_suspended_by_spec(live, &subject.health_rules(runtime));
                    (health, why)
                }
                None if subject.silent.is_some() => (Health::Unknown, "its API does not answer".to_owned()),
                None if item.prior.as_ref().is_some_and(completed_jobs::may_be_gone) => (
                    Health::Ready,
                    "it completed and was deleted since, or it is a hook that is not due".to_owned(),
                ),
                None => (Health::Failed, "it is not there".to_owned()),
            };
            Ok(ObservedObject {
                id: item.id.clone(),
                live,
                health,
                waiting,
                is_suspended_by_spec,
            })
        });
    let observed: Vec<_> = observed.collect();
    stream::iter(observed).buffered(AT_ONCE).try_collect().await
}

/// Returns the health of each live object by its own status, without requests. Pods and events would show
/// more about an object that is not ready, but only a wait needs that.
pub(super) async fn own_health(
    runtime: &Kubernetes,
    items: &[Item],
    subjects: &[Option<&PlanItem>],
    found: &[Option<RawObject>],
) -> Vec<Option<ObjectStatus>> {
    let mut all = Vec::with_capacity(items.len());
    for ((item, subject), raw) in items.iter().zip(subjects).zip(found) {
        all.push(match (subject, raw) {
            (Some(subject), Some(raw)) => object_health(runtime, item, subject, raw).await,
            _ => None,
        });
    }
    all
}

async fn object_health(
    runtime: &Kubernetes,
    item: &Item,
    subject: &PlanItem,
    raw: &RawObject,
) -> Option<ObjectStatus> {
    let live = raw.read(&subject.cluster).ok()?;
    let rules = &subject.health_rules(runtime);
    let related = related_fetch::known_related(subject.of.as_ref()?);
    let verdict = health::assess(&live, &related, rules).await;
    let is_suspended = verdict.health == Health::Suspended;
    Some(ObjectStatus {
        id: item.id.clone(),
        cluster: Some(subject.cluster.api.name.clone()),
        health: settled(&verdict),
        message: runtime.secrets.mask(&verdict.message),
        suspended_by_spec: is_suspended
            && !matches!(verdict.weight, WaitPolicy::Waiting(_))
            && health::is_suspended_by_spec(&live, rules),
    })
}

/// Returns the health in a verdict. A problem that an apply would not wait for is not reported.
fn settled(verdict: &HealthVerdict) -> Health {
    match verdict.weight {
        WaitPolicy::Advisory => Health::Ready,
        _ => verdict.health,
    }
}

/// Returns the health of an object, its message, and the reason for which it waits. Related objects are read
/// only if it is not ready.
async fn health(runtime: &Kubernetes, subject: &PlanItem, live: &Value) -> (Health, String, Option<Waiting>) {
    let Some(of) = &subject.of else {
        return (Health::Unknown, String::new(), None);
    };
    let rules = &subject.health_rules(runtime);
    let mut verdict = health::assess(live, &related_fetch::known_related(of), rules).await;
    if !matches!(verdict.health, Health::Ready | Health::Suspended) {
        let around = related_fetch::fetch_related(&subject.cluster, of, live).await;
        verdict = health::assess(live, &around, rules).await;
    }
    let health = settled(&verdict);
    let waiting = match verdict.weight {
        WaitPolicy::Waiting(waiting) => Some(waiting),
        _ => None,
    };
    (health, runtime.secrets.mask(&verdict.message), waiting)
}

/// Returns the live objects, after a check that the clusters are those of the stack's last apply. On a wrong
/// cluster, that error replaces errors of reading.
pub(crate) async fn of_the_same_cluster(
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
    same_cluster::check(scope, applied, found.is_ok()).await?;
    found
}

/// Reads the live object of each item, in order; `None` for an item that could not be resolved.
pub(crate) async fn fetch_live(subjects: &[Option<&PlanItem>]) -> Result<Vec<Option<RawObject>>, UserError> {
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
