use serde_json::json;

use super::{
    super::{
        policy::AdmissionPolicy,
        request::{
            Plurals, requests,
            tests::{document, resource},
        },
    },
    *,
};
use konverge_base::model::plan::Action;

type Said = Vec<(Severity, String)>;

/// What a policy says of a new object.
fn evaluated(
    mut spec: Value,
    object: Value,
    judge: impl Fn(&RequestVariables<'_>, &AdmissionCode) -> Said,
) -> Said {
    spec["matchConstraints"] = json!({});
    let env = Arc::new(kubernetes_cel::environment());
    let policy = AdmissionPolicy::load("p", &spec, &env).unwrap();
    let library = AdmissionLibrary::new(&env);
    let document = document(vec![resource(
        "v1:Service:shop:a",
        Action::Create,
        [None, Some(object)],
    )]);
    let requests = requests(&document, &Plurals::new());
    let about = requests[0].variable();
    let variables = RequestVariables::new(&library, &requests[0], &about, None);
    judge(&variables, &policy.code)
}

fn judged(spec: Value, severity: Severity) -> Said {
    let object = json!({"name": "a", "zero": 0});
    evaluated(spec, object, |variables, code| {
        variables.judge(code, &Value::Null, severity)
    })
}

fn named(expressions: &[&str]) -> Value {
    let all = expressions.iter().enumerate();
    all.map(|(at, expression)| json!({"name": format!("n{at}"), "expression": expression}))
        .collect()
}

/// Severity and beginning of each text.
fn assert_said(found: &Said, expected: &[(Severity, &str)], about: &str) {
    let fits = found.len() == expected.len()
        && found
            .iter()
            .zip(expected)
            .all(|((severity, text), (of, start))| severity == of && text.starts_with(start));
    assert!(fits, "{about}: {found:#?}");
}

#[test]
fn a_denial_has_the_text_that_kubernetes_chooses() {
    let longest = "é".repeat(LONGEST_MESSAGE / 2);
    let text = |length: usize| format!("object.long.substring(0, {length})");
    for (said, expected) in [
        ("'said'", "said"),
        ("' said '", "said"),
        ("'said\\n'", "said"),
        ("'a\\nb'", "fixed"),
        ("''", "fixed"),
        ("'  '", "fixed"),
        ("1", "fixed"),
        ("object.nowhere", "fixed"),
        (text(LONGEST_MESSAGE / 2).as_str(), longest.as_str()),
        (format!("{} + 'a'", text(LONGEST_MESSAGE / 2)).as_str(), "fixed"),
    ] {
        let spec = json!({"validations": [{"expression": "false", "message": " fixed ", "messageExpression": said}]});
        let object = json!({"long": format!("{longest}é")});
        let found = evaluated(spec, object, |variables, code| {
            variables.judge(code, &Value::Null, Severity::Deny)
        });
        assert_eq!(found, [(Severity::Deny, expected.to_owned())], "{said}");
    }
    for message in [Value::Null, json!(" ")] {
        let spec = json!({"validations": [{"expression": " 1 > 2 ", "message": message}]});
        let found = judged(spec, Severity::Warn);
        assert_eq!(found, [(Severity::Warn, "failed expression: 1 > 2".to_owned())]);
    }
}

#[test]
fn a_condition_that_is_false_wins_over_one_that_fails() {
    let (broken, other) = ("object.nowhere == 1", "object.none == 1");
    let denied = (Severity::Deny, "m");
    let failed = (Severity::Deny, "matchCondition n0: ");
    let second = (Severity::Deny, "matchCondition n1: ");
    for (conditions, expected) in [
        (&[][..], vec![denied]),
        (&["true", "true"], vec![denied]),
        (&["false"], vec![]),
        (&["true", "false"], vec![]),
        (&[broken, "false"], vec![]),
        (&[broken], vec![failed]),
        (&[broken, other], vec![failed]),
        (&["true", broken], vec![second]),
    ] {
        let spec = json!({"matchConditions": named(conditions), "validations": [{"expression": "false", "message": "m"}]});
        assert_said(
            &judged(spec.clone(), Severity::Deny),
            &expected,
            &conditions.join(", "),
        );
        let mut ignored = spec;
        ignored["failurePolicy"] = json!("Ignore");
        let passes = "passes because of `failurePolicy: Ignore`: matchCondition ";
        let expected: Vec<_> = expected
            .into_iter()
            .map(|one| {
                if one == denied {
                    one
                } else {
                    (Severity::Warn, passes)
                }
            })
            .collect();
        assert_said(
            &judged(ignored, Severity::Deny),
            &expected,
            &conditions.join(", "),
        );
    }
}

#[test]
fn an_expression_that_fails_is_told_by_the_failure_policy() {
    let missing = "expression 'object.nowhere == 1' resulted in error: ";
    let other = "expression '1 / object.zero == 1' resulted in error: ";
    let passes = format!("passes because of `failurePolicy: Ignore`: {missing}");
    for (policy, expression, severity, text) in [
        ("Fail", "object.nowhere == 1", Severity::Deny, missing),
        ("Fail", "1 / object.zero == 1", Severity::Deny, other),
        ("Ignore", "object.nowhere == 1", Severity::Warn, passes.as_str()),
        // It may be a limit of this evaluation.
        ("Ignore", "1 / object.zero == 1", Severity::Deny, other),
    ] {
        let spec = json!({"failurePolicy": policy, "validations": [{"expression": expression}, {"expression": "true"}, {"expression": "false", "message": "m"}]});
        let expected = [(severity, text), (Severity::Deny, "m")];
        assert_said(&judged(spec, Severity::Deny), &expected, expression);
    }
}

#[test]
fn an_annotation_is_a_text_or_null_whatever_the_binding_does() {
    let message = |source: &str, why: &str| format!("valueExpression '{source}' resulted in error: {why}");
    for (source, why) in [
        ("'text'", None),
        ("null", None),
        ("object.name", None),
        ("1", Some("it returns int, not a string or null")),
        ("object.nowhere", Some("")),
    ] {
        let spec = json!({"auditAnnotations": [{"key": "k", "valueExpression": source}]});
        let expected: Vec<_> = why.into_iter().map(|why| message(source, why)).collect();
        let denied: Vec<_> = expected
            .iter()
            .map(|text| (Severity::Deny, text.as_str()))
            .collect();
        assert_said(&judged(spec.clone(), Severity::Warn), &denied, source);
        let mut ignored = spec;
        ignored["failurePolicy"] = json!("Ignore");
        let passes = "passes because of `failurePolicy: Ignore`: valueExpression";
        let warned: Vec<_> = expected.iter().map(|_| (Severity::Warn, passes)).collect();
        assert_said(&judged(ignored, Severity::Deny), &warned, source);
    }
}

#[test]
fn a_variable_that_fails_is_absent_and_later_ones_are_not() {
    for (expression, expected) in [
        ("variables.n1 == 'x' && variables.n2 == 'xy'", vec![]),
        ("variables.n1 == 'y'", vec![(Severity::Deny, "failed expression")]),
        (
            "variables.n0 == 1",
            vec![(Severity::Deny, "expression 'variables.n0 == 1' resulted in error")],
        ),
    ] {
        let variables = named(&["object.nowhere", "'x'", "variables.n1 + 'y'"]);
        let spec = json!({"variables": variables, "validations": [{"expression": expression}]});
        assert_said(&judged(spec, Severity::Deny), &expected, expression);
    }
}

/// What is certain of an object whose field `hidden` is not known.
fn certain(spec: &Value, params: &Value) -> Vec<String> {
    let object = json!({"name": "a"});
    let found = evaluated(spec.clone(), object, |variables, code| {
        let reads = |mentions: &Mentions| mentions.has_word("hidden");
        variables.judge_certain(code, params, Severity::Deny, reads)
    });
    found.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn a_part_that_reads_a_hidden_value_by_a_variable_is_not_certain() {
    let hidden = "has(object.hidden)";
    for (variables, expression, denies) in [
        (&[][..], "false", true),
        (&[], "true", false),
        (&[], hidden, false),
        (&[], "object.other == 1", false),
        (&[], "has(object.hidden) && object.name == 'b'", true),
        (&[], "has(object.hidden) && object.name == 'a'", false),
        (&[hidden], "variables.n0", false),
        (&[hidden, "variables.n0"], "variables.n1", false),
        (&["has(object.other)"], "variables.n0", true),
        (&[hidden, "has(object.other)"], "variables.n1", true),
        (
            &["has(object.other)", hidden, "variables.n0"],
            "variables.n2",
            true,
        ),
    ] {
        let spec = json!({"variables": named(variables), "validations": [{"expression": expression, "message": "m"}]});
        let expected: &[&str] = if denies { &["m"] } else { &[] };
        assert_eq!(certain(&spec, &Value::Null), expected, "{expression}");
        // A parameter may name what an expression reads.
        assert_eq!(certain(&spec, &json!({"key": "name"})), expected, "{expression}");
        assert!(
            certain(&spec, &json!({"key": "hidden"})).is_empty(),
            "{expression}"
        );
    }
}

#[test]
fn a_text_that_reads_a_hidden_value_gives_way_to_the_fixed_one() {
    for (said, expected) in [
        ("'by ' + object.name", "by a"),
        ("'by ' + variables.n1", "by a"),
        ("has(object.hidden) ? 'x' : 'y'", "m"),
        ("variables.n0 ? 'x' : 'y'", "m"),
    ] {
        let variables = named(&["has(object.hidden)", "object.name"]);
        let validation = json!({"expression": "false", "message": "m", "messageExpression": said});
        let spec = json!({"variables": variables, "validations": [validation]});
        assert_eq!(certain(&spec, &Value::Null), [expected], "{said}");
    }
}

#[test]
fn a_condition_that_is_not_certain_leaves_nothing_certain() {
    for (conditions, denies) in [
        (&["true"][..], true),
        (&["true", "object.name == 'a'"], true),
        (&["false"], false),
        (&["true", "false"], false),
        (&["object.other == 1"], false),
        (&["has(object.hidden)"], false),
        (&["!has(object.hidden)"], false),
    ] {
        let spec = json!({"matchConditions": named(conditions), "validations": [{"expression": "false", "message": "m"}]});
        assert_eq!(
            !certain(&spec, &Value::Null).is_empty(),
            denies,
            "{}",
            conditions.join(", ")
        );
    }
}
