//! The watches of a cluster: one for each kind and namespace, shared by all objects that wait, so that not
//! every object has a watch.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use http_body_util::BodyExt as _;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    client::{Api, ApiRequest},
    error::ApiError,
};
use konverge_base::error::chain;

/// Maximum time for which a write waits for the watch of its object. After that it is sent anyway.
const OPENING: Duration = Duration::from_secs(5);

/// Time between the end of a watch and the next attempt to open it. It doubles while the server refuses, up
/// to [`REOPEN_AFTER_AT_MOST`].
const REOPEN_AFTER: Duration = Duration::from_millis(300);
const REOPEN_AFTER_AT_MOST: Duration = Duration::from_secs(5);

/// The watches of one cluster. They end when this is dropped.
pub(crate) struct Watches {
    api: Api,
    running: Mutex<HashMap<String, Arc<WatchStream>>>,
}

/// The objects of one watch, and its progress.
pub(crate) struct WatchStream {
    pub latest: Mutex<HashMap<String, WatchedObject>>,
    pub seen: watch::Sender<u64>,
    /// True after the first attempt to open the watch, successful or not.
    tried: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

/// The last version of an object that a watch reported.
#[derive(Clone)]
pub(crate) struct WatchedObject {
    pub object: Value,
    /// True if the object was deleted. Then this is its last version.
    pub gone: bool,
}

impl Drop for Watches {
    fn drop(&mut self) {
        let running = self.running.get_mut().expect("no panic while the lock is held");
        running.values().for_each(|feed| feed.task.abort());
    }
}

impl Watches {
    pub(crate) fn new(api: Api) -> Self {
        Self {
            api,
            running: Mutex::default(),
        }
    }

    /// Waits until the watch of a collection is open, before an object is written there. If the watch cannot
    /// be opened, it keeps trying after this returns.
    pub(crate) async fn wait_until_open(&self, path: String) {
        let mut tried = self.open(path, None).tried.subscribe();
        let _ = tokio::time::timeout(OPENING, tried.wait_for(|tried| *tried)).await;
    }

    pub(crate) fn is_open(&self, path: &str) -> bool {
        let running = self.running.lock().expect("no panic while the lock is held");
        running.get(path).is_some_and(|feed| *feed.tried.borrow())
    }

    /// Returns the watch of a collection. It is started if necessary, at the resource version `from` or at
    /// the current one.
    pub(crate) fn open(&self, path: String, from: Option<&str>) -> Arc<WatchStream> {
        let mut running = self.running.lock().expect("no panic while the lock is held");
        let feed = running.entry(path.clone()).or_insert_with(|| {
            let (api, from) = (self.api.clone(), from.map(str::to_owned));
            Arc::new_cyclic(|feed: &std::sync::Weak<WatchStream>| {
                let feed = feed.clone();
                WatchStream {
                    latest: Mutex::default(),
                    seen: watch::Sender::new(0),
                    tried: watch::Sender::new(false),
                    task: tokio::spawn(async move { run_watch(&api, &path, from, &feed).await }),
                }
            })
        });
        Arc::clone(feed)
    }
}

/// Runs a watch until its stream is dropped. A watch that ends is reopened where it stopped. If that version
/// is too old, it continues from the current one, and waiting tasks read their objects again.
async fn run_watch(api: &Api, path: &str, from: Option<String>, feed: &std::sync::Weak<WatchStream>) {
    let mut from = match from {
        Some(version) => version,
        None => now(api, path).await,
    };
    let mut wait = REOPEN_AFTER;
    loop {
        let mut request = ApiRequest::get(path)
            .query("watch", "true")
            .query("allowWatchBookmarks", "true");
        if !from.is_empty() {
            request = request.query("resourceVersion", from.clone());
        }
        let opened = api.open(&request).await;
        // The stream is held only for a moment, so that the watch ends when nobody waits any more.
        let Some(waiting) = feed.upgrade() else { return };
        waiting.tried.send_replace(true);
        drop(waiting);
        match opened {
            Ok(mut body) => {
                wait = REOPEN_AFTER;
                let mut buffer = Vec::new();
                while let Some(Ok(frame)) = body.frame().await {
                    let Ok(data) = frame.into_data() else { continue };
                    buffer.extend_from_slice(&data);
                    while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = buffer.drain(..=end).collect();
                        let Some(feed) = feed.upgrade() else { return };
                        take(&line, &mut from, &feed);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(error = %chain(&error), path, "the watch could not be opened");
                // Without permission, or for a kind that cannot be watched, the waiting tasks read their
                // objects instead.
                if error.is_code(403) || error.is_code(405) || matches!(error, ApiError::Stopped(_)) {
                    return;
                }
                // The version has expired. Without one, the watch first reports all existing objects.
                if error.is_code(410) {
                    from.clear()
                } else {
                    // The pause grows, so that a server in trouble does not get three requests a second.
                    wait = (wait * 2).min(REOPEN_AFTER_AT_MOST)
                }
            }
        }
        tokio::time::sleep(wait).await;
        if feed.strong_count() == 0 {
            return;
        }
    }
}

/// Returns the current version of a collection by listing one object. If it cannot be listed, the result is
/// empty, and the watch then reports all existing objects.
async fn now(api: &Api, path: &str) -> String {
    match api.call(&ApiRequest::get(path).query("limit", "1")).await {
        Ok(listed) => listed.value["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        Err(error) => {
            tracing::debug!(error = %chain(&error), path, "the watch starts with all that is there");
            String::new()
        }
    }
}

fn take(line: &[u8], from: &mut String, feed: &WatchStream) {
    let Ok(mut event) = serde_json::from_slice::<Value>(line) else {
        return;
    };
    if event["type"] == "ERROR" {
        from.clear();
        return;
    }
    let object = event["object"].take();
    if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
        version.clone_into(from);
    }
    if event["type"] == "BOOKMARK" {
        return;
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let gone = event["type"] == "DELETED";
    feed.latest
        .lock()
        .expect("no panic while the lock is held")
        .insert(name, WatchedObject { object, gone });
    feed.seen.send_modify(|count| *count += 1);
}
