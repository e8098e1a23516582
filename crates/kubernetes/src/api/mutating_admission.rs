//! The mutating admission of a cluster: webhooks and MutatingAdmissionPolicies. An object that was proven
//! *unchanged* under one admission configuration may change under another.

use serde_json::{Value, json};

use super::{
    admission_parameters::{self, ParameterVersions},
    client::Api,
    discovery::{Discovery, items},
    error::ApiError,
};
use konverge_base::model::Digest;

const GROUP_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The mutating admission of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// The digest of the whole configuration.
    pub digest: Digest,
    rules: Vec<Rule>,
    /// True if a part of the configuration may not be read: then an unknown webhook or policy may mutate any object.
    is_partial: bool,
}

/// A rule that selects the objects to mutate.
#[derive(Debug, Clone)]
struct Rule {
    /// The groups, resources and operations, as in the cluster.
    matches: Value,
    /// True if the result also depends on facts that are not read here, such as permissions of a user, or
    /// parameters that cannot be read.
    by_unseen: bool,
    /// The versions of the policy's parameters.
    parameters: Value,
    /// True if the mutation depends on the namespace of the object.
    by_namespace: bool,
    /// True if the mutation depends on the object's own labels.
    by_labels: bool,
}

impl Admission {
    /// Reads the admission configuration. Kinds that the cluster does not have are skipped.
    ///
    /// # Errors
    /// The server does not respond.
    pub(crate) async fn ask(api: &Api, discovery: &Discovery) -> Result<Self, ApiError> {
        // Returns the list, and true if the permission to read it is missing.
        let ask = |kind: &'static str| async move {
            let Some(of) = discovery.any_version(GROUP_VERSION, kind) else {
                return Ok((None, false));
            };
            match api.find(of.collection(None)).await {
                Err(error) if error.is_code(403) => Ok((None, true)),
                found => found.map(|found| (found, false)),
            }
        };
        let ((webhooks, no_webhooks), (policies, no_policies), (bindings, no_bindings)) = tokio::try_join!(
            ask("MutatingWebhookConfiguration"),
            ask("MutatingAdmissionPolicy"),
            ask("MutatingAdmissionPolicyBinding"),
        )?;
        let parameters = match (&policies, &bindings) {
            (Some(policies), Some(bindings)) => {
                admission_parameters::read(api, discovery, policies, bindings).await?
            }
            _ => ParameterVersions::new(),
        };
        Ok(Self {
            is_partial: no_webhooks || no_policies || no_bindings,
            ..Self::from_lists(
                webhooks.as_ref(),
                policies.as_ref(),
                bindings.as_ref(),
                &parameters,
            )
        })
    }

    fn from_lists(
        webhooks: Option<&Value>,
        policies: Option<&Value>,
        bindings: Option<&Value>,
        parameters: &ParameterVersions,
    ) -> Self {
        let webhooks = webhooks.map(webhook_rules);
        let selecting: Option<Vec<_>> = webhooks
            .as_ref()
            .map(|rules| rules.iter().map(|rule| &rule.matches).collect());
        let policies = policies.map(|policies| policy_rules(policies, bindings, parameters));
        // Without policies the digest stays as it was before policies were supported, so that older proofs
        // remain valid.
        let digest = match &policies {
            Some(policies) if !policies.is_empty() => {
                let policies: Vec<_> = policies.iter().map(|(_, all)| all).collect();
                Digest::of_json(&json!([selecting, policies]))
            }
            _ => Digest::of_json(&json!(selecting)),
        };
        let by_webhook = webhooks.into_iter().flatten();
        let by_policy = policies.into_iter().flatten().flat_map(|(rules, _)| rules);
        Self {
            digest,
            rules: by_webhook.chain(by_policy).collect(),
            is_partial: false,
        }
    }

    /// Returns true if objects of this kind may be mutated. Returns false if the configuration could not be read.
    pub(crate) fn may_mutate(&self, group: &str, plural: &str) -> bool {
        self.rules.iter().any(|rule| rule.fits(group, plural))
    }

    /// Returns true if the mutation of objects of this kind may change although nothing changes that is read here.
    pub(crate) fn may_change_unseen(&self, group: &str, plural: &str) -> bool {
        let mut rules = self.rules.iter();
        self.is_partial || rules.any(|rule| rule.by_unseen && rule.fits(group, plural))
    }

    /// Returns the versions of the parameters that influence objects of this kind.
    pub(crate) fn parameters(&self, group: &str, plural: &str) -> Vec<&Value> {
        let rules = self.rules.iter().filter(|rule| rule.fits(group, plural));
        let parameters = rules.map(|rule| &rule.parameters);
        parameters.filter(|versions| !versions.is_null()).collect()
    }

    /// Returns true if the mutation of an object of this kind depends on its namespace.
    pub(crate) fn is_by_namespace(&self, group: &str, plural: &str) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.by_namespace && rule.fits(group, plural))
    }

    /// Returns true if the mutation of an object of this kind depends on its labels. For a Namespace,
    /// selectors of namespaces select by these labels, too.
    pub(crate) fn is_by_labels(&self, group: &str, plural: &str) -> bool {
        let of_namespace = (group, plural) == ("", "namespaces");
        let decides = |rule: &&Rule| rule.by_labels || (of_namespace && rule.by_namespace);
        self.rules
            .iter()
            .filter(decides)
            .any(|rule| rule.fits(group, plural))
    }
}

