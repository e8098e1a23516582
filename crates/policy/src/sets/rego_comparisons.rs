//! Comparisons whose answer may be another one than OPA's: of sets by their order, and of computed decimals by equality.
//! They are refused when the rules are read. The source is searched as text; names count in all files of a set.
//! Where decimals could only come from outside of the rules, it is the input with a decimal that is refused.

use std::collections::BTreeSet;

use regorus::Value;

/// Whether rules compare by equality what they compute, so that their answer for decimal numbers may differ from OPA's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ComparedSums {
    /// No rule does.
    Never,
    /// A rule does: it is right for whole numbers alone.
    OfWholeNumbers,
}

/// Refuses the comparisons in the files of one set: path and source of each.
///
/// # Errors
/// A file has one; the text says which, and where.
pub(super) fn check(files: &[(&str, &str)]) -> Result<ComparedSums, String> {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (*path, code(text))).collect();
    let all: Vec<&str> = files.iter().map(|(_, code)| code.as_str()).collect();
    let all_sets = names_of(&all, is_set, is_made_of);
    let sources = names_of(&all, gives_decimals, has_word);
    let computes_with_decimals = |value: &str| {
        value.contains('/')
            || (computes(value)
                && (gives_decimals(value) || sources.iter().any(|name| has_word(value, name))))
    };
    let all_decimals = names_of(&all, computes_with_decimals, has_word);
    let all_sums = names_of(&all, computes, has_word);
    let mut sums = ComparedSums::Never;
    for (path, code) in &files {
        // A name without a package is one of the files of this package.
        let own: Vec<&str> = all
            .iter()
            .copied()
            .filter(|other| package(other) == package(code))
            .collect();
        let imported = imported_names(code);
        let is_foreign_set = |value: &str| refers(value, &imported, &all_sets) && is_made_by_operators(value);
        let sets = names_of(&own, |value| is_set(value) || is_foreign_set(value), is_made_of);
        let is_decimal =
            |value: &str| computes_with_decimals(value) || refers(value, &imported, &all_decimals);
        let decimals = names_of(&own, is_decimal, has_word);
        let is_compared_set = |reference: &str| match reference.contains('.') {
            false => sets.contains(reference),
            true => refers(reference, &imported, &all_sets),
        };
        for (at, line) in code.lines().enumerate() {
            let is_equation = line.contains("==") || line.contains("!=");
            let why = if compares_sets(line, is_compared_set) {
                "sets are in another order here than in OPA, so a set is not compared by `<` or `>`: compare with `==`, or by `count`"
            } else if takes_no_pairs(line) {
                "the engine gives no value to a name for `walk`: write `walk(DOCUMENT, [path, value])`"
            } else if is_equation && (is_decimal(line) || decimals.iter().any(|name| has_word(line, name))) {
                "OPA computes decimals with more digits than this engine, so a computed one is not compared by `==`: compare whole numbers, or by `<` and `>`"
            } else {
                if is_equation && (computes(line) || all_sums.iter().any(|name| has_word(line, name))) {
                    sums = ComparedSums::OfWholeNumbers;
                }
                continue;
            };
            return Err(format!("{path}: line {}: {why}", at + 1));
        }
    }
    Ok(sums)
}

impl ComparedSums {
    /// Returns true for a value that these rules may not read: it has a decimal number.
    pub(super) fn refuse(self, value: &Value) -> bool {
        self == Self::OfWholeNumbers && has_decimal(value)
    }
}

/// What is said of an input or of data that such rules may not read.
pub(super) const HAS_DECIMAL: &str = "it has a decimal number, and a rule compares by `==` what it computes: OPA computes decimals with more digits than this engine; compare by `<` and `>`";

fn has_decimal(value: &Value) -> bool {
    match value {
        Value::Number(number) => !number.is_integer(),
        Value::Array(items) => items.iter().any(has_decimal),
        Value::Set(items) => items.iter().any(has_decimal),
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| has_decimal(key) || has_decimal(value)),
        _ => false,
    }
}

/// The package that a source is of.
fn package(code: &str) -> &str {
    let mut lines = code.lines();
    let name = lines.find_map(|line| line.trim_start().strip_prefix("package "));
    name.unwrap_or_default().trim()
}

/// The first names of references to other packages: `data`, and what is imported from there.
fn imported_names(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::from(["data"]);
    for line in code.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["import", path] if path.starts_with("data.") => names.extend(path.rsplit('.').next()),
            ["import", path, "as", name] if path.starts_with("data.") => names.extend([name]),
            _ => {}
        }
    }
    names
}

