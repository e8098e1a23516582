//! Further Rego functions: those that existed before OPA 1.0, a verb of `sprintf`, and a random function that is
//! refused. The limits of the worker process also cover the cost of functions.

use regorus::{Engine, Value as RegoValue};

/// The error of a function that would return a different value at each evaluation.
#[derive(Debug, thiserror::Error)]
#[error("random numbers are not available: a rule must give the same result each time")]
struct Random;

/// Returns the items of a set or a list.
pub(crate) fn items(value: &RegoValue) -> Option<Box<dyn Iterator<Item = &RegoValue> + '_>> {
    match value {
        RegoValue::Set(items) => Some(Box::new(items.iter())),
        RegoValue::Array(items) => Some(Box::new(items.iter())),
        _ => None,
    }
}

/// Returns a text of an object.
pub(crate) fn text_field(value: &RegoValue, name: &str) -> Option<String> {
    let field = value.as_object().ok()?.get(&RegoValue::from(name))?;
    Some(field.as_string().ok()?.to_string())
}

/// Adds missing functions.
pub(super) fn add(engine: &mut Engine) {
    let random = |_: Vec<RegoValue>| Err(Random.into());
    // Only a second extension of the same name could fail.
    let _ = engine.add_extension("rand.intn".to_owned(), 2, Box::new(random));
    // As in OPA, `trace` returns true. Its argument is dropped.
    replaced(engine, "trace", 1, "true", |arguments| arguments);
}

/// Adds `%q` to `sprintf`, unless all formats in the source are literals without it: then the slower version is not
/// necessary.
pub(super) fn add_quotes(engine: &mut Engine, source: &str) {
    let literal = |rest: &str| rest.trim_start().starts_with(['"', '`']);
    let mut formats = source.split("sprintf(").skip(1);
    if formats.any(|rest| !literal(rest)) || source.contains("%q") {
        replaced(engine, "sprintf", 2, "sprintf(input[0], input[1])", with_quotes);
    }
}

/// Adds the functions that Rego had before OPA 1.0.
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

/// Replaces `%q` with `%s` and quotes the argument, because the engine's `sprintf` does not support `%q`.
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

/// Adds a function whose body is an expression over the list `input` of its arguments. Another engine evaluates the
/// body.
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
