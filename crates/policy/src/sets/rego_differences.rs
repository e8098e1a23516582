//! Where the engine differs from OPA: functions that answer as OPA does, or not at all, and comparisons that are refused.
//! A rule that cannot be evaluated denies, so that a difference is never a pass. docs/reference/rego.md has the table.

use std::collections::BTreeSet;

use regorus::{Engine, Value as RegoValue};

use super::go_regex::{self, GoRegexes};
use konverge_config::RegoVersion;

type Answer = Result<RegoValue, RegoDifference>;

/// Why a function gives no value.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegoDifference {
    #[error("{0}: {1}")]
    NoValue(&'static str, String),
    #[error("{name}: '{pattern}': {why}")]
    Regex {
        name: &'static str,
        pattern: String,
        why: String,
    },
    #[error("{0} needs texts, and whole numbers")]
    Arguments(&'static str),
    #[error("{0} differs from OPA, so it is refused: {1}")]
    Differs(&'static str, &'static str),
}

/// Adds the functions to an engine, in place of its own. The first version of Rego has `re_match`, too.
pub(super) fn add(engine: &mut Engine, version: RegoVersion) {
    let regexes = GoRegexes::default();
    let old = (version == RegoVersion::V0).then_some("re_match");
    for name in ["regex.match"].into_iter().chain(old) {
        let known = regexes.clone();
        extend(engine, name, 2, move |arguments| {
            let [pattern, value] = texts(name, arguments)?;
            Ok(RegoValue::from(get(&known, name, pattern)?.is_match(value)))
        });
    }
    extend(engine, "regex.is_valid", 1, |arguments| {
        let name = "regex.is_valid";
        let Ok([pattern]) = texts(name, arguments) else {
            return Ok(RegoValue::from(false));
        };
        let is_valid = go_regex::is_valid(pattern);
        is_valid
            .map(RegoValue::from)
            .map_err(|why| problem(name, pattern, &why))
    });
    let known = regexes.clone();
    extend(engine, "regex.split", 2, move |arguments| {
        let [pattern, value] = texts("regex.split", arguments)?;
        let parts = get(&known, "regex.split", pattern)?;
        let parts = parts.split(value).map(RegoValue::from);
        Ok(RegoValue::from(parts.collect::<Vec<_>>()))
    });
    let known = regexes.clone();
    extend(engine, "regex.replace", 3, move |arguments| {
        let [value, pattern, with] = texts("regex.replace", arguments)?;
        let pattern = get(&known, "regex.replace", pattern)?;
        Ok(RegoValue::from(pattern.replace_all(value, with).into_owned()))
    });
    let known = regexes.clone();
    extend(engine, "regex.find_n", 3, move |arguments| {
        let name = "regex.find_n";
        let [pattern, value] = texts(name, arguments.get(..2).unwrap_or_default())?;
        let most = most(name, arguments)?;
        let pattern = get(&known, name, pattern)?;
        let found = pattern.find_iter(value).take(most);
        Ok(RegoValue::from(
            found
                .map(|found| RegoValue::from(found.as_str()))
                .collect::<Vec<_>>(),
        ))
    });
    extend(engine, "regex.find_all_string_submatch_n", 3, move |arguments| {
        let name = "regex.find_all_string_submatch_n";
        let [pattern, value] = texts(name, arguments.get(..2).unwrap_or_default())?;
        let most = most(name, arguments)?;
        let pattern = get(&regexes, name, pattern)?;
        let found = pattern.captures_iter(value).take(most).map(|found| {
            let groups = found.iter().map(|group| group.map_or("", |group| group.as_str()));
            RegoValue::from(groups.map(RegoValue::from).collect::<Vec<_>>())
        });
        Ok(RegoValue::from(found.collect::<Vec<_>>()))
    });
    extend(engine, "regex.template_match", 4, |_| {
        Err(RegoDifference::Differs(
            "regex.template_match",
            "write an expression for regex.match",
        ))
    });
    extend(engine, "upper", 1, |arguments| {
        cased("upper", arguments, |c| c.to_uppercase())
    });
    extend(engine, "lower", 1, |arguments| {
        cased("lower", arguments, |c| c.to_lowercase())
    });
    extend(engine, "semver.is_valid", 1, |arguments| {
        let name = "semver.is_valid";
        let Ok([text]) = texts(name, arguments) else {
            return Ok(RegoValue::from(false));
        };
        Ok(RegoValue::from(is_version(text)))
    });
}

/// Adds a function to an engine.
pub(super) fn extend(
    engine: &mut Engine,
    name: &str,
    arity: u8,
    function: impl Fn(&[RegoValue]) -> Answer + Clone + Send + Sync + 'static,
) {
    let call = move |arguments: Vec<RegoValue>| Ok(function(&arguments)?);
    // It is the first extension of this name, which is the only way in which this fails.
    let _ = engine.add_extension(name.to_owned(), arity, Box::new(call));
}

fn texts<'a, const N: usize>(
    name: &'static str,
    arguments: &'a [RegoValue],
) -> Result<[&'a str; N], RegoDifference> {
    let texts = arguments.iter().map(|argument| match argument {
        RegoValue::String(text) => Ok(text.as_ref()),
        _ => Err(RegoDifference::Arguments(name)),
    });
    let texts: Vec<_> = texts.collect::<Result<_, _>>()?;
    texts.try_into().map_err(|_| RegoDifference::Arguments(name))
}

