//! Gatekeeper's templates and constraints, evaluated on the requests that an apply would send. Objects that exist
//! only in the cluster are unknown here: a template that needs them denies, with that reason.

pub(crate) mod gator_suites;
mod matching;
mod template;

use std::{cell::LazyCell, collections::BTreeMap, sync::Arc};

use regorus::Value as RegoValue;
use serde::Deserialize;
use serde_json::Value;

use self::{
    matching::ConstraintMatch,
    template::{Template, TemplateCode},
};
use crate::{
    admission::{
        code::{AdmissionLibrary, RequestVariables},
        matching::Selected,
        policy_objects::{ClusterReads, KnownCluster, PolicyObject},
        request::{self, AdmissionRequest, Namespaces, Operation},
    },
    kubernetes_cel,
    possible_reads::Mentions,
    rego::{
        engine::LentEngine,
        value::{rego_value, with_fields},
    },
    rule::{PolicyFile, RuleFinding, RuleOutcome, Severity},
};
use konverge_base::model::plan_document::StackDocument;

const TEMPLATES: &str = "templates.gatekeeper.sh/";
const CONSTRAINTS: &str = "constraints.gatekeeper.sh/";
/// The name of Gatekeeper's admission webhook. Constraints are evaluated as for this enforcement point.
const WEBHOOK: &str = "validation.gatekeeper.sh";
/// Names in a rule for values that only the cluster has.
const UNKNOWN_WORDS: [&str; 7] = [
    "authorizer",
    "inventory",
    "external_data",
    "userInfo",
    "options",
    "dryRun",
    "uid",
];

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ConstraintSpec {
    #[serde(rename = "match")]
    matches: ConstraintMatch,
    parameters: Value,
    enforcement_action: Action,
    scoped_enforcement_actions: Vec<ScopedAction>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    #[default]
    Deny,
    Warn,
    Dryrun,
    Scoped,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScopedAction {
    action: Action,
    #[serde(default)]
    enforcement_points: Vec<EnforcementPoint>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnforcementPoint {
    name: String,
}

/// The templates and constraints of a policy set.
pub(super) struct GatekeeperRules {
    library: AdmissionLibrary,
    templates: BTreeMap<String, Template>,
    constraints: Vec<Constraint>,
    cluster: KnownCluster,
}

struct Constraint {
    /// The kind of the constraint, which is also the name of its template.
    kind: String,
    name: String,
    matches: ConstraintMatch,
    severity: Severity,
    mentions: Mentions,
    reads: ClusterReads,
    /// The parameters, in the form for templates in Rego.
    parameters: RegoValue,
    /// The whole constraint, as templates in CEL read it.
    object: Value,
}

impl GatekeeperRules {
    /// Parses the templates, constraints, Namespaces and CustomResourceDefinitions of a set.
    ///
    /// # Errors
    /// A file that is not YAML, a template that cannot be compiled, a constraint without a template, or no
    /// constraint at all.
    pub(super) fn load(files: &[PolicyFile]) -> Result<Self, String> {
        let env = Arc::new(kubernetes_cel::environment());
        let mut rules = Self {
            library: AdmissionLibrary::new(&env),
            templates: BTreeMap::new(),
            constraints: Vec::new(),
            cluster: KnownCluster::default(),
        };
        let mut constraints = Vec::new();
        for of in PolicyObject::read(files)? {
            if of.kind_in(TEMPLATES) == Some("ConstraintTemplate") {
                let template = Template::load(&of.object, &env).map_err(|why| of.error(why))?;
                if let Some(other) = rules.templates.insert(template.kind.clone(), template) {
                    let why = format!("two templates make constraints of kind {}", other.kind);
                    return Err(of.error(why));
                }
            } else if of.kind_in(CONSTRAINTS).is_some() {
                constraints.push(of);
            } else {
                rules.cluster.add(&of);
            }
        }
        // Constraints are parsed after all templates, because the files may be in any order.
        for of in constraints {
            let read = rules.constraint(&of.name, of.object.clone());
            rules.constraints.extend(read.map_err(|why| of.error(why))?);
        }
        if rules.constraints.is_empty() {
            Err("it has no constraint that the webhook of Gatekeeper enforces: without one nothing is checked".to_owned())
        } else {
            Ok(rules)
        }
    }

    /// Parses a constraint; `None` if the admission webhook does not enforce it.
    fn constraint(&self, name: &str, mut object: Value) -> Result<Option<Constraint>, String> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let Some(template) = self.templates.get(&kind) else {
            return Err(format!("the set has no template for constraints of kind {kind}"));
        };
        let spec = match &object["spec"] {
            Value::Null => ConstraintSpec::default(),
            spec => serde_json::from_value(spec.clone()).map_err(|error| error.to_string())?,
        };
        let parameters = template.parameters(&spec.parameters)?;
        let mut mentions = template.mentions.clone();
        mentions.add_texts(&parameters);
        let Some(severity) = spec.severity() else {
            return Ok(None);
        };
        object["spec"]["parameters"] = parameters.clone();
        Ok(Some(Constraint {
            kind,
            name: name.to_owned(),
            matches: spec.matches,
            severity,
            reads: ClusterReads::of(&mentions, &UNKNOWN_WORDS),
            mentions,
            parameters: rego_value(&parameters),
            object,
        }))
    }

    /// Evaluates all constraints on the plan of a stack.
    pub(super) fn outcomes(&self, document: &StackDocument) -> Vec<RuleOutcome> {
        let namespaces = request::namespaces(&self.cluster.namespaces, document);
        // One clone of a template's engine serves all requests of the stack.
        let mut engines: BTreeMap<&str, LentEngine<'_>> = BTreeMap::new();
        let mut outcomes = Vec::new();
        for request in request::requests(document, &self.cluster.plurals) {
            let about = request.variable();
            let namespace = request.own_namespace().and_then(|name| namespaces.get(name));
            // Computed only when a first constraint applies to the request: most constraints apply to few kinds.
            let variables =
                LazyCell::new(|| RequestVariables::new(&self.library, &request, &about, namespace));
            let review = LazyCell::new(|| review_of(&request, &about, namespace));
            for constraint in &self.constraints {
                let Some(template) = self.templates.get(&constraint.kind) else {
                    continue;
                };
                if !template.judges(request.operation) {
                    continue;
                }
                let rule = || format!("{}:{}", constraint.kind, constraint.name);
                let found = |severity, message: &str| {
                    RuleOutcome::Found(RuleFinding::about(request.resource, rule(), severity, message))
                };
                match constraint.applicability(&request, &namespaces) {
                    Applicability::NotAbout => {}
                    Applicability::Refused(text) => outcomes.push(found(constraint.severity, &text)),
                    Applicability::Undecided => {
                        let paths = request.resource.unknown.clone();
                        outcomes.push(RuleOutcome::unknown(
                            &rule(),
                            constraint.severity,
                            request.resource,
                            paths,
                        ));
                    }
                    Applicability::Decided => {
                        let violations = match &template.code {
                            TemplateCode::Cel(code) => {
                                let said = variables.judge(code, &constraint.object, constraint.severity);
                                said.into_iter().map(Ok).collect()
                            }
                            TemplateCode::Rego { engine, rule } => {
                                let engine = engines.entry(&constraint.kind).or_insert_with(|| engine.lend());
                                template::rego_violations(
                                    engine,
                                    rule,
                                    &review,
                                    &constraint.parameters,
                                    constraint.severity,
                                )
                            }
                        };
                        outcomes.extend(violations.into_iter().map(|violation| match violation {
                            Ok((severity, text)) => found(severity, &text),
                            Err(why) => RuleOutcome::Found(RuleFinding {
                                resource: Some(request.resource.id.to_string()),
                                ..RuleFinding::error(&rule(), &why)
                            }),
                        }));
                    }
                }
            }
        }
        outcomes
    }
}

/// The decision if a constraint applies to a request.
enum Applicability {
    NotAbout,
    Decided,
    /// The constraint may read values that are unknown before the apply.
    Undecided,
    /// The constraint denies, because it needs facts that only the cluster has.
    Refused(String),
}

impl Constraint {
    fn applicability(&self, request: &AdmissionRequest<'_>, namespaces: &Namespaces) -> Applicability {
        if self.matches.label_selector.is_some() && request.has_unknown_labels() {
            return Applicability::Undecided;
        }
        match self.matches.selects(request, namespaces) {
            Selected::No => return Applicability::NotAbout,
            Selected::Unknown(why) => {
                return Applicability::Refused(format!(
                    "it is not known whether the constraint selects this resource: {why}"
                ));
            }
            Selected::Yes => {}
        }
        if let Some(text) = self.reads.missing("template", "cluster", request, namespaces) {
            return Applicability::Refused(text);
        }
        if self.mentions.may_read_unknown(request.resource) {
            Applicability::Undecided
        } else {
            Applicability::Decided
        }
    }
}

impl ConstraintSpec {
    /// Returns the severity of findings; `None` if the webhook does not enforce the constraint.
    fn severity(&self) -> Option<Severity> {
        let of = |action| match action {
            Action::Deny | Action::Scoped => Severity::Deny,
            Action::Warn | Action::Dryrun => Severity::Warn,
        };
        if self.enforcement_action != Action::Scoped {
            return Some(of(self.enforcement_action));
        }
        let at_webhook = self.scoped_enforcement_actions.iter().filter(|scoped| {
            let mut points = scoped.enforcement_points.iter();
            points.any(|point| point.name == WEBHOOK || point.name == "*")
        });
        at_webhook.map(|scoped| of(scoped.action)).min()
    }
}

/// Returns the `input.review` of a request. As in Gatekeeper, `object` is the deleted object for a deletion.
fn review_of(request: &AdmissionRequest<'_>, about: &Value, namespace: Option<&Value>) -> RegoValue {
    let object = match request.operation {
        Operation::Delete => request.old_object,
        Operation::Create | Operation::Update => request.object,
    };
    let value = |object: Option<&Value>| object.map_or(RegoValue::Null, rego_value);
    let mut fields = vec![
        ("object", value(object)),
        ("oldObject", value(request.old_object)),
    ];
    if let Some(namespace) = namespace.map(rego_value) {
        let unstable = BTreeMap::from([(RegoValue::from("namespace"), namespace.clone())]);
        fields.extend([
            ("namespaceObject", namespace),
            ("_unstable", RegoValue::from(unstable)),
        ]);
    }
    with_fields(about, fields)
}

#[cfg(test)]
mod tests;
