//! The expressions of a ValidatingAdmissionPolicy, or of a Gatekeeper template in CEL, and their evaluation for one
//! request. The order is the API server's: match conditions, variables, validations, annotations of audit events.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Context, Env,
    common::types::{CelMapKey, Kind},
};
use serde::Deserialize;
use serde_json::Value;

use super::{matching::MatchResources, request::AdmissionRequest};
use crate::{
    kubernetes_cel::{
        self,
        conjuncts::{self, Conjunct},
    },
    possible_reads::Mentions,
    rule::Severity,
};
use konverge_cel::{
    cel_expression::{CelError, CelExpression},
    cel_value::{shared_map, to_cel},
};

/// The maximum length of the text of a `messageExpression` in bytes, as in Kubernetes.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The consequence of an error in an expression: the request is denied, or the error is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub(crate) enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

/// A match condition or a variable, with its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedText {
    pub name: String,
    pub expression: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ValidationText {
    pub expression: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    /// The reason in the API server's response. It decides nothing here.
    #[serde(default, rename = "reason")]
    pub _reason: Option<String>,
}

/// An annotation of an audit event. It decides nothing, unless its expression fails.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AnnotationText {
    pub key: String,
    pub value_expression: String,
}

/// The kind of a policy's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ParamKind {
    pub api_version: String,
    pub kind: String,
}

/// The `spec` of a policy, before its expressions are compiled.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PolicySpec {
    pub param_kind: Option<ParamKind>,
    pub match_constraints: MatchResources,
    #[serde(default)]
    pub validations: Vec<ValidationText>,
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    #[serde(default)]
    pub match_conditions: Vec<NamedText>,
    #[serde(default)]
    pub variables: Vec<NamedText>,
    #[serde(default)]
    pub audit_annotations: Vec<AnnotationText>,
}

/// The compiled expressions of a policy.
pub(crate) struct AdmissionCode {
    pub fails: FailurePolicy,
    conditions: Vec<(String, CelExpression)>,
    /// The words in the match conditions, from which follows what the conditions may read.
    condition_mentions: Mentions,
    variables: Vec<(String, CelExpression)>,
    validations: Vec<Validation>,
    annotations: Vec<(String, CelExpression)>,
}

struct Validation {
    source: String,
    expression: CelExpression,
    message: Option<String>,
    message_expression: Option<CelExpression>,
    /// The operands of the expression's `&&`, each with the words that the operand and its variables contain.
    conjuncts: Vec<Conjunct>,
    message_mentions: Mentions,
}

