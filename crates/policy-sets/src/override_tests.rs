//! Who may override a finding, and which sets cannot be read.
use serde_json::json;

use super::{
    PolicyFile, PolicySet, PolicySets,
    tests::{config, document, file, pod, policy_on_pods, rego, said, secrets},
};
use konverge_base::model::policy_finding::{Enforcement, PolicyFinding};

const NAMED: &str = "package main\ndeny contains \"named\" if input.metadata.name == \"web\"\n";
const OVERRIDE: &str = "input: objects, enforce: override, override: {by: [acme/sre, ada]}";

fn findings(set: &PolicySet) -> Vec<PolicyFinding> {
    set.findings(&document(vec![pod("web", json!("a"))]), &secrets())
}

#[test]
fn a_denial_of_a_set_has_overriders() {
    let set = rego(OVERRIDE, NAMED);
    assert_eq!(set.overriders(), ["acme/sre", "ada"]);
    let found = findings(&set).remove(0);
    let sets = PolicySets::new(vec![rego("input: objects", NAMED), set], &[]);
    // The first set of this name has none.
    assert!(sets.overriders_of(&found).is_empty());
    let sets = PolicySets::new(vec![rego(OVERRIDE, NAMED)], &[]);
    assert_eq!(sets.overriders_of(&found), ["acme/sre", "ada"]);
    let hint = found.hint.as_deref().unwrap();
    assert!(
        hint.starts_with("one of acme/sre, ada may override exactly this finding"),
        "{hint}"
    );
    for other in [
        PolicyFinding {
            verdict: Enforcement::Undecided,
            ..found.clone()
        },
        PolicyFinding {
            verdict: Enforcement::Warn,
            ..found.clone()
        },
        PolicyFinding {
            rule: "s/load".to_owned(),
            ..found.clone()
        },
        PolicyFinding { place: None, ..found },
    ] {
        assert!(sets.overriders_of(&other).is_empty(), "{}", other.rule);
    }
}

#[test]
fn only_a_denial_says_how_it_is_overridden() {
    let hint = |settings: &str, text: &str| findings(&rego(settings, text)).remove(0).hint;
    assert_eq!(hint("input: objects", NAMED), None);
    assert_eq!(hint(OVERRIDE, &NAMED.replace("deny", "warn")), None);
    // A set that cannot be read found nothing that could be overridden.
    let unreadable = hint(OVERRIDE, "package main\ndeny contains");
    assert!(unreadable.is_none_or(|hint| !hint.contains("may override")));
}

/// Both imports, by its own name and by another.
#[test]
fn what_a_helper_reads_counts_as_read_by_the_rule() {
    let body = "is_bad(object) if object.spec.containers[0].image == \"bad\"\n";
    let unknown = document(vec![pod("web", json!({"$unknown": true}))]);
    let own = format!("package main\ndeny contains \"bad\" if is_bad(input)\n{body}");
    let verdicts = |files: &[PolicyFile]| -> Vec<Enforcement> {
        let found = PolicySet::load(&config("input: objects"), files, &[]).findings(&unknown, &secrets());
        found.into_iter().map(|finding| finding.verdict).collect()
    };
    assert_eq!(verdicts(&[file("p/a.rego", &own)]), [Enforcement::Undecided]);
    for (import, call) in [
        ("data.lib", "lib.is_bad"),
        ("data.lib.is_bad", "is_bad"),
        ("data.lib.is_bad as skip", "skip"),
        ("data.lib as other", "other.is_bad"),
    ] {
        let rule = format!("package main\nimport {import}\ndeny contains \"bad\" if {call}(input)\n");
        let files = [
            file("p/a.rego", &rule),
            file("p/lib.rego", &format!("package lib\n{body}")),
        ];
        assert_eq!(verdicts(&files), [Enforcement::Undecided], "{import}");
    }
}

#[test]
fn only_files_of_rego_are_rules() {
    let files = [
        file("p/a.rego", NAMED),
        file("p/README.md", "# Rules"),
        file("p/a_test.rego", "no rules"),
    ];
    let found = findings(&PolicySet::load(&config("input: objects"), &files, &[]));
    assert_eq!(said(&found), [(Enforcement::Deny, "s/main.deny", "named")]);
}

#[test]
fn data_is_one_map() {
    let load = |text: &str| {
        let rules = file("p/a.rego", "package main\ndeny contains data.name if data.name\n");
        let set = PolicySet::load(&config("input: objects"), &[rules], &[file("d.yaml", text)]);
        findings(&set).remove(0).message
    };
    assert_eq!(load("name: a"), "a");
    for wrong in ["[1]", "text", "{a: 1}\n---\n{b: 1}", ""] {
        assert!(load(wrong).ends_with("d.yaml: data is one map"), "{wrong}");
    }
}

#[test]
fn a_set_has_a_largest_size() {
    let load = |bytes: usize| {
        let files: Vec<PolicyFile> = vec![
            file("p/a.rego", NAMED),
            file("p/a_test.rego", &"#".repeat(bytes - NAMED.len())),
        ];
        findings(&PolicySet::load(&config("input: objects"), &files, &[])).remove(0)
    };
    let largest = 8 * 1024 * 1024;
    assert_eq!(load(largest).message, "named");
    let refused = load(largest + 1);
    assert_eq!(refused.verdict, Enforcement::Deny);
    assert!(
        refused
            .message
            .ends_with("its files have more than 8388608 bytes"),
        "{}",
        refused.message
    );
}

#[test]
fn an_error_on_one_resource_is_said_although_another_has_unknown_values() {
    let expression = "object.spec.nope.x == 'a' && object.spec.containers.all(c, c.image != 'bad')";
    let set = policy_on_pods("true", expression, "'m'");
    let alone = set.findings(&document(vec![pod("web", json!("a"))]), &secrets());
    assert_eq!(said(&alone)[0].0, Enforcement::Deny);
    let both = set.findings(
        &document(vec![pod("web", json!("a")), pod("b", json!({"$unknown": true}))]),
        &secrets(),
    );
    assert!(both.contains(&alone[0]));
    assert_eq!(both.len(), 2);
    assert_eq!(both[1].verdict, Enforcement::Undecided);
}