impl Rule {
    /// Reads the facts from the selectors and expressions of a webhook or policy.
    fn new(matches: Value, selectors: &[&Value], expressions: &Value) -> Self {
        let selects = |key: &str| selectors.iter().any(|from| is_selecting(&from[key]));
        let expressions = expressions.to_string();
        Self {
            matches,
            by_unseen: expressions.contains("authorizer"),
            parameters: Value::Null,
            by_namespace: selects("namespaceSelector") || expressions.contains("namespaceObject"),
            by_labels: selects("objectSelector"),
        }
    }

    fn fits(&self, group: &str, plural: &str) -> bool {
        let names =
            |key: &str, value: &str| items(&self.matches[key]).any(|v| v == "*" || v == value || v == "*/*");
        names("apiGroups", group) && names("resources", plural)
    }
}

fn is_selecting(selector: &Value) -> bool {
    let is_set = |key: &str| match &selector[key] {
        Value::Object(labels) => !labels.is_empty(),
        Value::Array(expressions) => !expressions.is_empty(),
        _ => false,
    };
    is_set("matchLabels") || is_set("matchExpressions")
}

/// Returns the rules of all webhooks, without fields that change by themselves (certificates, versions).
fn webhook_rules(list: &Value) -> Vec<Rule> {
    let mut rules = Vec::new();
    for configuration in items(&list["items"]) {
        for webhook in items(&configuration["webhooks"]) {
            let client = &webhook["clientConfig"];
            for rule in items(&webhook["rules"]) {
                let mut matches = rule.clone();
                if let Some(map) = matches.as_object_mut() {
                    map.insert(
                        "of".to_owned(),
                        json!([
                            configuration["metadata"]["name"],
                            webhook["name"],
                            client["url"],
                            client["service"],
                            webhook["namespaceSelector"],
                            webhook["objectSelector"],
                            webhook["matchConditions"],
                        ]),
                    );
                }
                rules.push(Rule::new(matches, &[webhook], &webhook["matchConditions"]));
            }
        }
    }
    rules
}

