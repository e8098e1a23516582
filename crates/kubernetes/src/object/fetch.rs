//! Reads live objects: by LIST for each kind, or by GET if there are only a few.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use futures::future;
use serde_json::{Map, Value};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use super::super::api::{
    client::{Api, ApiRequest},
    cluster::Cluster,
    discovery::ResourceType,
    error::ApiError,
    json_ref::JsonRef,
    list_page::{self, ListItem},
};
use super::object_ref::ObjectRef;
use konverge_base::error::UserError;

/// The page size of a LIST.
const PAGE: usize = 500;
/// Up to this many objects of a kind are read by GET.
const FEW: usize = 3;
/// Up to this many namespaces are listed separately. For more, the whole cluster is listed.
const NAMESPACES: usize = 4;

/// An object as JSON text, which is parsed on demand to save memory in a large stack.
#[derive(Debug)]
pub(crate) struct RawObject {
    text: Bytes,
    of: Arc<ResourceType>,
}

impl RawObject {
    /// Parses the object without copying; kind and version may be missing. `None` if it is invalid.
    pub(crate) fn parse(&self) -> Option<JsonRef<'_>> {
        serde_json::from_slice(&self.text).ok()
    }

    /// Parses the object. Items of a list have neither kind nor version, so they are added.
    pub(crate) fn read(&self, cluster: &Cluster) -> Result<Value, UserError> {
        let item: Map<String, Value> = serde_json::from_slice(&self.text).map_err(|error| {
            let error = ApiError::Protocol(error.into());
            cluster.failure(&error, &format!("reading {}", self.of.plural))
        })?;
        let mut object = Map::with_capacity(item.len() + 2);
        object.insert("apiVersion".to_owned(), Value::String(self.of.api_version()));
        object.insert("kind".to_owned(), Value::String(self.of.kind.clone()));
        object.extend(item);
        Ok(Value::Object(object))
    }
}

/// The indexes of the requested objects, by namespace and name.
type Wanted<'a> = HashMap<(&'a str, &'a str), usize>;

/// Reads the requested objects. The result has the same order, with `None` for an object that does not exist.
pub(crate) async fn read(
    cluster: &Cluster,
    asked: &[(&ObjectRef, &Arc<ResourceType>)],
) -> Result<Vec<Option<RawObject>>, UserError> {
    let mut by_type: BTreeMap<[&str; 3], (&Arc<ResourceType>, Wanted<'_>)> = BTreeMap::new();
    for (place, (name, of)) in asked.iter().enumerate() {
        let wanted = by_type
            .entry([&of.group, &of.version, &of.plural])
            .or_insert((of, Wanted::new()));
        wanted.1.entry((&name.namespace, &name.name)).or_insert(place);
    }
    // All reads are started at once: the cluster's limit bounds the concurrent requests.
    let reads = by_type
        .into_values()
        .map(|(of, wanted)| read_type(cluster, of, wanted));
    let reads: Vec<_> = reads.collect();
    let mut found: Vec<Option<RawObject>> = asked.iter().map(|_| None).collect();
    for (place, raw) in future::try_join_all(reads).await?.into_iter().flatten() {
        found[place] = Some(raw);
    }
    Ok(found)
}

async fn read_type(
    cluster: &Cluster,
    of: &Arc<ResourceType>,
    wanted: Wanted<'_>,
) -> Result<Vec<(usize, RawObject)>, UserError> {
    if wanted.len() <= FEW {
        return get_each(cluster, of, wanted).await;
    }
    let namespaces: BTreeSet<&str> = wanted.keys().map(|(namespace, _)| *namespace).collect();
    let whole = namespaces.len() > NAMESPACES;
    let listed = if whole {
        list(cluster, of, "").await
    } else {
        list_each(cluster, of, &namespaces).await
    };
    let listed = match listed {
        // Permissions may be granted for single namespaces only.
        Err(error) if whole && error.is_code(403) => list_each(cluster, of, &namespaces).await,
        listed => listed,
    };
    let listed = match listed {
        // The kind was removed after the lookup, and its objects with it.
        Err(error) if error.is_code(404) => Ok(Vec::new()),
        listed => listed,
    };
    let listed = listed.map_err(|error| cluster.failure(&error, &format!("listing {}", of.plural)))?;
    let mine = listed.into_iter().filter_map(|item| {
        let place = wanted.get(&(item.namespace.as_str(), item.name.as_str()))?;
        let of = Arc::clone(of);
        Some((*place, RawObject { text: item.text, of }))
    });
    Ok(mine.collect())
}

async fn get_each(
    cluster: &Cluster,
    of: &Arc<ResourceType>,
    wanted: Wanted<'_>,
) -> Result<Vec<(usize, RawObject)>, UserError> {
    let gets = wanted.into_iter().map(|((namespace, name), place)| async move {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let request = ApiRequest::get(of.object(namespace, name));
        let of = Arc::clone(of);
        match cluster.api.fetch(&request).await {
            Ok(text) => Ok(Some((place, RawObject { text, of }))),
            Err(error) if error.is_code(404) => Ok(None),
            Err(error) => Err(cluster.failure(&error, &format!("reading {} `{name}`", of.kind))),
        }
    });
    let gets: Vec<_> = gets.collect();
    Ok(future::try_join_all(gets).await?.into_iter().flatten().collect())
}

/// Reads one object; `None` if it does not exist.
pub(crate) async fn get(
    cluster: &Cluster,
    of: &ResourceType,
    name: &ObjectRef,
) -> Result<Option<Value>, UserError> {
    let found = cluster.api.find(of.object(name.namespace(), &name.name)).await;
    found.map_err(|error| cluster.failure(&error, &format!("reading {} `{}`", of.kind, name.name)))
}

async fn list_each(
    cluster: &Cluster,
    of: &ResourceType,
    namespaces: &BTreeSet<&str>,
) -> Result<Vec<ListItem>, ApiError> {
    let lists: Vec<_> = namespaces
        .iter()
        .map(|namespace| list(cluster, of, namespace))
        .collect();
    Ok(future::try_join_all(lists).await?.into_iter().flatten().collect())
}

/// Lists the objects of a kind in a namespace, or in the whole cluster. Each list has its own task, so that
/// decompressing and splitting do not delay other requests.
async fn list(cluster: &Cluster, of: &ResourceType, namespace: &str) -> Result<Vec<ListItem>, ApiError> {
    let namespace = (!namespace.is_empty()).then_some(namespace);
    let pages = pages(cluster.api.clone(), of.collection(namespace));
    let task = AbortOnDropHandle::new(tokio::spawn(pages.in_current_span()));
    match task.await {
        Ok(listed) => listed,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => Err(ApiError::Network(error.into())),
        },
    }
}

async fn pages(api: Api, path: String) -> Result<Vec<ListItem>, ApiError> {
    let mut listed = Vec::new();
    let mut next = String::new();
    loop {
        let mut request = ApiRequest::get(path.as_str()).query("limit", PAGE.to_string());
        if !next.is_empty() {
            request = request.query("continue", next);
        }
        let page = match api.fetch(&request).await {
            // The version of the list has expired, so the list is read again from the start.
            Err(error) if error.is_code(410) && !listed.is_empty() => {
                listed.clear();
                next = String::new();
                continue;
            }
            other => list_page::split_page(&other?)?,
        };
        listed.extend(page.items);
        next = page.next;
        if next.is_empty() {
            return Ok(listed);
        }
    }
}
