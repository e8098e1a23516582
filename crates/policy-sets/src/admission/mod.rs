//! ValidatingAdmissionPolicies with their bindings and parameters, evaluated on the requests that an apply would send.
//!
//! The order is the API server's: constraints of the policy, constraints of the binding, parameters, expressions.
//! The requesting user, server defaults and objects that exist only in the cluster are unknown here. A policy that
//! needs them denies, with that reason.

pub(crate) mod code;
pub(crate) mod matching;
mod policy;
pub(crate) mod policy_objects;
pub(crate) mod request;

use std::{cell::LazyCell, sync::Arc};

use serde_json::Value;

use self::{
    code::{AdmissionLibrary, FailurePolicy, RequestVariables},
    matching::Selected,
    policy::{AdmissionPolicy, Binding, NotFound},
    policy_objects::{KnownCluster, PolicyObject},
    request::{AdmissionRequest, Namespaces},
};
use crate::{
    kubernetes_cel,
    possible_reads::Mentions,
    rule::{PolicyFile, RuleFinding, RuleOutcome, Severity},
};
use konverge_base::model::plan_document::StackDocument;

const GROUP: &str = "admissionregistration.k8s.io/";
/// The policies of a policy set.
pub(super) struct AdmissionPolicies {
    library: AdmissionLibrary,
    policies: Vec<AdmissionPolicy>,
    /// The objects of the set that are neither policies nor bindings. A binding can name them as parameters.
    objects: Vec<Value>,
    cluster: KnownCluster,
}

impl AdmissionPolicies {
    /// Parses the policies, their bindings, and the other objects of a set.
    ///
    /// # Errors
    /// A file that is not YAML, a policy that is invalid or calls an unsupported function, or no policy with a
    /// binding.
    pub(super) fn load(files: &[PolicyFile]) -> Result<Self, String> {
        let env = Arc::new(kubernetes_cel::environment());
        let mut policies = Self {
            library: AdmissionLibrary::new(&env),
            policies: Vec::new(),
            objects: Vec::new(),
            cluster: KnownCluster::default(),
        };
        let mut bindings = Vec::new();
        for of in PolicyObject::read(files)? {
            match of.kind_in(GROUP) {
                Some("ValidatingAdmissionPolicy") => {
                    let policy = AdmissionPolicy::load(&of.name, &of.object["spec"], &env);
                    let policy = policy.map_err(|why| of.error(why))?;
                    if policies.policies.iter().any(|other| other.name == policy.name) {
                        return Err(of.error("two policies have this name"));
                    }
                    policies.policies.push(policy);
                }
                Some("ValidatingAdmissionPolicyBinding") => {
                    let binding = Binding::load(of.name.clone(), &of.object["spec"]);
                    bindings.push(binding.map_err(|why| of.error(why))?);
                }
                _ => {
                    policies.cluster.add(&of);
                    policies.objects.push(of.object);
                }
            }
        }
        // Bindings are attached after all policies are parsed, because the files may be in any order.
        for (of, binding) in bindings {
            let policy = policies.policies.iter_mut().find(|policy| policy.name == of);
            match policy {
                Some(policy) => policy.bindings.push(binding),
                None => return Err(format!("binding {}: the set has no policy {of}", binding.name)),
            }
        }
        if policies.policies.iter().any(|policy| !policy.bindings.is_empty()) {
            Ok(policies)
        } else {
            Err(
                "it has no ValidatingAdmissionPolicy with a binding: without one nothing is checked"
                    .to_owned(),
            )
        }
    }

    /// Evaluates all policies on the plan of a stack.
    pub(super) fn outcomes(&self, document: &StackDocument) -> Vec<RuleOutcome> {
        let namespaces = request::namespaces(&self.cluster.namespaces, document);
        let mut outcomes = Vec::new();
        for request in request::requests(document, &self.cluster.plurals) {
            let about = request.variable();
            let namespace = request.own_namespace().and_then(|name| namespaces.get(name));
            // Computed only when a first policy applies to the request: most policies apply to few kinds.
            let variables =
                LazyCell::new(|| RequestVariables::new(&self.library, &request, &about, namespace));
            for policy in &self.policies {
                for binding in &policy.bindings {
                    let resource = request.resource;
                    let found = |(severity, text): (Severity, String)| {
                        let rule = policy.rule(binding);
                        RuleOutcome::Found(RuleFinding::about(resource, rule, severity, &text))
                    };
                    let undecided = || {
                        let paths = resource.unknown.clone();
                        RuleOutcome::unknown(&policy.rule(binding), binding.severity, resource, paths)
                    };
                    match self.applicability(policy, binding, &request, &namespaces) {
                        Applicability::NotAbout => {}
                        Applicability::Undecided => outcomes.push(undecided()),
                        Applicability::Found(severity, text) => outcomes.push(found((severity, text))),
                        Applicability::Open(params) => {
                            let reads = |mentions: &Mentions| mentions.may_read_unknown(resource);
                            let certain = params.into_iter().flat_map(|params| {
                                variables.judge_certain(&policy.code, params, binding.severity, reads)
                            });
                            outcomes.extend(certain.map(found));
                            outcomes.push(undecided());
                        }
                        Applicability::Decided(params) => {
                            let said = params
                                .into_iter()
                                .flat_map(|params| variables.judge(&policy.code, params, binding.severity));
                            outcomes.extend(said.map(found));
                        }
                    }
                }
            }
        }
        outcomes
    }

