//! An engine for rules in Rego: with a clock, the functions that it lacks, and errors in one line.

use std::num::NonZeroU32;

use regorus::{Engine, Value as RegoValue, utils::limits::ExecutionTimerConfig};

use super::{
    rego_builtins, rego_differences, rego_functions, rego_imports,
    rule::{RULE_TIME, bound},
};
use konverge_config::RegoVersion;

/// The steps between two looks at the clock.
const CLOCK_EVERY: NonZeroU32 = NonZeroU32::new(64).expect("it is not zero");

/// An engine without rules.
pub(super) fn new_engine(version: RegoVersion) -> Engine {
    let mut engine = Engine::new();
    engine.set_rego_v0(version == RegoVersion::V0);
    // An error of a function is an error, and not *undefined*: a `deny` would never fire.
    engine.set_strict_builtin_errors(true);
    // What a rule prints may be a value of a pull request: it must not reach the log, where GitHub reads commands.
    engine.set_gather_prints(true);
    engine.set_execution_timer_config(ExecutionTimerConfig {
        limit: RULE_TIME,
        check_interval: CLOCK_EVERY,
    });
    rego_functions::add(&mut engine);
    rego_differences::add(&mut engine, version);
    rego_builtins::add(&mut engine);
    if version == RegoVersion::V0 {
        rego_functions::add_old(&mut engine);
    }
    engine
}

/// Adds a file, and returns its package.
///
/// # Errors
/// It is not Rego.
pub(super) fn add_file(engine: &mut Engine, path: &str, text: &str) -> Result<String, String> {
    let text = rego_imports::with_full_calls(text).into_owned();
    let added = engine.add_policy(path.to_owned(), text);
    added.map_err(|error| first_lines(&error.to_string()))
}

/// The value of a rule, such as `data.main.deny`.
///
/// # Errors
/// It cannot be evaluated, or not in time.
pub(super) fn evaluate(engine: &mut Engine, path: &str) -> Result<RegoValue, String> {
    let value = engine.eval_rule(path.to_owned());
    let _ = engine.take_prints();
    value.map_err(|error| {
        let text = error.to_string();
        match text.contains("execution exceeded time limit") {
            true => too_slow(),
            false => first_lines(&text),
        }
    })
}

pub(super) fn too_slow() -> String {
    format!("it took longer than {} s", RULE_TIME.as_secs())
}

/// A source without the lines that are comments: their words read nothing.
pub(super) fn without_comments(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// The part of an error that says what and where, in one line.
pub(super) fn first_lines(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('|'))
        .collect();
    bound(&lines.join(" "))
}