impl AdmissionCode {
    /// Compiles the expressions.
    ///
    /// # Errors
    /// An expression that is not CEL, is too large, or calls an unsupported function.
    pub(crate) fn compile(text: PolicySpec, env: &Env) -> Result<Self, String> {
        let compile = |source: &str| kubernetes_cel::compile(source, env);
        let named = |list: Vec<NamedText>| -> Result<Vec<_>, String> {
            let compiled = list.into_iter().map(|one| {
                let expression = compile(&one.expression).map_err(|why| format!("`{}`: {why}", one.name))?;
                Ok((one.name, expression))
            });
            compiled.collect()
        };
        let mut condition_mentions = Mentions::default();
        for condition in &text.match_conditions {
            condition_mentions.add(&condition.expression);
        }
        let of_variables = variable_mentions(&text.variables);
        let validations = text.validations.into_iter().map(|validation| {
            let mut conjuncts = conjuncts::compile(&validation.expression, env);
            let parts = conjuncts.iter_mut();
            parts.for_each(|part| add_read(&mut part.mentions, &of_variables));
            let mut message_mentions = Mentions::default();
            message_mentions.add(validation.message_expression.as_deref().unwrap_or_default());
            add_read(&mut message_mentions, &of_variables);
            let message_expression = validation.message_expression.as_deref().map(compile);
            Ok(Validation {
                expression: compile(&validation.expression)
                    .map_err(|why| format!("`{}`: {why}", validation.expression))?,
                source: validation.expression,
                message: validation.message,
                message_expression: message_expression.transpose()?,
                conjuncts,
                message_mentions,
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
            condition_mentions,
            variables: named(text.variables)?,
            validations: validations.collect::<Result<_, String>>()?,
            annotations: annotations.collect::<Result<_, String>>()?,
        })
    }
}

/// Returns the words of each variable, together with the words of the earlier variables that it names. Any
/// occurrence of a name counts, also in a string.
fn variable_mentions(variables: &[NamedText]) -> Vec<(String, Mentions)> {
    let mut found: Vec<(String, Mentions)> = Vec::new();
    for variable in variables {
        let mut mentions = Mentions::default();
        mentions.add(&variable.expression);
        add_read(&mut mentions, &found);
        found.push((variable.name.clone(), mentions));
    }
    found
}

/// Adds what the variables of an expression read: their words count as its own.
fn add_read(mentions: &mut Mentions, variables: &[(String, Mentions)]) {
    for (name, read) in variables {
        if mentions.has_word(name) {
            mentions.add_all(read);
        }
    }
}

/// The functions that expressions may call. Built once for each policy set.
pub(crate) struct AdmissionLibrary {
    root: Context<'static, 'static>,
}

impl AdmissionLibrary {
    /// Creates the functions of an environment.
    pub(crate) fn new(env: &Arc<Env>) -> Self {
        let mut root = Context::with_env(Arc::clone(env));
        kubernetes_cel::add(&mut root);
        Self { root }
    }
}

/// The variables of one request, shared by all policies.
pub(crate) struct RequestVariables<'r> {
    context: Context<'r, 'r>,
}

impl<'r> RequestVariables<'r> {
    /// Creates the variables for a request. `about` is the value of the variable `request`.
    pub(crate) fn new(
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
        for (name, value) in values {
            context.add_variable_as_val(name, to_cel(value));
        }
        Self { context }
    }

    /// Evaluates a policy with one parameter, and returns the denials and warnings.
    pub(crate) fn judge(
        &self,
        policy: &AdmissionCode,
        params: &Value,
        severity: Severity,
    ) -> Vec<(Severity, String)> {
        self.evaluation(params).judge(policy, severity)
    }

    /// Returns the denials that hold for any value of the fields that are unknown before the apply. `reads` returns
    /// true if an expression with these words may read an unknown value.
    pub(crate) fn judge_certain(
        &self,
        policy: &AdmissionCode,
        params: &Value,
        severity: Severity,
        reads: impl Fn(&Mentions) -> bool,
    ) -> Vec<(Severity, String)> {
        // An expression may use a text of the parameter as the name of a field (`object[params.key]`), so these
        // texts count as words too.
        let mut names = Mentions::default();
        names.add_texts(params);
        if reads(&names) {
            Vec::new()
        } else {
            self.evaluation(params).judge_certain(policy, severity, reads)
        }
    }

    fn evaluation<'p>(&'p self, params: &'p Value) -> Evaluation<'p, 'p> {
        let outer: &Context<'p, 'p> = &self.context;
        let mut context = outer.new_inner_scope();
        context.add_variable_as_val("params", to_cel(params));
        Evaluation { context }
    }
}

/// The evaluation of a policy for one request and one parameter.
struct Evaluation<'p, 'v> {
    context: Context<'p, 'v>,
}

