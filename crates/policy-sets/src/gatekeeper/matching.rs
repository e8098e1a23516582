//! Matches objects with the `spec.match` of a Gatekeeper constraint. All criteria that are set must match the new
//! object, or all of them the old object.

use serde::Deserialize;
use serde_json::Value;

use crate::admission::{
    matching::{LabelSelector, Selected},
    request::{AdmissionRequest, Namespaces},
};

/// The `spec.match` of a constraint.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct ConstraintMatch {
    kinds: Vec<Kinds>,
    namespaces: Vec<String>,
    excluded_namespaces: Vec<String>,
    pub label_selector: Option<LabelSelector>,
    namespace_selector: Option<LabelSelector>,
    scope: Option<String>,
    name: String,
    source: Source,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Kinds {
    api_groups: Vec<String>,
    kinds: Vec<String>,
}

/// The `source` criterion. Gatekeeper can also check objects that a controller would generate, such as the Pods of
/// a Deployment; this evaluation does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum Source {
    #[default]
    All,
    Original,
    Generated,
}

impl ConstraintMatch {
    /// Decides if a request matches.
    pub(super) fn selects(&self, request: &AdmissionRequest<'_>, namespaces: &Namespaces) -> Selected {
        let objects = [request.object, request.old_object].into_iter().flatten();
        objects.fold(Selected::No, |any, object| {
            any.or(|| self.selects_object(request, object, namespaces))
        })
    }

    fn selects_object(
        &self,
        request: &AdmissionRequest<'_>,
        object: &Value,
        namespaces: &Namespaces,
    ) -> Selected {
        let namespace = request.namespace.as_deref();
        let in_namespace = namespace.filter(|_| !request.is_namespace());
        let any = |list: &[String], name: &str| list.iter().any(|glob| matches_glob(glob, name));
        let has = |list: &[String], name: &str| {
            list.is_empty() || list.iter().any(|item| item == "*" || item == name)
        };
        let of_kind = self.kinds.is_empty()
            || self
                .kinds
                .iter()
                .any(|rule| has(&rule.kinds, &request.kind) && has(&rule.api_groups, &request.group));
        let in_scope = match self.scope.as_deref() {
            Some("Cluster") => in_namespace.is_none(),
            Some("Namespaced") => in_namespace.is_some(),
            _ => true,
        };
        let in_namespaces =
            self.namespaces.is_empty() || namespace.is_none_or(|name| any(&self.namespaces, name));
        let excluded = namespace.is_some_and(|name| any(&self.excluded_namespaces, name));
        let labelled = self
            .label_selector
            .as_ref()
            .is_none_or(|selector| selector.selects(Some(object)));
        let certain = of_kind
            && in_scope
            && in_namespaces
            && !excluded
            && labelled
            && self.has_name(object, &request.name)
            && self.source != Source::Generated;
        Selected::from_bool(certain).and(|| match (&self.namespace_selector, in_namespace) {
            (None, _) => Selected::Yes,
            (Some(selector), Some(name)) => selector.selects_namespace(name, namespaces),
            (Some(selector), None) if request.is_namespace() => {
                Selected::from_bool(selector.selects(Some(object)))
            }
            (Some(_), None) => Selected::Yes,
        })
    }

    fn has_name(&self, object: &Value, name: &str) -> bool {
        let generated = object["metadata"]["generateName"].as_str();
        self.name.is_empty()
            || matches_glob(&self.name, name)
            || self.name.ends_with('*') && generated.is_some_and(|name| matches_glob(&self.name, name))
    }
}

/// Matches a name with a pattern. A `*` at the beginning or the end means any text; elsewhere it has no meaning.
fn matches_glob(glob: &str, name: &str) -> bool {
    match (glob.strip_prefix('*'), glob.strip_suffix('*')) {
        (Some(rest), Some(_)) => name.contains(rest.strip_suffix('*').unwrap_or(rest)),
        (Some(end), None) => name.ends_with(end),
        (None, Some(start)) => name.starts_with(start),
        (None, None) => name == glob,
    }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
