//! The related objects that a health evaluation reads.

use std::collections::BTreeSet;

use jiff::Timestamp;
use konverge_base::model::GroupKind;
use serde_json::Value;

use super::object_view::ObjectView;

/// The related objects. All lists may be empty, and may contain objects that belong to other objects.
#[derive(Debug, Clone, Default)]
pub struct Related {
    /// The pods of the object's namespace.
    pub pods: Vec<Value>,
    /// The replica sets of the object's namespace.
    pub replica_sets: Vec<Value>,
    /// The events (`v1` or `events.k8s.io/v1`) of the object's namespace.
    pub events: Vec<Value>,
    /// The cluster's StorageClasses.
    pub storage_classes: Vec<Value>,
    /// The runs of KusionStack's Rollouts in the namespace; `None` if they were not read.
    pub rollout_runs: Option<Vec<Value>>,
    /// The kinds (group, kind) with a `status` that a controller writes.
    pub reporting: BTreeSet<(String, String)>,
    /// The current time; `None` to use the system clock.
    pub now: Option<Timestamp>,
}

impl Related {
    pub(super) fn now(&self) -> Timestamp {
        self.now.unwrap_or_else(Timestamp::now)
    }

    /// Adds pods from an earlier reading: a failing Job deletes its running pods, and with them the cause of
    /// its failure.
    pub fn remember(&mut self, earlier: &Self) {
        let key = |pod: &Value| ["namespace", "name"].map(|key| pod["metadata"][key].clone());
        let mut gone = earlier.pods.clone();
        gone.retain(|pod| self.pods.iter().all(|now| key(now) != key(pod)));
        self.pods.extend(gone);
    }

    pub(super) fn reports_status(&self, object: &ObjectView) -> bool {
        let GroupKind { group, kind } = object.group_kind();
        let key = (group.to_owned(), kind.to_owned());
        self.reporting.contains(&key)
    }

    /// Returns the replica sets that a Deployment controls.
    pub(super) fn replica_sets_of<'a>(&'a self, deployment: &ObjectView<'a>) -> Vec<ObjectView<'a>> {
        let owned = self.replica_sets.iter().map(ObjectView);
        owned.filter(|set| controls(deployment, set)).collect()
    }

    /// Returns the pods that an object controls. For a Deployment these are the pods of its newest revision,
    /// if that is known.
    pub(super) fn pods_of<'a>(&'a self, owner: &ObjectView<'a>) -> Vec<ObjectView<'a>> {
        let pods = self.pods.iter().map(ObjectView);
        if owner.group_kind() != GroupKind::DEPLOYMENT {
            return pods.filter(|pod| controls(owner, pod)).collect();
        }
        const REVISION: &str = "/metadata/annotations/deployment.kubernetes.io~1revision";
        let sets = self.replica_sets_of(owner);
        let newest = sets
            .iter()
            .filter(|set| set.text(REVISION) == owner.text(REVISION));
        let newest: Vec<_> = newest.collect();
        let is_ours = |pod: &ObjectView| newest.iter().any(|set| controls(set, pod));
        pods.filter(is_ours).collect()
    }

    /// Returns the events about an object, in the given order.
    pub(super) fn events_of<'a>(&'a self, object: &ObjectView<'a>) -> impl Iterator<Item = ObjectView<'a>> {
        let object = *object;
        self.events.iter().map(ObjectView).filter(move |event| {
            let about = |prefix: &str| {
                let same = |field: &str, of: &str| event.text(&format!("{prefix}/{field}")) == of;
                let uid = event.text(&format!("{prefix}/uid"));
                let known = !uid.is_empty() && !object.text("/metadata/uid").is_empty();
                refers_to(
                    event.text(&format!("{prefix}/apiVersion")),
                    event.text(&format!("{prefix}/kind")),
                    &object,
                ) && same("name", object.name())
                    && same("namespace", object.text("/metadata/namespace"))
                    && (!known || uid == object.text("/metadata/uid"))
            };
            about("/involvedObject") || about("/regarding")
        })
    }
}

/// Returns true if a reference is to the kind of an object. Some writers of events omit `apiVersion`.
fn refers_to(api_version: &str, kind: &str, object: &ObjectView) -> bool {
    let of = object.group_kind();
    kind == of.kind && (api_version.is_empty() || GroupKind::from_api_version(api_version, kind) == of)
}

/// Returns true if `owner` is the controller of `object`: by uid if both have one, or else by kind and name.
pub(super) fn controls(owner: &ObjectView, object: &ObjectView) -> bool {
    let uid = owner.text("/metadata/uid");
    owner.text("/metadata/namespace") == object.text("/metadata/namespace")
        && object.list("/metadata/ownerReferences").any(|reference| {
            let by_name = refers_to(reference.text("/apiVersion"), reference.text("/kind"), owner)
                && reference.text("/name") == owner.name();
            reference.flag("/controller")
                && by_name
                && (uid.is_empty() || reference.text("/uid").is_empty() || reference.text("/uid") == uid)
        })
}
