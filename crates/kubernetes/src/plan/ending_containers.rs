//! The Namespaces and CustomResourceDefinitions of a plan that are being deleted. Their objects will be
//! deleted with them, even those that still look unchanged.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::super::{
    api::json_ref::JsonRef,
    object::{fetch::RawObject, object_ref, plan_item::PlanItem},
};
use konverge_base::model::{ClusterName, GroupKind};

/// Containers of objects that are being deleted with their content.
#[derive(Default)]
pub(super) struct EndingContainers {
    ending: HashSet<Container>,
    /// Containers that an earlier batch of the plan creates. An existing object in one of these belongs to a
    /// former container of the same name, which is still being deleted.
    created: HashSet<Container>,
}

#[derive(PartialEq, Eq, Hash)]
enum Container {
    Namespace(ClusterName, String),
    /// A CustomResourceDefinition, by cluster, group and kind.
    Definition(ClusterName, String, String),
}

impl EndingContainers {
    /// Finds the Namespaces and CRDs that are being deleted among the live objects of a plan.
    pub(super) fn from_live(subjects: &[Option<&PlanItem>], found: &[Option<RawObject>]) -> Self {
        let both = subjects.iter().zip(found);
        let live = both.filter_map(|(subject, raw)| Some((subject.as_ref()?, raw.as_ref()?)));
        Self {
            ending: live
                .filter_map(|(subject, raw)| container(subject, raw))
                .collect(),
            created: HashSet::new(),
        }
    }

    /// Adds an object that an earlier batch of the plan creates, if it is a container.
    pub(super) fn add_created(&mut self, cluster: &ClusterName, object: &Map<String, Value>) {
        let definition = GroupKind::defined_by(object)
            .map(|of| Container::Definition(cluster.clone(), of.group.to_owned(), of.kind.to_owned()));
        let is_namespace = GroupKind::from_attributes(object) == GroupKind::NAMESPACE;
        let name = || object_ref::metadata(object, "name").to_owned();
        let namespace = is_namespace.then(|| Container::Namespace(cluster.clone(), name()));
        self.created.extend(definition.or(namespace));
    }

    /// Returns "Namespace" or "CustomResourceDefinition" if that of the object is being deleted, for a message.
    pub(super) fn around(&self, subject: &PlanItem, is_there: bool) -> Option<&'static str> {
        if self.ending.is_empty() && self.created.is_empty() {
            return None;
        }
        let (cluster, name) = (&subject.cluster.api.name, &subject.name);
        let namespace = Container::Namespace(cluster.clone(), name.namespace.clone());
        let definition = Container::Definition(cluster.clone(), name.group.clone(), name.kind.clone());
        let goes = |container: &Container| {
            self.ending.contains(container) || (is_there && self.created.contains(container))
        };
        let word = |container, word| goes(&container).then_some(word);
        word(namespace, "Namespace").or_else(|| word(definition, "CustomResourceDefinition"))
    }
}

/// Returns the container that a live object is, if it is being deleted.
fn container(subject: &PlanItem, raw: &RawObject) -> Option<Container> {
    let name = &subject.name;
    let kind = name.group_kind();
    if !matches!(kind, GroupKind::NAMESPACE | GroupKind::CUSTOM_RESOURCE_DEFINITION) {
        return None;
    }
    let live = raw.parse()?;
    live.get("metadata")?.get("deletionTimestamp")?;
    let cluster = subject.cluster.api.name.clone();
    if kind == GroupKind::NAMESPACE {
        return Some(Container::Namespace(cluster, name.name.clone()));
    }
    let spec = live.get("spec")?;
    let text = |value: Option<&JsonRef<'_>>| Some(value?.text().to_owned());
    let kind = text(spec.get("names")?.get("kind"))?;
    Some(Container::Definition(cluster, text(spec.get("group"))?, kind))
}
