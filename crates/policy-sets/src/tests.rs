use super::*;
use crate as policy;
use jiff::Timestamp;
use konverge_base::model::{
    RepoPath,
    other_names::OtherNames,
    plan::{Action, Basis, ResourcePlan, StackPlan},
    plan_document::{DesiredResource, StackDocument},
    policy_finding::{Enforcement, PolicyFinding},
    spec::RuntimeKind,
};
use konverge_config::{Config, PolicySetConfig};
use konverge_secrets::{HashKey, Secrets};
use serde_json::{Value, json};

pub(super) fn secrets() -> Secrets {
    Secrets::new(HashKey::derive("k"))
}

pub(super) fn file(path: &str, text: &str) -> PolicyFile {
    PolicyFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

pub(super) fn config(settings: &str) -> PolicySetConfig {
    let text = format!("policy: {{sets: [{{name: s, path: p, {settings}}}]}}\n");
    Config::parse(&text).unwrap().policy.sets.remove(0)
}

pub(super) fn rego(settings: &str, text: &str) -> PolicySet {
    PolicySet::load(&config(settings), &[file("p/a.rego", text)], &[])
}

/// A set with one policy on pods: its conditions, its validation, and the text of its `messageExpression`. Its message
/// is `m`.
pub(super) fn policy_on_pods(condition: &str, expression: &str, message: &str) -> PolicySet {
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]},
        "matchConditions": [{"name": "c", "expression": condition}],
        "validations": [{"expression": expression, "message": "m", "messageExpression": message}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let files = [
        file("p/a.yaml", &policy.to_string()),
        file("p/b.yaml", &binding.to_string()),
    ];
    PolicySet::load(&config("language: vap"), &files, &[])
}

/// Evaluation in this process, without limits: an endless rule never returns.
impl PolicySet {
    fn parsed(&self) -> Result<SetRules, String> {
        self.source().map_err(Clone::clone)?.parse()
    }

    fn outcomes(&self, document: &StackDocument) -> Result<Vec<RuleOutcome>, NoOutcomes> {
        let rules = self.parsed().map_err(NoOutcomes::Unreadable)?;
        Ok(rules.outcomes(document))
    }

    pub(super) fn findings(&self, document: &StackDocument, secrets: &Secrets) -> Vec<PolicyFinding> {
        self.findings_from(document, secrets, self.outcomes(document))
    }

    pub(super) fn failed_tests(&self, path: &str) -> Vec<FailedTest> {
        match (self.source(), self.parsed()) {
            (Ok(source), Ok(rules)) => source.failed_tests(&rules),
            (_, Err(why)) => vec![FailedTest::new(path, "load", why)],
            (Err(why), _) => vec![FailedTest::new(path, "load", why)],
        }
    }
}

impl PolicySets {
    pub(super) fn findings(
        &self,
        document: &StackDocument,
        now: Timestamp,
        secrets: &Secrets,
    ) -> Vec<PolicyFinding> {
        let outcomes = self.about(document).map(|set| set.outcomes(document));
        self.findings_from(document, now, secrets, outcomes.collect())
    }
}

pub(super) fn wanted(id: &str, attributes: Value) -> DesiredResource {
    let runtime = match attributes.get("kind") {
        Some(_) => RuntimeKind::Kubernetes,
        None => RuntimeKind::Terraform,
    };
    DesiredResource {
        id: id.parse().unwrap(),
        runtime,
        kind: attributes["kind"].as_str().unwrap_or("random_pet").to_owned(),
        cluster: None,
        attributes: attributes.as_object().unwrap().clone(),
        known_before_write: true,
    }
}

pub(super) fn document(desired: Vec<DesiredResource>) -> StackDocument {
    let stack = "shop/dev".parse().unwrap();
    let plans = desired.iter().map(|wanted| {
        let action = Action::Update;
        ResourcePlan::new(&stack, wanted.id.clone(), wanted.runtime, action, Vec::new())
    });
    let folder = RepoPath::normalize("appops/shop/dev").unwrap();
    let plan = StackPlan::new(folder, stack.clone(), Basis::Live, plans.collect());
    policy::document(&plan, desired)
}

pub(super) fn pod(name: &str, image: Value) -> DesiredResource {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": image}]}});
    wanted(&format!("v1:Pod:shop:{name}"), object)
}

pub(super) fn said(findings: &[PolicyFinding]) -> Vec<(Enforcement, &str, &str)> {
    let rows = findings
        .iter()
        .map(|f| (f.verdict, f.rule.as_str(), f.message.as_str()));
    rows.collect()
}

pub(super) const LATEST: &str = r#"package main

