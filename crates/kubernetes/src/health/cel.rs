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
//! empty), and `object` is the whole object. An expression that reads a missing field is false, because
//! controllers report step by step. CEL has no input, no output and only loops over lists, which may be
//! nested at most twice. Nothing else limits the cost of an expression, because a rule comes from the trusted
//! default branch.

use std::collections::HashMap;

use cel::Context;
use serde::Deserialize;
use serde_json::Value;

use super::{
    kstatus::{terminating, unobserved},
    object_view::ObjectView,
    verdict::{HealthVerdict, WaitPolicy},
};
use konverge_base::yaml::{self, YamlError};
use konverge_cel::{
    cel_expression::{CelError, CelExpression},
    cel_value::{shared_map, to_cel},
};

/// The maximum nesting of loops.
const MOST_LOOPS: u32 = 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    in_progress: Option<String>,
    failed: Option<String>,
    current: String,
}

/// The rule of one kind.
#[derive(Debug)]
pub(super) struct Expressions {
    in_progress: Option<CelExpression>,
    failed: Option<CelExpression>,
    current: CelExpression,
}

impl Expressions {
    /// Parses a rule.
    ///
    /// # Errors
    /// The text is not a rule in YAML, or an expression is not CEL.
    pub(super) fn parse(text: &str) -> Result<Self, YamlError> {
        let file: File = yaml::from_str(text)?;
        let compile = |key: &str, source: &str| {
            let compiled = CelExpression::compile(source)
                .map_err(|error| error.to_string())
                .and_then(|expression| {
                    if expression.nested_loops() <= MOST_LOOPS {
                        Ok(expression)
                    } else {
                        Err(format!("more than {MOST_LOOPS} loops within each other"))
                    }
                });
            compiled.map_err(|message| {
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
    pub(super) fn evaluate(&self, object: &Value) -> Result<HealthVerdict, String> {
        let view = ObjectView(object);
        if !view.text("/metadata/deletionTimestamp").is_empty() {
            return Ok(terminating(&view));
        }
        if let Some(verdict) = unobserved(&view, false) {
            return Ok(verdict);
        }
        let context = context(object);
        let holds = |name: &str, expression: &Option<CelExpression>| {
            let Some(expression) = expression else {
                return Ok(false);
            };
            holds_now(expression, &context).map_err(|why| format!("`{name}`: {why}"))
        };
        if holds("inProgress", &self.in_progress)? {
            return Ok(HealthVerdict::progressing("its rule says that it is in progress"));
        }
        if holds("failed", &self.failed)? {
            let why = reason(&view).unwrap_or_else(|| "its rule says that it failed".to_owned());
            return Ok(HealthVerdict::failed(why).with_wait_policy(WaitPolicy::Blocked));
        }
        let current = holds_now(&self.current, &context);
        if current.map_err(|why| format!("`current`: {why}"))? {
            return Ok(HealthVerdict::ready(""));
        }
        Ok(HealthVerdict::progressing(reason(&view).unwrap_or_else(|| {
            "its rule says that it is not current".to_owned()
        })))
    }
}

/// Returns the object's own explanation, for the message.
fn reason(view: &ObjectView) -> Option<String> {
    let ready = view.condition("Ready").filter(|condition| !condition.is_true())?;
    Some(ready.lowercase_words()).filter(|words| !words.is_empty())
}

/// Evaluates an expression. Returns false if it reads a field that does not exist yet.
fn holds_now(expression: &CelExpression, context: &Context) -> Result<bool, String> {
    match expression.holds(context) {
        Err(CelError::Missing(_)) => Ok(false),
        Err(CelError::Other(why)) => Err(why),
        Ok(answer) => Ok(answer),
    }
}

fn context(object: &Value) -> Context<'_, '_> {
    let mut context = Context::default();
    for name in ["metadata", "spec", "status"] {
        context.add_variable_as_val(name, shared_map(HashMap::new()));
    }
    for (name, value) in object.as_object().into_iter().flatten() {
        if !value.is_null() {
            context.add_variable_as_val(name.as_str(), to_cel(value));
        }
    }
    context.add_variable_as_val("object", to_cel(object));
    context
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use konverge_cel::cel_expression::LONGEST;
    use serde_json::json;

    fn health(rule: &str, object: Value) -> Result<Health, String> {
        Expressions::parse(rule)
            .unwrap()
            .evaluate(&object)
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
        let loops = |body: &str| format!("current: spec.l.all(a, {body})");
        let three = Expressions::parse(&loops("spec.l.all(b, spec.l.all(c, a == c))")).unwrap_err();
        assert!(three.message.contains("more than 2 loops"), "{three:?}");
        let two = loops("spec.l.all(b, a == b) && spec.l.exists(b, a == b)");
        assert_eq!(health(&two, json!({"spec": {"l": [1, 1, 1]}})), Ok(Health::Ready));
    }
}
