//! Limits Rego functions whose cost is unbounded, and forbids nondeterministic ones. The time limit is not checked
//! inside a function, so the arguments are limited instead.

use std::collections::BTreeSet;

use regorus::{Engine, Value as RegoValue};

/// The most numbers that `numbers.range` gives.
const LONGEST_RANGE: i64 = 100_000;
/// The most digits of an exponent in a text that is read as a number: `1e99`.
const EXPONENT_DIGITS: usize = 2;
/// The longest text that is read as a number.
const LONGEST_NUMBER: usize = 400;
/// The most bits that addresses of a network may differ in.
const NETWORK_BITS: u32 = 16;
/// The most bits that a number is shifted by.
const MOST_BITS: i64 = 1024;
/// The most digits of a width in a format.
const WIDTH_DIGITS: usize = 3;

/// The most steps on paths through a graph.
const PATH_STEPS: u32 = 10_000;
/// The most nodes on a path through a graph.
const LONGEST_PATH: usize = 100;

/// Why a function gives no value here.
#[derive(Debug, thiserror::Error)]
enum BoundedFunctionError {
    #[error("numbers.range needs whole numbers and a step from 1")]
    NotWhole,
    #[error("numbers.range gives at most {LONGEST_RANGE} numbers")]
    LongRange,
    #[error("a rule gives the same answer each time, so there are no random numbers")]
    Random,
    #[error(
        "a number in a text has at most {LONGEST_NUMBER} characters, and an exponent of at most {EXPONENT_DIGITS} digits"
    )]
    LargeNumber,
    #[error("net.cidr_expand gives at most 65536 addresses")]
    LargeNetwork,
    #[error("bits.lsh shifts by at most {MOST_BITS} bits")]
    LongShift,
    #[error("a width in a format has at most {WIDTH_DIGITS} digits")]
    LargeWidth,
    #[error(
        "graph.reachable_paths takes at most {PATH_STEPS} steps, on paths of at most {LONGEST_PATH} nodes"
    )]
    ManyPaths,
}

/// The items of a set or a list.
pub(super) fn items(value: &RegoValue) -> Option<Box<dyn Iterator<Item = &RegoValue> + '_>> {
    match value {
        RegoValue::Set(items) => Some(Box::new(items.iter())),
        RegoValue::Array(items) => Some(Box::new(items.iter())),
        _ => None,
    }
}

type Check = fn(&[RegoValue]) -> Result<(), BoundedFunctionError>;

/// The functions that are called after a check of their arguments, with the number of their arguments.
const CHECKED: [(&str, u8, Check); 7] = [
    ("units.parse", 1, number),
    ("units.parse_bytes", 1, number),
    ("to_number", 1, number),
    ("json.unmarshal", 1, numbers_in_text),
    ("net.cidr_expand", 1, network),
    ("bits.lsh", 2, shift),
    ("graph.reachable_paths", 2, paths),
];

/// Bounds the functions of an engine.
pub(super) fn bound(engine: &mut Engine) {
    let range = |arguments: Vec<RegoValue>| numbers(&arguments).map_err(Into::into);
    let random = |_: Vec<RegoValue>| Err(BoundedFunctionError::Random.into());
    // They are the first extensions of these names, which is the only way in which this fails.
    let _ = engine.add_extension("numbers.range".to_owned(), 2, Box::new(range));
    let _ = engine.add_extension("numbers.range_step".to_owned(), 3, Box::new(range));
    let _ = engine.add_extension("rand.intn".to_owned(), 2, Box::new(random));
    for (name, arity, check) in CHECKED {
        checked(engine, name, arity, check);
    }
    // As in OPA it is true. What it is given goes nowhere.
    replaced(engine, "trace", 1, "true", Ok);
}

