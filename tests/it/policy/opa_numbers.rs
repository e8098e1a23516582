//! Random arithmetic on decimals of an object: each answer is that of conftest, or the rule is refused.

use std::collections::BTreeMap;

use konverge_policy_sets::PolicyFile;
use serde_json::{Value, json};

use super::{created_objects, opa_table::denied_by_conftest};
use crate::support::random::{Random, setting};

const NUMBERS: [f64; 16] = [
    0.1, 0.2, 0.3, 0.7, 1.1, 3.3, 0.29, 100.0, 3.0, 0.5, 2.25, 19.99, 0.001, 7.0, -1.1, 12_345.678,
];

/// A computed number, and its nearest one.
fn computed(random: &mut Random) -> (String, f64) {
    let places = [(); 3].map(|()| random.below(NUMBERS.len()));
    let [(a, x), (b, y), (c, z)] = places.map(|at| (format!("input.n[{at}]"), NUMBERS[at]));
    match random.below(7) {
        0 => (format!("{a} + {b}"), x + y),
        1 => (format!("{a} - {b}"), x - y),
        2 => (format!("{a} * {b}"), x * y),
        3 => (format!("{a} / {b}"), x / y),
        4 => (format!("sum([{a}, {b}, {c}])"), x + y + z),
        5 => (format!("({a} + {b}) * {c}"), (x + y) * z),
        _ => (format!("{a} / {b} * {c}"), x / y * z),
    }
}

fn expression(random: &mut Random) -> String {
    let (text, near) = computed(random);
    match random.below(4) {
        0 => text,
        1 => format!("{}({text})", random.pick(&["floor", "ceil", "round", "abs"])),
        _ => {
            let sign = random.pick(&["==", "!=", "<", "<=", ">", ">="]);
            // Next to the number, on it, or anywhere.
            let other = match random.below(3) {
                0 => near.to_string(),
                1 => format!("{:.3}", near),
                _ => NUMBERS[random.below(NUMBERS.len())].to_string(),
            };
            format!("{text} {sign} {other}")
        }
    }
}

/// What was said of each expression, by its place.
fn answers<'m>(messages: impl Iterator<Item = &'m str>) -> BTreeMap<usize, Value> {
    let parts = messages.filter_map(|message| {
        let (place, value) = message.split_once('=')?;
        Some((place.parse().ok()?, serde_json::from_str(value).ok()?))
    });
    parts.collect()
}

#[test]
#[ignore = "needs conftest: `make test-all` runs it"]
fn random_arithmetic_is_as_conftest_s_or_refused() {
    let seed = setting("KONVERGE_TEST_SEED", 20_261_127);
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let expressions: Vec<String> = (0..1000).map(|_| expression(&mut random)).collect();
    let rules = expressions.iter().enumerate().map(|(at, expression)| {
        format!("deny_{at} contains msg if {{\n\tx := {expression}\n\tmsg := sprintf(\"{at}=%s\", [json.marshal(x)])\n}}\n")
    });
    let rules = format!("package main\n\n{}", rules.collect::<String>());
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "n": NUMBERS,
    });

    let said = denied_by_conftest(&rules, &object).expect("conftest reads the rules");
    let theirs = answers(said.iter().map(String::as_str));

    let file = PolicyFile {
        path: "rule.rego".to_owned(),
        text: rules,
    };
    let set = created_objects::set("input: objects", &[file], &[]);
    let document = created_objects::created(&[object]);
    let findings = created_objects::findings(&set, &document, &created_objects::secrets());
    let ours = answers(findings.iter().map(|finding| finding.message.as_str()));

    assert!(theirs.len() > 900, "conftest has {} answers", theirs.len());
    for (at, ours) in &ours {
        let (expression, theirs) = (&expressions[*at], &theirs[at]);
        let is_same = match (ours.as_f64(), theirs.as_f64()) {
            // A number with more digits is shown with fewer.
            (Some(ours), Some(theirs)) => (ours - theirs).abs() <= theirs.abs() * 1e-12,
            _ => ours == theirs,
        };
        assert!(is_same, "{expression}: {ours} here, {theirs} at conftest");
    }
    // Most have an answer.
    assert!(ours.len() > 700, "{} have an answer", ours.len());
    let refused = findings
        .iter()
        .filter(|finding| finding.message.contains("more digits"));
    assert!(refused.count() > 20, "no rule was refused");
}