/// Returns true if a text refers to one of these names of another package.
fn refers(text: &str, imported: &BTreeSet<&str>, names: &BTreeSet<String>) -> bool {
    text.split(|c| !is_part(c)).any(|reference| {
        let mut parts = reference.split('.');
        let first = parts.next().unwrap_or_default();
        let is_imported_name = imported.contains(first) && first != "data" && names.contains(first);
        is_imported_name || (imported.contains(first) && parts.any(|part| names.contains(part)))
    })
}

/// The values of `walk` are pairs, and a name alone takes none of them.
fn takes_no_pairs(line: &str) -> bool {
    let compact: String = line.split_whitespace().collect();
    compact.contains("=walk(") && !compact.contains("]:=walk(") && !compact.contains("]=walk(")
}

/// The names that are given such a value, directly or by way of others. Names are those of whole files: one that stands
/// for something else in another rule counts too.
fn names_of(
    files: &[&str],
    is_such: impl Fn(&str) -> bool,
    follows: impl Fn(&str, &str) -> bool,
) -> BTreeSet<String> {
    let assigned: Vec<(&str, String)> = files
        .iter()
        .flat_map(|code| code.lines())
        .flat_map(assignments)
        .collect();
    let mut names = BTreeSet::new();
    loop {
        let known = names.len();
        for (name, value) in &assigned {
            if is_such(value) || names.iter().any(|known: &String| follows(value, known)) {
                names.insert((*name).to_owned());
            }
        }
        if names.len() == known {
            return names;
        }
    }
}

/// The names that a line gives a value, and the text of the value. A rule with `contains` is given a set.
fn assignments(line: &str) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    let mut words = line.split_whitespace();
    if let (Some(rule), Some("contains")) = (words.next(), words.next()) {
        found.push((rule, "set()".to_owned()));
    }
    let is_assignment = |at: &usize| {
        let compares = line[..*at].ends_with(['=', '!', '<', '>']) || line[at + 1..].starts_with('=');
        !compares
    };
    let places = line.match_indices('=').map(|(at, _)| at);
    let places: Vec<usize> = places.filter(is_assignment).collect();
    for (nth, at) in places.iter().enumerate() {
        let end = places.get(nth + 1).copied().unwrap_or(line.len());
        let value = line[at + 1..end].split(';').next().unwrap_or_default();
        // Of a function the name stands before its arguments.
        let before = line[..*at].trim_end_matches(':').trim_end();
        let before = match before.ends_with(')') {
            true => before.rsplit_once('(').map_or(before, |(name, _)| name),
            false => before,
        };
        let name = last_word(before);
        if !name.is_empty() {
            found.push((name, value.split_whitespace().collect()));
        }
    }
    found
}

/// Returns true for a set: `set()`, `{a, b}`, `{a | …}`.
fn is_set(value: &str) -> bool {
    let Some(inside) = value.strip_prefix('{') else {
        return value.starts_with("set()");
    };
    let head = inside.split(['|', '}']).next().unwrap_or_default();
    !inside.starts_with('}') && !head.contains(':')
}

/// Returns true for a set made of this one by `-`, `&` and `|`.
fn is_made_of(value: &str, name: &str) -> bool {
    has_word(value, name) && is_made_by_operators(value)
}

fn is_made_by_operators(value: &str) -> bool {
    value.chars().all(|c| is_part(c) || "-&|".contains(c))
}

/// Returns true if a set stands beside an operator of order.
fn compares_sets(line: &str, is_set: impl Fn(&str) -> bool) -> bool {
    line.match_indices(['<', '>']).any(|(at, _)| {
        let left = line[..at].trim_end();
        let right = line[at + 1..].trim_start_matches('=').trim_start();
        let first = right.split(|c| !is_part(c)).next().unwrap_or_default();
        let goes_on = right[first.len()..].starts_with(['(', '[']);
        left.ends_with("set()")
            || right.starts_with("set()")
            || is_set(&left[left.trim_end_matches(is_part).len()..])
            || (!goes_on && is_set(first))
    })
}