impl Evaluation<'_, '_> {
    fn judge(mut self, policy: &AdmissionCode, severity: Severity) -> Vec<(Severity, String)> {
        let mut failed = None;
        for (name, condition) in &policy.conditions {
            match condition.holds(&self.context) {
                Ok(true) => {}
                Ok(false) => return Vec::new(),
                Err(error) => failed = failed.or_else(|| Some(format!("matchCondition {name}: {error}"))),
            }
        }
        if let Some(text) = failed {
            return failure(policy.fails, severity, &text).into_iter().collect();
        }
        self.add_variables(policy);
        let mut found = Vec::new();
        for validation in &policy.validations {
            match validation.expression.holds(&self.context) {
                Ok(true) => {}
                Ok(false) => found.push((severity, self.message(validation))),
                Err(error) => {
                    let text = format!("expression '{}' resulted in error: {error}", validation.source);
                    match (policy.fails, error) {
                        // The failed read may come from a default that only the server sets, or from a limit of
                        // this evaluation. So the error is a finding, although the policy ignores errors.
                        (FailurePolicy::Ignore, CelError::Other(_)) => found.push((severity, text)),
                        (fails, _) => found.extend(failure(fails, severity, &text)),
                    }
                }
            }
        }
        for (source, annotation) in &policy.annotations {
            let text = match annotation.evaluate(&self.context) {
                Ok(value) if matches!(value.get_type().kind(), Kind::String | Kind::NullType) => continue,
                Ok(other) => format!("it returns {}, not a string or null", other.get_type().name()),
                Err(error) => error.to_string(),
            };
            // As in Kubernetes, this is a denial even if the binding's actions only warn.
            let text = format!("valueExpression '{source}' resulted in error: {text}");
            found.extend(failure(policy.fails, Severity::Deny, &text));
        }
        found
    }

    /// Returns the denials that read no unknown value. Errors do not count yet: a later evaluation with all values
    /// decides about them.
    fn judge_certain(
        mut self,
        policy: &AdmissionCode,
        severity: Severity,
        reads: impl Fn(&Mentions) -> bool,
    ) -> Vec<(Severity, String)> {
        let holds = |(_, condition): &(String, CelExpression)| condition.holds(&self.context) == Ok(true);
        if reads(&policy.condition_mentions) || !policy.conditions.iter().all(holds) {
            return Vec::new();
        }
        self.add_variables(policy);
        let denies = |validation: &&Validation| {
            let mut known = validation.conjuncts.iter().filter(|part| !reads(&part.mentions));
            known.any(|part| part.is_false(&self.context))
        };
        let denied = policy.validations.iter().filter(denies).map(|validation| {
            let message = if reads(&validation.message_mentions) {
                own_message(validation)
            } else {
                self.message(validation)
            };
            (severity, message)
        });
        denied.collect()
    }

    /// Evaluates the variables in order. A variable whose expression fails stays undefined, so, as in Kubernetes,
    /// each expression that reads it fails.
    fn add_variables(&mut self, policy: &AdmissionCode) {
        let mut values = HashMap::new();
        for (name, expression) in &policy.variables {
            self.context
                .add_variable_as_val("variables", shared_map(values.clone()));
            if let Ok(value) = expression.evaluate(&self.context) {
                values.insert(CelMapKey::from(name.as_str().to_owned()), value);
            }
        }
        self.context.add_variable_as_val("variables", shared_map(values));
    }

    /// Returns the message of a failed validation, chosen as in Kubernetes.
    fn message(&self, validation: &Validation) -> String {
        let expression = validation.message_expression.as_ref();
        let text = expression.and_then(|expression| expression.text(&self.context).ok()?);
        if let Some(text) = text {
            let text = text.trim();
            if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        own_message(validation)
    }
}

/// Returns the message of a validation without its `messageExpression`.
fn own_message(validation: &Validation) -> String {
    match &validation.message {
        Some(message) if !message.trim().is_empty() => message.trim().to_owned(),
        _ => format!("failed expression: {}", validation.source.trim()),
    }
}

/// Returns the finding for an error: a denial, or with `failurePolicy: Ignore` a warning.
fn failure(fails: FailurePolicy, severity: Severity, text: &str) -> Option<(Severity, String)> {
    match fails {
        FailurePolicy::Fail => Some((severity, text.to_owned())),
        FailurePolicy::Ignore => Some((
            Severity::Warn,
            format!("passes because of `failurePolicy: Ignore`: {text}"),
        )),
    }
}

#[cfg(test)]
#[path = "code_tests.rs"]
mod tests;