/// Bounds `sprintf` for rules in this source. A format that stands in the source needs no check at each call.
pub(super) fn bound_formats(engine: &mut Engine, source: &str) {
    let literal = |rest: &str| rest.trim_start().starts_with(['"', '`']);
    let mut formats = source.split("sprintf(").skip(1);
    if formats.any(|rest| !literal(rest)) || has_large_width(source) || source.contains("%q") {
        replaced(engine, "sprintf", 2, "sprintf(input[0], input[1])", |arguments| {
            format(&arguments)?;
            Ok(with_quotes(arguments))
        });
    }
}

/// Functions that Rego had before OPA 1.0.
pub(super) fn add_old(engine: &mut Engine) {
    for (name, arity, body) in [
        ("any", 1, "true in input[0]"),
        (
            "all",
            1,
            "count([item | some item in input[0]; item != true]) == 0",
        ),
        ("set_diff", 2, "input[0] - input[1]"),
    ] {
        replaced(engine, name, arity, body, Ok);
    }
}

/// Writes `%q` as `%s` of a quoted text: the function does not know it.
fn with_quotes(arguments: Vec<RegoValue>) -> Vec<RegoValue> {
    let [RegoValue::String(format), RegoValue::Array(values)] = &arguments[..] else {
        return arguments;
    };
    let mut values: Vec<RegoValue> = values.iter().cloned().collect();
    let (mut text, mut next, mut in_verb) = (String::new(), 0, false);
    for c in format.chars() {
        let ends = in_verb && (c.is_ascii_alphabetic() || c == '%');
        if ends && c == 'q' {
            if let Some(value) = values.get_mut(next) {
                let plain = value
                    .as_string()
                    .map_or_else(|_| value.to_string(), |text| text.to_string());
                *value = RegoValue::from(serde_json::Value::from(plain).to_string());
            }
            text.push('s');
        } else {
            text.push(c);
        }
        next += usize::from(ends && c != '%');
        in_verb = if in_verb { !ends } else { c == '%' };
    }
    vec![RegoValue::from(text), RegoValue::from(values)]
}

/// Replaces a function by itself with a check.
fn checked(engine: &mut Engine, name: &'static str, arity: u8, check: Check) {
    let arguments: Vec<_> = (0..arity).map(|at| format!("input[{at}]")).collect();
    let body = format!("{name}({})", arguments.join(", "));
    replaced(engine, name, arity, &body, move |arguments| {
        check(&arguments)?;
        Ok(arguments)
    });
}

/// Makes a function of an expression over the list `input` of its arguments, which another engine evaluates.
fn replaced(
    engine: &mut Engine,
    name: &str,
    arity: u8,
    body: &str,
    prepare: impl Fn(Vec<RegoValue>) -> Result<Vec<RegoValue>, BoundedFunctionError>
    + Clone
    + Send
    + Sync
    + 'static,
) {
    let rule = format!("package original\nresult := {body}\n");
    let mut original = Engine::new();
    original.set_strict_builtin_errors(true);
    let known = original.add_policy("original.rego".to_owned(), rule).is_ok();
    let call = move |arguments: Vec<RegoValue>| {
        original.set_input(RegoValue::from(prepare(arguments)?));
        original.eval_rule("data.original.result".to_owned())
    };
    if known {
        let _ = engine.add_extension(name.to_owned(), arity, Box::new(call));
    }
}

/// The numbers from the first to the second argument, in steps of the third.
fn numbers(arguments: &[RegoValue]) -> Result<RegoValue, BoundedFunctionError> {
    let whole = arguments.iter().map(RegoValue::as_i64);
    let whole: Vec<i64> = whole
        .collect::<Result<_, _>>()
        .map_err(|_| BoundedFunctionError::NotWhole)?;
    let (from, to, step) = match whole[..] {
        [from, to] => (from, to, 1),
        [from, to, step] if step >= 1 => (from, to, step),
        _ => return Err(BoundedFunctionError::NotWhole),
    };
    let distance = i64::try_from(to.abs_diff(from)).map_err(|_| BoundedFunctionError::LongRange)?;
    let count = distance / step;
    if count > LONGEST_RANGE {
        return Err(BoundedFunctionError::LongRange);
    }
    let towards = step * (to - from).signum();
    let numbers = (0..=count).map(|n| RegoValue::from(from + towards * n));
    Ok(RegoValue::from(numbers.collect::<Vec<_>>()))
}