/// Returns true for a character of a reference such as `data.lib.names`.
fn is_part(c: char) -> bool {
    is_letter(c) || c == '.'
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The name at the end of a text; empty if it is part of a longer reference.
fn last_word(text: &str) -> &str {
    let start = text.trim_end_matches(is_letter).len();
    match text[..start].ends_with('.') {
        true => "",
        false => &text[start..],
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !is_letter(c)).any(|part| part == word)
}

/// The functions whose value is a whole number.
const WHOLE: [&str; 2] = ["count", "indexof"];

/// Returns true if a line computes: it has an operator of arithmetic between two values, or adds up a list. What is made of
/// numbers and lengths in the line alone is whole.
fn computes(line: &str) -> bool {
    let is_computed = |at: usize| {
        let (left, right) = (line[..at].trim_end(), &line[at + 1..]);
        let stands_between = left.ends_with(|c: char| is_letter(c) || ")]}".contains(c));
        stands_between && !(ends_whole(left) && starts_whole(right.trim_start()))
    };
    ["sum(", "product("].iter().any(|name| line.contains(name))
        || line
            .match_indices(['+', '-', '*', '%', '/'])
            .any(|(at, _)| is_computed(at))
}

/// Returns true if a whole number, or a call that gives one, stands at the end of a text.
fn ends_whole(text: &str) -> bool {
    let mut open = 0;
    let start = text.char_indices().rev().find(|(_, c)| {
        open += i32::from(*c == ')') - i32::from(*c == '(');
        open == 0 && !is_part(*c)
    });
    // Of a call its opening bracket was found, of a number what stands before it.
    match start {
        Some((at, '(')) => is_whole(&text[text[..at].trim_end_matches(is_part).len()..at]),
        Some((at, c)) => is_whole(&text[at + c.len_utf8()..]),
        None => is_whole(text),
    }
}

/// The same at the start.
fn starts_whole(text: &str) -> bool {
    is_whole(text.split(|c| !is_part(c)).next().unwrap_or_default())
}

/// Returns true for a whole number, and for the name of a function that gives one.
fn is_whole(word: &str) -> bool {
    WHOLE.contains(&word) || (!word.is_empty() && word.chars().all(|c| c.is_ascii_digit()))
}

/// Returns true if a line has a decimal number, or a function that makes numbers of texts.
fn gives_decimals(line: &str) -> bool {
    let has_decimal = line
        .split(|c: char| !is_part(c))
        .any(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    let makes_numbers = ["to_number(", "units.parse(", "json.unmarshal(", "yaml.unmarshal("];
    has_decimal || makes_numbers.iter().any(|name| line.contains(name))
}

/// A source without what stands in texts and comments; its lines stay.
fn code(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut chars = source.chars();
    while let Some(c) = chars.next() {
        match c {
            '#' => {
                let end = chars.by_ref().find(|c| *c == '\n');
                code.extend(end);
            }
            '"' | '`' => {
                code.push(c);
                while let Some(inner) = chars.next() {
                    match inner {
                        '\\' if c == '"' => drop(chars.next()),
                        '\n' => code.push('\n'),
                        _ if inner == c => break,
                        _ => {}
                    }
                }
                code.push(c);
            }
            c => code.push(c),
        }
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(source: &str) -> Result<ComparedSums, String> {
        check(&[("a.rego", source)])
    }

    #[test]
    fn a_set_or_a_computed_decimal_behind_names_is_refused() {
        for (rules, why) in [
            ("x := count([a | a := 0.1 + 0.2\n a == 0.3])", "computes decimals"),
            ("x if input.a / input.b == 0.3", "computes decimals"),
            ("x if input.a + input.b == 0.3", "computes decimals"),
            ("x if to_number(input.a) * 3 == input.c", "computes decimals"),
            (
                "x if {\n n := to_number(input.a)\n n * 3 == input.c\n}",
                "computes decimals",
            ),
            ("part := 0.1\nx if part + input.a == input.c", "computes decimals"),
            ("x if sum([0.1, 0.2]) == 0.3", "computes decimals"),
            (
                "x if sum(json.unmarshal(input.a)) == input.c",
                "computes decimals",
            ),
            ("a := input.n * 0.1\nb := a + 1\nx if b != 2", "computes decimals"),
            ("part(n) := n * 0.1\nx if part(3) == 0.3", "computes decimals"),
            ("x if {\n a = 0.1 + 0.2\n a == 0.3\n}", "computes decimals"),
            ("a := {1}\nb := {2 | input.x}\nx if a < b", "another order"),
            (
                "a := {\"k\", \"l\"}\nb := a - {\"k\"}\nc := a - b\nx if input.y >= c",
                "another order",
            ),
            (
                "names contains n if some n in input\nx if names > {1}",
                "another order",
            ),
        ] {
            let refused = check_one(&format!("package a\n{rules}\n")).expect_err(rules);
            assert!(refused.contains(why), "{rules}: {refused}");
        }
    }

    #[test]
    fn what_another_file_has_is_refused_too() {
        let library = "package lib.shares\nratio := input.part / input.all\nhalf(n) := n * 0.5\nnames contains n if some n in input\n";
        let same = "package a\nimport rego.v1\nshare := 0.1 + input.n\nkinds := {1, 2}\n";
        for (rules, why) in [
            ("x if data.lib.shares.ratio == 0.3", "computes decimals"),
            (
                "import data.lib.shares\nx if shares.ratio != 2",
                "computes decimals",
            ),
            (
                "import data.lib.shares as s\nx if s.half(3) == 2",
                "computes decimals",
            ),
            (
                "import data.lib.shares.ratio\nx if 3 == ratio",
                "computes decimals",
            ),
            (
                "import data.lib.shares\ny := shares.ratio\nx if y == 3",
                "computes decimals",
            ),
            ("x if share == 2", "computes decimals"),
            ("x if data.lib.shares.names > {1}", "another order"),
            (
                "y := data.lib.shares.names - {1}\nz := data.lib.shares.names\nx if z < y",
                "another order",
            ),
            ("x if input.n <= kinds", "another order"),
        ] {
            let own = format!("package a\n{rules}\n");
            let refused =
                check(&[("lib.rego", library), ("same.rego", same), ("own.rego", &own)]).expect_err(rules);
            assert!(
                refused.contains(why) && refused.starts_with("own.rego: line "),
                "{rules}: {refused}"
            );
        }
        // Names that only look like those of the library.
        let own = "package b\nx if { ratio := 3; ratio == 3; input.ratio == 1; names := 2; names > 1 }\n";
        check(&[("lib.rego", library), ("own.rego", own)]).unwrap();
    }

    /// OPA says true for 0.1, 0.2 and 0.3, and the engine false. The rules alone do not show it.
    #[test]
    fn rules_that_compare_sums_read_whole_numbers_alone() {
        let decimal = Value::from_json_str(r#"{"a": [{"b": 0.1}]}"#).unwrap();
        let key = Value::from(std::collections::BTreeMap::from([(
            Value::from(0.5),
            Value::Null,
        )]));
        let whole = Value::from_json_str(r#"{"a": [{"b": 1, "c": 2.0, "d": "0.1"}, null, true]}"#).unwrap();
        for rules in [
            "x if input.a + input.b == input.c",
            "x if input.c != sum(input.a)",
            "x if count(input.a) + count(input.b) + input.c == 2",
            "x if 2 == input.a - count(input.b)",
            "x if {\n s := input.a - input.b\n s == input.c\n}",
            "part(n) := n * 3\nx if part(input.a) == input.b",
        ] {
            let sums = check_one(&format!("package a\n{rules}\n")).expect(rules);
            assert_eq!(sums, ComparedSums::OfWholeNumbers, "{rules}");
            assert!(
                sums.refuse(&decimal) && sums.refuse(&key) && !sums.refuse(&whole),
                "{rules}"
            );
        }
        for rules in [
            "x if input.a == -1",
            "x if count(input.a) - 1 == 2",
            "x if count(f(input.a)[0]) + count(input.b) == indexof(input.c, input.d) - 1",
            "x if input.a + input.b > input.c",
            "x if input.a == input.b",
            "x if {\n s := input.a - input.b\n s > input.c\n}",
        ] {
            let sums = check_one(&format!("package a\n{rules}\n")).expect(rules);
            assert!(!sums.refuse(&decimal), "{rules}");
        }
    }

    #[test]
    fn what_only_looks_like_a_difference_is_read() {
        for source in [
            "package a\n# 0.1 + 0.2 == 0.3\nx := \"0.1 + 0.2 == 0.3 and {} < set()\"\n",
            "package a\nx if 1.5 > input.n * 0.5\n",
            "package a\nx if input.version == \"1.2.3-4\"\n",
            "package a\nx if input.ratio == 0.5\n",
            "package a\nx if { [path, value] := walk(input) }\ny if walk(input, [_, 1])\n",
            "package a\nx if count(set()) == 0\n",
            "package a\nx := set() - {1}\ny if input.a1 + 1 == 2\n",
            "package a\na := {1}\nx if count(a) < 3\ny if 3 > count(a)\nz if a == {1}\n",
            "package a\na := {\"b\": 1}\nx if input.n < a.b\ny if a.b > 2\n",
            "package a\na := {1}\nx if input.a < 3\ny if a[_] < 3\n",
            "package a\na := input.n * 0.5\nx if a > 1\ny if input.b == 1\n",
            "package a\ndeny contains msg if { count(msg) < 3; input.n == 1 }\n",
        ] {
            check_one(source).expect(source);
        }
    }
}
