//! The order that Kubernetes requires implicitly: a Namespace before its objects, a CustomResourceDefinition before its
//! custom resources, a ConfigMap or Secret before the workload that mounts it, a role before its binding, the service
//! of a webhook before the webhook.
//!
//! Edges are added only where one resource of the Spec really needs another. A fixed order of kinds would
//! make nearly everything depend on everything.

use std::collections::HashMap;

use serde_json::{Map, Value};

use konverge_base::model::{
    GroupKind, ResourceId,
    spec::{Resource, RuntimeKind},
};

/// The name of an object: cluster, kind, namespace, name.
type Name<'a> = (&'a str, GroupKind<'a>, &'a str, &'a str);

/// Returns the pairs (dependency, dependent), in the order of the Spec.
pub(super) fn implicit_dependencies<'a>(resources: &'a [Resource]) -> Vec<(&'a ResourceId, &'a ResourceId)> {
    // All lookups go through maps, so that the time stays linear in the size of the Spec.
    let objects: Vec<Object<'a>> = resources.iter().filter_map(Object::from_resource).collect();
    let mut by_name: HashMap<Name<'a>, &Object<'a>> = HashMap::new();
    let mut by_custom_kind: HashMap<(&str, GroupKind<'a>), &Object<'a>> = HashMap::new();
    let mut workloads: HashMap<(&str, &str), Vec<&Object<'a>>> = HashMap::new();
    for object in &objects {
        by_name.insert(
            (object.cluster, object.kind, object.namespace, object.name),
            object,
        );
        if let Some(defined) = GroupKind::defined_by(object.body) {
            by_custom_kind.insert((object.cluster, defined), object);
        }
        if object.pod_spec().is_some() {
            workloads
                .entry((object.cluster, object.namespace))
                .or_default()
                .push(object);
        }
    }
    let mut pairs = Vec::new();
    for object in &objects {
        let mut need = |dependency: Option<&&Object<'a>>| {
            if let Some(dependency) = dependency.filter(|d| d.id != object.id) {
                pairs.push((dependency.id, object.id));
            }
        };
        let named = |kind, namespace, name| by_name.get(&(object.cluster, kind, namespace, name));
        if !object.namespace.is_empty() {
            need(named(GroupKind::NAMESPACE, "", object.namespace));
        }
        need(by_custom_kind.get(&(object.cluster, object.kind)));
        for (kind, name) in object.pod_spec().map(mounted_objects).unwrap_or_default() {
            let namespace = match kind {
                // These kinds are cluster-scoped; everything else is in the namespace of the pod.
                GroupKind::PRIORITY_CLASS | GroupKind::RUNTIME_CLASS => "",
                _ => object.namespace,
            };
            need(named(kind, namespace, name));
        }
        match object.kind {
            GroupKind::PERSISTENT_VOLUME_CLAIM => need(named(
                GroupKind::STORAGE_CLASS,
                "",
                text(object.body, &["spec", "storageClassName"]),
            )),
            GroupKind::ROLE_BINDING | GroupKind::CLUSTER_ROLE_BINDING => {
                let role = GroupKind::new(GroupKind::RBAC, text(object.body, &["roleRef", "kind"]));
                let namespace = if role == GroupKind::ROLE {
                    object.namespace
                } else {
                    ""
                };
                need(named(role, namespace, text(object.body, &["roleRef", "name"])));
            }
            GroupKind::HORIZONTAL_POD_AUTOSCALER => {
                let target = |key: &str| text(object.body, &["spec", "scaleTargetRef", key]);
                let kind = GroupKind::from_api_version(target("apiVersion"), target("kind"));
                need(named(kind, object.namespace, target("name")));
            }
            _ => {}
        }
        // A webhook answers only while its pods run, so the workloads behind its service come first, too.
        for (namespace, name) in object.answering_services() {
            let Some(service) = named(GroupKind::SERVICE, namespace, name) else {
                continue;
            };
            need(Some(service));
            let selector = service
                .body
                .get("spec")
                .and_then(|s| s.get("selector"))
                .and_then(Value::as_object);
            for workload in workloads.get(&(object.cluster, namespace)).into_iter().flatten() {
                if selector.is_some_and(|selector| workload.has_labels(selector)) {
                    need(Some(workload));
                }
            }
        }
    }
    pairs
}

