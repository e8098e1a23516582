//! A Rego engine with a time limit, the functions that the engine crate lacks, and errors of one line.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
};

use regorus::{
    Engine, PolicyLengthConfig, Value as RegoValue,
    unstable::{Module, Ref},
    utils::limits::ExecutionTimerConfig,
};
use serde_json::Value;

use super::{
    builtins, differences, functions, imports, numbers::InexactNumbers, operators, value::rego_value,
};
use crate::rule::{PolicyFile, RULE_TIME, bound};
use konverge_config::RegoVersion;

/// The maximum length of a source line.
const MOST_COLUMNS: NonZeroU32 = NonZeroU32::new(4096).expect("it is not zero");
/// The number of steps between two checks of the time limit.
const CLOCK_EVERY: NonZeroU32 = NonZeroU32::new(64).expect("it is not zero");

/// An engine with the additional functions.
#[derive(Clone)]
pub(crate) struct RuleEngine {
    engine: Engine,
    version: RegoVersion,
    numbers: InexactNumbers,
}

impl RuleEngine {
    /// Creates an engine without rules. `source` is the text of the rules that will be added, which decides about
    /// some functions.
    pub(crate) fn new(version: RegoVersion, source: &str) -> Self {
        let mut engine = Engine::new();
        engine.set_rego_v0(version == RegoVersion::V0);
        // An error in a function must be an error and not *undefined*, because otherwise a `deny` would silently
        // not fire.
        engine.set_strict_builtin_errors(true);
        // A rule may print a value of the pull request. Printed texts must not reach the log, where GitHub
        // interprets workflow commands.
        engine.set_gather_prints(true);
        engine.set_execution_timer_config(ExecutionTimerConfig {
            limit: RULE_TIME,
            check_interval: CLOCK_EVERY,
        });
        // Replacing operators with calls makes lines longer, so the limit is raised.
        engine.set_policy_length_config(PolicyLengthConfig {
            max_col: MOST_COLUMNS,
            ..PolicyLengthConfig::default()
        });
        functions::add(&mut engine);
        differences::add(&mut engine, version);
        builtins::add(&mut engine);
        if version == RegoVersion::V0 {
            functions::add_old(&mut engine);
        }
        functions::add_quotes(&mut engine, source);
        let numbers = InexactNumbers::default();
        numbers.add_to(&mut engine);
        Self {
            engine,
            version,
            numbers,
        }
    }

    /// Adds a file, and returns its package.
    ///
    /// # Errors
    /// A file that is not Rego or uses an unsupported feature.
    pub(crate) fn add_file(&mut self, path: &str, text: &str) -> Result<String, String> {
        let text = imports::with_full_calls(text);
        let mut read = parsed(path, &text, self.version)?;
        let text = operators::with_calls(&mut read, &text).map_err(|why| format!("{path}: {why}"))?;
        let added = self.engine.add_policy(path.to_owned(), text);
        added.map_err(|error| first_lines(&without_code(&error.to_string())))
    }

    /// Adds values below `data`.
    ///
    /// # Errors
    /// A file that is not a map, or contradicts another file.
    pub(super) fn add_data(&mut self, data: &[PolicyFile]) -> Result<(), String> {
        for file in data {
            let documents = konverge_base::yaml::documents(&file.text)
                .map_err(|error| format!("{}: {error}", file.path))?;
            let [value @ Value::Object(_)] = &documents[..] else {
                return Err(format!("{}: data is one map", file.path));
            };
            let added = self.engine.add_data(rego_value(value));
            added.map_err(|error| format!("{}: {}", file.path, first_lines(&error.to_string())))?;
        }
        Ok(())
    }

    /// Returns the parsed files, in the order in which they were added.
    pub(super) fn modules(&mut self) -> &[Ref<Module>] {
        self.engine.get_modules()
    }

    /// Sets the `input` of the rules.
    pub(crate) fn set_input(&mut self, input: RegoValue) {
        self.engine.set_input(input);
    }

    /// Evaluates a rule, such as `data.main.deny`.
    ///
    /// # Errors
    /// The rule cannot be evaluated, or not within the time limit.
    pub(crate) fn evaluate(&mut self, path: &str) -> Result<RegoValue, String> {
        self.numbers.forget();
        let value = self.engine.eval_rule(path.to_owned());
        let _ = self.engine.take_prints();
        value.map_err(|error| {
            let text = error.to_string();
            if text.contains("execution exceeded time limit") {
                too_slow()
            } else {
                first_lines(&without_code(&text))
            }
        })
    }
}

