//! The expressions of a ValidatingAdmissionPolicy, or of a Gatekeeper template in CEL, and their evaluation for one
//! request. The order is the API server's: match conditions, variables, validations, annotations of audit events.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Context, Env,
    common::types::{CelMapKey, Kind},
};
use serde::Deserialize;
use serde_json::Value;

use super::{admission_functions, admission_request::AdmissionRequest, rule::Severity};
use crate::{
    cel_counting::add_counting,
    cel_expression::{CelError, CelExpression, CostInput},
    cel_value::{shared_map, to_cel},
};

/// The longest text of a messageExpression, as in Kubernetes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// What an error of an expression means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(super) enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// A match condition or a variable.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamedText {
    pub name: String,
    pub expression: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ValidationText {
    pub expression: String,
    #[serde(default)]
    pub message: Option<String>,
    #[serde(default)]
    pub message_expression: Option<String>,
    /// The reason in the answer of the API server.
    #[serde(default, rename = "reason")]
    pub _reason: Option<String>,
}

/// An annotation of an audit event decides nothing, unless its expression fails.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AnnotationText {
    pub key: String,
    pub value_expression: String,
}

/// The expressions as they are written.
#[derive(Default)]
pub(super) struct AdmissionText {
    pub failure_policy: FailurePolicy,
    pub match_conditions: Vec<NamedText>,
    pub variables: Vec<NamedText>,
    pub validations: Vec<ValidationText>,
    pub audit_annotations: Vec<AnnotationText>,
}

/// The expressions of a policy.
pub(super) struct AdmissionCode {
    pub fails: FailurePolicy,
    conditions: Vec<(String, CelExpression)>,
    variables: Vec<(String, CelExpression)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, CelExpression)>,
}

struct Validation {
    source: String,
    expression: CelExpression,
    message: Option<String>,
    message_expression: Option<CelExpression>,
}

impl AdmissionCode {
    /// Compiles the expressions.
    ///
    /// # Errors
    /// One is not CEL, is too large, or calls a function that is not known here.
    pub fn compile(text: AdmissionText, env: &Env) -> Result<Self, String> {
        let compile = |source: &str| admission_functions::compile_of_policy(source, env);
        let named = |list: Vec<NamedText>| -> Result<Vec<_>, String> {
            let compiled = list.into_iter().map(|one| {
                let expression = compile(&one.expression).map_err(|why| format!("`{}`: {why}", one.name))?;
                Ok((one.name, expression))
            });
            compiled.collect()
        };
        let validations = text.validations.into_iter().map(|validation| {
            let message_expression = validation.message_expression.as_deref().map(compile);
            Ok(Validation {
                expression: compile(&validation.expression)
                    .map_err(|why| format!("`{}`: {why}", validation.expression))?,
                source: validation.expression,
                message: validation.message,
                message_expression: message_expression.transpose()?,
            })
        });
        let annotations = text.audit_annotations.into_iter().map(|annotation| {
            let compiled = compile(&annotation.value_expression);
            let compiled = compiled.map_err(|why| format!("`auditAnnotations` {}: {why}", annotation.key))?;
            Ok((annotation.value_expression, compiled))
        });
        Ok(Self {
            fails: text.failure_policy,
            conditions: named(text.match_conditions)?,
            variables: named(text.variables)?,
            validations: validations.collect::<Result<_, String>>()?,
            annotations: annotations.collect::<Result<_, String>>()?,
        })
    }
}

/// The functions that expressions call: made once for a set.
pub(super) struct AdmissionLibrary {
    root: Context<'static, 'static>,
}

impl AdmissionLibrary {
    /// The functions of an environment.
    pub fn new(env: &Arc<Env>) -> Self {
        let mut root = Context::with_env(Arc::clone(env));
        admission_functions::add(&mut root);
        add_counting(&mut root);
        Self { root }
    }
}

/// The variables of one request, for all policies.
pub(super) struct RequestVariables<'r> {
    context: Context<'r, 'r>,
    extent: CostInput,
}