struct Object<'a> {
    id: &'a ResourceId,
    cluster: &'a str,
    kind: GroupKind<'a>,
    namespace: &'a str,
    name: &'a str,
    body: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn from_resource(resource: &'a Resource) -> Option<Self> {
        if resource.runtime != RuntimeKind::Kubernetes {
            return None;
        }
        let body = &resource.attributes;
        Some(Self {
            id: &resource.id,
            cluster: resource
                .extensions
                .get("cluster")
                .and_then(Value::as_str)
                .unwrap_or_default(),
            kind: GroupKind::from_attributes(body),
            namespace: text(body, &["metadata", "namespace"]),
            name: text(body, &["metadata", "name"]),
            body,
        })
    }

    /// Returns the pod template of a workload: its `metadata` and `spec` as one value.
    fn template(&self) -> Option<&'a Value> {
        let path: &[&str] = match self.kind {
            GroupKind::DEPLOYMENT
            | GroupKind::STATEFUL_SET
            | GroupKind::DAEMON_SET
            | GroupKind::REPLICA_SET
            | GroupKind::JOB
            | GroupKind::REPLICATION_CONTROLLER => &["spec", "template"],
            GroupKind::CRON_JOB => &["spec", "jobTemplate", "spec", "template"],
            _ => return None,
        };
        path[1..]
            .iter()
            .try_fold(self.body.get(path[0])?, |value, key| value.get(key))
    }

    fn pod_spec(&self) -> Option<&'a Value> {
        if self.kind == GroupKind::POD {
            return self.body.get("spec");
        }
        self.template()?.get("spec")
    }

    fn has_labels(&self, selector: &Map<String, Value>) -> bool {
        let labels = self.template().and_then(|t| t.get("metadata")?.get("labels"));
        !selector.is_empty()
            && selector
                .iter()
                .all(|(key, value)| labels.and_then(|l| l.get(key)) == Some(value))
    }

    /// Returns the services (namespace, name) that a webhook configuration or an APIService calls.
    fn answering_services(&self) -> Vec<(&'a str, &'a str)> {
        let place = |service: &'a Value| {
            let field = |key| service.get(key).and_then(Value::as_str).unwrap_or_default();
            (field("namespace"), field("name"))
        };
        match self.kind {
            GroupKind::MUTATING_WEBHOOK_CONFIGURATION | GroupKind::VALIDATING_WEBHOOK_CONFIGURATION => {
                let webhooks = self.body.get("webhooks").and_then(Value::as_array);
                let services = webhooks
                    .into_iter()
                    .flatten()
                    .filter_map(|w| w.get("clientConfig")?.get("service"));
                services.map(place).collect()
            }
            GroupKind::API_SERVICE => self
                .body
                .get("spec")
                .and_then(|s| s.get("service"))
                .map(place)
                .into_iter()
                .collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns the service account of a pod. Like the API server, it falls back to the deprecated field `serviceAccount`.
pub(super) fn service_account(pod: &Value) -> Option<&Value> {
    let fields = ["serviceAccountName", "serviceAccount"];
    let mut given = fields.into_iter().filter_map(|field| pod.get(field));
    given.find(|name| name.as_str().is_some_and(|name| !name.is_empty()))
}

/// A field that names an object: the kind of the object, the field, and the key of the name in it.
type NamingField = (GroupKind<'static>, &'static str, &'static str);

const VOLUME: [NamingField; 3] = [
    (GroupKind::CONFIG_MAP, "configMap", "name"),
    (GroupKind::SECRET, "secret", "secretName"),
    (
        GroupKind::PERSISTENT_VOLUME_CLAIM,
        "persistentVolumeClaim",
        "claimName",
    ),
];
const PROJECTED: [NamingField; 2] = [
    (GroupKind::CONFIG_MAP, "configMap", "name"),
    (GroupKind::SECRET, "secret", "name"),
];
const ENV_FROM: [NamingField; 2] = [
    (GroupKind::CONFIG_MAP, "configMapRef", "name"),
    (GroupKind::SECRET, "secretRef", "name"),
];
const VALUE_FROM: [NamingField; 2] = [
    (GroupKind::CONFIG_MAP, "configMapKeyRef", "name"),
    (GroupKind::SECRET, "secretKeyRef", "name"),
];

/// Returns the objects that a pod refers to by kind and name. Optional references count too: if the object is in the
/// same Spec, it is applied first.
fn mounted_objects(pod: &Value) -> Vec<(GroupKind<'static>, &str)> {
    let mut found: Vec<(GroupKind<'static>, Option<&Value>)> = vec![
        (GroupKind::SERVICE_ACCOUNT, service_account(pod)),
        (GroupKind::PRIORITY_CLASS, pod.get("priorityClassName")),
        (GroupKind::RUNTIME_CLASS, pod.get("runtimeClassName")),
    ];
    let secrets = list(pod, "imagePullSecrets");
    found.extend(secrets.map(|secret| (GroupKind::SECRET, secret.get("name"))));
    for volume in list(pod, "volumes") {
        found.extend(named_in(volume, &VOLUME));
        let projected = volume.get("projected").into_iter();
        for source in projected.flat_map(|projected| list(projected, "sources")) {
            found.extend(named_in(source, &PROJECTED));
        }
    }
    for container in list(pod, "initContainers").chain(list(pod, "containers")) {
        for source in list(container, "envFrom") {
            found.extend(named_in(source, &ENV_FROM));
        }
        for value in list(container, "env").filter_map(|variable| variable.get("valueFrom")) {
            found.extend(named_in(value, &VALUE_FROM));
        }
    }
    found
        .into_iter()
        .filter_map(|(kind, name)| Some((kind, name?.as_str()?)))
        .collect()
}

fn named_in<'a>(
    holder: &'a Value,
    fields: &'static [NamingField],
) -> impl Iterator<Item = (GroupKind<'static>, Option<&'a Value>)> {
    fields
        .iter()
        .map(|&(kind, field, key)| (kind, holder.get(field).and_then(|named| named.get(key))))
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(body: &'a Map<String, Value>, path: &[&str]) -> &'a str {
    let mut at = body.get(path[0]);
    for key in &path[1..] {
        at = at.and_then(|value| value.get(key));
    }
    at.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(id: &str, attributes: Value) -> Resource {
        Resource::new(
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            attributes.as_object().unwrap().clone(),
        )
    }

    #[test]
    fn a_cron_job_has_the_pods_of_its_job() {
        let body = json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {
            "metadata": {"labels": {"app": "a"}}, "spec": {"runtimeClassName": "slow"}}}}}});
        let job = resource("job", body);
        let job = Object::from_resource(&job).unwrap();
        assert_eq!(job.pod_spec().unwrap()["runtimeClassName"], "slow");
        let selects = |selector: Value| job.has_labels(selector.as_object().unwrap());
        assert!(selects(json!({"app": "a"})));
        assert!(!selects(json!({"app": "b"})) && !selects(json!({})));
    }

    #[test]
    fn a_role_comes_before_what_binds_it_and_a_class_before_its_pods() {
        let rbac = |kind: &str, namespace: Option<&str>, role: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "r", "namespace": namespace}, "roleRef": role});
        let resources = [
            resource(
                "binding",
                rbac("RoleBinding", Some("ns"), json!({"kind": "Role", "name": "r"})),
            ),
            resource(
                "wide",
                rbac(
                    "RoleBinding",
                    Some("other"),
                    json!({"kind": "ClusterRole", "name": "r"}),
                ),
            ),
            resource("role", rbac("Role", Some("ns"), Value::Null)),
            resource("cluster-role", rbac("ClusterRole", None, Value::Null)),
            resource(
                "pod",
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ns"}, "spec": {"runtimeClassName": "slow"}}),
            ),
            resource(
                "class",
                json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "slow"}}),
            ),
        ];
        let pairs: Vec<_> = implicit_dependencies(&resources)
            .into_iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("role", "binding"), ("cluster-role", "wide"), ("class", "pod")]
        );
    }

    #[test]
    fn a_workload_comes_after_what_it_mounts_and_a_webhook_after_who_answers_it() {
        let labels = json!({"app": "hook"});
        let resources = [
            resource(
                "hook",
                json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "h"},
                    "webhooks": [{"clientConfig": {"service": {"namespace": "ns", "name": "hook"}}}]}),
            ),
            resource(
                "workload",
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": {
                    "metadata": {"labels": labels}, "spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]}}}}),
            ),
            resource(
                "config",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}}),
            ),
            resource(
                "service",
                json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": "ns"}, "spec": {"selector": labels}}),
            ),
            resource(
                "elsewhere",
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "other"}}),
            ),
        ];
        let pairs: Vec<_> = implicit_dependencies(&resources)
            .into_iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [("service", "hook"), ("workload", "hook"), ("config", "workload")]
        );
    }

    #[test]
    fn what_other_kinds_name_comes_first() {
        let object = |api_version: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec});
        let resources = [
            resource("thing", object("x.io/v1", "Thing", "t", json!({}))),
            resource("other", object("x.io/v1", "Other", "t", json!({}))),
            resource(
                "definition",
                json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.io"},
                    "spec": {"group": "x.io", "names": {"kind": "Thing"}}}),
            ),
            resource(
                "claim",
                object(
                    "v1",
                    "PersistentVolumeClaim",
                    "p",
                    json!({"storageClassName": "fast"}),
                ),
            ),
            resource(
                "class",
                json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}}),
            ),
            resource(
                "scaler",
                object(
                    "autoscaling/v2",
                    "HorizontalPodAutoscaler",
                    "s",
                    json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}}),
                ),
            ),
            resource("web", object("apps/v1", "Deployment", "web", json!({}))),
            resource(
                "api",
                json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.x.io"},
                    "spec": {"service": {"namespace": "ns", "name": "server"}}}),
            ),
            resource("server", object("v1", "Service", "server", json!({}))),
        ];
        let pairs: Vec<_> = implicit_dependencies(&resources)
            .into_iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let expected = [
            ("definition", "thing"),
            ("class", "claim"),
            ("web", "scaler"),
            ("server", "api"),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn kinds_of_other_groups_that_are_called_alike_need_nothing() {
        let object = |api_version: &str, kind: &str, namespace: Value| {
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "ns", "namespace": namespace},
            "spec": {"template": {"spec": {"serviceAccountName": "ns", "volumes": [{"configMap": {"name": "ns"}}]}}}})
        };
        let resources = [
            resource("namespace", object("tenancy.io/v1", "Namespace", Value::Null)),
            resource("account", object("tenancy.io/v1", "ServiceAccount", "ns".into())),
            resource("config", object("tenancy.io/v1", "ConfigMap", "ns".into())),
            resource("job", object("batch/v1", "Job", "ns".into())),
            resource("their-job", object("tenancy.io/v1", "Job", "ns".into())),
            resource("real-config", object("v1", "ConfigMap", "ns".into())),
        ];
        let pairs: Vec<_> = implicit_dependencies(&resources)
            .into_iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(pairs, [("real-config", "job")]);
    }
}
