//! ValidatingAdmissionPolicies with their bindings and parameters, evaluated on the requests that an apply would send.
//!
//! The order is the API server's: constraints of the policy, of the binding, parameters, then the expressions. The
//! requesting user, server defaults and objects that exist only in the cluster are unknown here: a policy that needs
//! them denies, and says so.

use std::{cell::LazyCell, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    admission_code::{AdmissionLibrary, FailurePolicy, RequestVariables},
    admission_functions,
    admission_match::Selected,
    admission_policy::{AdmissionPolicy, Binding, NotFound},
    admission_request::{self, AdmissionRequest, Namespaces, Plurals},
    possible_reads::Mentions,
    rule::{PolicyFile, RuleFinding, Severity, bound, objects_of},
};
use konverge_base::model::plan_document::{DocumentResource, StackDocument};

const GROUP: &str = "admissionregistration.k8s.io/";
/// What only the API server knows.
const UNKNOWN_WORDS: [&str; 4] = ["authorizer", "userInfo", "options", "dryRun"];

/// The policies of a set.
pub(super) struct AdmissionPolicies {
    library: AdmissionLibrary,
    policies: Vec<AdmissionPolicy>,
    /// The other objects of the set: parameters.
    objects: Vec<Value>,
    namespaces: Namespaces,
    plurals: Plurals,
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
    pub(super) fn load(files: &[PolicyFile]) -> Result<Self, String> {
        let env = Arc::new(admission_functions::environment());
        let mut policies = Self {
            library: AdmissionLibrary::new(&env),
            policies: Vec::new(),
            objects: Vec::new(),
            namespaces: Namespaces::new(),
            plurals: Plurals::new(),
        };
        let mut bindings = Vec::new();
        for file in files {
            let documents = konverge_base::yaml::documents(&file.text)
                .map_err(|error| format!("{}: {error}", file.path))?;
            for document in documents
                .into_iter()
                .flat_map(objects_of)
                .filter(|document| !document.is_null())
            {
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
                        let policy = AdmissionPolicy::load(&name, &document["spec"], &env).map_err(place)?;
                        if policies.policies.iter().any(|other| other.name == policy.name) {
                            return Err(place("two policies have this name".to_owned()));
                        }
                        policies.policies.push(policy);
                    }
                    "ValidatingAdmissionPolicyBinding" => {
                        bindings.push(Binding::load(name.clone(), &document["spec"]).map_err(place)?);
                    }
                    _ => policies.add_object(document),
                }
            }
        }
        for (of, binding) in bindings {
            let policy = policies.policies.iter_mut().find(|policy| policy.name == of);
            match policy {
                Some(policy) => policy.bindings.push(binding),
                None => return Err(format!("binding {}: the set has no policy {of}", binding.name)),
            }
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
    pub(super) fn outcomes<'d>(&self, document: &'d StackDocument) -> Vec<AdmissionOutcome<'d>> {
        let namespaces = admission_request::namespaces(&self.namespaces, document);
        let mut outcomes = Vec::new();
        for request in admission_request::requests(document, &self.plurals) {
            let about = request.variable();
            let namespace = request.own_namespace().and_then(|name| namespaces.get(name));
            // Made for the first policy that is evaluated.
            let variables =
                LazyCell::new(|| RequestVariables::new(&self.library, &request, &about, namespace));
            for policy in &self.policies {
                for binding in &policy.bindings {
                    match self.standing(policy, binding, &request, &namespaces) {
                        Standing::NotAbout => {}
                        Standing::Undecided => outcomes.push(AdmissionOutcome::Undecided(
                            request.resource,
                            policy.rule(binding),
                            binding.severity,
                        )),
                        Standing::Found(severity, text) => {
                            outcomes.push(found(policy, binding, &request, severity, &text));
                        }
                        Standing::Open(params) => {
                            let resource = request.resource;
                            let reads = |mentions: &Mentions| {
                                let mut unknown = resource.unknown.iter();
                                unknown.any(|path| mentions.may_read(resource.runtime, path))
                            };
                            let certain = params.into_iter().flat_map(|params| {
                                variables.judge_certain(&policy.code, params, binding.severity, reads)
                            });
                            outcomes.extend(
                                certain.map(|(severity, text)| {
                                    found(policy, binding, &request, severity, &text)
                                }),
                            );
                            outcomes.push(AdmissionOutcome::Undecided(
                                resource,
                                policy.rule(binding),
                                binding.severity,
                            ));
                        }
                        Standing::Decided(params) => {
                            let said = params
                                .into_iter()
                                .flat_map(|params| variables.judge(&policy.code, params, binding.severity));
                            outcomes.extend(
                                said.map(|(severity, text)| {
                                    found(policy, binding, &request, severity, &text)
                                }),
                            );
                        }
                    }
                }
            }
        }
        outcomes
    }

    /// Whether a policy decides about a request by its binding.
    fn standing<'s>(
        &'s self,
        policy: &AdmissionPolicy,
        binding: &Binding,
        request: &AdmissionRequest<'_>,
        namespaces: &Namespaces,
    ) -> Standing<'s> {
        let by_labels = policy.constraints.reads_labels() || binding.resources.reads_labels();
        if by_labels && request.has_unknown_labels() {
            return Standing::Undecided;
        }
        let selected = policy.constraints.selects(request, namespaces);
        match selected.and(|| binding.resources.selects(request, namespaces)) {
            Selected::No => return Standing::NotAbout,
            Selected::Yes => {}
            Selected::Unknown(why) => {
                let text = format!("it is not known whether the policy selects this resource: {why}");
                return Standing::Found(binding.severity, text);
            }
        }
        if let Some(word) = UNKNOWN_WORDS.iter().find(|word| policy.mentions.has_word(word)) {
            let text = format!("the policy reads `{word}`, which only the API server knows");
            return Standing::Found(binding.severity, text);
        }
        let namespace = request.own_namespace().map(|name| namespaces.get(name));
        if policy.mentions.has_word("namespaceObject") && namespace == Some(None) {
            let text = "the policy reads `namespaceObject`, and the Namespace is not part of the stack";
            return Standing::Found(binding.severity, text.to_owned());
        }
        let resource = request.resource;
        let mut unknown = resource.unknown.iter();
        let is_open = unknown.any(|path| policy.mentions.may_read(resource.runtime, path));
        match self.params(policy, binding, request) {
            Ok(params) if is_open => Standing::Open(params),
            Ok(params) => Standing::Decided(params),
            Err(ParamError::Unknown(text)) => Standing::Found(binding.severity, text),
            Err(ParamError::Configuration(_)) if policy.code.fails == FailurePolicy::Ignore => {
                Standing::NotAbout
            }
            Err(ParamError::Configuration(text)) => {
                Standing::Found(binding.severity, format!("failed to configure binding: {text}"))
            }
            Err(ParamError::Allowed(text)) => Standing::Found(Severity::Warn, text),
        }
    }

    /// The parameters of a binding; one `null` if it has none.
    fn params<'s>(
        &'s self,
        policy: &AdmissionPolicy,
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
            (true, Some(NotFound::Allow)) => Err(ParamError::Allowed(format!(
                "passes because of `parameterNotFoundAction: Allow`: the parameters of the binding ({}) are not among the files of the set",
                kind.kind
            ))),
            (true, None) => Err(ParamError::Unknown(format!(
                "the parameters of the binding ({}) are not among the files of the set",
                kind.kind
            ))),
        }
    }
}

fn found<'d>(
    policy: &AdmissionPolicy,
    binding: &Binding,
    request: &AdmissionRequest<'d>,
    severity: Severity,
    message: &str,
) -> AdmissionOutcome<'d> {
    AdmissionOutcome::Found(RuleFinding {
        rule: policy.rule(binding),
        severity,
        message: bound(message),
        resource: Some(request.resource.id.to_string()),
        path: None,
        details: BTreeMap::new(),
    })
}

/// Whether a policy decides about a request.
enum Standing<'s> {
    NotAbout,
    /// It decides with each of these parameters.
    Decided(Vec<&'s Value>),
    /// Whether it selects the request is unknown.
    Undecided,
    /// It may read unknown values. What else it says with these parameters is certain.
    Open(Vec<&'s Value>),
    /// It is decided without its expressions, or cannot be.
    Found(Severity, String),
}

/// Why a binding has no parameters.
enum ParamError {
    /// As the API server would say it.
    Configuration(String),
    /// They may be in the cluster.
    Unknown(String),
    /// They may be missing.
    Allowed(String),
}

#[cfg(test)]
#[path = "admission_own_tests.rs"]
mod tests;