impl<'r> RequestVariables<'r> {
    /// The variables for a request. `about` is its variable `request`.
    pub fn new(
        library: &'r AdmissionLibrary,
        request: &AdmissionRequest<'r>,
        about: &'r Value,
        namespace: Option<&'r Value>,
    ) -> Self {
        let root: &Context<'r, 'r> = &library.root;
        let mut context = root.new_inner_scope();
        let values = [
            ("object", request.object.unwrap_or(&Value::Null)),
            ("oldObject", request.old_object.unwrap_or(&Value::Null)),
            ("namespaceObject", namespace.unwrap_or(&Value::Null)),
            ("request", about),
        ];
        let mut extent = CostInput::default();
        for (name, value) in values {
            extent = extent.and(value);
            context.add_variable_as_val(name, to_cel(value));
        }
        Self { context, extent }
    }

    /// The denials and warnings of a policy with a parameter.
    pub fn judge(
        &self,
        policy: &AdmissionCode,
        params: &Value,
        severity: Severity,
    ) -> Vec<(Severity, String)> {
        let outer: &Context<'_, '_> = &self.context;
        let mut context = outer.new_inner_scope();
        context.add_variable_as_val("params", to_cel(params));
        let evaluation = Evaluation {
            context,
            extent: self.extent.and(params),
        };
        evaluation.judge(policy, severity)
    }
}

/// The evaluation of a policy for one request and one parameter.
struct Evaluation<'p, 'v> {
    context: Context<'p, 'v>,
    extent: CostInput,
}

impl Evaluation<'_, '_> {
    fn judge(mut self, policy: &AdmissionCode, severity: Severity) -> Vec<(Severity, String)> {
        let mut failed = None;
        for (name, condition) in &policy.conditions {
            match condition.holds(&self.context, self.extent) {
                Ok(true) => {}
                Ok(false) => return Vec::new(),
                Err(error) => failed = failed.or_else(|| Some(format!("matchCondition {name}: {error}"))),
            }
        }
        if let Some(text) = failed {
            return failure(policy.fails, severity, &text).into_iter().collect();
        }
        // A variable whose expression fails is absent: whatever reads it fails, as in Kubernetes.
        let mut values = HashMap::new();
        for (name, expression) in &policy.variables {
            self.context
                .add_variable_as_val("variables", shared_map(values.clone()));
            if let Ok(value) = expression.evaluate(&self.context, self.extent) {
                values.insert(CelMapKey::from(name.as_str().to_owned()), value);
            }
        }
        self.context.add_variable_as_val("variables", shared_map(values));
        let mut found = Vec::new();
        for validation in &policy.validations {
            match validation.expression.holds(&self.context, self.extent) {
                Ok(true) => {}
                Ok(false) => found.push((severity, self.message(validation))),
                Err(error) => {
                    let text = format!("expression '{}' resulted in error: {error}", validation.source);
                    match (policy.fails, error) {
                        // What is missing here may be what the server fills in, or a limit of this evaluation.
                        (FailurePolicy::Ignore, CelError::Other(_)) => found.push((severity, text)),
                        (fails, _) => found.extend(failure(fails, severity, &text)),
                    }
                }
            }
        }
        for (source, annotation) in &policy.annotations {
            let text = match annotation.evaluate(&self.context, self.extent) {
                Ok(value) if matches!(value.get_type().kind(), Kind::String | Kind::NullType) => continue,
                Ok(other) => format!("it gives {}, not a text or null", other.get_type().name()),
                Err(error) => error.to_string(),
            };
            // As in Kubernetes, the binding's actions do not count here.
            let text = format!("valueExpression '{source}' resulted in error: {text}");
            found.extend(failure(policy.fails, Severity::Deny, &text));
        }
        found
    }

    /// The message, as Kubernetes chooses it.
    fn message(&self, validation: &Validation) -> String {
        let expression = validation.message_expression.as_ref();
        let text = expression.and_then(|expression| expression.text(&self.context, self.extent).ok()?);
        if let Some(text) = text {
            let text = text.trim();
            if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        match &validation.message {
            Some(message) if !message.trim().is_empty() => message.trim().to_owned(),
            _ => format!("failed expression: {}", validation.source.trim()),
        }
    }
}

/// An error under a failure policy: `Ignore` lets it pass, which is shown.
fn failure(fails: FailurePolicy, severity: Severity, text: &str) -> Option<(Severity, String)> {
    match fails {
        FailurePolicy::Fail => Some((severity, text.to_owned())),
        FailurePolicy::Ignore => Some((
            Severity::Warn,
            format!("passes because of `failurePolicy: Ignore`: {text}"),
        )),
    }
}
