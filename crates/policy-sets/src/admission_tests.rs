//! What an API server cannot be asked: what is not known before the apply denies.
use serde_json::{Value, json};

use super::{PolicyFile, PolicySet};
use crate as policy;
use konverge_base::model::{
    RepoPath,
    plan::{Action, Basis, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
    policy_finding::{Enforcement, PolicyFinding},
    spec::RuntimeKind,
};
use konverge_config::Config;

const POLICY: &str = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints:\n    resourceRules:\n    - {apiGroups: ['*'], apiVersions: ['v1'], operations: ['*'], resources: [RESOURCES]}\n  validations:\n  - {expression: EXPRESSION, message: 'no'}\n---\napiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicyBinding\nmetadata: {name: b}\nspec: {policyName: p, validationActions: [Deny]}\n";

fn text(expression: &str) -> String {
    POLICY
        .replace("EXPRESSION", &format!("\"{expression}\""))
        .replace("RESOURCES", "services, things")
}

fn findings_for(text: &str, id: &str, (before, after): (Option<Value>, Option<Value>)) -> Vec<PolicyFinding> {
    let config = Config::parse("policy: {sets: [{name: s, path: p, language: vap}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: text.to_owned(),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let stack = "shop/dev".parse().unwrap();
    let action = match (&before, &after) {
        (None, _) => Action::Create,
        (_, None) => Action::Delete,
        _ => Action::Replace,
    };
    let change = FieldChange {
        path: "".into(),
        from: before,
        to: after,
        origin: ChangeOrigin::Change,
    };
    let plan = ResourcePlan::new(
        &stack,
        id.parse().unwrap(),
        RuntimeKind::Kubernetes,
        action,
        vec![change],
    );
    let plan = StackPlan::new(RepoPath::root(), stack, Basis::Live, vec![plan]);
    set.findings(&policy::document(&plan, Vec::new()), &super::tests::secrets())
}

fn service(type_of: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "shop"}, "spec": {"type": type_of}})
}

fn created(text: &str) -> Vec<PolicyFinding> {
    findings_for(
        text,
        "v1:Service:shop:a",
        (None, Some(service(json!("NodePort")))),
    )
}

#[test]
fn a_policy_sees_operation_and_objects() {
    let rule = text("request.operation == 'CREATE' && oldObject == null && object.spec.type != 'NodePort'");
    let findings = created(&rule);
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (findings[0].rule.as_str(), findings[0].message.as_str()),
        ("s/p:b", "no")
    );
    let place = findings[0].place.as_ref().unwrap();
    assert_eq!(place.resource.as_ref().unwrap().as_str(), "v1:Service:shop:a");
    // A replacement is a deletion and a creation.
    let both = (Some(service(json!("A"))), Some(service(json!("B"))));
    let deletion = text("request.operation != 'DELETE' || oldObject.spec.type != 'A'");
    assert_eq!(
        findings_for(&deletion, "v1:Service:shop:a", both.clone()).len(),
        1
    );
    let creation = text("request.operation != 'CREATE' || object.spec.type != 'B'");
    assert_eq!(findings_for(&creation, "v1:Service:shop:a", both).len(), 1);
    // Who only warns denies nothing.
    let warning = rule.replace("[Deny]", "[Warn]");
    assert_eq!(created(&warning)[0].verdict, Enforcement::Warn);
}

