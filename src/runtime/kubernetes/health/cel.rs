//! User-defined readiness rules in CEL: three expressions over an object, as in Flux.
//!
//! ```yaml
//! # <group>/<Kind>/health.cel.yaml
//! inProgress: status.phase == 'Pending'   # optional; evaluated first
//! failed: status.phase == 'Broken'        # optional
//! current: status.phase == 'Running'      # required; false or unknown: in progress
//! ```
//!
//! The variables are the top-level fields of the object (`metadata`, `spec` and `status` exist, possibly
//! empty), and `object` is the whole. An expression with a missing field is false, because controllers report
//! step by step. CEL has no loops except those over lists, no input and no output; the cost of an expression
//! is limited before it is evaluated.

use std::{collections::HashMap, sync::Arc};

use cel::{
    Context, ExecutionError, Program, Value as CelValue,
    common::ast::{EntryExpr, Expr, IdedExpr, operators},
    objects::{Key, Map},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    kstatus::{terminating, unobserved},
    object_view::ObjectView,
    verdict::{HealthVerdict, Weight},
};
use crate::yaml::{self, YamlError};

/// The maximum length of an expression in bytes.
const LONGEST: usize = 4096;
/// The maximum nesting of an expression.
const DEEPEST: u32 = 60;
/// The stack size of the parser in bytes; only the used part is allocated.
const PARSER_STACK: usize = 256 * 1024 * 1024;
/// The maximum cost of an expression: its size times the iterations of its innermost loop.
const COST: u64 = 20_000_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    in_progress: Option<String>,
    #[serde(default)]
    failed: Option<String>,
    current: String,
}

#[derive(Debug)]
struct Expression {
    program: Program,
    size: u64,
    /// The nesting of loops.
    loops: u32,
    /// The number of concatenations: each may double a list.
    additions: u64,
    /// The longest list literal in the expression.
    longest: u64,
}

/// The rule of one kind.
#[derive(Debug)]
pub(super) struct Expressions {
    in_progress: Option<Expression>,
    failed: Option<Expression>,
    current: Expression,
}

impl Expressions {
    /// Parses a rule.
    ///
    /// # Errors
    /// Not YAML of that form, or an expression that is not CEL.
    pub(super) fn parse(text: &str) -> Result<Self, YamlError> {
        let file: File = yaml::from_str(text)?;
        let compile = |key: &str, source: &str| {
            Expression::compile(source).map_err(|message| {
                let place = text.lines().position(|line| line.trim_start().starts_with(key));
                YamlError {
                    line: place.and_then(|at| u32::try_from(at + 1).ok()),
                    column: None,
                    message: format!("`{key}`: {message}"),
                }
            })
        };
        let optional = |key: &str, source: &Option<String>| {
            source.as_deref().map(|source| compile(key, source)).transpose()
        };
        Ok(Self {
            in_progress: optional("inProgress", &file.in_progress)?,
            failed: optional("failed", &file.failed)?,
            current: compile("current", &file.current)?,
        })
    }

    /// Evaluates an object; the error is one sentence.
    pub(super) fn judge(&self, object: &Value) -> Result<HealthVerdict, String> {
        let view = ObjectView(object);
        if !view.text("/metadata/deletionTimestamp").is_empty() {
            return Ok(terminating(&view));
        }
        if let Some(verdict) = unobserved(&view, false) {
            return Ok(verdict);
        }
        let context = context(object);
        let widest = widest(object);
        let holds = |name: &str, expression: &Option<Expression>| {
            let Some(expression) = expression else {
                return Ok(false);
            };
            expression
                .holds(&context, widest)
                .map_err(|why| format!("`{name}`: {why}"))
        };
        if holds("inProgress", &self.in_progress)? {
            return Ok(HealthVerdict::progressing("its rule says that it is in progress"));
        }
        if holds("failed", &self.failed)? {
            let why = reason(&view).unwrap_or_else(|| "its rule says that it failed".to_owned());
            return Ok(HealthVerdict::failed(why).weighing(Weight::Blocked));
        }
        let current = self.current.holds(&context, widest);
        if current.map_err(|why| format!("`current`: {why}"))? {
            return Ok(HealthVerdict::ready(""));
        }
        Ok(HealthVerdict::progressing(reason(&view).unwrap_or_else(|| {
            "its rule says that it is not current".to_owned()
        })))
    }
}

/// The object's own explanation, for the message.
fn reason(view: &ObjectView) -> Option<String> {
    let ready = view.condition("Ready").filter(|condition| !condition.is_true())?;
    Some(ready.lowercase_words()).filter(|words| !words.is_empty())
}

