use super::*;

fn read(rules: &Value) -> Result<CelRules, String> {
    load(&[PolicyFile {
        path: "p/a.yaml".to_owned(),
        text: json!({"rules": rules}).to_string(),
    }])
}

/// The cases of one rule that fail, each with the reason.
fn failed(rule: &Value, view: PolicyInput) -> Vec<(String, String)> {
    let failed = read(&json!([rule])).unwrap().failed_cases(view).into_iter();
    failed
        .map(|test| {
            assert_eq!(test.file, "p/a.yaml");
            (test.name, test.why)
        })
        .collect()
}

#[test]
fn a_rule_that_cannot_be_read_is_told() {
    let rule = |more: Value| {
        let mut rule = json!({"name": "r", "expression": "true"});
        for (key, value) in more.as_object().unwrap() {
            rule[key] = value.clone();
        }
        rule
    };
    let plain = || rule(json!({}));
    for (rules, why) in [
        (json!([]), "it has no rule"),
        (json!([plain(), plain()]), "p/a.yaml: two rules are called `r`"),
        (
            json!([rule(json!({"name": "load"}))]),
            "p/a.yaml: `load` is not a name of a rule",
        ),
        (
            json!([rule(json!({"name": "a/b"}))]),
            "p/a.yaml: `a/b` is not a name of a rule",
        ),
        (
            json!([rule(json!({"expression": "1 +"}))]),
            "p/a.yaml: rule `r`: `expression`: ",
        ),
        (
            json!([rule(json!({"match": "magic()"}))]),
            "p/a.yaml: rule `r`: `match`: ",
        ),
        (
            json!([rule(json!({"messageExpression": "1 +"}))]),
            "p/a.yaml: rule `r`: `messageExpression`: ",
        ),
        (json!([rule(json!({"severity": "error"}))]), "p/a.yaml: "),
        (json!([rule(json!({"other": 1}))]), "p/a.yaml: "),
    ] {
        let told = read(&rules).err().unwrap();
        assert!(told.starts_with(why), "{rules}: {told}");
    }
    assert_eq!(load(&[]).err().unwrap(), "it has no rule");
    let two = read(&json!([plain(), rule(json!({"name": "s", "severity": "warn"}))])).unwrap();
    let rules: Vec<_> = two
        .rules
        .iter()
        .map(|rule| (rule.name.as_str(), rule.severity))
        .collect();
    assert_eq!(rules, [("r", Severity::Deny), ("s", Severity::Warn)]);
}

#[test]
fn a_rule_reads_the_plan_by_any_of_its_expressions() {
    for (rule, reads) in [
        (json!({"expression": "plan.resources.size() == 1"}), true),
        (
            json!({"expression": "true", "match": "plan.resources.size() == 1"}),
            true,
        ),
        (
            json!({"expression": "true", "messageExpression": "plan.resources[0].id"}),
            true,
        ),
        (json!({"expression": "resource.id == 'planned'"}), false),
    ] {
        let mut named = rule.clone();
        named["name"] = json!("r");
        let rules = read(&json!([named])).unwrap();
        assert_eq!(rules.rules[0].reads_plan, reads, "{rule}");
    }
}

#[test]
fn a_case_says_whether_its_input_passes() {
    let case = |input: Value, passes: bool| json!([{"input": input, "passes": passes}]);
    let (good, bad, other) = (
        json!({"kind": "X", "n": 1}),
        json!({"kind": "X", "n": 2}),
        json!({"kind": "Y", "n": 2}),
    );
    let broken = "the rule could not be evaluated: ";
    for (input, passes, why) in [
        (&good, true, None),
        (&good, false, Some("it passes".to_owned())),
        (&bad, false, None),
        (&bad, true, Some("it does not pass: m".to_owned())),
        (&other, true, None),
        (&other, false, Some("it passes".to_owned())),
        (&json!({"kind": "X"}), false, None),
        (
            &json!({"kind": "X"}),
            true,
            Some(format!("it does not pass: {broken}`expression`: ")),
        ),
        (&json!({}), false, None),
        (
            &json!({}),
            true,
            Some(format!("it does not pass: {broken}`match`: ")),
        ),
    ] {
        let rule = json!({"name": "r", "match": "object.kind == 'X'", "expression": "object.n == 1", "message": "m", "cases": case(input.clone(), passes)});
        let told = failed(&rule, PolicyInput::Objects);
        match (why, &told[..]) {
            (None, []) => {}
            (Some(why), [(name, text)]) => {
                assert_eq!(name, "r, case 1");
                assert!(text.starts_with(&why), "{input} {passes}: {text}");
            }
            _ => panic!("{input} {passes}: {told:#?}"),
        }
    }
}

#[test]
fn a_case_is_the_only_resource_of_its_plan() {
    let rule = |expression: &str| {
        let cases = json!([{"input": {"kind": "X"}, "passes": true}]);
        json!({"name": "r", "expression": expression, "cases": cases})
    };
    let on_plan = rule("plan.resources.size() == 1 && plan.resources[0].kind == resource.kind");
    let on_object = rule("object.kind == 'X'");
    assert!(failed(&on_plan, PolicyInput::Plan).is_empty());
    assert!(failed(&on_object, PolicyInput::Objects).is_empty());
    // Objects are judged alone, and a plan has resources.
    assert_eq!(
        failed(&rule("plan.resources.size() == 1"), PolicyInput::Objects).len(),
        1
    );
    assert_eq!(failed(&on_object, PolicyInput::Plan).len(), 1);
}
