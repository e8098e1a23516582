//! Functions whose results differ between the engine and OPA. The versions here return OPA's result, or fail. A
//! rule that cannot be evaluated denies, so a difference never lets anything pass. docs/reference/rego.md has the
//! table.

use regorus::{Engine, Value as RegoValue};

use crate::go_regex::{self, GoRegexes};
use konverge_config::RegoVersion;

pub(super) type RegoResult = Result<RegoValue, RegoDifference>;

/// Reasons why a function fails in place of returning a value. [`extend`] adds the name of the function.
#[derive(Debug)]
pub(super) enum RegoDifference {
    NoValue(String),
    Differs(&'static str),
    Numbers,
    ByZero,
    TooManyDigits,
}

/// The error of a function.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FailedCall(String);

impl RegoDifference {
    fn of_call(self, name: &str) -> FailedCall {
        FailedCall(match self {
            Self::NoValue(why) => format!("{name}: {why}"),
            Self::Differs(why) => format!("{name} differs from OPA, so it is refused: {why}"),
            Self::Numbers => {
                "operands and arguments must be numbers (`%`: integers; `-`: numbers or sets)".to_owned()
            }
            Self::ByZero => "division by zero".to_owned(),
            Self::TooManyDigits => "OPA computes with more digits than this engine, which may change the result: compute with whole numbers, such as thousandths".to_owned(),
        })
    }
}

impl From<String> for RegoDifference {
    fn from(why: String) -> Self {
        Self::NoValue(why)
    }
}

impl From<&str> for RegoDifference {
    fn from(why: &str) -> Self {
        Self::NoValue(why.to_owned())
    }
}

/// Replaces the functions of an engine. Version 0 of Rego also has `re_match`.
pub(super) fn add(engine: &mut Engine, version: RegoVersion) {
    let regexes = GoRegexes::default();
    let old = (version == RegoVersion::V0).then_some("re_match");
    for name in ["regex.match"].into_iter().chain(old) {
        let known = regexes.clone();
        extend(engine, name, 2, move |arguments| {
            let [pattern, value] = texts(arguments)?;
            Ok(RegoValue::from(get(&known, pattern)?.is_match(value)))
        });
    }
    extend(engine, "regex.is_valid", 1, |arguments| {
        let Ok([pattern]) = texts(arguments) else {
            return Ok(RegoValue::from(false));
        };
        let is_valid = go_regex::is_valid(pattern);
        is_valid
            .map(RegoValue::from)
            .map_err(|why| problem(pattern, &why))
    });
    let known = regexes.clone();
    extend(engine, "regex.split", 2, move |arguments| {
        let [pattern, value] = texts(arguments)?;
        let pattern = get(&known, pattern)?;
        let parts = pattern.split(value).map(RegoValue::from);
        Ok(RegoValue::from(parts.collect::<Vec<_>>()))
    });
    let known = regexes.clone();
    extend(engine, "regex.replace", 3, move |arguments| {
        let [value, pattern, with] = texts(arguments)?;
        let pattern = get(&known, pattern)?;
        Ok(RegoValue::from(pattern.replace_all(value, with).into_owned()))
    });
    let known = regexes.clone();
    extend(engine, "regex.find_n", 3, move |arguments| {
        let [pattern, value] = texts(arguments.get(..2).unwrap_or_default())?;
        let most = most(arguments)?;
        let pattern = get(&known, pattern)?;
        let found = pattern.find_iter(value).take(most);
        let found = found.map(|found| RegoValue::from(found.as_str()));
        Ok(RegoValue::from(found.collect::<Vec<_>>()))
    });
    extend(engine, "regex.find_all_string_submatch_n", 3, move |arguments| {
        let [pattern, value] = texts(arguments.get(..2).unwrap_or_default())?;
        let most = most(arguments)?;
        let pattern = get(&regexes, pattern)?;
        let found = pattern.captures_iter(value).take(most).map(|found| {
            let groups = found.iter().map(|group| group.map_or("", |group| group.as_str()));
            RegoValue::from(groups.map(RegoValue::from).collect::<Vec<_>>())
        });
        Ok(RegoValue::from(found.collect::<Vec<_>>()))
    });
    extend(engine, "regex.template_match", 4, |_| {
        let why = "use `regex.match` with a regular expression instead";
        Err(RegoDifference::Differs(why))
    });
    extend(engine, "upper", 1, |arguments| {
        cased(arguments, |c| c.to_uppercase())
    });
    extend(engine, "lower", 1, |arguments| {
        cased(arguments, |c| c.to_lowercase())
    });
    extend(engine, "semver.is_valid", 1, |arguments| {
        let Ok([text]) = texts(arguments) else {
            return Ok(RegoValue::from(false));
        };
        Ok(RegoValue::from(is_version(text)))
    });
}

/// Adds a function to an engine.
pub(super) fn extend(
    engine: &mut Engine,
    name: &'static str,
    arity: u8,
    function: impl Fn(&[RegoValue]) -> RegoResult + Clone + Send + Sync + 'static,
) {
    let call = move |arguments: Vec<RegoValue>| Ok(function(&arguments).map_err(|why| why.of_call(name))?);
    // Only a second extension of the same name could fail.
    let _ = engine.add_extension(name.to_owned(), arity, Box::new(call));
}

const ARGUMENTS: &str = "its arguments must be strings and integers";

fn texts<const N: usize>(arguments: &[RegoValue]) -> Result<[&str; N], RegoDifference> {
    let texts = arguments.iter().map(|argument| match argument {
        RegoValue::String(text) => Some(text.as_ref()),
        _ => None,
    });
    let texts: Option<Vec<_>> = texts.collect();
    let texts = texts.and_then(|texts| texts.try_into().ok());
    Ok(texts.ok_or(ARGUMENTS)?)
}

/// Returns the maximum number of matches from the third argument; negative means all.
fn most(arguments: &[RegoValue]) -> Result<usize, RegoDifference> {
    let number = arguments.get(2).and_then(|number| number.as_i64().ok());
    Ok(usize::try_from(number.ok_or(ARGUMENTS)?).unwrap_or(usize::MAX))
}

fn get(known: &GoRegexes, pattern: &str) -> Result<std::sync::Arc<regex::Regex>, RegoDifference> {
    known.get(pattern).map_err(|why| problem(pattern, &why))
}

fn problem(pattern: &str, why: &go_regex::RegexProblem) -> RegoDifference {
    format!("'{}': {why}", pattern.escape_debug()).into()
}

/// Changes the case of a text. Go maps each character to exactly one, so a character that becomes several here is
/// refused.
fn cased<I: Iterator<Item = char>>(arguments: &[RegoValue], case: impl Fn(char) -> I) -> RegoResult {
    let [text] = texts(arguments)?;
    let mut mapped = String::with_capacity(text.len());
    for c in text.chars() {
        let mut one = case(c);
        match (one.next(), one.next()) {
            (Some(one), None) => mapped.push(one),
            _ => {
                let why = "a letter of the text has several in the other case";
                return Err(RegoDifference::Differs(why));
            }
        }
    }
    Ok(RegoValue::from(mapped))
}

/// Returns true if OPA accepts a text as a semantic version (2.0, optionally with a leading `v`).
fn is_version(text: &str) -> bool {
    let version = semver::Version::parse(text.strip_prefix('v').unwrap_or(text));
    version.is_ok_and(|of| {
        [of.major, of.minor, of.patch]
            .iter()
            .all(|part| i64::try_from(*part).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rego::engine::RuleEngine;

    fn answer(expression: &str) -> Result<String, String> {
        let mut engine = RuleEngine::new(RegoVersion::V1, expression);
        engine.add_file("a.rego", &format!("package a\nx := {expression}\n"))?;
        Ok(engine.evaluate("data.a.x")?.to_string())
    }

    /// `tests/it/policy/opa_table.rs` compares the same expressions with conftest.
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
            ("{} < set()", "true"),
            ("set() >= {1: 2}", "true"),
            ("{1, 2} - {2}", "[1]"),
            ("0.1 + 0.2 == 0.3", "true"),
            ("floor(0.29 * 100)", "29"),
            ("1 / 3 < 0.34", "true"),
            ("round(100 * (2 / 3))", "67"),
            ("abs(-1.5) + sum([0.1, 0.2])", "1.8"),
            ("product([2, 3])", "6"),
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
            (r#"regex.match("a", 1)"#, "must be strings"),
            ("walk([1])", "write `walk(DOCUMENT, [path, value])`"),
            ("3 * 1.1 != 3.3", "more digits than this engine"),
            ("product([2, 0.5])", "fewer digits than `*`"),
            ("ceil(-0.5)", "between -1 and 0"),
            ("product(numbers.range(2, 90000))", "more digits than this engine"),
            ("sum([1.1, 1.1, 1.1]) > 3.3", "more digits than this engine"),
        ] {
            let refused = answer(expression).unwrap_err();
            assert!(refused.contains(why), "{expression}: {refused}");
        }
    }
}
