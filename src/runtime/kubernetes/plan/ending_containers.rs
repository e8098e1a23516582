//! The Namespaces and CustomResourceDefinitions of a plan that are being deleted. Every object inside goes with them,
//! also one that still looks untouched.

use std::collections::HashSet;

use super::super::{
    api::json_ref::JsonRef,
    object::{fetch::RawObject, plan_item::PlanItem},
};
use crate::model::ClusterName;

/// What is being deleted with everything inside.
#[derive(Default)]
pub(super) struct EndingContainers(HashSet<Container>);

#[derive(PartialEq, Eq, Hash)]
enum Container {
    Namespace(ClusterName, String),
    /// By group and kind.
    Definition(ClusterName, String, String),
}

impl EndingContainers {
    /// From the live objects of a plan.
    pub fn from_live(subjects: &[Option<&PlanItem>], found: &[Option<RawObject>]) -> Self {
        let both = subjects.iter().zip(found);
        let live = both.filter_map(|(subject, raw)| Some((subject.as_ref()?, raw.as_ref()?)));
        Self(
            live.filter_map(|(subject, raw)| container(subject, raw))
                .collect(),
        )
    }

    /// What holds an object and is being deleted, as a word for a message.
    pub fn around(&self, subject: &PlanItem) -> Option<&'static str> {
        if self.0.is_empty() {
            return None;
        }
        let (cluster, name) = (&subject.cluster.api.name, &subject.name);
        let namespace = Container::Namespace(cluster.clone(), name.namespace.clone());
        let definition = Container::Definition(cluster.clone(), name.group.clone(), name.kind.clone());
        let word = |container, word| self.0.contains(&container).then_some(word);
        word(namespace, "Namespace").or_else(|| word(definition, "CustomResourceDefinition"))
    }
}

/// The container that a live object is, if it is being deleted.
fn container(subject: &PlanItem, raw: &RawObject) -> Option<Container> {
    let name = &subject.name;
    if !matches!(
        (&*name.group, &*name.kind),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    ) {
        return None;
    }
    let live = raw.parse()?;
    live.get("metadata")?.get("deletionTimestamp")?;
    let cluster = subject.cluster.api.name.clone();
    if name.kind == "Namespace" {
        return Some(Container::Namespace(cluster, name.name.clone()));
    }
    let spec = live.get("spec")?;
    let text = |value: Option<&JsonRef<'_>>| Some(value?.text().to_owned());
    let kind = text(spec.get("names")?.get("kind"))?;
    Some(Container::Definition(cluster, text(spec.get("group"))?, kind))
}
