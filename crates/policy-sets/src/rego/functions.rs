//! Rego functions that are not the engine's own: those that Rego had before OPA 1.0, a verb of `sprintf`, and one that is
//! refused. What a function costs is limited by the worker that evaluates it.

use regorus::{Engine, Value as RegoValue};

/// Error of a function whose value would differ at each evaluation.
#[derive(Debug, thiserror::Error)]
#[error("random numbers are not available: a rule must give the same result each time")]
struct Random;

/// The items of a set or a list.
pub(crate) fn items(value: &RegoValue) -> Option<Box<dyn Iterator<Item = &RegoValue> + '_>> {
    match value {
        RegoValue::Set(items) => Some(Box::new(items.iter())),
        RegoValue::Array(items) => Some(Box::new(items.iter())),
        _ => None,
    }
}

/// Adds what the engine lacks.
pub(super) fn add(engine: &mut Engine) {
    let random = |_: Vec<RegoValue>| Err(Random.into());
    // It is the first extension of this name, which is the only way in which this fails.
    let _ = engine.add_extension("rand.intn".to_owned(), 2, Box::new(random));
    // As in OPA it is true. What it is given goes nowhere.
    replaced(engine, "trace", 1, "true", |arguments| arguments);
}

/// Adds `%q` to `sprintf` for rules in this source. A format that stands in the source is looked at here, and not at
/// each call.
pub(super) fn add_quotes(engine: &mut Engine, source: &str) {
    let literal = |rest: &str| rest.trim_start().starts_with(['"', '`']);
    let mut formats = source.split("sprintf(").skip(1);
    if formats.any(|rest| !literal(rest)) || source.contains("%q") {
        replaced(engine, "sprintf", 2, "sprintf(input[0], input[1])", with_quotes);
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
        replaced(engine, name, arity, body, |arguments| arguments);
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

/// Makes a function of an expression over the list `input` of its arguments, which another engine evaluates.
fn replaced(
    engine: &mut Engine,
    name: &str,
    arity: u8,
    body: &str,
    prepare: impl Fn(Vec<RegoValue>) -> Vec<RegoValue> + Clone + Send + Sync + 'static,
) {
    let rule = format!("package original\nresult := {body}\n");
    let mut original = Engine::new();
    original.set_strict_builtin_errors(true);
    let known = original.add_policy("original.rego".to_owned(), rule).is_ok();
    let call = move |arguments: Vec<RegoValue>| {
        original.set_input(RegoValue::from(prepare(arguments)));
        original.eval_rule("data.original.result".to_owned())
    };
    if known {
        let _ = engine.add_extension(name.to_owned(), arity, Box::new(call));
    }
}

#[cfg(test)]
#[path = "functions_tests.rs"]
mod tests;
