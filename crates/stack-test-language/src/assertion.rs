//! Evaluates the assertions of a test on a Spec. Real values are compared; values in failure messages are masked.

use cel::Context;
use serde_json::{Value, json};

use konverge_base::{
    model::{
        FieldPath, masked_value,
        policy_finding::{Enforcement, PolicyFinding},
        spec::{Resource, RuntimeKind, object_key},
        stack_test::{FieldMismatch, StackTestFailure},
        text::first_few,
    },
    yaml::Placed,
};
use konverge_cel::{
    cel_expression::{CelError, CelExpression},
    cel_value::to_cel,
};
use konverge_secrets::{Secrets, mask_resource};

use super::{
    assertion_form::{Assertion, ExpectedFailure, ObjectSelector, VARIABLES},
    object_match::mismatches,
};

/// The maximum number of differences that a failure shows.
const MOST_SHOWN: usize = 10;

/// The maximum number of names that a message lists.
const MOST_NAMED: usize = 5;

/// The result of compiling the stack of a test.
pub enum TestedStack<'a> {
    /// The stack compiled.
    Compiled(TestedSpec<'a>),
    /// The stack did not compile; with the message.
    Refused(&'a str),
}

/// A Spec with facts about it.
pub struct TestedSpec<'a> {
    /// The resources with real values.
    pub resources: &'a [Resource],
    /// The same resources in the same order, with masked values.
    pub shown: &'a [Resource],
    /// The findings of the policy sets on this Spec.
    pub findings: &'a [PolicyFinding],
    /// Returns true if a cluster could have this kind (API version, kind).
    pub is_known_kind: &'a dyn Fn(Option<&str>, &str) -> bool,
}

/// Returns the failures of the assertions that are not true.
pub fn failures(
    assertions: &[Placed<Assertion>],
    stack: &TestedStack<'_>,
    secrets: &Secrets,
) -> Vec<StackTestFailure> {
    let found = assertions.iter().filter_map(|one| {
        let failure = match (&one.value, stack) {
            (Assertion::Fails(ExpectedFailure::Compile(text)), stack) => {
                compile_failure(text, stack, secrets)
            }
            // A policy in KCL refuses the stack while it compiles, so there is no Spec.
            (Assertion::Fails(ExpectedFailure::Policy(name)), stack @ TestedStack::Refused(_)) => {
                compile_failure(&format!("policy {name}:"), stack, secrets)
            }
            (_, TestedStack::Refused(message)) => {
                let message = secrets.mask_foreign(message);
                Some(plain(format!("the stack does not compile: {message}")))
            }
            (Assertion::Has(selector), TestedStack::Compiled(spec)) => has_failure(selector, spec, secrets),
            (Assertion::Absent(selector), TestedStack::Compiled(spec)) => absent_failure(selector, spec),
            (Assertion::Cel { text, expression }, TestedStack::Compiled(spec)) => {
                cel_failure(text, expression, spec, secrets)
            }
            (Assertion::Fails(ExpectedFailure::Policy(name)), TestedStack::Compiled(spec)) => {
                policy_failure(name, spec.findings)
            }
        };
        failure.map(|failure| StackTestFailure {
            line: one.line,
            ..failure
        })
    });
    found.collect()
}

fn plain(message: impl Into<String>) -> StackTestFailure {
    StackTestFailure::new(None, message)
}

