//! Which kinds have a namespace. Konverge writes a namespaced object without one into `default`; other tools would use
//! the namespace of their own release.

use std::collections::HashMap;

use serde_json::{Map, Value};

use konverge_base::model::{GroupKind, built_in_groups, spec::Resource};

/// The scopes of the kinds of a Spec: Kubernetes' own, and those that the Spec defines.
pub(crate) struct KindScopes<'a>(HashMap<GroupKind<'a>, bool>);

/// A text at a path of an object; empty if there is none.
pub(crate) fn text<'a>(body: &'a Map<String, Value>, path: &[&str]) -> &'a str {
    let (first, rest) = path.split_first().expect("a path has a key");
    let value = body.get(*first);
    let value = rest.iter().try_fold(value, |value, key| Some(value?.get(*key)));
    value.flatten().and_then(Value::as_str).unwrap_or_default()
}

impl<'a> KindScopes<'a> {
    pub(crate) fn new(resources: &[&'a Resource]) -> Self {
        let bodies = resources.iter().map(|resource| &resource.attributes);
        let kinds = bodies.filter_map(|body| {
            let is_namespaced = text(body, &["spec", "scope"]) != "Cluster";
            Some((GroupKind::defined_by(body)?, is_namespaced))
        });
        Self(kinds.collect())
    }

    /// Gives a namespaced object the namespace `default` if it has none, and takes that of a cluster-scoped one away.
    /// Returns false if the scope of the kind is not known.
    pub(crate) fn set_namespace(&self, body: &mut Map<String, Value>) -> bool {
        let kind = GroupKind::from_attributes(body);
        let own = self.0.get(&kind).copied();
        let Some(is_namespaced) = own.or_else(|| built_in_groups::is_namespaced(kind)) else {
            return !text(body, &["metadata", "namespace"]).is_empty();
        };
        let is_missing = text(body, &["metadata", "namespace"]).is_empty();
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            if is_namespaced {
                if is_missing {
                    drop(metadata.insert("namespace".to_owned(), "default".into()))
                }
            } else {
                drop(metadata.shift_remove("namespace"))
            }
        }
        true
    }
}
