//! ValidatingAdmissionPolicies and their bindings in the form of their YAML.

use cel::Env;
use serde::Deserialize;
use serde_json::Value;

use super::{
    code::{AdmissionCode, ParamKind, PolicySpec},
    matching::{LabelSelector, MatchResources},
    policy_objects::ClusterReads,
};
use crate::{possible_reads::Mentions, rule::Severity};

/// Names in an expression for values that only the API server has.
const UNKNOWN_WORDS: [&str; 4] = ["authorizer", "userInfo", "options", "dryRun"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BindingSpec {
    policy_name: String,
    param_ref: Option<ParamRef>,
    match_resources: Option<MatchResources>,
    validation_actions: Vec<Action>,
}

/// A binding's reference to its parameters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ParamRef {
    pub name: Option<String>,
    pub namespace: Option<String>,
    pub selector: Option<LabelSelector>,
    pub parameter_not_found_action: Option<NotFound>,
}

/// The `parameterNotFoundAction` of a binding: what happens to a request if the parameters are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum NotFound {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Action {
    Deny,
    Warn,
    Audit,
}

/// A policy with its bindings.
pub(super) struct AdmissionPolicy {
    pub name: String,
    pub constraints: MatchResources,
    pub param_kind: Option<ParamKind>,
    pub code: AdmissionCode,
    pub mentions: Mentions,
    pub reads: ClusterReads,
    pub bindings: Vec<Binding>,
}

/// A binding of a policy.
pub(super) struct Binding {
    pub name: String,
    pub resources: MatchResources,
    pub params: Option<ParamRef>,
    pub severity: Severity,
}

impl AdmissionPolicy {
    /// Returns the name of the rule in findings, for a policy and one of its bindings.
    pub(super) fn rule(&self, binding: &Binding) -> String {
        format!("{}:{}", self.name, binding.name)
    }

    /// Parses a policy without its bindings.
    ///
    /// # Errors
    /// Another form than that of a policy, or an expression that cannot be compiled.
    pub(super) fn load(name: &str, spec: &Value, env: &Env) -> Result<Self, String> {
        let mut mentions = Mentions::default();
        mentions.add_texts(spec);
        let mut spec: PolicySpec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        Ok(Self {
            name: name.to_owned(),
            constraints: std::mem::take(&mut spec.match_constraints),
            param_kind: spec.param_kind.take(),
            code: AdmissionCode::compile(spec, env)?,
            reads: ClusterReads::of(&mentions, &UNKNOWN_WORDS),
            mentions,
            bindings: Vec::new(),
        })
    }
}

impl Binding {
    /// Parses a binding. Returns it with the name of its policy.
    ///
    /// # Errors
    /// Another form than that of a binding.
    pub(super) fn load(name: String, spec: &Value) -> Result<(String, Self), String> {
        let spec: BindingSpec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        let severity = if spec.validation_actions.contains(&Action::Deny) {
            Severity::Deny
        } else {
            Severity::Warn
        };
        let binding = Self {
            name,
            resources: spec.match_resources.unwrap_or_default(),
            params: spec.param_ref,
            severity,
        };
        Ok((spec.policy_name, binding))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes_cel::environment;
    use konverge_base::model::spec::RuntimeKind;

    #[test]
    fn a_word_behind_a_line_break_or_a_quote_is_a_word() {
        let expression = "object.\nimage == \"x\" || object.\timages == 'y'";
        let spec = json!({"matchConstraints": {}, "validations": [{"expression": expression}]});
        let policy = AdmissionPolicy::load("p", &spec, &environment()).unwrap();
        for path in ["/image", "/images"] {
            assert!(
                policy.mentions.may_read(RuntimeKind::Kubernetes, &path.into()),
                "{path}"
            );
        }
        assert!(
            !policy
                .mentions
                .may_read(RuntimeKind::Kubernetes, &"/other".into())
        );
    }
}