fn text(arguments: &[RegoValue]) -> Option<&str> {
    let text = arguments.first()?.as_string().ok()?;
    Some(text.as_ref())
}

fn number(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    match text(arguments) {
        Some(text) if text.len() > LONGEST_NUMBER => Err(BoundedFunctionError::LargeNumber),
        _ => numbers_in_text(arguments),
    }
}

/// No number in the text has a large exponent, or more digits than numbers need.
fn numbers_in_text(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    let Some(text) = text(arguments) else {
        return Ok(());
    };
    let digits = |text: &str| {
        let digits = text
            .bytes()
            .take_while(|byte| byte.is_ascii_digit() || *byte == b'_');
        digits.count()
    };
    let mut exponents = text.split(['e', 'E']).skip(1);
    let large = |rest: &str| digits(rest.strip_prefix(['+', '-']).unwrap_or(rest)) > EXPONENT_DIGITS;
    let mut run = 0;
    let long = text.bytes().any(|byte| {
        run = if byte.is_ascii_digit() { run + 1 } else { 0 };
        run > LONGEST_NUMBER
    });
    match long || exponents.any(large) {
        true => Err(BoundedFunctionError::LargeNumber),
        false => Ok(()),
    }
}

fn network(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    let Some((address, prefix)) = text(arguments).and_then(|text| text.rsplit_once('/')) else {
        // The function itself says what is wrong.
        return Ok(());
    };
    let all = if address.contains(':') { 128 } else { 32 };
    match prefix.parse::<u32>() {
        Ok(prefix) if prefix + NETWORK_BITS < all => Err(BoundedFunctionError::LargeNetwork),
        _ => Ok(()),
    }
}

fn shift(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    match arguments.get(1).map(RegoValue::as_i64) {
        Some(Ok(bits)) if bits <= MOST_BITS => Ok(()),
        _ => Err(BoundedFunctionError::LongShift),
    }
}

/// The function follows each path, and there may be more paths than can be counted.
fn paths(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    let [graph, starts] = arguments else {
        return Ok(());
    };
    let (mut on_path, mut left) = (BTreeSet::new(), PATH_STEPS);
    let mut starts = items(starts).into_iter().flatten();
    match starts.all(|start| can_follow(graph, start, &mut on_path, &mut left)) {
        true => Ok(()),
        false => Err(BoundedFunctionError::ManyPaths),
    }
}

/// Follows each path from a node. Returns false if that takes too many steps.
fn can_follow(
    graph: &RegoValue,
    node: &RegoValue,
    on_path: &mut BTreeSet<RegoValue>,
    left: &mut u32,
) -> bool {
    if *left == 0 || on_path.len() > LONGEST_PATH {
        return false;
    }
    *left -= 1;
    if !on_path.insert(node.clone()) {
        return true;
    }
    let next = &graph[node];
    let mut next = items(next).into_iter().flatten();
    let can = next.all(|one| can_follow(graph, one, on_path, left));
    on_path.remove(node);
    can
}

fn format(arguments: &[RegoValue]) -> Result<(), BoundedFunctionError> {
    match text(arguments).is_some_and(has_large_width) {
        true => Err(BoundedFunctionError::LargeWidth),
        false => Ok(()),
    }
}

fn has_large_width(format: &str) -> bool {
    format.split('%').skip(1).any(|rest| {
        let rest = rest.trim_start_matches(['+', '-', '#', ' ']);
        rest.bytes().take_while(u8::is_ascii_digit).count() > WIDTH_DIGITS
    })
}

#[cfg(test)]
mod tests;