#[test]
fn what_is_not_known_denies() {
    let pass = text("true");
    assert!(created(&pass).is_empty());
    let selected = |selector: &str| {
        pass.replace(
            "    resourceRules:",
            &format!("    namespaceSelector: {selector}\n    resourceRules:"),
        )
    };
    let with_params = pass.replace(
        "spec:\n  matchConstraints",
        "spec:\n  paramKind: {apiVersion: v1, kind: ConfigMap}\n  matchConstraints",
    );
    let with_params = with_params.replace(
        "spec: {policyName: p",
        "spec: {paramRef: {name: c, parameterNotFoundAction: Allow}, policyName: p",
    );
    for (rules, word) in [
        (
            text("request.userInfo.username == 'a' || true"),
            "only the API server knows",
        ),
        (
            text("namespaceObject.metadata.name == 'shop' || true"),
            "not part of the stack",
        ),
        (text("object.spec.nowhere.size() > 0"), "resulted in error"),
        (text("do_magic(object) || true"), "`do_magic` is not known here"),
        (text("1 +"), "the set cannot be read"),
        (selected("{matchLabels: {team: a}}"), "labels of Namespace shop"),
        (
            with_params.replace(", parameterNotFoundAction: Allow", ""),
            "not among the files of the set",
        ),
        (pass.replace("policyName: p", "policyName: q"), "no policy q"),
        (
            pass.split("---").next().unwrap().to_owned(),
            "no ValidatingAdmissionPolicy with a binding",
        ),
        (
            pass.replace("apiVersions: ['v1']", "apiVersions: ['v2']"),
            "which the API server converts",
        ),
        (
            pass.replace(
                "  validations:",
                "  auditAnnotations: [{key: a, valueExpression: 'object.spec.nowhere'}]\n  validations:",
            ),
            "valueExpression 'object.spec.nowhere' resulted in error",
        ),
        (
            text("authorizer.group('').resource('pods').namespace('shop').check('create').allowed()"),
            "the policy reads `authorizer`, which only the API server knows",
        ),
        (
            text("authorizer.requestResource.check('x').allowed() || true"),
            "which only the API server knows",
        ),
        (text("object.check('create').allowed() || true"), "not known here"),
        (text("lists.range(1000000).size() > 1"), "not known here"),
    ] {
        let findings = created(&rules);
        assert_eq!(findings.len(), 1, "{word}");
        assert_eq!(findings[0].verdict, Enforcement::Deny, "{word}");
        assert!(
            findings[0].message.contains(word),
            "{word}: {}",
            findings[0].message
        );
    }
    // Parameters that may be missing: it passes, and is shown.
    let allowed = created(&with_params);
    assert_eq!(allowed[0].verdict, Enforcement::Warn);
    assert!(allowed[0].message.contains("parameterNotFoundAction: Allow"));
    // An annotation that is a text or null decides nothing.
    let annotated = |value: &str| {
        let line = format!("  auditAnnotations: [{{key: a, valueExpression: \"{value}\"}}]\n  validations:");
        created(&pass.replace("  validations:", &line))
    };
    assert!(annotated("object.spec.type").is_empty() && annotated("null").is_empty());
    assert_eq!(annotated("1")[0].verdict, Enforcement::Deny);
    // By its own name, and by a Namespace of the set.
    assert!(created(&selected("{matchLabels: {kubernetes.io/metadata.name: shop}}")).is_empty());
    let namespace = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n";
    assert!(created(&format!("{}{namespace}", selected("{matchLabels: {team: a}}"))).is_empty());
    // The failure policy lets an absent field pass, and shows it.
    let ignored = text("object.spec.nowhere.size() > 0")
        .replace("spec:\n  matchC", "spec:\n  failurePolicy: Ignore\n  matchC");
    assert_eq!(created(&ignored)[0].verdict, Enforcement::Warn);
}

#[test]
fn a_custom_kind_needs_its_definition() {
    let thing =
        json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "shop"}});
    let found = |rules: &str| findings_for(rules, "x.io/v1:Thing:shop:a", (None, Some(thing.clone())));
    let rule = text("object.metadata.name != 'a'");
    assert!(
        found(&rule)[0]
            .message
            .contains("the plural of Thing in x.io is unknown")
    );
    let definition = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.x.io}\nspec: {group: x.io, names: {kind: Thing, plural: things}}\n";
    assert_eq!(found(&format!("{rule}{definition}"))[0].message, "no");
}

#[test]
fn an_unknown_value_is_undecided() {
    let rule = text("object.spec.type != 'NodePort'");
    let unknown = service(json!({"$unknown": true}));
    let findings = findings_for(&rule, "v1:Service:shop:a", (None, Some(unknown)));
    assert!(findings[0].message.starts_with("undecided: it reads /spec/type"));
    // So is whether the policy is about it at all.
    let by_label = text("false").replace(
        "    resourceRules:",
        "    objectSelector: {matchLabels: {tier: front}}\n    resourceRules:",
    );
    let mut unknown = service(json!("NodePort"));
    unknown["metadata"]["labels"] = json!({"tier": {"$unknown": true}});
    let findings = findings_for(&by_label, "v1:Service:shop:a", (None, Some(unknown)));
    assert!(
        findings[0]
            .message
            .starts_with("undecided: it reads /metadata/labels/tier")
    );
}

