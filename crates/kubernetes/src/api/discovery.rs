//! The kinds of a cluster: aggregated discovery with two requests. If the server of an aggregated API is
//! down, only its kinds are missing.

use std::{collections::HashMap, sync::Arc};

use konverge_base::model::GroupKind;
use serde_json::Value;

use super::{
    client::{Api, ApiRequest, escape},
    error::ApiError,
};

const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// One kind in one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ResourceType {
    /// The API group; empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// True if the kind has a `status` subresource, which a controller writes.
    pub reports_status: bool,
}

impl ResourceType {
    /// Returns the group and kind, without the version.
    pub(crate) fn group_kind(&self) -> GroupKind<'_> {
        GroupKind::new(&self.group, &self.kind)
    }

    /// Returns the API version, such as `apps/v1` or `v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the path of all objects, or of those in one namespace.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let namespace = namespace
            .map(|ns| format!("/namespaces/{}", escape(ns)))
            .unwrap_or_default();
        format!("{root}/{}{namespace}/{}", self.api_version(), self.plural)
    }

    /// Returns the path of one object.
    pub(crate) fn object(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{}", self.collection(namespace), escape(name))
    }
}

/// The kinds of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Discovery {
    /// The kinds by API version and name.
    by_version: HashMap<String, HashMap<String, Arc<ResourceType>>>,
    /// The kinds in the server's preferred version, by group and name.
    preferred: HashMap<String, HashMap<String, Arc<ResourceType>>>,
    /// Versions that are listed but whose server does not respond, by group.
    silent: HashMap<String, String>,
}

impl Discovery {
    /// Queries the kinds of a cluster.
    pub(crate) async fn ask(api: &Api) -> Result<Self, ApiError> {
        let ask = |path: &'static str| async move {
            let mut request = ApiRequest::get(path);
            request.accept = ACCEPT;
            api.call(&request).await
        };
        let (core, groups) = tokio::try_join!(ask("/api"), ask("/apis"))?;
        let mut discovery = Self::default();
        discovery.read(&core.value)?;
        discovery.read(&groups.value)?;
        Ok(discovery)
    }

    fn read(&mut self, list: &Value) -> Result<(), ApiError> {
        if list["kind"] != "APIGroupDiscoveryList" {
            return Err(ApiError::Protocol(
                "the server has no aggregated discovery (Kubernetes 1.27 or newer is needed)".into(),
            ));
        }
        for group in items(&list["items"]) {
            let name = text(&group["metadata"], "name");
            // The server lists versions in its order of preference, so the first one with a kind is
            // preferred.
            for version in items(&group["versions"]) {
                if version["freshness"] == "Stale" {
                    let version = format!("{name}/{}", text(version, "version"));
                    self.silent.insert(name.to_owned(), version);
                }
                for resource in items(&version["resources"]) {
                    let found = ResourceType {
                        group: name.to_owned(),
                        version: text(version, "version").to_owned(),
                        kind: text(&resource["responseKind"], "kind").to_owned(),
                        plural: text(resource, "resource").to_owned(),
                        namespaced: text(resource, "scope") == "Namespaced",
                        reports_status: items(&resource["subresources"])
                            .any(|subresource| text(subresource, "subresource") == "status"),
                    };
                    let readable = items(&resource["verbs"]).any(|verb| verb == "get");
                    if readable && !found.kind.is_empty() {
                        self.add(found);
                    }
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, found: ResourceType) {
        let found = Arc::new(found);
        let preferred = self.preferred.entry(found.group.clone()).or_default();
        let by_version = self.by_version.entry(found.api_version()).or_default();
        for kinds in [preferred, by_version] {
            kinds
                .entry(found.kind.clone())
                .or_insert_with(|| Arc::clone(&found));
        }
    }

    /// Returns the kind in exactly that version.
    pub(crate) fn exact(&self, api_version: &str, kind: &str) -> Option<&Arc<ResourceType>> {
        self.by_version.get(api_version)?.get(kind)
    }

    /// Returns the kind in that version, or else in the server's preferred version, because the version in a
    /// state may no longer be served.
    pub(crate) fn any_version(&self, api_version: &str, kind: &str) -> Option<&Arc<ResourceType>> {
        self.exact(api_version, kind)
            .or_else(|| self.of_kind(GroupKind::from_api_version(api_version, kind)))
    }

    /// Returns the kind in the server's preferred version.
    pub(crate) fn of_kind(&self, of: GroupKind<'_>) -> Option<&Arc<ResourceType>> {
        self.preferred.get(of.group)?.get(of.kind)
    }

    /// Returns a version of the group whose server does not respond. A kind that is missing from it may
    /// exist.
    pub(crate) fn silent(&self, group: &str) -> Option<&str> {
        self.silent.get(group).map(String::as_str)
    }
}

/// Returns the items of a list; none for another type.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn discovery() -> Discovery {
        let resource = |plural: &str, kind: &str, scope: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": ["get", "list"]});
        let mut discovery = Discovery::default();
        discovery
            .read(&json!({"kind": "APIGroupDiscoveryList", "items": [
                {"metadata": {"name": "autoscaling"}, "versions": [
                    {"version": "v2", "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced")]},
                    {"version": "v1", "resources": [resource("horizontalpodautoscalers", "HorizontalPodAutoscaler", "Namespaced")]}]},
                {"metadata": {}, "versions": [{"version": "v1", "resources": [resource("nodes", "Node", "Cluster")]}]},
                {"metadata": {"name": "broken.example.com"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]}))
            .unwrap();
        discovery
    }

    #[test]
    fn a_version_that_is_gone_is_found_in_the_one_preferred_now() {
        let discovery = discovery();
        assert!(
            discovery
                .exact("autoscaling/v2beta2", "HorizontalPodAutoscaler")
                .is_none()
        );
        let found = discovery
            .any_version("autoscaling/v2beta2", "HorizontalPodAutoscaler")
            .unwrap();
        assert_eq!(
            found.object(Some("ns"), "a"),
            "/apis/autoscaling/v2/namespaces/ns/horizontalpodautoscalers/a"
        );
        assert_eq!(
            discovery.exact("v1", "Node").unwrap().object(None, "n"),
            "/api/v1/nodes/n"
        );
    }

    #[test]
    fn a_version_that_does_not_answer_is_known() {
        let discovery = discovery();
        assert_eq!(
            discovery.silent("broken.example.com"),
            Some("broken.example.com/v1")
        );
        assert_eq!(discovery.silent("autoscaling"), None);
    }

    #[test]
    fn a_server_without_aggregated_discovery_is_named() {
        let error = Discovery::default()
            .read(&json!({"kind": "APIGroupList"}))
            .unwrap_err();
        assert!(konverge_base::error::chain(&error).contains("1.27"));
    }
}
