//! Reads and writes objects of a real cluster without Konverge.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;

use super::{cluster::Cluster, service::eventually};

/// A client with the administrator's rights.
pub struct Objects(Client);

impl Objects {
    /// Creates a client for a cluster.
    pub async fn of(cluster: &Cluster) -> Self {
        Self(cluster.client().await)
    }

    /// Returns the live object with the kind and name of `object`, if it exists.
    pub async fn get(&self, object: &Value) -> Option<Value> {
        let request = Request::get(path(object, true)).body(Vec::new()).unwrap();
        self.0.request(request).await.ok()
    }

    /// Returns all objects of a collection.
    pub async fn list(&self, collection: &str) -> Vec<Value> {
        let request = Request::get(collection).body(Vec::new()).unwrap();
        let mut list: Value = self.0.request(request).await.unwrap();
        serde_json::from_value(list["items"].take()).unwrap()
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) {
        self.create_as(object, "somebody").await;
    }

    /// Creates an object as a field manager.
    pub async fn create_as(&self, object: &Value, manager: &str) {
        let uri = format!("{}?fieldManager={manager}", path(object, false));
        let request = Request::post(uri)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Writes an object by forced server-side apply, as a field manager.
    pub async fn apply_as(&self, object: &Value, manager: &str) {
        let uri = format!("{}?fieldManager={manager}&force=true", path(object, true));
        let request = Request::patch(uri)
            .header("content-type", "application/apply-patch+yaml")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Changes an object by a merge patch, as a field manager.
    pub async fn merge(&self, object: &Value, manager: &str, patch: &Value) {
        let uri = format!("{}?fieldManager={manager}", path(object, true));
        let request = Request::patch(uri)
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Changes an object by a strategic merge patch, as `kubectl edit` and `kubectl set` do: list items are matched by
    /// their keys.
    pub async fn strategic_merge(&self, object: &Value, manager: &str, patch: &Value) {
        let uri = format!("{}?fieldManager={manager}", path(object, true));
        let request = Request::patch(uri)
            .header("content-type", "application/strategic-merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Creates a CustomResourceDefinition unless another test has created it, and waits until its kind is served.
    pub async fn create_definition(&self, definition: &Value) {
        let request = Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .header("content-type", "application/json")
            .body(definition.to_string().into_bytes())
            .unwrap();
        let made = self.0.request::<Value>(request).await;
        assert!(
            made.is_ok() || matches!(&made, Err(kube::Error::Api(status)) if status.code == 409),
            "{made:?}"
        );
        eventually("the kind is established", Duration::from_secs(60), || async {
            let live = self.get(definition).await?;
            let conditions = live["status"]["conditions"].as_array()?.clone();
            let is = |one: &Value| one["type"] == "Established" && one["status"] == "True";
            conditions.iter().any(is).then_some(())
        })
        .await;
    }

    /// Creates an object in a collection with an unusual plural.
    pub async fn create_at(&self, collection: &str, object: &Value) {
        let request = Request::post(collection)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Scales an object through the scale subresource, as a field manager.
    pub async fn scale(&self, object: &Value, manager: &str, replicas: u32) {
        let uri = format!("{}/scale?fieldManager={manager}", path(object, true));
        let patch = serde_json::json!({"spec": {"replicas": replicas}});
        let request = Request::patch(uri)
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Returns the objects of a collection with a label, written as `key=value`.
    pub async fn labelled(&self, collection: &str, label: &str) -> Vec<Value> {
        let uri = format!("{collection}?labelSelector={label}");
        let request = Request::get(uri).body(Vec::new()).unwrap();
        let list: Value = self.0.request(request).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Changes the status of the object at a path, as its controller would.
    pub async fn report(&self, path: &str, status: &Value) {
        let patch = serde_json::json!({ "status": status });
        let request = Request::patch(format!("{path}/status"))
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    /// Changes the status as [`Objects::report`] does; false if the server refuses because the object was replaced.
    pub async fn try_report(&self, path: &str, status: &Value) -> bool {
        let patch = serde_json::json!({ "status": status });
        self.try_patch(format!("{path}/status"), &patch).await
    }

    /// Changes an object by a merge patch; false if the server refuses.
    pub async fn try_merge(&self, object: &Value, patch: &Value) -> bool {
        self.try_patch(path(object, true), patch).await
    }

    async fn try_patch(&self, uri: String, patch: &Value) -> bool {
        let request = Request::patch(uri)
            .header("content-type", "application/merge-patch+json")
            .body(patch.to_string().into_bytes())
            .unwrap();
        self.0.request::<Value>(request).await.is_ok()
    }

    /// Deletes an object.
    pub async fn delete(&self, object: &Value) {
        let request = Request::delete(path(object, true)).body(Vec::new()).unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }
}

/// Returns the path of an object, or of its collection.
pub fn path(object: &Value, with_name: bool) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let kind = text(&object["kind"]).to_lowercase();
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let name = if with_name {
        format!("/{}", text(&object["metadata"]["name"]))
    } else {
        String::new()
    };
    format!("/{root}/{version}{namespace}/{plural}{name}")
}
