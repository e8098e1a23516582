//! The mutating admission of a cluster: webhooks and MutatingAdmissionPolicies. An object that was proven
//! *unchanged* under one admission configuration may change under another.

use serde_json::{Value, json};

use super::{
    admission_parameters::{self, ParameterVersions},
    client::{Api, ApiRequest},
    discovery::Discovery,
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

/// The result of listing admission objects.
enum Listing {
    /// The cluster does not have the kind.
    Unknown,
    /// The permission to list the objects is missing.
    Denied,
    Items(Value),
}

impl Listing {
    fn items(&self) -> Option<&Value> {
        match self {
            Self::Items(items) => Some(items),
            Self::Unknown | Self::Denied => None,
        }
    }
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
        let ask = |kind: &'static str| async move {
            let Some(of) = discovery.any_version(GROUP_VERSION, kind) else {
                return Ok(Listing::Unknown);
            };
            match api.call(&ApiRequest::get(of.collection(None))).await {
                Ok(answer) => Ok(Listing::Items(answer.value)),
                Err(error) if error.is_code(403) => Ok(Listing::Denied),
                Err(error) if error.is_code(404) => Ok(Listing::Unknown),
                Err(error) => Err(error),
            }
        };
        let (webhooks, policies, bindings) = tokio::try_join!(
            ask("MutatingWebhookConfiguration"),
            ask("MutatingAdmissionPolicy"),
            ask("MutatingAdmissionPolicyBinding"),
        )?;
        let parameters = match (policies.items(), bindings.items()) {
            (Some(policies), Some(bindings)) => {
                admission_parameters::read(api, discovery, policies, bindings).await?
            }
            _ => ParameterVersions::new(),
        };
        let is_denied = |listing: &Listing| matches!(listing, Listing::Denied);
        Ok(Self {
            is_partial: [&webhooks, &policies, &bindings].into_iter().any(is_denied),
            ..Self::from_lists(webhooks.items(), policies.items(), bindings.items(), &parameters)
        })
    }

    fn from_lists(
        webhooks: Option<&Value>,
        policies: Option<&Value>,
        bindings: Option<&Value>,
        parameters: &ParameterVersions,
    ) -> Self {
        let (webhook_rules, selecting): (Option<Vec<_>>, Vec<_>) = match webhooks {
            Some(webhooks) => {
                let (rules, selecting) = webhook_rules(webhooks).into_iter().unzip();
                (Some(rules), selecting)
            }
            None => (None, Vec::new()),
        };
        let policies = policies.map(|policies| policy_rules(policies, bindings, parameters));
        // Without policies the digest stays as it was before policies were supported, so that older proofs
        // remain valid.
        let digest = match &policies {
            Some(policies) if !policies.is_empty() => {
                let policies: Vec<_> = policies.iter().map(|(_, all)| all).collect();
                Digest::of_json(&json!([webhook_rules, policies]))
            }
            _ => Digest::of_json(&json!(webhook_rules)),
        };
        let webhook_rules = webhook_rules.into_iter().flatten();
        let by_webhook = webhook_rules.zip(selecting).map(|(matches, selects)| Rule {
            matches,
            by_unseen: selects.mentions(&["authorizer"]),
            parameters: Value::Null,
            by_namespace: selects.by_namespace,
            by_labels: selects.by_labels,
        });
        let by_policy = policies.into_iter().flatten().flat_map(|(rules, _)| rules);
        Self {
            digest,
            rules: by_webhook.chain(by_policy).collect(),
            is_partial: false,
        }
    }

    /// Returns true if objects of this kind may be mutated.
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
    fn fits(&self, group: &str, plural: &str) -> bool {
        let names = |key: &str, value: &str| {
            let list = self.matches.get(key).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .any(|v| v == "*" || v == value || v == "*/*")
        };
        names("apiGroups", group) && names("resources", plural)
    }
}

/// Selectors and conditions by which a webhook or a policy chooses objects.
struct Selects {
    by_namespace: bool,
    by_labels: bool,
    /// The conditions and expressions of the webhook or policy.
    expressions: String,
}

impl Selects {
    /// Reads the facts from the selectors and expressions of a webhook or policy.
    fn from_selectors(selectors: &[&Value], expressions: &Value) -> Self {
        let selects = |key: &str| selectors.iter().any(|from| is_selecting(&from[key]));
        let mut selects = Self {
            by_namespace: selects("namespaceSelector"),
            by_labels: selects("objectSelector"),
            expressions: expressions.to_string(),
        };
        selects.by_namespace |= selects.mentions(&["namespaceObject"]);
        selects
    }

    fn mentions(&self, variables: &[&str]) -> bool {
        variables
            .iter()
            .any(|variable| self.expressions.contains(variable))
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
fn webhook_rules(list: &Value) -> Vec<(Value, Selects)> {
    let mut rules = Vec::new();
    for configuration in items(&list["items"]) {
        for webhook in items(&configuration["webhooks"]) {
            let client = &webhook["clientConfig"];
            for rule in items(&webhook["rules"]) {
                let mut rule = rule.clone();
                if let Some(map) = rule.as_object_mut() {
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
                rules.push((
                    rule,
                    Selects::from_selectors(&[webhook], &webhook["matchConditions"]),
                ));
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
        let selects = Selects::from_selectors(&selectors, spec);
        // An unreadable binding may select any object.
        let unread = bindings.is_none();
        let versions = name.as_str().and_then(|name| parameters.get(name));
        let rules = items(&spec["matchConstraints"]["resourceRules"]).map(|rule| Rule {
            matches: rule.clone(),
            by_unseen: (!spec["paramKind"].is_null() && versions.is_none())
                || selects.mentions(&["authorizer"]),
            parameters: versions.cloned().unwrap_or_default(),
            by_namespace: selects.by_namespace || unread,
            by_labels: selects.by_labels || unread,
        });
        (bindings.is_none() || !bound.is_empty()).then(|| (rules.collect(), json!([name, spec, bound])))
    });
    policies.collect()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
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