impl Expression {
    fn compile(source: &str) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("an expression may have at most {LONGEST} bytes"));
        }
        let source = source.to_owned();
        // The parser recurses as deep as the expression, before the limit can be checked: it gets a stack
        // that is large enough.
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK);
        let parsing = thread
            .spawn(move || Self::parse(&source))
            .map_err(|error| error.to_string())?;
        parsing.join().unwrap_or_else(|_| Err("not CEL".to_owned()))
    }

    fn parse(source: &str) -> Result<Self, String> {
        let program = Program::compile(source).map_err(|error| {
            let text = error.to_string();
            text.lines().next().unwrap_or("not CEL").to_owned()
        })?;
        let mut shape = Shape::default();
        shape.walk(program.expression(), 0, 0);
        if shape.deepest > DEEPEST {
            return Err(format!("nested more than {DEEPEST} levels deep"));
        }
        Ok(Self {
            program,
            size: shape.size,
            loops: shape.loops,
            additions: shape.additions,
            longest: shape.longest,
        })
    }

    /// Returns true if it is true for an object whose longest list or map has `widest` entries.
    fn holds(&self, context: &Context, widest: u64) -> Result<bool, String> {
        let rounds = widest.max(self.longest).max(1).saturating_mul(self.additions + 1);
        let cost = rounds.saturating_pow(self.loops).saturating_mul(self.size);
        if cost > COST {
            return Err(format!(
                "too costly for this object: {} loops within each other over up to {rounds} entries",
                self.loops
            ));
        }
        match self.program.execute(context) {
            Ok(CelValue::Bool(answer)) => Ok(answer),
            Ok(other) => Err(format!("it gives {}, not true or false", other.type_of())),
            Err(ExecutionError::NoSuchKey(_) | ExecutionError::IndexOutOfBounds(_)) => Ok(false),
            Err(error) => {
                let text = error.to_string();
                Err(text.chars().take(300).collect())
            }
        }
    }
}

/// The quantities that limit the cost of an expression.
#[derive(Default)]
struct Shape {
    size: u64,
    loops: u32,
    additions: u64,
    longest: u64,
    deepest: u32,
}

impl Shape {
    /// `level` is the nesting of the expression; `depth` that of the loops around it.
    fn walk(&mut self, expression: &IdedExpr, level: u32, depth: u32) {
        self.size += 1;
        self.loops = self.loops.max(depth);
        self.deepest = self.deepest.max(level);
        let next = level + 1;
        match &expression.expr {
            Expr::Call(call) => {
                self.additions += u64::from(call.func_name == operators::ADD);
                for part in call.target.as_deref().into_iter().chain(&call.args) {
                    self.walk(part, next, depth);
                }
            }
            Expr::Comprehension(comprehension) => {
                self.walk(&comprehension.iter_range, next, depth);
                self.walk(&comprehension.accu_init, next, depth);
                self.walk(&comprehension.result, next, depth);
                let before = self.additions;
                self.walk(&comprehension.loop_cond, next, depth + 1);
                self.walk(&comprehension.loop_step, next, depth + 1);
                // `map` and `filter` append to a list in each iteration, which may copy it.
                if self.additions > before {
                    self.loops = self.loops.max(depth + 2);
                }
            }
            Expr::List(list) => {
                self.longest = self.longest.max(list.elements.len() as u64);
                list.elements
                    .iter()
                    .for_each(|element| self.walk(element, next, depth));
            }
            Expr::Map(map) => {
                self.longest = self.longest.max(map.entries.len() as u64);
                map.entries
                    .iter()
                    .for_each(|entry| self.walk_entry(&entry.expr, next, depth));
            }
            Expr::Struct(made) => {
                made.entries
                    .iter()
                    .for_each(|entry| self.walk_entry(&entry.expr, next, depth));
            }
            Expr::Select(select) => self.walk(&select.operand, next, depth),
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
        }
    }

    fn walk_entry(&mut self, entry: &EntryExpr, level: u32, depth: u32) {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value, level, depth),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key, level, depth);
                self.walk(&entry.value, level, depth);
            }
        }
    }
}

fn context(object: &Value) -> Context<'static, 'static> {
    let mut context = Context::default();
    for name in ["metadata", "spec", "status"] {
        context.add_variable_from_value(name, CelValue::Map(Map { map: Arc::default() }));
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if !value.is_null() {
            context.add_variable_from_value(name.as_str(), to_cel(value));
        }
    }
    context.add_variable_from_value("object", to_cel(object));
    context
}