fn has_failure(
    selector: &ObjectSelector,
    spec: &TestedSpec<'_>,
    secrets: &Secrets,
) -> Option<StackTestFailure> {
    let selected = || {
        spec.resources
            .iter()
            .zip(spec.shown)
            .filter(|(one, _)| selector.selects(one))
    };
    if selected().next().is_none() {
        return Some(missing(selector, spec));
    }
    let expected = selector.has.as_ref()?;
    // The failure shows the object with the fewest differences, because it is most likely the intended one.
    let compared = selected().map(|(one, shown)| (mismatches(expected, &object(one)), one, shown));
    let (paths, nearest, shown) = compared.min_by_key(|(paths, ..)| paths.len())?;
    if paths.is_empty() {
        return None;
    }
    let masked = masked_fields(expected, nearest, secrets);
    let shown = object(shown);
    let side = |value: &Value, path: &FieldPath| {
        let value = path.get(value).filter(|value| !value.is_null());
        value.map(|value| secrets.mask_value_at(path, value))
    };
    let difference = |path: &FieldPath| {
        let (expected, found) = (side(&masked, path), side(&shown, path));
        // If one of the two values is secret, the other one is hidden too, because it may be the same secret.
        let is_secret = [&expected, &found]
            .into_iter()
            .flatten()
            .any(masked_value::holds_secret);
        let hidden =
            |value: Option<Value>| value.map(|value| if is_secret { secrets.marked(&value) } else { value });
        FieldMismatch {
            path: path.clone(),
            expected: hidden(expected),
            found: hidden(found),
        }
    };
    let more = match paths.len().saturating_sub(MOST_SHOWN) {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(StackTestFailure {
        line: None,
        message: format!(
            "no {} has these fields; the nearest differs{more}",
            selector.describe()
        ),
        nearest: Some(nearest.id.clone()),
        differences: paths.iter().take(MOST_SHOWN).map(difference).collect(),
    })
}

/// Returns the expected fields, masked in the same way as the resource.
fn masked_fields(expected: &Value, resource: &Resource, secrets: &Secrets) -> Value {
    let mut attributes = expected.as_object().cloned().unwrap_or_default();
    let header: &[&str] = match resource.runtime {
        RuntimeKind::Kubernetes => &["apiVersion", "kind"],
        RuntimeKind::Terraform => &[],
    };
    for key in header {
        if let Some(value) = resource.attributes.get(*key) {
            attributes.entry(*key).or_insert_with(|| value.clone());
        }
    }
    let expected = Resource {
        attributes,
        ..resource.clone()
    };
    object(&mask_resource(secrets, &expected))
}

fn missing(selector: &ObjectSelector, spec: &TestedSpec<'_>) -> StackTestFailure {
    let what = format!("there is no {}", selector.describe());
    let names = |of: &dyn Fn(&Resource) -> Option<String>| {
        let mut names: Vec<String> = spec.resources.iter().filter_map(of).collect();
        names.sort();
        names.dedup();
        names
    };
    let ids: Vec<String> = match &selector.kind {
        Some(kind) => names(&|one| (is_of_kind(one, kind)).then(|| one.id.to_string())),
        None => names(&|one| Some(one.id.to_string())),
    };
    let wanted = selector.id.as_ref().or(selector.name.as_ref());
    let nearest = wanted.and_then(|wanted| {
        let distance = |id: &String| {
            let name = if selector.id.is_some() {
                id.as_str()
            } else {
                id.rsplit_once(':').map_or(id.as_str(), |(_, name)| name)
            };
            strsim::damerau_levenshtein(name, wanted)
        };
        ids.iter().min_by_key(|id| distance(id))
    });
    let nearest = nearest.or(ids.first());
    let message = match (nearest, spec.resources.is_empty()) {
        (_, true) => format!("{what}: the Spec has no resource"),
        (Some(nearest), _) => format!("{what}; the nearest is {nearest}"),
        (None, _) => {
            let kinds = names(&|one| Some(kind_of(one).to_owned()));
            format!("{what}; the Spec has {}", listed(&kinds))
        }
    };
    plain(message)
}

fn absent_failure(selector: &ObjectSelector, spec: &TestedSpec<'_>) -> Option<StackTestFailure> {
    let is_met = |one: &&Resource| {
        let fits = |expected: &Value| mismatches(expected, &object(one)).is_empty();
        selector.selects(one) && selector.has.as_ref().is_none_or(fits)
    };
    let found: Vec<String> = spec
        .resources
        .iter()
        .filter(is_met)
        .map(|one| one.id.to_string())
        .collect();
    if !found.is_empty() {
        return Some(plain(format!(
            "{} must be absent, but the Spec has {}",
            selector.describe(),
            listed(&found)
        )));
    }
    // A misspelled kind would be absent from every Spec, so it is reported.
    let kind = selector.kind.as_deref()?;
    let is_known = spec.resources.iter().any(|one| is_of_kind(one, kind))
        || (spec.is_known_kind)(selector.api_version.as_deref(), kind);
    (!is_known).then(|| {
        plain(format!(
            "`{kind}` is not a kind of Kubernetes, or of a CustomResourceDefinition in this repository, so it is absent from \
             every Spec; if it comes from elsewhere, add its `apiVersion`"
        ))
    })
}

fn cel_failure(
    text: &str,
    expression: &CelExpression,
    spec: &TestedSpec<'_>,
    secrets: &Secrets,
) -> Option<StackTestFailure> {
    let of = |runtime: RuntimeKind| spec.resources.iter().filter(move |one| one.runtime == runtime);
    let kubernetes: Value = of(RuntimeKind::Kubernetes).map(object).collect();
    let terraform: Value = of(RuntimeKind::Terraform)
        .map(|one| json!({"id": one.id, "attributes": one.attributes}))
        .collect();
    let mut context = Context::default();
    for (name, value) in VARIABLES.iter().zip([&kubernetes, &terraform]) {
        context.add_variable_as_val(*name, to_cel(value));
    }
    let why = match expression.holds(&context) {
        Ok(true) => return None,
        Ok(false) => return Some(plain(format!("`{text}` is false"))),
        Err(CelError::Missing(why)) => format!("{why} (`has(…)` asks whether a field exists)"),
        Err(CelError::Other(why)) => why,
    };
    // An error text of CEL may contain values.
    let why = secrets.mask_foreign(&why);
    Some(plain(format!("`{text}` has no value: {why}")))
}

fn policy_failure(name: &str, findings: &[PolicyFinding]) -> Option<StackTestFailure> {
    let is_meant = |finding: &&PolicyFinding| {
        let parts = finding.rule.split_once('/');
        // A Rego rule may be named with or without its package.
        let is_rule = |rule: &str| rule == name || rule.rsplit_once('.').is_some_and(|(_, own)| own == name);
        finding.rule == name || parts.is_some_and(|(set, rule)| set == name || is_rule(rule))
    };
    let meant = || findings.iter().filter(is_meant);
    if meant().any(|finding| finding.verdict == Enforcement::Deny) {
        return None;
    }
    if let Some(finding) = meant().find(|finding| finding.verdict != Enforcement::Pass) {
        return Some(plain(format!(
            "policy `{name}` does not deny the stack, it only says: {}",
            finding.message
        )));
    }
    let denied = findings
        .iter()
        .filter(|finding| finding.verdict == Enforcement::Deny);
    let mut denied: Vec<String> = denied.map(|finding| finding.rule.clone()).collect();
    denied.sort();
    denied.dedup();
    Some(plain(if denied.is_empty() {
        format!("policy `{name}` does not deny the stack")
    } else {
        format!(
            "policy `{name}` does not deny the stack; it is denied by {}",
            listed(&denied)
        )
    }))
}

fn compile_failure(text: &str, stack: &TestedStack<'_>, secrets: &Secrets) -> Option<StackTestFailure> {
    match stack {
        TestedStack::Refused(message) if message.contains(text) => None,
        TestedStack::Refused(message) => Some(plain(format!(
            "the stack does not compile, but the message does not contain `{text}`: {}",
            secrets.mask_foreign(message)
        ))),
        TestedStack::Compiled(_) => Some(plain(format!(
            "the stack compiles; expected an error with `{text}`"
        ))),
    }
}

impl ObjectSelector {
    fn selects(&self, resource: &Resource) -> bool {
        if let Some(id) = &self.id {
            return resource.id.as_str() == id;
        }
        let key = object_key(&resource.attributes);
        let api_version = resource.attributes.get("apiVersion").and_then(Value::as_str);
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        resource.runtime == RuntimeKind::Kubernetes
            && is(&self.kind, key.kind)
            && is(&self.name, key.name)
            && is(&self.namespace, key.namespace)
            && is(&self.api_version, api_version.unwrap_or_default())
    }

    /// Describes the selector in a sentence: `Ingress storefront`.
    fn describe(&self) -> String {
        let parts = [&self.id, &self.api_version, &self.kind, &self.name]
            .into_iter()
            .flatten();
        let text = parts.map(String::as_str).collect::<Vec<_>>().join(" ");
        match &self.namespace {
            Some(namespace) => format!("{text} in namespace {namespace}"),
            None => text,
        }
    }
}

fn object(resource: &Resource) -> Value {
    Value::Object(resource.attributes.clone())
}

fn kind_of(resource: &Resource) -> &str {
    match resource.runtime {
        RuntimeKind::Kubernetes => object_key(&resource.attributes).kind,
        RuntimeKind::Terraform => resource.id.as_str(),
    }
}

fn is_of_kind(resource: &Resource, kind: &str) -> bool {
    resource.runtime == RuntimeKind::Kubernetes && kind_of(resource) == kind
}

fn listed(names: &[String]) -> String {
    first_few(names.iter().map(String::as_str), MOST_NAMED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::{StackTest, TestBody};
    use konverge_base::model::spec::Sharing;
    use konverge_secrets::HashKey;

    fn assertions(text: &str) -> Vec<Placed<Assertion>> {
        match StackTest::parse(text).unwrap().body {
            TestBody::Offline(assertions) => assertions,
            TestBody::Live(_) => panic!("{text}"),
        }
    }

    fn resource(object: Value) -> Resource {
        let text = |path: &str| {
            object
                .pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let id = format!(
            "{}:{}:shop:{}",
            text("/apiVersion"),
            text("/kind"),
            text("/metadata/name")
        );
        Resource {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            attributes: object.as_object().unwrap().clone(),
            depends_on: Vec::new(),
            extensions: serde_json::Map::new(),
            sharing: Sharing::default(),
        }
    }

    fn shop() -> Vec<Resource> {
        let deployment = |name: &str, image: &str| {
            resource(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"},
                "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "web", "image": image}]}}},
            }))
        };
        vec![
            deployment("web", "web:1"),
            deployment("worker", "worker:1"),
            resource(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "shop"},
                "stringData": {"password": "hunter2-hunter2"},
            })),
        ]
    }

    fn finding(rule: &str, verdict: Enforcement) -> PolicyFinding {
        PolicyFinding {
            verdict,
            rule: rule.to_owned(),
            stack: None,
            message: "said".to_owned(),
            hint: None,
            place: None,
        }
    }

    /// The failures of one assertion, as `line message; path expected found`.
    fn said(assertion: &str) -> Vec<String> {
        let secrets = Secrets::new(HashKey::derive("k"));
        let resources = shop();
        let shown: Vec<_> = resources.iter().map(|one| mask_resource(&secrets, one)).collect();
        let findings = [
            finding("objects/no-latest", Enforcement::Deny),
            finding("objects/limits", Enforcement::Warn),
            finding("plan/deletions", Enforcement::Pass),
        ];
        let stack = TestedStack::Compiled(TestedSpec {
            resources: &resources,
            shown: &shown,
            findings: &findings,
            is_known_kind: &|api_version, kind| api_version.is_some() || kind == "Ingress",
        });
        let test = assertions(&format!("name: a\nassert:\n- {assertion}\n"));
        let told = |one: &StackTestFailure| {
            let mut text = format!("{} {}", one.line.unwrap_or_default(), one.message);
            for difference in &one.differences {
                let side = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), ToString::to_string);
                text.push_str(&format!(
                    "; {} {} {}",
                    difference.path,
                    side(&difference.expected),
                    side(&difference.found)
                ));
            }
            text
        };
        failures(&test, &stack, &secrets).iter().map(told).collect()
    }

    #[test]
    fn what_holds_says_nothing() {
        for assertion in [
            "{kind: Deployment}",
            "{kind: Deployment, name: worker, namespace: shop, apiVersion: apps/v1}",
            "{kind: Deployment, has: {spec: {template: {spec: {containers: [{name: web, image: 'worker:1'}]}}}}}",
            "{id: 'apps/v1:Deployment:shop:web', has: {spec: {replicas: 2}}}",
            "{kind: Secret, has: {stringData: {password: hunter2-hunter2}}}",
            "{absent: {kind: Ingress}}",
            "{absent: {kind: Deployment, has: {spec: {replicas: 3}}}}",
            "{absent: {kind: ServiceMonitor, apiVersion: monitoring.coreos.com/v1}}",
            "{cel: 'size(resources.filter(r, r.kind == \"Deployment\")) == 2 && size(terraform) == 0'}",
            "{fails: 'policy no-latest'}",
            "{fails: 'policy objects'}",
            "{fails: 'policy objects/no-latest'}",
        ] {
            assert_eq!(said(assertion), Vec::<String>::new(), "{assertion}");
        }
    }

    #[test]
    fn a_failure_names_the_nearest_object_and_its_differences() {
        for (assertion, expected) in [
            (
                "{kind: Deployment, has: {spec: {replicas: 3, template: {spec: {containers: [{name: web, image: 'worker:1'}]}}}}}",
                "3 no Deployment has these fields; the nearest differs; /spec/replicas 3 2",
            ),
            (
                "{kind: Deployment, name: web, has: {spec: {paused: true}}}",
                "3 no Deployment web has these fields; the nearest differs; /spec/paused true -",
            ),
            (
                "{kind: Deployment, name: web, has: {spec: {replicas: null}}}",
                "3 no Deployment web has these fields; the nearest differs; /spec/replicas - 2",
            ),
            (
                "{kind: Deployment, name: wab}",
                "3 there is no Deployment wab; the nearest is apps/v1:Deployment:shop:web",
            ),
            (
                "{kind: Ingress}",
                "3 there is no Ingress; the Spec has Deployment, Secret",
            ),
            (
                "{id: 'a:b:c:d'}",
                "3 there is no a:b:c:d; the nearest is v1:Secret:shop:login",
            ),
            (
                "{absent: {kind: Secret}}",
                "3 Secret must be absent, but the Spec has v1:Secret:shop:login",
            ),
            (
                "{cel: 'size(resources) == 4'}",
                "3 `size(resources) == 4` is false",
            ),
            (
                "{cel: 'size(resources)'}",
                "3 `size(resources)` has no value: it returns int, not true or false",
            ),
            (
                "{fails: 'policy deletions'}",
                "3 policy `deletions` does not deny the stack; it is denied by objects/no-latest",
            ),
            (
                "{fails: 'policy limits'}",
                "3 policy `limits` does not deny the stack, it only says: said",
            ),
            (
                "{fails: 'compile x'}",
                "3 the stack compiles; expected an error with `x`",
            ),
        ] {
            assert_eq!(said(assertion), [expected], "{assertion}");
        }
        let missing = said("{cel: 'resources.all(r, r.spec.replicas == 2)'}");
        assert!(
            missing[0].contains("has no value: ") && missing[0].contains("`has(…)`"),
            "{missing:?}"
        );
    }

    #[test]
    fn a_kind_that_nobody_has_cannot_be_asserted_absent() {
        let typo = said("{absent: {kind: Ingres}}");
        assert!(
            typo[0].starts_with("3 `Ingres` is not a kind of Kubernetes"),
            "{typo:?}"
        );
    }

    #[test]
    fn no_side_of_a_secret_is_shown() {
        let text =
            said("{kind: Secret, has: {stringData: {password: wrong-wrong, other: also-secret}}}").join("\n");
        assert!(
            text.contains("/stringData/password") && text.contains("/stringData/other"),
            "{text}"
        );
        for value in ["hunter2", "wrong-wrong", "also-secret"] {
            assert!(!text.contains(value), "{text}");
        }
    }

    #[test]
    fn a_stack_that_does_not_compile_passes_only_what_expects_it() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let refused = TestedStack::Refused("Check failed: policy replicas: replicas must be positive");
        let outcome = |assertion: &str| {
            let test = assertions(&format!("name: a\nassert:\n- {assertion}\n"));
            failures(&test, &refused, &secrets).len()
        };
        assert_eq!(outcome("{fails: 'compile replicas must be positive'}"), 0);
        assert_eq!(outcome("{fails: 'policy replicas'}"), 0);
        for assertion in [
            "{fails: 'compile something else'}",
            "{fails: 'policy objects'}",
            "{absent: {kind: Secret}}",
            "{cel: 'size(resources) == 0'}",
        ] {
            assert_eq!(outcome(assertion), 1, "{assertion}");
        }
    }

    #[test]
    fn every_assertion_counts_and_not_only_the_last() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let resources = shop();
        let stack = TestedStack::Compiled(TestedSpec {
            resources: &resources,
            shown: &resources,
            findings: &[],
            is_known_kind: &|_, _| true,
        });
        let test = assertions(
            "name: a\nassert:\n- {kind: Ingress}\n- {kind: Deployment, name: x}\n- {kind: Deployment}\n",
        );
        let found = failures(&test, &stack, &secrets);
        let lines: Vec<_> = found.iter().map(|one| one.line).collect();
        assert_eq!(lines, [Some(3), Some(4)]);
    }
}
