use std::collections::BTreeMap;

use serde_json::json;

use super::{
    super::rule::{RuleFinding, Severity},
    *,
};

fn file(path: &str, text: &str) -> PolicyFile {
    PolicyFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

fn found<'d>(text: &str) -> AdmissionOutcome<'d> {
    AdmissionOutcome::Found(RuleFinding {
        rule: "r".to_owned(),
        severity: Severity::Deny,
        message: text.to_owned(),
        resource: None,
        path: None,
        details: BTreeMap::new(),
    })
}

fn paths(files: &[PolicyFile]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

const SUITE: &str = "apiVersion: test.gatekeeper.sh/v1alpha1\nkind: Suite\n";

#[test]
fn a_suite_and_its_objects_are_no_rules() {
    let cases = "tests:\n- name: t\n  cases:\n  - {name: c, object: ../o.yaml, inventory: [./i.yaml]}\n";
    let files = [
        file("p/s/suite.yaml", &format!("a: b\n---\n{SUITE}{cases}")),
        file("p/o.yaml", ""),
        file("p/s/i.yaml", ""),
        file("p/s/o.yaml", ""),
        file("p/rules.yaml", "apiVersion: v1\nkind: ConfigMap\n"),
        file("p/kind.yaml", &SUITE.replace("Suite", "Other")),
        file(
            "p/group.yaml",
            "apiVersion: x.io/test.gatekeeper.sh/\nkind: Suite\n",
        ),
    ];
    let (suites, rest) = split(&files).unwrap();
    let suites: Vec<_> = suites.iter().map(|suite| suite.path.as_str()).collect();
    assert_eq!(suites, ["p/s/suite.yaml"]);
    assert_eq!(
        paths(&rest),
        ["p/s/o.yaml", "p/rules.yaml", "p/kind.yaml", "p/group.yaml"]
    );
    for text in [format!("{SUITE}tests: 1\n"), format!("{SUITE}a: [\n")] {
        let why = split(&[file("p/suite.yaml", &text)]).err().unwrap();
        assert!(why.starts_with("p/suite.yaml: "), "{why}");
    }
}

#[test]
fn a_path_in_a_suite_is_relative_to_it() {
    for (suite, path, whole) in [
        ("p/s/suite.yaml", "o.yaml", "p/s/o.yaml"),
        ("p/s/suite.yaml", "./o.yaml", "p/s/o.yaml"),
        ("p/s/suite.yaml", "../o.yaml", "p/o.yaml"),
        ("p/s/suite.yaml", "../../o.yaml", "o.yaml"),
        ("p/s/suite.yaml", "a//../b/o.yaml", "p/s/b/o.yaml"),
        ("suite.yaml", "../o.yaml", "o.yaml"),
        ("suite.yaml", "a/o.yaml", "a/o.yaml"),
    ] {
        assert_eq!(beside(suite, path), whole, "{suite} {path}");
    }
}

/// Rules that find texts, whatever the document is.
fn judge_of(texts: Vec<String>) -> Judge {
    Box::new(move |_| texts.iter().map(|text| found(text)).collect())
}

/// Why the test of a suite fails whose rules find the paths of their files.
fn whys(per_test: bool, test: &str) -> Vec<String> {
    let files = [
        file("p/suite.yaml", &format!("{SUITE}tests:\n- {{name: t, {test}}}\n")),
        file("p/t.yaml", "rules"),
        file("p/c.yaml", "rules"),
        file("p/other.yaml", "rules"),
        file("p/i.yaml", "kind: Namespace\n"),
        file("p/o.yaml", "kind: Service\n"),
        file("p/two.yaml", "kind: Service\n---\nkind: Service\n"),
        file("p/none.yaml", "a: [\n"),
    ];
    let failed = failed(&files, per_test, |files| {
        let all: Vec<_> = paths(files).into_iter().map(str::to_owned).collect();
        Ok(judge_of(all))
    });
    let told = failed.into_iter();
    told.map(|test| format!("{}: {}: {}", test.file, test.name, test.why))
        .collect()
}

#[test]
fn a_test_of_gatekeeper_has_its_own_template_and_constraint() {
    let whole = "p/t.yaml; p/c.yaml; p/other.yaml; p/two.yaml; p/none.yaml";
    for (per_test, keys, count, rules) in [
        (
            true,
            "template: t.yaml, constraint: c.yaml",
            2,
            "p/t.yaml; p/c.yaml",
        ),
        (true, "template: t.yaml", 5, whole),
        (true, "constraint: c.yaml", 5, whole),
        (false, "template: t.yaml, constraint: c.yaml", 5, whole),
        (false, "template: gone.yaml", 5, whole),
    ] {
        let cases = "cases: [{name: c, object: o.yaml, inventory: [i.yaml], assertions: [{violations: no}]}]";
        let told = whys(per_test, &format!("{keys}, {cases}"));
        let count = count + 1;
        let why = format!("it has {count} such violations; all are: {rules}; p/i.yaml");
        assert_eq!(told, [format!("p/suite.yaml: t, c: {why}")], "{keys}");
    }
}

#[test]
fn a_case_that_cannot_be_read_fails() {
    let case = |object: &str, inventory: &str| {
        format!(
            "cases: [{{name: c, object: {object}, inventory: [{inventory}], assertions: [{{violations: yes}}]}}]"
        )
    };
    for (per_test, test, why) in [
        (true, case("o.yaml", ""), None),
        (
            true,
            case("gone.yaml", ""),
            Some("the set has no file p/gone.yaml"),
        ),
        (
            true,
            case("o.yaml", "gone.yaml"),
            Some("the set has no file p/gone.yaml"),
        ),
        (
            true,
            case("two.yaml", ""),
            Some("p/two.yaml: a case has one object"),
        ),
        (true, case("none.yaml", ""), Some("p/none.yaml: ")),
        (
            true,
            format!("template: gone.yaml, constraint: c.yaml, {}", case("o.yaml", "")),
            Some("the set has no file p/gone.yaml"),
        ),
    ] {
        let told = whys(per_test, &test);
        assert_eq!(told.len(), usize::from(why.is_some()), "{test}");
        if let Some(why) = why {
            let start = format!("p/suite.yaml: t, c: {why}");
            assert!(told[0].starts_with(&start), "{test}: {}", told[0]);
        }
    }
    assert!(
        failed(
            &[file("p/suite.yaml", &format!("{SUITE}tests: 1\n"))],
            true,
            |_| Err(String::new())
        )
        .is_empty()
    );
}

#[test]
fn an_assertion_counts_the_violations_that_it_means() {
    let judge = judge_of(["a 1", "a 2", "b 3"].map(str::to_owned).to_vec());
    let silent = judge_of(Vec::new());
    let holds = |judge: &Judge, assertion: &Value| {
        let case = json!({"name": "c", "object": "o", "assertions": [assertion]});
        let case: Case = serde_json::from_value(case).unwrap();
        holds(judge, &document(json!({"kind": "Service"})), &case)
    };
    let all = "all are: a 1; a 2; b 3";
    for (assertion, count, of_silent) in [
        (json!({}), None, Some(0)),
        (json!({"violations": "yes"}), None, Some(0)),
        (json!({"violations": true}), None, Some(0)),
        (json!({"violations": "no"}), Some(3), None),
        (json!({"violations": false}), Some(3), None),
        (json!({"violations": 3}), None, Some(0)),
        (json!({"violations": 2}), Some(3), Some(0)),
        (json!({"violations": 4}), Some(3), Some(0)),
        (json!({"violations": 0}), Some(3), None),
        (json!({"message": "^a"}), None, Some(0)),
        (json!({"message": "^c"}), Some(0), Some(0)),
        (json!({"violations": 2, "message": "^a"}), None, Some(0)),
        (json!({"violations": 1, "message": "^a"}), Some(2), Some(0)),
        (json!({"violations": "no", "message": "^c"}), None, None),
        (json!({"violations": "no", "message": "3$"}), Some(1), None),
    ] {
        let told = |count: Option<u32>, all: &str| match count {
            None => Ok(()),
            Some(count) => Err(format!("it has {count} such violations; {all}")),
        };
        assert_eq!(holds(&judge, &assertion), told(count, all), "{assertion}");
        assert_eq!(
            holds(&silent, &assertion),
            told(of_silent, "all are: none"),
            "{assertion}"
        );
    }
    for (assertion, why) in [
        (
            json!({"violations": "perhaps"}),
            "`violations: \"perhaps\"` is not `yes`, `no` or a number",
        ),
        (
            json!({"violations": []}),
            "`violations: []` is not `yes`, `no` or a number",
        ),
        (json!({"message": "("}), "`message`: "),
    ] {
        let told = holds(&judge, &assertion).unwrap_err();
        assert!(told.starts_with(why), "{told}");
    }
}

#[test]
fn all_assertions_of_a_case_must_hold_and_one_is_needed() {
    let judge: Judge = Box::new(|document| {
        let undecided = |resource| AdmissionOutcome::Undecided(resource, "r".to_owned(), Severity::Deny);
        document.resources.iter().map(undecided).collect()
    });
    let case = |assertions: Value| -> Case {
        let case = json!({"name": "c", "object": "o", "assertions": assertions});
        serde_json::from_value(case).unwrap()
    };
    let document = document(json!({"kind": "Service"}));
    let wrong = Err("it has 1 such violations; all are: undecided".to_owned());
    for (assertions, expected) in [
        (json!([{"message": "undecided"}, {"violations": 1}]), Ok(())),
        (json!([{"violations": 1}, {"violations": 2}]), wrong.clone()),
        (json!([{"violations": 2}, {"violations": 1}]), wrong),
        (json!([]), Err("it has no `assertions`".to_owned())),
    ] {
        assert_eq!(
            holds(&judge, &document, &case(assertions.clone())),
            expected,
            "{assertions}"
        );
    }
}

#[test]
fn an_object_of_a_case_is_created_or_what_its_review_says() {
    let object = |name: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "shop"}});
    let review = |request: Value| json!({"kind": "AdmissionReview", "request": request});
    let both = |operation: &str| {
        review(json!({"operation": operation, "object": object("new"), "oldObject": object("old")}))
    };
    let (new, old) = (Some("new"), Some("old"));
    for (given, action, before, after) in [
        (object("new"), Action::Create, None, new),
        (both("CREATE"), Action::Create, None, new),
        (both("UPDATE"), Action::Update, old, new),
        (both("DELETE"), Action::Delete, old, None),
        (
            review(json!({"operation": "UPDATE", "object": object("new"), "oldObject": null})),
            Action::Update,
            None,
            new,
        ),
        (
            review(json!({"object": object("new")})),
            Action::Create,
            None,
            new,
        ),
    ] {
        let document = document(given.clone());
        let [resource] = &document.resources[..] else {
            panic!("it is not one resource: {given}");
        };
        let name = after.or(before).unwrap_or_default();
        assert_eq!(resource.id.as_str(), format!("v1:Service:shop:{name}"), "{given}");
        assert_eq!(
            (resource.kind.as_str(), resource.runtime),
            ("Service", RuntimeKind::Kubernetes)
        );
        assert_eq!(resource.action, action, "{given}");
        assert_eq!(resource.before, before.map(object), "{given}");
        assert_eq!(resource.after, after.map(object), "{given}");
    }
    let bare = document(json!({"kind": "Namespace", "metadata": {"name": "shop"}}));
    assert_eq!(bare.resources[0].id.as_str(), "Namespace:shop");
    assert!(document(json!({})).resources.is_empty());
}
