//! An engine for rules in Rego: with a clock, the functions that it lacks, and errors in one line.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
};

use regorus::{Engine, Value as RegoValue, utils::limits::ExecutionTimerConfig};
use serde_json::Value;

use super::{
    rego_builtins, rego_differences, rego_functions, rego_imports,
    rego_value::rego_value,
    rule::{PolicyFile, RULE_TIME, bound},
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

/// An engine with all its rules. Its copies are kept from one stack to the next.
pub(super) struct PreparedEngine {
    engine: Engine,
    spare: Mutex<Vec<Engine>>,
}

/// A copy of such an engine, for one stack.
pub(super) struct LentEngine<'e> {
    of: &'e PreparedEngine,
    /// None after an error.
    engine: Option<Engine>,
    input: RegoValue,
    /// What this stack has below `data` besides.
    data: Option<RegoValue>,
}

impl PreparedEngine {
    /// Keeps an engine. An engine orders its statements when it is evaluated first, and its copies keep that order.
    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            spare: Mutex::default(),
        }
    }

    /// A copy.
    pub(super) fn lend(&self) -> LentEngine<'_> {
        let spare = self.spare().pop();
        LentEngine {
            of: self,
            engine: Some(spare.unwrap_or_else(|| self.engine.clone())),
            input: RegoValue::Undefined,
            data: None,
        }
    }

    /// A copy with more below `data`.
    ///
    /// # Errors
    /// The data contradicts that of the set.
    pub(super) fn lend_with(&self, data: RegoValue) -> Result<LentEngine<'_>, String> {
        Ok(LentEngine {
            engine: Some(self.copy(Some(&data))?),
            of: self,
            input: RegoValue::Undefined,
            data: Some(data),
        })
    }

    /// Data is prepared again, which takes its time.
    fn copy(&self, data: Option<&RegoValue>) -> Result<Engine, String> {
        let mut engine = self.engine.clone();
        let added = data.map_or(Ok(()), |data| engine.add_data(data.clone()));
        added.map_err(|error| first_lines(&error.to_string()))?;
        Ok(engine)
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<Engine>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LentEngine<'_> {
    /// What rules see as `input`.
    pub(super) fn set_input(&mut self, input: RegoValue) {
        if let Some(engine) = &mut self.engine {
            engine.set_input(input.clone());
        }
        self.input = input;
    }

    /// The value of a rule for the input.
    ///
    /// # Errors
    /// It cannot be evaluated, or not in time. An engine that stopped in the middle may still have what a `with` put in the
    /// place of the input, of data or of a function, so it is not asked again.
    pub(super) fn evaluate(&mut self, path: &str) -> Result<RegoValue, String> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let mut engine = self.of.copy(self.data.as_ref())?;
                engine.set_input(self.input.clone());
                engine
            }
        };
        let value = evaluate(&mut engine, path)?;
        self.engine = Some(engine);
        Ok(value)
    }
}

impl Drop for LentEngine<'_> {
    fn drop(&mut self) {
        if let Some(mut engine) = self.engine.take()
            && self.data.is_none()
        {
            // Another stack does not see this one's input, and its memory is free.
            engine.set_input(RegoValue::Undefined);
            self.of.spare().push(engine);
        }
    }
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

/// Adds what is below `data`.
///
/// # Errors
/// A file is not one map, or contradicts another.
pub(super) fn add_data(engine: &mut Engine, data: &[PolicyFile]) -> Result<(), String> {
    for file in data {
        let documents =
            konverge_base::yaml::documents(&file.text).map_err(|error| format!("{}: {error}", file.path))?;
        let [value @ Value::Object(_)] = &documents[..] else {
            return Err(format!("{}: data is one map", file.path));
        };
        let added = engine.add_data(rego_value(value));
        added.map_err(|error| format!("{}: {}", file.path, first_lines(&error.to_string())))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stack_does_not_see_the_input_of_the_one_before() {
        let mut engine = new_engine(RegoVersion::V1);
        add_file(&mut engine, "p.rego", "package p\nseen := input.name\n").unwrap();
        let prepared = PreparedEngine::new(engine);
        let mut lent = prepared.lend();
        lent.set_input(rego_value(&json!({"name": "a"})));
        assert_eq!(lent.evaluate("data.p.seen").unwrap(), RegoValue::from("a"));
        drop(lent);
        assert_eq!(prepared.spare().len(), 1);
        let mut lent = prepared.lend();
        assert_eq!(lent.evaluate("data.p.seen").unwrap(), RegoValue::Undefined);
        lent.set_input(rego_value(&json!({"name": "b"})));
        assert_eq!(lent.evaluate("data.p.seen").unwrap(), RegoValue::from("b"));
    }
}