    /// Decides if a policy applies to a request through one of its bindings.
    fn applicability<'s>(
        &'s self,
        policy: &AdmissionPolicy,
        binding: &Binding,
        request: &AdmissionRequest<'_>,
        namespaces: &Namespaces,
    ) -> Applicability<'s> {
        let by_labels = policy.constraints.reads_labels() || binding.resources.reads_labels();
        if by_labels && request.has_unknown_labels() {
            return Applicability::Undecided;
        }
        let selected = policy.constraints.selects(request, namespaces);
        match selected.and(|| binding.resources.selects(request, namespaces)) {
            Selected::No => return Applicability::NotAbout,
            Selected::Yes => {}
            Selected::Unknown(why) => {
                let text = format!("it is not known whether the policy selects this resource: {why}");
                return Applicability::Found(binding.severity, text);
            }
        }
        if let Some(text) = policy.reads.missing("policy", "API server", request, namespaces) {
            return Applicability::Found(binding.severity, text);
        }
        let is_open = policy.mentions.may_read_unknown(request.resource);
        match self.params(policy, binding, request) {
            Ok(params) if is_open => Applicability::Open(params),
            Ok(params) => Applicability::Decided(params),
            Err(ParamError::Unknown(text)) => Applicability::Found(binding.severity, text),
            Err(ParamError::Configuration(_)) if policy.code.fails == FailurePolicy::Ignore => {
                Applicability::NotAbout
            }
            Err(ParamError::Configuration(text)) => {
                Applicability::Found(binding.severity, format!("failed to configure binding: {text}"))
            }
            Err(ParamError::Allowed(text)) => Applicability::Found(Severity::Warn, text),
        }
    }

    /// Returns the parameters of a binding; a single `null` if the binding has none.
    fn params<'s>(
        &'s self,
        policy: &AdmissionPolicy,
        binding: &Binding,
        request: &AdmissionRequest<'_>,
    ) -> Result<Vec<&'s Value>, ParamError> {
        let (Some(kind), Some(reference)) = (&policy.param_kind, &binding.params) else {
            return Ok(vec![&Value::Null]);
        };
        let wrong = |why: &str| Err(ParamError::Configuration(why.to_owned()));
        let is_kind =
            |object: &&Value| object["apiVersion"] == *kind.api_version && object["kind"] == *kind.kind;
        let mut objects: Vec<_> = self.objects.iter().filter(is_kind).collect();
        // The API server knows if a kind is namespaced. Here the objects of the set show it.
        let namespaced = objects
            .iter()
            .any(|object| object["metadata"]["namespace"].is_string());
        let own = request.namespace.as_deref().filter(|_| !request.is_namespace());
        if namespaced {
            let Some(namespace) = reference.namespace.as_deref().or(own) else {
                let why =
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
                return wrong(why);
            };
            objects.retain(|object| object["metadata"]["namespace"] == namespace);
        }
        match (&reference.name, &reference.selector) {
            (Some(name), None) => objects.retain(|object| object["metadata"]["name"] == name.as_str()),
            (None, Some(selector)) => objects.retain(|object| selector.selects(Some(object))),
            _ => return wrong("one of name or selector must be provided"),
        }
        // Errors of the configuration have the API server's own texts. Without an action, a missing parameter is
        // not certain: it may exist in the cluster.
        match (objects.is_empty(), reference.parameter_not_found_action) {
            (false, _) => Ok(objects),
            (true, Some(NotFound::Deny)) => {
                wrong("no params found for policy binding with `Deny` parameterNotFoundAction")
            }
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

/// The decision if a policy applies to a request.
enum Applicability<'s> {
    NotAbout,
    /// The policy applies. It must be evaluated with each of these parameters.
    Decided(Vec<&'s Value>),
    /// Unknown labels of the object decide if the policy applies.
    Undecided,
    /// The policy applies, and may read values that are unknown before the apply. Only denials that do not read
    /// them are certain.
    Open(Vec<&'s Value>),
    /// The finding is clear without evaluating the expressions: the policy denies because it cannot be evaluated,
    /// or it passes with a warning.
    Found(Severity, String),
}

/// Reasons why the parameters of a binding cannot be found.
enum ParamError {
    /// The API server would refuse the binding, with this message.
    Configuration(String),
    /// The parameters are not in the set, but may exist in the cluster.
    Unknown(String),
    /// The parameters are missing, and the binding allows that.
    Allowed(String),
}

#[cfg(test)]
mod tests;
