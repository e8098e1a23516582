//! ValidatingAdmissionPolicies with their bindings and parameters, evaluated on the requests that an apply would send.
//!
//! The order is the API server's: constraints of the policy, of the binding, match conditions, parameters, variables,
//! validations. The requesting user, server defaults and objects that exist only in the cluster are unknown here: a
//! policy that needs it denies, and says so.

use std::sync::Arc;

use cel::{Context, Env, Value as CelValue};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    admission_functions,
    admission_match::{LabelSelector, MatchResources, Namespaces, Selected},
    admission_request::{self, AdmissionRequest, Plurals},
    mentions::Mentions,
    rule::{PolicyFile, RuleFinding, Severity, shorten},
};
use crate::{
    cel_expression::{CelError, CelExpression, Extent, to_cel},
    model::plan_document::{DocumentResource, StackDocument},
};

const GROUP: &str = "admissionregistration.k8s.io/";
/// The longest text of a messageExpression, as in Kubernetes.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// What only the API server knows.
const UNKNOWN_WORDS: [&str; 4] = ["authorizer", "userInfo", "options", "dryRun"];

/// The policies of a set.
pub(super) struct AdmissionPolicies {
    env: Arc<Env>,
    policies: Vec<Policy>,
    /// The other objects of the set: parameters.
    objects: Vec<Value>,
    namespaces: Namespaces,
    plurals: Plurals,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicySpec {
    #[serde(default)]
    param_kind: Option<ParamKind>,
    match_constraints: MatchResources,
    #[serde(default)]
    validations: Vec<ValidationSpec>,
    #[serde(default)]
    failure_policy: FailurePolicy,
    #[serde(default)]
    match_conditions: Vec<NamedSpec>,
    #[serde(default)]
    variables: Vec<NamedSpec>,
    /// Annotations of audit events decide nothing, unless they fail.
    #[serde(default)]
    audit_annotations: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
enum FailurePolicy {
    #[default]
    Fail,
    Ignore,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ParamKind {
    api_version: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSpec {
    name: String,
    expression: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ValidationSpec {
    expression: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    message_expression: Option<String>,
    /// The reason in the answer of the API server.
    #[serde(default, rename = "reason")]
    _reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BindingSpec {
    policy_name: String,
    #[serde(default)]
    param_ref: Option<ParamRef>,
    #[serde(default)]
    match_resources: Option<MatchResources>,
    validation_actions: Vec<Action>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ParamRef {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    selector: Option<LabelSelector>,
    #[serde(default)]
    parameter_not_found_action: Option<NotFound>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum NotFound {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Action {
    Deny,
    Warn,
    Audit,
}

struct Policy {
    name: String,
    constraints: MatchResources,
    param_kind: Option<ParamKind>,
    fails: FailurePolicy,
    conditions: Vec<(String, CelExpression)>,
    variables: Vec<(String, CelExpression)>,
    validations: Vec<Validation>,
    mentions: Mentions,
    bindings: Vec<Binding>,
}

struct Validation {
    source: String,
    expression: CelExpression,
    message: Option<String>,
    message_expression: Option<CelExpression>,
}

struct Binding {
    name: String,
    resources: MatchResources,
    params: Option<ParamRef>,
    severity: Severity,
}

/// One answer of a policy for a resource.
pub(super) enum AdmissionOutcome<'d> {
    Found(RuleFinding),
    /// The policy may read unknown values of the resource.
    Undecided(&'d DocumentResource, String, Severity),
}

impl AdmissionPolicies {
    /// Reads the policies, their bindings, and the other objects of a set.
    ///
    /// # Errors
    /// A file is not YAML, a policy is not valid or uses a function that is not known here, or no policy is bound.
    pub fn load(files: &[PolicyFile]) -> Result<Self, String> {
        let env = Arc::new(admission_functions::environment());
        let mut policies = Self {
            env: Arc::clone(&env),
            policies: Vec::new(),
            objects: Vec::new(),
            namespaces: Namespaces::new(),
            plurals: Plurals::new(),
        };
        let mut bindings = Vec::new();
        for file in files {
            let documents =
                crate::yaml::documents(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
            for document in documents.into_iter().filter(|document| !document.is_null()) {
                let name = document["metadata"]["name"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let place = |why: String| format!("{}: {name}: {why}", file.path);
                let api_version = document["apiVersion"].as_str().unwrap_or_default();
                let kind = match api_version.starts_with(GROUP) {
                    true => document["kind"].as_str().unwrap_or_default(),
                    false => "",
                };
                match kind {
                    "ValidatingAdmissionPolicy" => {
                        let policy = Policy::load(&name, &document["spec"], &env).map_err(place)?;
                        policies.policies.push(policy);
                    }
                    "ValidatingAdmissionPolicyBinding" => {
                        let spec: BindingSpec = serde_json::from_value(document["spec"].clone())
                            .map_err(|error| place(error.to_string()))?;
                        bindings.push((name, spec));
                    }
                    _ => policies.add_object(document),
                }
            }
        }
        for (name, spec) in bindings {
            let policy = policies
                .policies
                .iter_mut()
                .find(|policy| policy.name == spec.policy_name);
            let Some(policy) = policy else {
                return Err(format!(
                    "binding {name}: the set has no policy {}",
                    spec.policy_name
                ));
            };
            policy.bindings.push(Binding {
                name,
                resources: spec.match_resources.unwrap_or_default(),
                params: spec.param_ref,
                severity: match spec.validation_actions.contains(&Action::Deny) {
                    true => Severity::Deny,
                    false => Severity::Warn,
                },
            });
        }
        match policies.policies.iter().any(|policy| !policy.bindings.is_empty()) {
            true => Ok(policies),
            false => Err(
                "it has no ValidatingAdmissionPolicy with a binding: without one nothing is checked"
                    .to_owned(),
            ),
        }
    }

    fn add_object(&mut self, object: Value) {
        admission_request::add_plural(&mut self.plurals, &object);
        if object["apiVersion"] == "v1" && object["kind"] == "Namespace" {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            self.namespaces.insert(name.to_owned(), object.clone());
        }
        self.objects.push(object);
    }

    /// The outcomes for the plan of a stack.
    pub fn outcomes<'d>(&self, document: &'d StackDocument) -> Vec<AdmissionOutcome<'d>> {
        let mut namespaces = self.namespaces.clone();
        for resource in &document.resources {
            if let Some(object) = resource.after.as_ref().filter(|_| resource.kind == "Namespace") {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                namespaces.insert(name.to_owned(), object.clone());
            }
        }
        let mut outcomes = Vec::new();
        for request in admission_request::requests(document, &self.plurals) {
            for policy in &self.policies {
                for binding in &policy.bindings {
                    self.judge(policy, binding, &request, &namespaces, &mut outcomes);
                }
            }
        }
        outcomes
    }

    fn judge<'d>(
        &self,
        policy: &Policy,
        binding: &Binding,
        request: &AdmissionRequest<'d>,
        namespaces: &Namespaces,
        outcomes: &mut Vec<AdmissionOutcome<'d>>,
    ) {
        let rule = format!("{}:{}", policy.name, binding.name);
        let resource = request.resource;
        let mut found = |severity, message: &str| {
            let finding = RuleFinding {
                rule: rule.clone(),
                severity,
                message: shorten(message),
                resource: Some(resource.id.to_string()),
                path: None,
            };
            outcomes.push(AdmissionOutcome::Found(finding));
        };
        let selected = policy.constraints.selects(request, namespaces);
        let selected = match selected {
            Selected::Yes => binding.resources.selects(request, namespaces),
            Selected::No => return,
            Selected::Unknown(why) => match binding.resources.selects(request, namespaces) {
                Selected::No => return,
                _ => Selected::Unknown(why),
            },
        };
        match selected {
            Selected::No => return,
            Selected::Yes => {}
            Selected::Unknown(why) => {
                let text = format!("it is not known whether the policy selects this resource: {why}");
                return found(binding.severity, &text);
            }
        }
        if let Some(word) = UNKNOWN_WORDS.iter().find(|word| policy.mentions.has_word(word)) {
            let text = format!("the policy reads `{word}`, which only the API server knows");
            return found(binding.severity, &text);
        }
        let namespace = request.namespace.as_ref().filter(|_| !request.is_namespace());
        let namespace = namespace.map(|name| namespaces.get(name));
        if policy.mentions.has_word("namespaceObject") && namespace == Some(None) {
            let text = "the policy reads `namespaceObject`, and the Namespace is not part of the stack";
            return found(binding.severity, text);
        }
        let mut unknown = resource.unknown.iter();
        if unknown.any(|path| policy.mentions.may_read(resource.runtime, path)) {
            outcomes.push(AdmissionOutcome::Undecided(resource, rule, binding.severity));
            return;
        }
        let params = match self.params(policy, binding, request) {
            Ok(params) => params,
            Err(ParamError::Unknown(text)) => return found(binding.severity, &text),
            Err(ParamError::Configuration(text)) => {
                if policy.fails == FailurePolicy::Fail {
                    found(binding.severity, &format!("failed to configure binding: {text}"));
                }
                return;
            }
        };
        for params in params {
            let evaluation = Evaluation::new(&self.env, request, namespace.flatten(), params);
            for (severity, message) in evaluation.judge(policy, binding.severity) {
                found(severity, &message);
            }
        }
    }

    /// The parameters of a binding; one `null` if it has none.
    fn params<'s>(
        &'s self,
        policy: &Policy,
        binding: &Binding,
        request: &AdmissionRequest<'_>,
    ) -> Result<Vec<&'s Value>, ParamError> {
        let (Some(kind), Some(reference)) = (&policy.param_kind, &binding.params) else {
            return Ok(vec![&Value::Null]);
        };
        let is_kind =
            |object: &&Value| object["apiVersion"] == *kind.api_version && object["kind"] == *kind.kind;
        let mut objects: Vec<_> = self.objects.iter().filter(is_kind).collect();
        let namespaced = objects
            .iter()
            .any(|object| object["metadata"]["namespace"].is_string());
        let own = request.namespace.as_deref().filter(|_| !request.is_namespace());
        if namespaced {
            let Some(namespace) = reference.namespace.as_deref().or(own) else {
                return Err(ParamError::Configuration(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                        .to_owned(),
                ));
            };
            objects.retain(|object| object["metadata"]["namespace"] == namespace);
        }
        match (&reference.name, &reference.selector) {
            (Some(name), None) => objects.retain(|object| object["metadata"]["name"] == name.as_str()),
            (None, Some(selector)) => objects.retain(|object| selector.selects(Some(object))),
            _ => {
                return Err(ParamError::Configuration(
                    "one of name or selector must be provided".to_owned(),
                ));
            }
        }
        match (objects.is_empty(), reference.parameter_not_found_action) {
            (false, _) => Ok(objects),
            (true, Some(NotFound::Deny)) => Err(ParamError::Configuration(
                "no params found for policy binding with `Deny` parameterNotFoundAction".to_owned(),
            )),
            (true, _) => Err(ParamError::Unknown(format!(
                "the parameters of the binding ({}) are not among the files of the set",
                kind.kind
            ))),
        }
    }
}

/// Why a binding has no parameters.
enum ParamError {
    /// As the API server would say it.
    Configuration(String),
    /// They may be in the cluster.
    Unknown(String),
}

impl Policy {
    fn load(name: &str, spec: &Value, env: &Env) -> Result<Self, String> {
        let mut mentions = Mentions::default();
        mentions.add(&spec.to_string());
        let spec: PolicySpec = serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?;
        if !spec.audit_annotations.is_empty() {
            return Err("`auditAnnotations` are not evaluated here".to_owned());
        }
        let compile = |source: &str| admission_functions::compile(source, env);
        let named = |list: Vec<NamedSpec>| -> Result<Vec<_>, String> {
            let compiled = list.into_iter().map(|one| {
                let expression = compile(&one.expression).map_err(|why| format!("`{}`: {why}", one.name))?;
                Ok((one.name, expression))
            });
            compiled.collect()
        };
        let validations = spec.validations.into_iter().map(|validation| {
            let message_expression = validation.message_expression.as_deref().map(compile);
            Ok(Validation {
                expression: compile(&validation.expression)
                    .map_err(|why| format!("`{}`: {why}", validation.expression))?,
                source: validation.expression,
                message: validation.message,
                message_expression: message_expression.transpose()?,
            })
        });
        Ok(Self {
            name: name.to_owned(),
            constraints: spec.match_constraints,
            param_kind: spec.param_kind,
            fails: spec.failure_policy,
            conditions: named(spec.match_conditions)?,
            variables: named(spec.variables)?,
            validations: validations.collect::<Result<_, String>>()?,
            mentions,
            bindings: Vec::new(),
        })
    }
}

/// The evaluation of a policy for one request and one parameter.
struct Evaluation {
    context: Context<'static, 'static>,
    extent: Extent,
}

impl Evaluation {
    fn new(
        env: &Arc<Env>,
        request: &AdmissionRequest<'_>,
        namespace: Option<&Value>,
        params: &Value,
    ) -> Self {
        let mut context = Context::with_env(Arc::clone(env));
        admission_functions::add(&mut context);
        let null = Value::Null;
        let about = request.variable();
        let values = [
            ("object", request.object.unwrap_or(&null)),
            ("oldObject", request.old_object.unwrap_or(&null)),
            ("namespaceObject", namespace.unwrap_or(&null)),
            ("params", params),
            ("request", &about),
        ];
        let mut extent = Extent::default();
        for (name, value) in values {
            extent = extent.and(value);
            context.add_variable_from_value(name, to_cel(value));
        }
        Self { context, extent }
    }

    /// The denials and warnings.
    fn judge(mut self, policy: &Policy, severity: Severity) -> Vec<(Severity, String)> {
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
        let mut variables = serde_json::Map::new();
        let mut values: Vec<(String, CelValue)> = Vec::new();
        for (name, expression) in &policy.variables {
            self.add_variables(&values);
            if let Ok(value) = expression.evaluate(&self.context, self.extent) {
                variables.insert(name.clone(), json!(true));
                values.push((name.clone(), value));
            }
        }
        self.add_variables(&values);
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
        found
    }

    fn add_variables(&mut self, values: &[(String, CelValue)]) {
        let map: std::collections::HashMap<String, CelValue> = values.iter().cloned().collect();
        self.context
            .add_variable_from_value("variables", CelValue::from(map));
    }

    /// The message, as Kubernetes chooses it.
    fn message(&self, validation: &Validation) -> String {
        let expression = validation.message_expression.as_ref();
        let value = expression.and_then(|expression| expression.evaluate(&self.context, self.extent).ok());
        if let Some(CelValue::String(text)) = value {
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