deny contains msg if {
	input.kind == "Pod"
	some container in input.spec.containers
	endswith(container.image, ":latest")
	msg := sprintf("%s uses :latest", [input.metadata.name])
}

warn_labels contains {"msg": "no labels", "path": "/metadata/labels", "owner": "sre", "more": [1]} if not input.metadata.labels

violation_team contains "x" if input.metadata.labels.team == ""

exception contains ["team"] if input.metadata.name == "old"
"#;

#[test]
fn conftest_s_rules_find_what_they_name() {
    let set = rego("input: objects", LATEST);
    let document = document(vec![pod("web", json!("a:latest")), pod("ok", json!("a:1"))]);
    let findings = set.findings(&document, &secrets());
    assert_eq!(
        said(&findings),
        [
            (Enforcement::Deny, "s/main.deny", "web uses :latest"),
            (Enforcement::Warn, "s/main.warn_labels", "no labels"),
            (Enforcement::Warn, "s/main.warn_labels", "no labels"),
        ]
    );
    let place = findings[0].place.as_ref().unwrap();
    assert_eq!(place.resource.as_ref().unwrap().as_str(), "v1:Pod:shop:web");
    assert_eq!(
        findings[1].place.as_ref().unwrap().path.as_deref(),
        Some("/metadata/labels")
    );
    let details: Vec<_> = findings[1].place.as_ref().unwrap().details.iter().collect();
    let expected = [("more", "[1]"), ("owner", "sre")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(
        details,
        expected
            .iter()
            .map(|(name, text)| (name, text))
            .collect::<Vec<_>>()
    );
    // Two resources with the same message are two findings.
    assert_ne!(
        findings[1].place.as_ref().unwrap().digest,
        findings[2].place.as_ref().unwrap().digest
    );
    let advised = rego("input: objects, enforce: advise", LATEST).findings(&document, &secrets());
    assert!(advised.iter().all(|finding| finding.verdict == Enforcement::Warn));
}

#[test]
fn an_exception_of_conftest_silences_its_rule_for_one_object() {
    let set = rego("input: objects", LATEST);
    let labelled = |name: &str| {
        let mut pod = pod(name, json!("a:1"));
        let metadata = json!({"name": name, "labels": {"team": ""}});
        pod.attributes.insert("metadata".to_owned(), metadata);
        pod
    };
    let findings = set.findings(&document(vec![labelled("old"), labelled("new")]), &secrets());
    assert_eq!(
        said(&findings),
        [(Enforcement::Deny, "s/main.violation_team", "x")]
    );
    let place = findings[0].place.as_ref().unwrap();
    assert_eq!(place.resource.as_ref().unwrap().as_str(), "v1:Pod:shop:new");
}

#[test]
fn the_plan_says_what_happens_and_rego_v0_is_read() {
    let text = "package main\ndeny[{\"msg\": msg, \"resource\": r.id}] { r := input.resources[_]; r.action == \"update\"; r.kind == \"Pod\"; msg := input.stack.id }\n";
    let findings = rego("rego: v0", text).findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", "shop/dev")]);
    let place = findings[0].place.as_ref().unwrap();
    assert_eq!(place.resource.as_ref().unwrap().as_str(), "v1:Pod:shop:web");
}

#[test]
fn terraform_s_form_is_there() {
    let text = "package main\ndeny contains r.address if { some r in input.resource_changes; r.type == \"random_pet\"; r.change.after.length > 2; r.change.actions == [\"update\"] }\n";
    let pet = wanted("hashicorp:random:random_pet:name", json!({"length": 3}));
    let findings =
        rego("input: tfplan", text).findings(&document(vec![pet, pod("a", json!("a"))]), &secrets());
    assert_eq!(
        said(&findings),
        [(Enforcement::Deny, "s/main.deny", "random_pet.name")]
    );
}

/// A key that is absent would be undefined in a rule, which would then find nothing.
#[test]
fn a_rule_that_reads_what_the_terraform_plan_lacks_denies() {
    let pet = || {
        document(vec![wanted(
            "hashicorp:random:random_pet:name",
            json!({"length": 3}),
        )])
    };
    for (source, is_refused) in [
        ("deny contains \"x\" if input.configuration.root_module", true),
        ("deny contains \"x\" if input[ \"configuration\" ]", true),
        (
            "import input as tfplan\ndeny contains \"x\" if { tfplan.configuration }",
            true,
        ),
        (
            "import input.resource_drift\ndeny contains \"x\" if resource_drift",
            true,
        ),
        (
            "deny contains \"x\" if input.configuration_x\n# input.configuration",
            false,
        ),
        ("deny contains \"x\" if input.variables.a", false),
    ] {
        let findings =
            rego("input: tfplan", &format!("package main\n{source}\n")).findings(&pet(), &secrets());
        let refused = findings.iter().any(|finding| {
            finding.verdict == Enforcement::Deny && finding.message.contains("of Terraform's plan")
        });
        assert_eq!(refused, is_refused, "{source}: {findings:?}");
    }
    let before = "package main\ndeny contains p if { some r in input.prior_state.values.root_module.resources; p := r.address }\n";
    let findings = rego("input: tfplan", before).findings(&pet(), &secrets());
    assert_eq!(
        said(&findings),
        [(Enforcement::Deny, "s/main.deny", "random_pet.name")]
    );
}

#[test]
fn data_and_packages_are_conftest_s() {
    let rules = [
        file(
            "p/a.rego",
            "package main\nimport rego.v1\ndeny contains msg if { msg := data.allowed.hosts[_] }\n",
        ),
        file("p/b.rego", "package other\ndeny contains \"other\" if true\n"),
        file("p/a_test.rego", "package main\ntest_nothing if { 1 == 2 }\n"),
    ];
    let data = [file("p/d.json", "{\"allowed\": {\"hosts\": [\"a.example\"]}}")];
    let set = PolicySet::load(&config("packages: [main]"), &rules, &data);
    let findings = set.findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", "a.example")]);
}

#[test]
fn the_file_of_the_input_is_where_conftest_has_it() {
    let text = "package main\ndeny contains msg if { file := data.conftest.file; contains(file.dir, \"/dev\"); msg := sprintf(\"%s in %s\", [file.name, file.dir]) }\n";
    let document = document(vec![pod("web", json!("a"))]);
    for settings in ["", "input: objects"] {
        let findings = rego(settings, text).findings(&document, &secrets());
        let words = "stack.yaml in /appops/shop/dev";
        assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", words)]);
    }
    // Data of the set that says something else: nothing can be evaluated.
    let data = [file("p/d.json", "{\"conftest\": {\"file\": {\"name\": \"x\"}}}")];
    let set = PolicySet::load(&config(""), &[file("p/a.rego", text)], &data);
    let findings = set.findings(&document, &secrets());
    assert_eq!(findings.len(), 1);
    assert!(
        findings[0].message.contains("could not be evaluated"),
        "{findings:?}"
    );
}

/// The first finding of a rule that cannot be evaluated.
#[test]
fn a_set_follows_a_stack_that_gets_another_name() {
    let set = || {
        let set = config("stacks: pay/prod");
        let rules = "package main\ndeny contains \"m\" if true\n";
        PolicySets::new(vec![PolicySet::load(&set, &[file("p/a.rego", rules)], &[])], &[])
    };
    let now = Timestamp::now();
    let mut document = document(vec![pod("web", json!("a"))]);
    assert!(set().findings(&document, now, &secrets()).is_empty());
    document.known_as.ids = ["pay/prod".parse().unwrap()].into();
    let findings = set().findings(&document, now, &secrets());
    assert_eq!(findings[0].verdict, Enforcement::Deny);
    // A reviewed line ends it.
    let text = format!(
        "policy: {{ended_names: [{{stacks: '{}', was: pay/prod, reason: gone}}]}}\n",
        document.stack.folder
    );
    let lines = konverge_config::Config::parse(&text).unwrap().policy.ended_names;
    let ended = set().ending_names(&lines);
    assert!(ended != set() && set().ending_names(&[]) == set());
    assert!(ended.findings(&document, now, &secrets()).is_empty());
    // A folder that is moved away keeps the rules of its place, too.
    document.known_as = OtherNames {
        folders: [konverge_base::model::RepoPath::normalize("pay/prod").unwrap()].into(),
        ..OtherNames::default()
    };
    let findings = set().findings(&document, now, &secrets());
    assert_eq!(findings[0].verdict, Enforcement::Deny);
}

#[test]
fn data_tells_which_values_a_rule_reads() {
    let mut bucket = wanted("a:b:aws_s3_bucket:c", json!({"acl": {"$unknown": true}}));
    bucket.known_before_write = false;
    let text = "package main\ndeny contains r.id if { some r in input.resources; some field in data.required; not startswith(r.after[field], \"p\"); r.after[field] }\n";
    let data = [file("p/d.json", "{\"required\": [\"acl\"]}")];
    let set = PolicySet::load(&config(""), &[file("p/a.rego", text)], &data);
    let findings = set.findings(&document(vec![bucket]), &secrets());
    assert_eq!(findings[0].verdict, Enforcement::Deny);
    assert!(findings[0].message.contains("/acl"), "{findings:?}");
}

#[test]
fn a_terraform_rule_is_decided_whatever_an_object_holds() {
    let object = wanted(
        "v1:X:shop:x",
        json!({"kind": "X", "spec": {"name": {"$unknown": true}}}),
    );
    let text = "package main\ndeny contains r.name if some r in input.resource_changes\n";
    let findings = rego("input: tfplan", text).findings(&document(vec![object]), &secrets());
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn numbers_are_compared_by_value() {
    let text = "package main\ndeny contains \"m\" if { input.resources[0].after.a == 1.0; input.resources[0].after.b > 0.29 }\n";
    let object = json!({"kind": "X", "a": 1, "b": 0.3});
    let findings = rego("", text).findings(&document(vec![wanted("v1:X:shop:x", object)]), &secrets());
    assert_eq!(findings.len(), 1);
}

#[test]
fn a_rule_that_reads_an_unknown_value_is_undecided() {
    let unknown = || json!({"$unknown": true});
    let image = "package main\ndeny contains msg if { some c in input.spec.containers; c.image == \"bad\"; msg := \"bad image\" }\n";
    let findings = rego("input: objects", image).findings(
        &document(vec![pod("web", unknown()), pod("b", json!("bad"))]),
        &secrets(),
    );
    assert_eq!(
        said(&findings),
        [
            (Enforcement::Deny, "s/main.deny", "bad image"),
            (
                Enforcement::Undecided,
                "s/main.deny",
                "undecided: it reads /spec/containers/0/image, known only after apply"
            ),
        ]
    );
    // A rule that does not read it decides.
    let name = "package main\ndeny contains \"named\" if input.metadata.name == \"web\"\n";
    let findings = rego("input: objects", name).findings(&document(vec![pod("web", unknown())]), &secrets());
    assert_eq!(said(&findings), [(Enforcement::Deny, "s/main.deny", "named")]);
    // `not` on what is absent does not count as a denial of the whole plan.
    let whole = "package main\ndeny contains msg if { some r in input.resources; some c in r.after.spec.containers; not startswith(c.image, \"good/\"); msg := r.id }\n";
    let findings = rego("", whole).findings(
        &document(vec![pod("web", unknown()), pod("b", json!("bad"))]),
        &secrets(),
    );
    assert_eq!(
        findings.iter().map(|f| f.verdict).collect::<Vec<_>>(),
        [Enforcement::Deny, Enforcement::Undecided]
    );
    assert_eq!(findings[0].message, "v1:Pod:shop:b");
}

#[test]
fn what_only_the_write_makes_known_does_not_pass() {
    let mut pet = wanted(
        "hashicorp:random:random_pet:name",
        json!({"region": {"$unknown": true}, "id": {"$unknown": true}}),
    );
    pet.known_before_write = false;
    let text =
        "package main\ndeny contains r.id if { some r in input.resources; r.after.region == \"us\" }\n";
    let findings = rego("", text).findings(&document(vec![pet]), &secrets());
    assert_eq!(findings[0].verdict, Enforcement::Deny);
    assert!(
        findings[0]
            .message
            .contains("/region, which is known only after the write"),
        "{}",
        findings[0].message
    );
}

#[test]
fn sets_are_equal_by_their_files() {
    let one = || PolicySets::new(vec![rego("", "package main\ndeny contains \"a\" if true\n")], &[]);
    let other = PolicySets::new(vec![rego("", "package main\ndeny contains \"b\" if true\n")], &[]);
    assert_eq!(one(), one());
    assert_ne!(one(), other);
    assert_eq!(one().different(&other).collect::<Vec<_>>(), ["s"]);
}

#[test]
fn the_tests_of_a_set_run() {
    let rules = file("p/a.rego", "package main\ndeny contains \"m\" if input.bad\n");
    let tests = file(
        "p/a_test.rego",
        "package main\ntest_bad if { count(deny) == 1 with input as {\"bad\": true} }\ntest_wrong if { count(deny) == 1 with input as {} }\ntest_error if { do_magic(1) }\n",
    );
    let set = PolicySet::load(&config(""), &[rules, tests], &[]);
    let failed = set.failed_tests("p");
    let names: Vec<_> = failed
        .iter()
        .map(|test| (test.file.as_str(), test.name.as_str()))
        .collect();
    assert_eq!(
        names,
        [("p/a_test.rego", "test_error"), ("p/a_test.rego", "test_wrong")]
    );
    assert!(failed[0].why.contains("do_magic"), "{failed:?}");
}
