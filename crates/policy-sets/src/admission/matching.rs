//! Decides if a policy or a binding matches a request, as an API server does. Some facts are unknown before the
//! apply, such as the labels of a Namespace or the plural of a kind. Without them the result is
//! [`Selected::Unknown`], which never passes a request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::request::{AdmissionRequest, Namespaces, Operation};

/// The result of matching a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selected {
    Yes,
    No,
    /// The match cannot be decided before the apply, for this reason.
    Unknown(String),
}

/// The `matchConstraints` of a policy, or the `matchResources` of a binding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct MatchResources {
    pub namespace_selector: Option<LabelSelector>,
    pub object_selector: Option<LabelSelector>,
    pub resource_rules: Vec<ResourceRule>,
    pub exclude_resource_rules: Vec<ResourceRule>,
    pub match_policy: Option<MatchPolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum MatchPolicy {
    Exact,
    Equivalent,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ResourceRule {
    pub api_groups: Vec<String>,
    pub api_versions: Vec<String>,
    pub operations: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub scope: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct LabelSelector {
    pub match_labels: BTreeMap<String, String>,
    pub match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requirement {
    pub key: String,
    pub operator: Operator,
    #[serde(default)]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selected {
    /// Creates a decided result.
    pub(crate) fn from_bool(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            unknown @ Self::Unknown(_) => unknown,
        }
    }

    /// Combines two results of which both must match.
    pub(crate) fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::No => Self::No,
            Self::Yes => other(),
            unknown @ Self::Unknown(_) => match other() {
                Self::No => Self::No,
                _ => unknown,
            },
        }
    }

    /// Combines two results of which one must match.
    pub(crate) fn or(self, other: impl FnOnce() -> Self) -> Self {
        self.not().and(|| other().not()).not()
    }
}

impl MatchResources {
    /// Returns true if labels of the object decide.
    pub(super) fn reads_labels(&self) -> bool {
        self.object_selector
            .as_ref()
            .is_some_and(|selector| !selector.is_empty())
    }

    /// Decides if a request matches.
    pub(crate) fn selects(&self, request: &AdmissionRequest<'_>, namespaces: &Namespaces) -> Selected {
        let excluded = || self.any_rule(&self.exclude_resource_rules, request).not();
        let ruled = || {
            if self.resource_rules.is_empty() {
                Selected::Yes
            } else {
                self.any_rule(&self.resource_rules, request)
            }
        };
        self.by_namespace(request, namespaces)
            .and(|| self.by_object(request))
            .and(excluded)
            .and(ruled)
    }

    fn any_rule(&self, rules: &[ResourceRule], request: &AdmissionRequest<'_>) -> Selected {
        let exact = self.match_policy == Some(MatchPolicy::Exact);
        let rules = rules.iter().map(|rule| rule.selects(request, exact));
        rules.fold(Selected::No, |any, one| any.or(|| one))
    }

    fn by_namespace(&self, request: &AdmissionRequest<'_>, namespaces: &Namespaces) -> Selected {
        let selector = self.namespace_selector.as_ref();
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            return Selected::Yes;
        };
        match &request.namespace {
            None => Selected::Yes,
            Some(_) if request.is_namespace() && request.operation != Operation::Delete => {
                Selected::from_bool(selector.selects(request.object))
            }
            Some(namespace) => selector.selects_namespace(namespace, namespaces),
        }
    }

    fn by_object(&self, request: &AdmissionRequest<'_>) -> Selected {
        let selector = self.object_selector.as_ref();
        let Some(selector) = selector.filter(|selector| !selector.is_empty()) else {
            return Selected::Yes;
        };
        let mut objects = [request.object, request.old_object].into_iter().flatten();
        Selected::from_bool(objects.any(|object| selector.selects(Some(object))))
    }
}

impl ResourceRule {
    fn selects(&self, request: &AdmissionRequest<'_>, exact: bool) -> Selected {
        let names = |list: &[String], value: &str| list.iter().any(|item| item == "*" || item == value);
        let certain = names(&self.operations, request.operation.word())
            && (self.resource_names.is_empty() || self.resource_names.contains(&request.name))
            && self.has_scope(request)
            && names(&self.api_groups, &request.group);
        if !certain {
            // `matchPolicy: Equivalent` changes nothing here: each built-in resource is in one group only.
            return Selected::No;
        }
        let version = if names(&self.api_versions, &request.version) {
            Selected::Yes
        } else if exact {
            Selected::No
        } else {
            Selected::Unknown(format!(
                "it selects other versions of {} than {}, which the API server converts",
                request.kind, request.version
            ))
        };
        self.names_resource(request).and(|| version)
    }

    fn names_resource(&self, request: &AdmissionRequest<'_>) -> Selected {
        let names = self.resources.iter().map(|resource| {
            let (name, sub) = resource.split_once('/').unwrap_or((resource, ""));
            (name, sub)
        });
        let mut own = names
            .filter(|(_, sub)| sub.is_empty() || *sub == "*")
            .map(|(name, _)| name);
        match &request.plural {
            Some(plural) => Selected::from_bool(own.any(|name| name == "*" || name == plural)),
            None => {
                let names: Vec<_> = own.collect();
                if names.contains(&"*") {
                    Selected::Yes
                } else {
                    Selected::Unknown(format!(
                        "the plural of {} in {} is unknown: add its CustomResourceDefinition to the set",
                        request.kind, request.group
                    ))
                }
            }
        }
    }

    fn has_scope(&self, request: &AdmissionRequest<'_>) -> bool {
        let namespaced = request.namespace.is_some() && !request.is_namespace();
        match self.scope.as_deref() {
            None | Some("*") => true,
            Some("Namespaced") => namespaced,
            Some(_) => !namespaced,
        }
    }
}

impl LabelSelector {
    /// Returns true if the selector has no condition and so matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Decides if a Namespace, given by its name, matches.
    pub(crate) fn selects_namespace(&self, namespace: &str, namespaces: &Namespaces) -> Selected {
        match namespaces.get(namespace) {
            Some(object) => Selected::from_bool(self.selects(Some(object))),
            // The API server sets this label on each Namespace, so it is known without the object.
            None if self.keys().all(|key| key == "kubernetes.io/metadata.name") => {
                let metadata =
                    serde_json::json!({"metadata": {"labels": {"kubernetes.io/metadata.name": namespace}}});
                Selected::from_bool(self.selects(Some(&metadata)))
            }
            None => Selected::Unknown(format!(
                "it selects by the labels of Namespace {namespace}, which is not part of the stack"
            )),
        }
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        let expressions = self.match_expressions.iter().map(|one| one.key.as_str());
        self.match_labels.keys().map(String::as_str).chain(expressions)
    }

    /// Returns true if the labels of an object match.
    pub(crate) fn selects(&self, object: Option<&Value>) -> bool {
        let labels = object.map(|object| &object["metadata"]["labels"]);
        let label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        let mut wanted = self.match_labels.iter();
        let mut expressions = self.match_expressions.iter();
        wanted.all(|(key, value)| label(key) == Some(value))
            && expressions.all(|one| match (one.operator, label(&one.key)) {
                (Operator::In, Some(value)) => one.values.iter().any(|known| known == value),
                (Operator::NotIn, Some(value)) => !one.values.iter().any(|known| known == value),
                (Operator::Exists, value) => value.is_some(),
                (Operator::DoesNotExist, value) => value.is_none(),
                (Operator::In, None) => false,
                (Operator::NotIn, None) => true,
            })
    }
}

#[cfg(test)]
#[path = "matching_tests.rs"]
mod tests;
