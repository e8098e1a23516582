//! What is there: LIST per kind where several objects are asked for, GET where few are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::future;
use serde_json::Value;

use super::{client::Request, cluster::Cluster, discovery::ResourceType, error::ApiError, identity::Name};
use crate::error::Failure;

/// A page of a LIST.
const PAGE: usize = 500;
/// Up to so many objects of a kind are asked for one by one.
const FEW: usize = 3;
/// Up to so many namespaces are listed one by one; beyond, the whole cluster is.
const NAMESPACES: usize = 4;

/// The objects that exist among those asked for.
pub(super) async fn read(
    cluster: &Cluster,
    asked: &[(Name, ResourceType)],
) -> Result<HashMap<Name, Value>, Failure> {
    let mut by_type: BTreeMap<String, (&ResourceType, BTreeSet<&Name>)> = BTreeMap::new();
    for (name, of) in asked {
        by_type
            .entry(of.collection(None))
            .or_insert((of, BTreeSet::new()))
            .1
            .insert(name);
    }
    // What is in flight is bounded by the cluster's budget.
    let reads: Vec<_> = by_type
        .into_values()
        .map(|(of, names)| read_type(cluster, of, names))
        .collect();
    let found = future::try_join_all(reads).await?;
    Ok(found.into_iter().flatten().collect())
}

async fn read_type(
    cluster: &Cluster,
    of: &ResourceType,
    names: BTreeSet<&Name>,
) -> Result<HashMap<Name, Value>, Failure> {
    if names.len() <= FEW {
        return get_each(cluster, of, names).await;
    }
    let namespaces: BTreeSet<Option<&str>> = names.iter().map(|name| name.namespace()).collect();
    let whole = namespaces.len() > NAMESPACES;
    let places: Vec<Option<&str>> = if whole {
        vec![None]
    } else {
        namespaces.iter().copied().collect()
    };
    let mut found = HashMap::with_capacity(names.len());
    for place in places {
        let listed = match list(cluster, of, place).await {
            // Rights may be given by namespace only.
            Err(error) if whole && error.is_code(403) => {
                let mut all = Vec::new();
                for namespace in &namespaces {
                    all.extend(
                        list(cluster, of, *namespace)
                            .await
                            .map_err(|error| failure(cluster, of, &error))?,
                    );
                }
                all
            }
            other => other.map_err(|error| failure(cluster, of, &error))?,
        };
        for object in listed {
            let Some(map) = object.as_object() else { continue };
            let name = Name::of(map, of);
            if names.contains(&name) {
                found.insert(name, object);
            }
        }
    }
    Ok(found)
}

fn failure(cluster: &Cluster, of: &ResourceType, error: &ApiError) -> Failure {
    cluster.failure(error, &format!("listing {}", of.plural))
}

async fn get_each(
    cluster: &Cluster,
    of: &ResourceType,
    names: BTreeSet<&Name>,
) -> Result<HashMap<Name, Value>, Failure> {
    let names: Vec<&Name> = names.into_iter().collect();
    let gets: Vec<_> = names.iter().map(|name| get(cluster, of, name)).collect();
    let objects = future::try_join_all(gets).await?;
    let found = names
        .into_iter()
        .zip(objects)
        .map(|(name, object)| Some((name.clone(), object?)));
    Ok(found.flatten().collect())
}

/// One object, `None` if it is not there.
pub(super) async fn get(cluster: &Cluster, of: &ResourceType, name: &Name) -> Result<Option<Value>, Failure> {
    match cluster
        .api
        .call(&Request::get(of.object(name.namespace(), &name.name)))
        .await
    {
        Ok(answer) => Ok(Some(answer.value)),
        Err(error) if error.is_code(404) => Ok(None),
        Err(error) => Err(cluster.failure(&error, &format!("reading {} `{}`", of.kind, name.name))),
    }
}

/// All objects of a kind. Items of a list carry neither kind nor version: they are filled in.
async fn list(cluster: &Cluster, of: &ResourceType, namespace: Option<&str>) -> Result<Vec<Value>, ApiError> {
    let mut objects = Vec::new();
    let mut next = String::new();
    loop {
        let mut request = Request::get(of.collection(namespace)).query("limit", PAGE.to_string());
        if !next.is_empty() {
            request = request.query("continue", next);
        }
        let mut page = match cluster.api.call(&request).await {
            // The list's version is too old by now: from the start.
            Err(error) if error.is_code(410) && !objects.is_empty() => {
                objects.clear();
                next = String::new();
                continue;
            }
            other => other?.value,
        };
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            objects.extend(items.into_iter().map(|item| with_type(item, of)));
        }
        next = page["metadata"]["continue"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        if next.is_empty() {
            return Ok(objects);
        }
    }
}

fn with_type(item: Value, of: &ResourceType) -> Value {
    let mut object = serde_json::Map::new();
    object.insert("apiVersion".to_owned(), Value::String(of.api_version()));
    object.insert("kind".to_owned(), Value::String(of.kind.clone()));
    if let Value::Object(map) = item {
        object.extend(map);
    }
    Value::Object(object)
}
