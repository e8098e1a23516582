//! Comparisons whose answer may be another one than OPA's: of sets by their order, and of computed decimals by equality.
//! They are refused when the rules are read. The source is searched as text; names count in all files of a set.

use std::collections::BTreeSet;

/// Refuses the comparisons in the files of one set: path and source of each.
///
/// # Errors
/// A file has one; the text says which, and where.
pub(super) fn check(files: &[(&str, &str)]) -> Result<(), String> {
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (*path, code(text))).collect();
    let all: Vec<&str> = files.iter().map(|(_, code)| code.as_str()).collect();
    let all_sets = names_of(&all, is_set, is_made_of);
    let all_decimals = names_of(&all, computes_with_decimals, has_word);
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
                "OPA computes decimals with more digits than this engine, so a computed one is not compared by `==`: compute with whole numbers, such as thousandths"
            } else {
                continue;
            };
            return Err(format!("{path}: line {}: {why}", at + 1));
        }
    }
    Ok(())
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

/// Returns true if a line may compute a decimal number: it divides, or it has an operator of arithmetic together with a
/// decimal number or with a function that makes numbers of texts.
fn computes_with_decimals(line: &str) -> bool {
    let has_decimal = line
        .split(|c: char| !is_part(c))
        .any(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    let makes_numbers = ["to_number(", "units.parse("]
        .iter()
        .any(|name| line.contains(name));
    line.contains('/') || (line.contains(['+', '-', '*', '%']) && (has_decimal || makes_numbers))
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

    fn check_one(source: &str) -> Result<(), String> {
        check(&[("a.rego", source)])
    }

    #[test]
    fn a_set_or_a_computed_decimal_behind_names_is_refused() {
        for (rules, why) in [
            ("x := count([a | a := 0.1 + 0.2\n a == 0.3])", "computes decimals"),
            ("x if input.a / input.b == 0.3", "computes decimals"),
            ("x if input.a + input.b == 0.3", "computes decimals"),
            ("x if to_number(input.a) * 3 == input.c", "computes decimals"),
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
        assert_eq!(check(&[("lib.rego", library), ("own.rego", own)]), Ok(()));
    }

    /// A limit, which docs/reference/rego.md tells: OPA says true for 0.1, 0.2 and 0.3.
    #[test]
    fn a_sum_of_decimals_of_the_input_is_not_seen() {
        assert_eq!(
            check_one("package a\nx if input.a + input.b == input.c\n"),
            Ok(())
        );
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
            assert_eq!(check_one(source), Ok(()), "{source}");
        }
    }
}