/// Integers are `int` whatever their sign, as in Kubernetes.
fn to_cel(value: &Value) -> CelValue {
    match value {
        Value::Null => CelValue::Null,
        Value::Bool(flag) => CelValue::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => CelValue::Int(whole),
            None => CelValue::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => CelValue::String(Arc::new(text.clone())),
        Value::Array(items) => CelValue::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let entry = |(key, value): (&String, &Value)| (Key::String(Arc::new(key.clone())), to_cel(value));
            let map: HashMap<_, _> = fields.iter().map(entry).collect();
            CelValue::Map(Map { map: Arc::new(map) })
        }
    }
}

/// The length of the longest list, map or string in a value.
fn widest(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(widest).fold(items.len() as u64, u64::max),
        Value::Object(fields) => fields.values().map(widest).fold(fields.len() as u64, u64::max),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::runtime::kubernetes::health::Health;
    use serde_json::json;

    fn health(rule: &str, object: Value) -> Result<Health, String> {
        Expressions::parse(rule)
            .unwrap()
            .judge(&object)
            .map(|verdict| verdict.health)
    }

    #[test]
    fn expressions_are_looked_at_in_order() {
        let rule = "inProgress: status.phase == 'Pending'\nfailed: status.phase in ['Broken', 'Gone']\n\
                    current: status.phase == 'Running' && status.ready >= spec.replicas\n";
        for (object, expected) in [
            (json!({"status": {"phase": "Pending"}}), Health::Progressing),
            (json!({"status": {"phase": "Gone"}}), Health::Failed),
            (
                json!({"spec": {"replicas": 2}, "status": {"phase": "Running", "ready": 2}}),
                Health::Ready,
            ),
            (
                json!({"spec": {"replicas": 2}, "status": {"phase": "Running", "ready": 1}}),
                Health::Progressing,
            ),
            (json!({"spec": {"replicas": 2}}), Health::Progressing),
            (json!({"status": null}), Health::Progressing),
            (json!({}), Health::Progressing),
        ] {
            assert_eq!(health(rule, object.clone()), Ok(expected), "{object}");
        }
    }

    #[test]
    fn conditions_can_be_searched() {
        let rule = "current: status.conditions.exists(c, c.type == 'Synced' && c.status == 'True') && !has(spec.off)\n";
        let object = |status: &str| json!({"status": {"conditions": [{"type": "Synced", "status": status}]}});
        assert_eq!(health(rule, object("True")), Ok(Health::Ready));
        assert_eq!(health(rule, object("False")), Ok(Health::Progressing));
    }

    #[test]
    fn an_older_generation_and_a_deletion_come_first() {
        let stale = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}});
        assert_eq!(health("current: \"'a' == 'a'\"", stale), Ok(Health::Progressing));
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(health("current: \"'a' == 'a'\"", going), Ok(Health::Progressing));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(
            health("current: '1 + 1'", json!({}))
                .unwrap_err()
                .contains("not true or false")
        );
        assert!(health("current: nowhere.at == 1", json!({})).is_err());
        let error = Expressions::parse("current: 'true'\nunknown: 'true'\n")
            .err()
            .unwrap();
        assert_eq!(error.line, Some(2));
        assert!(
            Expressions::parse("failed: 'true'\n").is_err(),
            "current is needed"
        );
    }

    #[test]
    fn deep_nesting_and_many_loops_are_refused() {
        let deep = format!("current: \"{}1{} == 1\"", "(".repeat(2000), ")".repeat(2000));
        assert!(Expressions::parse(&deep).is_err());
        // A chain may be parsed as less than it looks (two negations cancel out); it must not exhaust the
        // stack.
        for (chain, refused) in [
            ("1+", true),
            ("[", true),
            ("a?b:", true),
            ("a.", true),
            ("!", false),
            ("-", false),
        ] {
            let rule = format!("current: '{}1'", chain.repeat(LONGEST / chain.len() - 1));
            let read = Expressions::parse(&rule);
            assert!(!refused || read.is_err(), "{chain}");
        }
        let long = format!("current: \"{}1\"", "1 + ".repeat(2000));
        assert!(Expressions::parse(&long).is_err());
        let rule = "current: spec.l.all(a, spec.l.all(b, spec.l.all(c, spec.l.all(d, a == b && c == d))))";
        let list: Vec<_> = (0..1000).map(|_| 1).collect();
        let why = health(rule, json!({"spec": {"l": list}})).unwrap_err();
        assert!(why.contains("too costly"), "{why}");
        assert_eq!(health(rule, json!({"spec": {"l": [1, 1, 1]}})), Ok(Health::Ready));
    }
}
