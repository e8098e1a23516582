//! Exceptions: for whom they hold, and until when.
use jiff::Timestamp;
use serde_json::json;

use super::{
    PolicySets,
    tests::{LATEST, document, pod, rego, secrets},
};
use konverge_base::model::policy_finding::Enforcement;
use konverge_config::Config;

/// A program chooses ids: one that looks excepted excepts no other object.
#[test]
fn an_exception_is_not_claimed_by_an_id() {
    let exceptions = "exceptions: [{set: s, resource: 'v1:Pod:legacy:*', until: 2999-01-01, reason: old}]";
    let config = Config::parse(&format!(
        "policy: {{sets: [{{name: s, path: p}}], {exceptions}}}\n"
    ))
    .unwrap();
    let sets = PolicySets::new(vec![rego("input: objects", LATEST)], &config.policy.exceptions);
    let verdict = |namespace: &str| {
        let mut resource = pod("web", json!("a:latest"));
        resource.id = "v1:Pod:legacy:web".parse().unwrap();
        resource.attributes["metadata"]["namespace"] = json!(namespace);
        sets.findings(&document(vec![resource]), Timestamp::now(), &secrets())[0].verdict
    };
    assert_eq!(verdict("legacy"), Enforcement::Pass);
    assert_eq!(verdict("shop"), Enforcement::Deny);
    // Without a namespace the object is where its id says, if it has the kind and the name of the id.
    let unplaced = |name: &str| {
        let mut resource = pod(name, json!("a:latest"));
        resource.id = "v1:Pod:legacy:web".parse().unwrap();
        sets.findings(&document(vec![resource]), Timestamp::now(), &secrets())[0].verdict
    };
    assert_eq!(unplaced("web"), Enforcement::Pass);
    assert_eq!(unplaced("other"), Enforcement::Deny);
}

#[test]
fn an_exception_holds_for_its_resource_until_its_end() {
    let exceptions =
        "exceptions: [{set: s, resource: 'v1:Pod:shop:w*', until: 2027-01-31, reason: moved in January}]";
    let config = Config::parse(&format!(
        "policy: {{sets: [{{name: s, path: p}}], {exceptions}}}\n"
    ))
    .unwrap();
    let sets = PolicySets::new(vec![rego("input: objects", LATEST)], &config.policy.exceptions);
    let document = document(vec![pod("web", json!("a:latest")), pod("b", json!("a:latest"))]);
    let denied = |now: &str| {
        let findings = sets.findings(&document, now.parse::<Timestamp>().unwrap(), &secrets());
        findings
            .into_iter()
            .filter(|f| f.verdict == Enforcement::Deny)
            .count()
    };
    assert_eq!(denied("2027-01-30T23:59:59Z"), 1);
    // Exceptions name stacks by their folders, and `*` stays within a component.
    for (glob, covered) in [
        ("appops/shop/*", true),
        ("shop/*", false),
        ("shop/dev", false),
        ("*", false),
        ("appops/*", false),
    ] {
        let text = exceptions.replace("reason:", &format!("stacks: '{glob}', reason:"));
        let config = Config::parse(&format!("policy: {{sets: [{{name: s, path: p}}], {text}}}\n")).unwrap();
        let sets = PolicySets::new(vec![rego("input: objects", LATEST)], &config.policy.exceptions);
        let findings = sets.findings(&document, "2027-01-01T00:00:00Z".parse().unwrap(), &secrets());
        let passes = findings.iter().any(|f| f.verdict == Enforcement::Pass);
        assert_eq!(passes, covered, "{glob}");
        let mut hints = findings.iter().filter_map(|finding| finding.hint.as_ref());
        let is_hinted = hints.any(|hint| hint.contains("write its folder (`appops/shop/dev`)"));
        assert_eq!(is_hinted, glob.starts_with("shop/"), "{glob}");
    }
    assert_eq!(denied("2027-01-31T00:00:00Z"), 2);
    let excused = sets.findings(&document, "2027-01-01T00:00:00Z".parse().unwrap(), &secrets());
    let excused = excused.iter().find(|f| f.verdict == Enforcement::Pass).unwrap();
    assert!(
        excused
            .message
            .starts_with("excepted until 2027-01-31 (moved in January): ")
    );
}