/// Removes the quoted code and its column from an error: the user did not write the calls that replace operators.
fn without_code(text: &str) -> String {
    let is_no_code = |line: &&str| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        !rest.trim_start().starts_with('|')
    };
    let lines = text.lines().filter(is_no_code);
    let lines = lines.map(|line| {
        if line.starts_with("--> ") {
            line.rsplit_once(':').map_or(line, |(place, _)| place)
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Parses one file with a new engine that keeps the original operators.
///
/// # Errors
/// A text that is not Rego.
pub(super) fn parsed(path: &str, text: &str, version: RegoVersion) -> Result<Engine, String> {
    let mut engine = Engine::new();
    engine.set_rego_v0(version == RegoVersion::V0);
    let added = engine.add_policy(path.to_owned(), text.to_owned());
    added.map_err(|error| first_lines(&error.to_string()))?;
    Ok(engine)
}

/// An engine with all rules of a set, and a pool of its clones for the next stacks.
pub(crate) struct PreparedEngine {
    engine: RuleEngine,
    spare: Mutex<Vec<RuleEngine>>,
}

/// A clone of a prepared engine, for one stack.
pub(crate) struct LentEngine<'e> {
    of: &'e PreparedEngine,
    /// `None` after an error; the next evaluation makes a new clone.
    engine: Option<RuleEngine>,
    input: RegoValue,
    /// Values below `data` that are specific to this stack.
    data: Option<RegoValue>,
}

impl PreparedEngine {
    /// Creates the pool. An engine orders its statements at its first evaluation, and clones made after that keep
    /// the order.
    pub(crate) fn new(engine: RuleEngine) -> Self {
        Self {
            engine,
            spare: Mutex::default(),
        }
    }

    /// Takes a clone for one stack.
    pub(crate) fn lend(&self) -> LentEngine<'_> {
        let spare = self.spare().pop();
        LentEngine {
            of: self,
            engine: Some(spare.unwrap_or_else(|| self.engine.clone())),
            input: RegoValue::Undefined,
            data: None,
        }
    }

    /// Takes a clone for one stack, with more values below `data`.
    ///
    /// # Errors
    /// The data contradicts the data of the set.
    pub(super) fn lend_with(&self, data: RegoValue) -> Result<LentEngine<'_>, String> {
        Ok(LentEngine {
            engine: Some(self.copy(Some(&data))?),
            of: self,
            input: RegoValue::Undefined,
            data: Some(data),
        })
    }

    /// Clones the engine. Adding data is slow, because the engine prepares it again.
    fn copy(&self, data: Option<&RegoValue>) -> Result<RuleEngine, String> {
        let mut engine = self.engine.clone();
        let added = data.map_or(Ok(()), |data| engine.engine.add_data(data.clone()));
        added.map_err(|error| first_lines(&error.to_string()))?;
        Ok(engine)
    }

    fn spare(&self) -> std::sync::MutexGuard<'_, Vec<RuleEngine>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LentEngine<'_> {
    /// Sets the `input` of the rules.
    pub(crate) fn set_input(&mut self, input: RegoValue) {
        if let Some(engine) = &mut self.engine {
            engine.set_input(input.clone());
        }
        self.input = input;
    }

    /// Evaluates a rule on the input.
    ///
    /// # Errors
    /// The rule cannot be evaluated, or not within the time limit. The engine is dropped then: it may still have
    /// values that a `with` put in place of the input, of data or of a function.
    pub(crate) fn evaluate(&mut self, path: &str) -> Result<RegoValue, String> {
        let mut engine = match self.engine.take() {
            Some(engine) => engine,
            None => {
                let mut engine = self.of.copy(self.data.as_ref())?;
                engine.set_input(self.input.clone());
                engine
            }
        };
        let value = engine.evaluate(path)?;
        self.engine = Some(engine);
        Ok(value)
    }
}

impl Drop for LentEngine<'_> {
    fn drop(&mut self) {
        if let Some(mut engine) = self.engine.take()
            && self.data.is_none()
        {
            // Removes the input before the clone is reused: no stack sees another's input, and the memory is freed.
            engine.set_input(RegoValue::Undefined);
            self.of.spare().push(engine);
        }
    }
}

pub(super) fn too_slow() -> String {
    format!("it took longer than {} s", RULE_TIME.as_secs())
}

/// Returns a source without comment lines, whose words read nothing.
pub(crate) fn without_comments(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the first lines of an error, which say what is wrong and where, joined to one line.
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
    fn an_error_says_where_without_calls_that_nobody_wrote() {
        let mut engine = RuleEngine::new(RegoVersion::V1, "");
        let rule = "package p\n\nover if {\n\tinput.used * 1.1 > 3.3\n}\n";
        engine.add_file("p.rego", rule).unwrap();
        engine.set_input(rego_value(&json!({"used": 3})));
        let why = engine.evaluate("data.p.over").unwrap_err();
        assert!(
            why.starts_with("--> p.rego:4 error: OPA computes with more digits"),
            "{why}"
        );
        assert!(!why.contains("konverge_"), "{why}");
        engine.set_input(rego_value(&json!({"used": 4})));
        assert_eq!(engine.evaluate("data.p.over").unwrap(), RegoValue::from(true));
    }

    #[test]
    fn a_stack_does_not_see_the_input_of_the_one_before() {
        let mut engine = RuleEngine::new(RegoVersion::V1, "");
        engine
            .add_file("p.rego", "package p\nseen := input.name\n")
            .unwrap();
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
