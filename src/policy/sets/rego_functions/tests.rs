#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

fn arguments(values: Value) -> Vec<RegoValue> {
    let values = RegoValue::from(values);
    values.as_array().unwrap().to_vec()
}

#[test]
fn a_range_goes_up_or_down_in_steps() {
    for (given, expected) in [
        (json!([1, 3]), json!([1, 2, 3])),
        (json!([3, 1]), json!([3, 2, 1])),
        (json!([-1, -1]), json!([-1])),
        (json!([1, 6, 2]), json!([1, 3, 5])),
        (json!([6, 1, 2]), json!([6, 4, 2])),
        (json!([1, 2, 1]), json!([1, 2])),
        (json!([5, 6, 9]), json!([5])),
    ] {
        assert_eq!(
            numbers(&arguments(given.clone())).unwrap(),
            RegoValue::from(expected),
            "{given}"
        );
    }
}

#[test]
fn a_range_has_whole_numbers_and_an_end() {
    let error = |given: Value| numbers(&arguments(given)).unwrap_err().to_string();
    for given in [
        json!([1, 2, 0]),
        json!([1, 2, -1]),
        json!([1]),
        json!([0.5, 2]),
        json!(["1", 2]),
    ] {
        assert_eq!(
            error(given.clone()),
            BoundedFunctionError::NotWhole.to_string(),
            "{given}"
        );
    }
    let longest = numbers(&arguments(json!([0, LONGEST_RANGE]))).unwrap();
    assert_eq!(longest.as_array().unwrap().len(), 100_001);
    for given in [
        json!([0, LONGEST_RANGE + 1]),
        json!([LONGEST_RANGE + 1, 0]),
        json!([i64::MIN, i64::MAX]),
    ] {
        assert_eq!(
            error(given.clone()),
            BoundedFunctionError::LongRange.to_string(),
            "{given}"
        );
    }
    assert!(numbers(&arguments(json!([0, 2 * LONGEST_RANGE, 2]))).is_ok());
}

#[test]
fn a_quoted_verb_becomes_a_quoted_text() {
    for (format, values, expected_format, expected_values) in [
        ("%q", json!(["a\"b"]), "%s", json!(["\"a\\\"b\""])),
        ("%s %q", json!(["a", "b"]), "%s %s", json!(["a", "\"b\""])),
        ("%q %s", json!(["a", "b"]), "%s %s", json!(["\"a\"", "b"])),
        ("%% %q", json!(["a"]), "%% %s", json!(["\"a\""])),
        ("%5.1f%q", json!([1, "a"]), "%5.1f%s", json!([1, "\"a\""])),
        ("%10q", json!(["a"]), "%10s", json!(["\"a\""])),
        ("%q", json!([7]), "%s", json!(["\"7\""])),
        ("q %s q", json!(["a"]), "q %s q", json!(["a"])),
        ("%q", json!([]), "%s", json!([])),
    ] {
        let found = with_quotes(arguments(json!([format, values])));
        assert_eq!(
            found,
            arguments(json!([expected_format, expected_values])),
            "{format}"
        );
    }
    for other in [json!(["%q"]), json!([1, ["a"]]), json!(["%q", "a"])] {
        assert_eq!(with_quotes(arguments(other.clone())), arguments(other));
    }
}

#[test]
fn a_text_that_is_read_as_a_number_is_short() {
    let number = |text: &str| number(&arguments(json!([text]))).is_ok();
    assert!(number(&"x".repeat(LONGEST_NUMBER)));
    assert!(!number(&"x".repeat(LONGEST_NUMBER + 1)));
    assert!(number("1e99") && number("1E-99") && number("1e+99"));
    assert!(!number("1e100") && !number("1E-100") && !number("1e+100") && !number("1e1_0"));
}

#[test]
fn each_number_in_a_text_is_bounded() {
    let numbers = |text: &str| numbers_in_text(&arguments(json!([text]))).is_ok();
    let most = "1".repeat(LONGEST_NUMBER);
    assert!(numbers(&format!("[{most}, {most}]")));
    assert!(!numbers(&format!("[1, {most}1]")));
    assert!(numbers("{\"e\": \"e\", \"a\": 1e99}"));
    assert!(!numbers("{\"a\": 1e99, \"b\": 1E100}"));
    // The function itself says what is wrong.
    assert!(numbers_in_text(&arguments(json!([1]))).is_ok() && numbers_in_text(&[]).is_ok());
}

#[test]
fn a_network_has_few_addresses() {
    let network = |text: &str| network(&arguments(json!([text]))).is_ok();
    assert!(network("10.0.0.0/16") && !network("10.0.0.0/15"));
    assert!(network("2001:db8::/112") && !network("2001:db8::/111"));
    assert!(network("10.0.0.0") && network("10.0.0.0/x"));
}

#[test]
fn a_shift_is_short() {
    let shift = |bits: Value| shift(&arguments(json!([1, bits]))).is_ok();
    assert!(shift(json!(MOST_BITS)) && !shift(json!(MOST_BITS + 1)) && !shift(json!("1")));
}

#[test]
fn a_width_in_a_format_is_short() {
    let format = |text: &str| format(&arguments(json!([text]))).is_ok();
    assert!(format("%s %999d 1000") && format("%-999d") && format("%#999x"));
    assert!(!format("%s %1000d") && !format("%-1000d") && !format("%+ 1000d"));
    assert!(super::format(&[]).is_ok());
}

#[test]
fn paths_are_followed_for_a_number_of_steps() {
    let follows = |graph: Value, start: i64, steps: u32| {
        let mut left = steps;
        let can = can_follow(
            &RegoValue::from(graph),
            &RegoValue::from(start),
            &mut BTreeSet::new(),
            &mut left,
        );
        (can, left)
    };
    let graph = || json!([[1, 2], [3], [3], []]);
    // 0, 1, 3, 2 and 3 again.
    assert_eq!(follows(graph(), 0, 5), (true, 0));
    assert_eq!(follows(graph(), 0, 4), (false, 0));
    // A node on the path ends it.
    assert_eq!(follows(json!([[1], [0]]), 0, 3), (true, 0));
}

#[test]
fn a_path_has_a_longest_length() {
    let chain = |nodes: usize| {
        let graph: Vec<_> = (1..=nodes).map(|next| json!([next])).collect();
        paths(&[RegoValue::from(Value::Array(graph)), RegoValue::from(json!([0]))]).is_ok()
    };
    assert!(chain(LONGEST_PATH));
    assert!(!chain(LONGEST_PATH + 1));
    assert!(paths(&[]).is_ok());
}
