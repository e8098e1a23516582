//! Plans without a cluster: compares two Specs by structure only.

use std::collections::HashMap;

use serde_json::Value;

use konverge_base::model::{
    ClusterName, FieldPath, RepoPath, ResourceId, StackId, diff, object_rules,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan, Validation},
    spec::{Resource, RuntimeKind, Spec},
};
use konverge_secrets::{Secrets, mask_resource, mask_secret_data};

/// Chooses the secrets that are masked in the resources of a Spec.
#[derive(Clone, Copy)]
pub struct SpecMask<'a> {
    secrets: &'a Secrets,
    mask: fn(&Secrets, &Resource) -> Resource,
}

impl<'a> SpecMask<'a> {
    /// Masks everything that a reader of the plan must not see.
    pub fn for_readers(secrets: &'a Secrets) -> Self {
        Self {
            secrets,
            mask: mask_resource,
        }
    }

    /// Masks only the data of Secrets, for policy sets, which judge true values.
    pub fn for_rules(secrets: &'a Secrets) -> Self {
        Self {
            secrets,
            mask: mask_secret_data,
        }
    }

    pub(super) fn apply(self, resource: &Resource) -> Resource {
        (self.mask)(self.secrets, resource)
    }
}

/// Two Specs that are compared.
#[derive(Clone, Copy)]
pub struct ComparedSpecs<'a> {
    /// The Spec before the change.
    pub base: &'a Spec,
    /// The Spec after the change.
    pub head: &'a Spec,
}

/// Returns the changes from `base` to `head`. No cluster is queried, so nothing is validated, and a replacement
/// appears as an update; the documented rules of built-in kinds show where a replacement is likely.
pub fn plan_against_spec(
    stack: &StackId,
    folder: &RepoPath,
    specs: ComparedSpecs<'_>,
    cluster: Option<&ClusterName>,
    mask: SpecMask<'_>,
) -> StackPlan {
    let ComparedSpecs { base, head } = specs;
    let masked = |resource: &Resource| {
        let mut shown = Value::Object(mask.apply(resource).attributes);
        if resource.runtime == RuntimeKind::Kubernetes {
            // Generators write these empty fields or omit them. Without this, the difference would look like a change.
            object_rules::drop_unset_server_fields(&mut shown);
        }
        shown
    };
    let before: HashMap<&ResourceId, &Resource> = base.resources.iter().map(|r| (&r.id, r)).collect();
    let after: HashMap<&ResourceId, &Resource> = head.resources.iter().map(|r| (&r.id, r)).collect();
    let mut plans = Vec::with_capacity(head.resources.len());
    for resource in &head.resources {
        let (action, changes) = match before.get(&resource.id) {
            None => (
                Action::Create,
                vec![FieldChange::whole(None, Some(masked(resource)))],
            ),
            Some(old) => {
                let changes = diff_resources(&masked(old), &masked(resource));
                let action = if changes.is_empty() {
                    Action::Unchanged
                } else {
                    Action::Update
                };
                (action, changes)
            }
        };
        let mut plan = plan_resource(stack, resource, action, changes, cluster);
        if let Some(old) = before.get(&resource.id) {
            plan.immutable = immutable_paths(old, &plan);
        }
        plans.push(plan);
    }
    // Resources that only the base has would be deleted. The documented rules of their kinds say what is lost.
    for resource in base.resources.iter().filter(|r| !after.contains_key(&r.id)) {
        let changes = vec![FieldChange::whole(Some(masked(resource)), None)];
        let mut plan = plan_resource(stack, resource, Action::Delete, changes, cluster);
        if resource.runtime == RuntimeKind::Kubernetes
            && let Some(loss) = object_rules::data_loss(&Value::Object(resource.attributes.clone()))
        {
            plan.data_loss = true;
            plan.notes.push(loss.to_owned());
        }
        plans.push(plan);
    }
    StackPlan::new(folder.clone(), stack.clone(), Basis::Spec, plans)
}

pub(super) fn plan_resource(
    stack: &StackId,
    resource: &Resource,
    action: Action,
    changes: Vec<FieldChange>,
    cluster: Option<&ClusterName>,
) -> ResourcePlan {
    let mut plan = ResourcePlan::new(stack, resource.id.clone(), resource.runtime, action, changes);
    plan.validated = Validation::None;
    if resource.runtime == RuntimeKind::Kubernetes {
        let own = resource.extensions.get("cluster").and_then(Value::as_str);
        plan.cluster = own
            .and_then(|name| name.parse().ok())
            .or_else(|| cluster.cloned());
    }
    plan
}

/// Returns the changed paths of an object that Kubernetes documents as immutable.
fn immutable_paths(old: &Resource, plan: &ResourcePlan) -> Vec<FieldPath> {
    if old.runtime != RuntimeKind::Kubernetes {
        return Vec::new();
    }
    let object = Value::Object(old.attributes.clone());
    let paths = plan.changes.iter().map(|change| change.path.clone());
    paths
        .filter(|path| object_rules::is_immutable(&object, path))
        .collect()
}