/// What the rules find for resources of a stack that are updated.
fn found_in(rules: &str, resources: Vec<(&str, Value)>) -> Vec<String> {
    let config = Config::parse("policy: {sets: [{name: s, path: p, language: vap}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: rules.to_owned(),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let resources = resources.into_iter();
    let resources = resources.map(|(id, object)| super::tests::wanted(id, object));
    let findings = set.findings(
        &super::tests::document(resources.collect()),
        &super::tests::secrets(),
    );
    let ids = findings
        .iter()
        .filter_map(|finding| finding.place.as_ref()?.resource.as_ref());
    ids.map(ToString::to_string).collect()
}

/// A pull request writes the stack's Namespace: what it leaves out takes no object out of a policy.
#[test]
fn a_namespace_of_the_stack_hides_no_label() {
    let selected = |selector: &str, more: &str| {
        let selector = format!("    namespaceSelector: {selector}\n    resourceRules:");
        text("false").replace("    resourceRules:", &selector) + more
    };
    let bare = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let own = json!({"apiVersion": "x.io/v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"env": "dev"}}});
    let known = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod}}\n";
    for (rules, namespace) in [
        (
            selected("{matchLabels: {kubernetes.io/metadata.name: shop}}", ""),
            bare.clone(),
        ),
        (selected("{matchLabels: {env: prod}}", known), bare),
        (selected("{matchLabels: {env: prod}}", ""), own),
    ] {
        let stack = vec![
            ("v1:Service:shop:a", service(json!("NodePort"))),
            ("v1:Namespace:shop", namespace),
        ];
        let found = found_in(&rules, stack);
        assert!(found.iter().any(|id| id == "v1:Service:shop:a"), "{rules}");
    }
}

/// Names of RBAC have colons, and a program chooses ids: the object says whether it is in a namespace.
#[test]
fn an_id_says_nothing_about_the_scope_of_an_object() {
    let rules = text("false").replace(
        "resources: [services, things]",
        "resources: [clusterrolebindings], scope: Cluster",
    );
    let binding = |name: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}});
    for (id, name) in [
        (
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding:kube-system:evil",
            "kube-system:evil",
        ),
        ("my:own:kube-system:evil", "evil"),
        ("rbac.authorization.k8s.io/v1:ClusterRoleBinding:evil", "evil"),
    ] {
        assert_eq!(found_in(&rules, vec![(id, binding(name))]), [id], "{id}");
    }
}

/// The definition of the set says the plural of a kind, and not one that a pull request brings.
#[test]
fn a_definition_of_the_stack_renames_no_kind_of_the_set() {
    let definition = |plural: &str| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.io"}, "spec": {"group": "x.io", "names": {"kind": "Thing", "plural": plural}}})
    };
    let rules = format!("{}---\n{}\n", text("false"), definition("things"));
    let thing =
        json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "a", "namespace": "shop"}});
    let stack = vec![
        ("x.io/v1:Thing:shop:a", thing),
        (
            "apiextensions.k8s.io/v1:CustomResourceDefinition:things.x.io",
            definition("foos"),
        ),
    ];
    assert_eq!(found_in(&rules, stack), ["x.io/v1:Thing:shop:a"]);
}

/// What `kubectl get` prints is read, and a second policy of a name is not given the bindings of the first.
#[test]
fn a_list_is_read_and_two_policies_of_one_name_are_refused() {
    let service = || vec![("v1:Service:shop:a", service(json!("NodePort")))];
    let rules = text("false");
    let documents = konverge_base::yaml::documents(&rules).unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": documents});
    assert_eq!(found_in(&list.to_string(), service()), ["v1:Service:shop:a"]);
    let second = rules.split("---").next().unwrap();
    let config = Config::parse("policy: {sets: [{name: s, path: p, language: vap}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: format!("{}---\n{second}", text("true")),
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let failed = set.failed_tests("p");
    assert!(
        failed[0].why.contains("two policies have this name"),
        "{}",
        failed[0].why
    );
}