/// The number of matches that the third argument asks for; negative: all.
fn most(name: &'static str, arguments: &[RegoValue]) -> Result<usize, RegoDifference> {
    let number = arguments.get(2).and_then(|number| number.as_i64().ok());
    let number = number.ok_or(RegoDifference::Arguments(name))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

fn get(
    known: &GoRegexes,
    name: &'static str,
    pattern: &str,
) -> Result<std::sync::Arc<regex::Regex>, RegoDifference> {
    known.get(pattern).map_err(|why| problem(name, pattern, &why))
}

fn problem(name: &'static str, pattern: &str, why: &go_regex::RegexProblem) -> RegoDifference {
    RegoDifference::Regex {
        name,
        pattern: pattern.escape_debug().to_string(),
        why: why.to_string(),
    }
}

/// Go maps each character to one. Where that is more than one here, Go has another answer.
fn cased<I: Iterator<Item = char>>(
    name: &'static str,
    arguments: &[RegoValue],
    case: impl Fn(char) -> I,
) -> Answer {
    let [text] = texts(name, arguments)?;
    let mut mapped = String::with_capacity(text.len());
    for c in text.chars() {
        let mut one = case(c);
        match (one.next(), one.next()) {
            (Some(one), None) => mapped.push(one),
            _ => {
                return Err(RegoDifference::Differs(
                    name,
                    "a letter of the text has several in the other case",
                ));
            }
        }
    }
    Ok(RegoValue::from(mapped))
}

/// Whether OPA calls a text a version: one of Semantic Versioning 2, which may begin with `v`.
fn is_version(text: &str) -> bool {
    let version = semver::Version::parse(text.strip_prefix('v').unwrap_or(text));
    version.is_ok_and(|of| {
        [of.major, of.minor, of.patch]
            .iter()
            .all(|part| i64::try_from(*part).is_ok())
    })
}

/// Refuses comparisons whose answer may be another one than OPA's.
///
/// # Errors
/// The source has one; the text says which.
pub(super) fn check(source: &str) -> Result<(), String> {
    let code = code(source);
    let sets = names_of(&code, is_set, is_made_of);
    let decimals = names_of(&code, computes_with_decimals, has_word);
    for (at, line) in code.lines().enumerate() {
        let at = at + 1;
        let compact: String = line.split_whitespace().collect();
        if compares_sets(line, &sets) {
            return Err(format!(
                "line {at}: sets are in another order here than in OPA, so a set is not compared by `<` or `>`: compare with `==`, or by `count`"
            ));
        }
        // Its values are pairs, and a name alone takes none of them.
        if compact.split("=walk(").count() > 1
            && !compact.contains("]:=walk(")
            && !compact.contains("]=walk(")
        {
            return Err(format!(
                "line {at}: the engine gives no value to a name for `walk`: write `walk(DOCUMENT, [path, value])`"
            ));
        }
        let computes = computes_with_decimals(&compact) || decimals.iter().any(|name| has_word(line, name));
        if (compact.contains("==") || compact.contains("!=")) && computes {
            return Err(format!(
                "line {at}: OPA computes decimals with more digits than this engine, so a computed one is not compared by `==`: compare whole numbers, or by `<` and `>`"
            ));
        }
    }
    Ok(())
}

/// The names that are given such a value, directly or by way of others. Names are those of the whole file: one that
/// stands for something else in another rule counts too.
fn names_of(
    code: &str,
    is_such: impl Fn(&str) -> bool,
    follows: impl Fn(&str, &str) -> bool,
) -> BTreeSet<String> {
    let assigned: Vec<(&str, String)> = code.lines().flat_map(assignments).collect();
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
    has_word(value, name) && value.chars().all(|c| c.is_alphanumeric() || "_-&|".contains(c))
}

/// Returns true if a set stands beside an operator of order.
fn compares_sets(line: &str, sets: &BTreeSet<String>) -> bool {
    line.match_indices(['<', '>']).any(|(at, _)| {
        let left = line[..at].trim_end();
        let right = line[at + 1..].trim_start_matches('=').trim_start();
        let first = right.split(|c: char| !is_letter(c)).next().unwrap_or_default();
        let goes_on = right[first.len()..].starts_with(['(', '.', '[']);
        left.ends_with("set()")
            || right.starts_with("set()")
            || sets.contains(last_word(left))
            || (!goes_on && sets.contains(first))
    })
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

/// Returns true if a decimal number stands beside an operator of arithmetic.
fn computes_with_decimals(line: &str) -> bool {
    let bytes = line.as_bytes();
    let is_operator = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(|b| b"+-*/%".contains(b))
    };
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            at += 1;
        }
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b']' || b == b'.';
        let is_own = start == 0 || !is_word(bytes[start - 1]);
        let number = &line[start..at];
        if is_own
            && number.contains('.')
            && number.len() > 2
            && (is_operator(start.checked_sub(1)) || is_operator(Some(at)))
        {
            return true;
        }
        at = at.max(start + 1);
    }
    false
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

    fn answer(expression: &str) -> Result<String, String> {
        let mut engine = Engine::new();
        engine.set_strict_builtin_errors(true);
        add(&mut engine, RegoVersion::V1);
        let rule = format!("package a\nx := {expression}\n");
        check(&rule)?;
        engine
            .add_policy("a.rego".to_owned(), rule)
            .map_err(|error| error.to_string())?;
        let value = engine
            .eval_rule("data.a.x".to_owned())
            .map_err(|error| error.to_string())?;
        Ok(value.to_string())
    }

    /// What conftest says of each is asked by `tests/it/policy/opa_table.rs`.
    #[test]
    fn functions_answer_as_opa_or_not_at_all() {
        for (expression, value) in [
            (r#"regex.match(`^\d+$`, "٣")"#, "false"),
            (r#"regex.match(`^\d+$`, "3")"#, "true"),
            (r#"regex.is_valid("(")"#, "false"),
            (r#"regex.is_valid("a")"#, "true"),
            (r#"regex.split(`\s`, "a b")"#, r#"["a","b"]"#),
            (r#"regex.replace("aéb", `\w`, "x")"#, r#""xéx""#),
            (r#"regex.find_n(`\w`, "aéb", -1)"#, r#"["a","b"]"#),
            (r#"regex.find_n(`\w`, "aéb", 1)"#, r#"["a"]"#),
            (
                r#"regex.find_all_string_submatch_n(`(\w)(x)?`, "a", -1)"#,
                r#"[["a","a",""]]"#,
            ),
            (r#"semver.is_valid("v1.0.0")"#, "true"),
            (r#"semver.is_valid("V1.0.0")"#, "false"),
            (r#"semver.is_valid("01.0.0")"#, "false"),
            (r#"semver.is_valid("1.0.0-01")"#, "false"),
            (r#"semver.is_valid("1.0.0-0a+01")"#, "true"),
            (r#"semver.is_valid("99999999999999999999.0.0")"#, "false"),
            (r#"semver.is_valid("1.0.0-rc.1+b")"#, "true"),
            (r#"semver.is_valid("1.0")"#, "false"),
            (r#"upper("aé")"#, r#""AÉ""#),
            (r#"lower("AΣ")"#, r#""aσ""#),
        ] {
            assert_eq!(answer(expression).as_deref(), Ok(value), "{expression}");
        }
        for (expression, why) in [
            (r#"upper("ß")"#, "differs from OPA"),
            (
                r#"regex.template_match("a{.}b", "axb", "{", "}")"#,
                "differs from OPA",
            ),
            (r#"regex.match("[a&&b]", "a")"#, "means something else in Go"),
            (r#"regex.match("a", 1)"#, "needs texts"),
            ("{} < set()", "sets are in another order"),
            ("set() >= {1: 2}", "sets are in another order"),
            ("walk([1])", "write `walk(DOCUMENT, [path, value])`"),
            ("0.1 + 0.2 == 0.3", "computes decimals"),
            ("3 * 1.1 != 3.3", "computes decimals"),
        ] {
            let refused = answer(expression).unwrap_err();
            assert!(refused.contains(why), "{expression}: {refused}");
        }
    }

    #[test]
    fn a_set_or_a_computed_decimal_behind_names_is_refused() {
        for (rules, why) in [
            ("x := count([a | a := 0.1 + 0.2\n a == 0.3])", "computes decimals"),
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
            let refused = check(&format!("package a\n{rules}\n")).expect_err(rules);
            assert!(refused.contains(why), "{rules}: {refused}");
        }
    }

    /// A limit, which docs/reference/rego.md tells: OPA says true.
    #[test]
    fn a_computed_decimal_of_another_file_or_of_input_is_not_seen() {
        assert_eq!(check("package a\nx if data.b.ratio == 0.3\n"), Ok(()));
        assert_eq!(check("package a\nx if input.a / input.b == 0.3\n"), Ok(()));
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
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }
}