/// Returns the rules of each bound policy, with all facts that influence it. A policy without a binding has
/// no effect; if the bindings cannot be read, each policy counts as bound.
fn policy_rules(
    policies: &Value,
    bindings: Option<&Value>,
    parameters: &ParameterVersions,
) -> Vec<(Vec<Rule>, Value)> {
    let policies = items(&policies["items"]).filter_map(|policy| {
        let (name, spec) = (&policy["metadata"]["name"], &policy["spec"]);
        let bound: Vec<_> = bindings
            .into_iter()
            .flat_map(|bindings| items(&bindings["items"]))
            .map(|binding| &binding["spec"])
            .filter(|binding| binding["policyName"] == *name)
            .collect();
        let mut selectors = vec![&spec["matchConstraints"]];
        selectors.extend(bound.iter().map(|binding| &binding["matchResources"]));
        // An unreadable binding may select any object.
        let unread = bindings.is_none();
        let versions = name.as_str().and_then(|name| parameters.get(name));
        let rules = items(&spec["matchConstraints"]["resourceRules"]).map(|rule| {
            let mut rule = Rule::new(rule.clone(), &selectors, spec);
            rule.by_unseen |= !spec["paramKind"].is_null() && versions.is_none();
            rule.parameters = versions.cloned().unwrap_or_default();
            rule.by_namespace |= unread;
            rule.by_labels |= unread;
            rule
        });
        (bindings.is_none() || !bound.is_empty()).then(|| (rules.collect(), json!([name, spec, bound])))
    });
    policies.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec_of: impl FnOnce(&mut Value)) -> Value {
        let mut spec = json!({"matchConstraints": {"resourceRules": [
            {"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["deployments"]}]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}]});
        spec_of(&mut spec);
        json!({"items": [{"metadata": {"name": "p", "resourceVersion": "1"}, "spec": spec}]})
    }

    fn bindings(policy: &str) -> Value {
        json!({"items": [{"metadata": {"name": "b"}, "spec": {"policyName": policy}}]})
    }

    fn read(webhooks: Option<&Value>, policies: Option<&Value>, bindings: Option<&Value>) -> Admission {
        Admission::from_lists(webhooks, policies, bindings, &ParameterVersions::new())
    }

    #[test]
    fn a_policy_that_is_bound_may_change_what_it_matches() {
        let one = policy(|_| {});
        let bound = read(None, Some(&one), Some(&bindings("p")));
        assert!(bound.may_mutate("apps", "deployments"));
        assert!(!bound.may_mutate("apps", "statefulsets") && !bound.may_mutate("", "deployments"));
        assert!(!bound.may_change_unseen("apps", "deployments"));
        let unbound = read(None, Some(&one), Some(&bindings("other")));
        assert!(!unbound.may_mutate("apps", "deployments"));
        assert_ne!(bound.digest, unbound.digest);
        assert_eq!(unbound.digest, read(None, None, None).digest);
    }

    #[test]
    fn every_edit_of_a_policy_shows() {
        let before = read(None, Some(&policy(|_| {})), Some(&bindings("p")));
        let edited =
            policy(|spec| spec["mutations"][0]["applyConfiguration"]["expression"] = json!("Object{x: 1}"));
        let after = read(None, Some(&edited), Some(&bindings("p")));
        assert_ne!(before.digest, after.digest);
        let again = read(None, Some(&policy(|_| {})), Some(&bindings("p")));
        assert_eq!(before.digest, again.digest);
    }

    #[test]
    fn what_selects_by_labels_is_known() {
        let webhook = |more: Value| {
            let mut webhook = json!({"name": "w", "rules": [{"apiGroups": [""], "resources": ["configmaps", "namespaces"]}]});
            webhook
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            read(Some(&json!({"items": [{"webhooks": [webhook]}]})), None, None)
        };
        let seen = |more: Value| {
            let admission = webhook(more);
            let is = |plural: &str| {
                (
                    admission.is_by_namespace("", plural),
                    admission.is_by_labels("", plural),
                )
            };
            (is("configmaps"), is("namespaces"))
        };
        let selector = json!({"matchLabels": {"a": "b"}});
        assert_eq!(
            seen(json!({"namespaceSelector": {}, "objectSelector": {}})),
            ((false, false), (false, false))
        );
        assert_eq!(
            seen(json!({"namespaceSelector": selector})),
            ((true, false), (true, true))
        );
        assert_eq!(
            seen(json!({"objectSelector": {"matchExpressions": [{}]}})),
            ((false, true), (false, true))
        );
        let asks =
            json!({"matchConditions": [{"expression": "authorizer.group('').check('get').allowed()"}]});
        assert!(webhook(asks).may_change_unseen("", "configmaps"));
        let by_policy =
            policy(|spec| spec["variables"] = json!([{"expression": "namespaceObject.metadata.labels"}]));
        let admission = read(None, Some(&by_policy), Some(&bindings("p")));
        assert!(
            admission.is_by_namespace("apps", "deployments")
                && !admission.is_by_labels("apps", "deployments")
        );
    }

    #[test]
    fn parameters_count_where_they_can_be_read() {
        let with = policy(|spec| spec["paramKind"] = json!({"apiVersion": "v1", "kind": "ConfigMap"}));
        let admission = read(None, Some(&with), Some(&bindings("p")));
        assert!(admission.may_change_unseen("apps", "deployments"));
        assert!(!admission.may_change_unseen("", "services"));
        let versions = ParameterVersions::from([("p".to_owned(), json!([["ns", "c", "uid", "7"]]))]);
        let admission = Admission::from_lists(None, Some(&with), Some(&bindings("p")), &versions);
        assert!(!admission.may_change_unseen("apps", "deployments"));
        assert_eq!(
            admission.parameters("apps", "deployments"),
            [&json!([["ns", "c", "uid", "7"]])]
        );
        assert!(admission.parameters("", "services").is_empty());
    }
}