fn diff_resources(old: &Value, new: &Value) -> Vec<FieldChange> {
    let change = |found: diff::Difference| FieldChange {
        path: found.path,
        from: found.from,
        to: found.to,
        origin: ChangeOrigin::Change,
    };
    diff::differences(old, new).into_iter().map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use serde_json::json;

    fn spec(objects: &[Value]) -> Spec {
        let resource = |object: &Value| {
            Resource::new(
                format!(
                    "v1:{}:ns:{}",
                    object["kind"].as_str().unwrap(),
                    object["metadata"]["name"].as_str().unwrap()
                )
                .parse()
                .unwrap(),
                RuntimeKind::Kubernetes,
                object.as_object().unwrap().clone(),
            )
        };
        Spec {
            resources: objects.iter().map(resource).collect(),
            secret_stores: Vec::new(),
            outputs: serde_json::Map::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn published_rules_warn_where_no_server_was_asked() {
        let set = |name: &str| json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {"serviceName": name, "replicas": name.len()}});
        let claim =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}});
        let (base, head) = (spec(&[set("a"), claim]), spec(&[set("bb")]));
        let secrets = Secrets::new(HashKey::derive("k"));
        let stack = "a/b".parse().unwrap();
        let plan = plan_against_spec(
            &stack,
            &RepoPath::root(),
            ComparedSpecs {
                base: &base,
                head: &head,
            },
            None,
            SpecMask::for_readers(&secrets),
        );
        let [claim, set] = plan.resources.as_slice() else {
            panic!("{plan:?}")
        };
        assert_eq!((claim.action, claim.data_loss), (Action::Delete, true));
        assert_eq!(set.action, Action::Update);
        assert_eq!(set.immutable, ["/spec/serviceName"]);
        assert_eq!(set.changes.len(), 2);
    }

    #[test]
    fn two_specs_give_creates_updates_and_deletes_with_secrets_masked() {
        let object = |kind: &str, name: &str, data: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": data});
        let base = spec(&[
            object("ConfigMap", "same", json!({"a": "1"})),
            object("Secret", "s", json!({"p": "b2xkLXBhc3N3b3Jk", "q": "c2FtZQ=="})),
            object("ConfigMap", "gone", json!({})),
        ]);
        let head = spec(&[
            object("ConfigMap", "same", json!({"a": "1"})),
            object("Secret", "s", json!({"p": "bmV3LXBhc3N3b3Jk", "q": "c2FtZQ=="})),
            object("ConfigMap", "new", json!({})),
        ]);
        let secrets = Secrets::new(HashKey::derive("k"));
        let stack = "a/b".parse().unwrap();
        let plan = plan_against_spec(
            &stack,
            &RepoPath::root(),
            ComparedSpecs {
                base: &base,
                head: &head,
            },
            None,
            SpecMask::for_readers(&secrets),
        );
        let actions: Vec<_> = plan.resources.iter().map(|r| (r.id.as_str(), r.action)).collect();
        assert_eq!(
            actions,
            [
                ("v1:ConfigMap:ns:gone", Action::Delete),
                ("v1:ConfigMap:ns:new", Action::Create),
                ("v1:Secret:ns:s", Action::Update)
            ]
        );
        assert_eq!((plan.summary.unchanged, plan.summary.changed()), (1, 3));
        let update = &plan.resources[2];
        assert_eq!(update.changes.len(), 1);
        assert_eq!(update.changes[0].path, "/data/p");
        let text = serde_json::to_string(&plan).unwrap();
        assert!(
            !text.contains("bmV3LXBhc3N3b3Jk") && !text.contains("password"),
            "{text}"
        );
    }

    #[test]
    fn a_kubernetes_resource_is_on_its_own_cluster_or_on_that_of_the_stack() {
        let mut head =
            spec(&["a", "b", "c"].map(|name| json!({"kind": "ConfigMap", "metadata": {"name": name}})));
        head.resources[1]
            .extensions
            .insert("cluster".to_owned(), json!("east"));
        head.resources[2].runtime = RuntimeKind::Terraform;
        let (main, stack): (ClusterName, StackId) = ("main".parse().unwrap(), "a/b".parse().unwrap());
        let secrets = Secrets::new(HashKey::derive("k"));
        let base = spec(&[]);
        let plan = plan_against_spec(
            &stack,
            &RepoPath::root(),
            ComparedSpecs {
                base: &base,
                head: &head,
            },
            Some(&main),
            SpecMask::for_readers(&secrets),
        );
        let mut clusters: Vec<_> = plan
            .resources
            .iter()
            .map(|plan| (&plan.id, plan.cluster.as_ref()))
            .collect();
        clusters.sort();
        let clusters: Vec<_> = clusters
            .into_iter()
            .map(|(_, cluster)| cluster.map(ClusterName::as_str))
            .collect();
        assert_eq!(clusters, [Some("main"), Some("east"), None]);
    }

    #[test]
    fn what_generated_objects_leave_to_the_server_is_no_change() {
        let object = |extra: Value| {
            let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}});
            if extra == true {
                object["metadata"]["creationTimestamp"] = Value::Null;
                object["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
                object["status"] = json!({"loadBalancer": {}});
            }
            object
        };
        let secrets = Secrets::new(HashKey::derive("k"));
        let stack = "a/b".parse().unwrap();
        let (generated, written) = (spec(&[object(true.into())]), spec(&[object(false.into())]));
        let plan = plan_against_spec(
            &stack,
            &RepoPath::root(),
            ComparedSpecs {
                base: &spec(&[]),
                head: &generated,
            },
            None,
            SpecMask::for_readers(&secrets),
        );
        assert_eq!(plan.resources[0].changes[0].to, Some(object(false.into())));
        let plan = plan_against_spec(
            &stack,
            &RepoPath::root(),
            ComparedSpecs {
                base: &generated,
                head: &written,
            },
            None,
            SpecMask::for_readers(&secrets),
        );
        assert!(plan.resources.is_empty(), "{plan:?}");
    }
}
