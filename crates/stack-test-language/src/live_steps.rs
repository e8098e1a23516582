//! The steps of a live test.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use konverge_base::yaml::{Placed, YamlError};

use super::assertion_form::{Assertion, AssertionEntry, error, read_assertions};

/// The time limit of a `wait` without `seconds`, in seconds.
const WAIT: u64 = 60;

/// The maximum time limit of a `wait`, in seconds.
const LONGEST_WAIT: u64 = 1_800;

/// A step of a live test.
#[derive(Debug)]
pub enum LiveStep {
    /// Applies the Spec of the stack, and waits until all objects are ready.
    Apply,
    /// Compiles the stack with these additional options, and applies the result.
    Change(Map<String, Value>),
    /// Waits until the assertions are true for the live objects.
    Wait {
        /// The assertions; at least one.
        assertions: Vec<Placed<Assertion>>,
        /// The time limit.
        within: Duration,
    },
    /// Fails unless the assertions are true for the live objects now. At least one assertion.
    Assert(Vec<Placed<Assertion>>),
    /// Deletes all objects, as if the stack were removed. Each test also ends with this step.
    Delete,
}

/// A step in the form of the file, with the keys of all kinds of steps.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepEntry {
    apply: Option<Nothing>,
    change: Option<Change>,
    wait: Option<Wait>,
    assert: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    delete: Option<Nothing>,
}

/// An empty mapping: `{}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    options: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    seconds: Option<u64>,
    assert: Option<Placed<Vec<Placed<AssertionEntry>>>>,
}

/// Parses the steps of a test.
///
/// # Errors
/// An unknown step, a first step other than `apply`, or no assertion in any step.
pub(crate) fn read(entries: Placed<Vec<Placed<StepEntry>>>) -> Result<Vec<Placed<LiveStep>>, YamlError> {
    let steps = entries.value.into_iter().map(|entry| {
        let Placed { line, value } = entry;
        let value = value.into_step(line)?;
        Ok(Placed { line, value })
    });
    let steps = steps.collect::<Result<Vec<Placed<LiveStep>>, YamlError>>()?;
    let Some(first) = steps
        .first()
        .filter(|first| matches!(first.value, LiveStep::Apply))
    else {
        let line = steps.first().map_or(entries.line, |first| first.line);
        return Err(error(line, "the first step must be `apply: {}`"));
    };
    let asserts = |one: &&Placed<LiveStep>| matches!(one.value, LiveStep::Assert(_) | LiveStep::Wait { .. });
    if !steps.iter().any(|step| asserts(&step)) {
        let message = "no step asserts anything: add a step `assert` or `wait`";
        return Err(error(first.line, message));
    }
    let deleted = steps.iter().position(|one| matches!(one.value, LiveStep::Delete));
    let behind = deleted.map_or(&[][..], |at| &steps[at + 1..]);
    if let Some(step) = behind.iter().find(|step| !asserts(step)) {
        let message = "after `delete` only `assert` and `wait` may follow";
        return Err(error(step.line, message));
    }
    Ok(steps)
}

impl StepEntry {
    fn into_step(self, line: Option<u32>) -> Result<LiveStep, YamlError> {
        let given = [
            self.apply.is_some(),
            self.change.is_some(),
            self.wait.is_some(),
            self.assert.is_some(),
            self.delete.is_some(),
        ];
        if given.iter().filter(|is_given| **is_given).count() != 1 {
            let message = "a step has one of: `apply: {}`, `change`, `wait`, `assert`, `delete: {}`";
            return Err(error(line, message));
        }
        if let Some(change) = self.change {
            return if change.options.is_empty() {
                Err(error(line, "`change` sets no option, so it changes nothing"))
            } else {
                Ok(LiveStep::Change(change.options))
            };
        }
        if let Some(wait) = self.wait {
            let seconds = wait.seconds.unwrap_or(WAIT);
            if !(1..=LONGEST_WAIT).contains(&seconds) {
                let message = format!("`seconds` must be a number from 1 to {LONGEST_WAIT}");
                return Err(error(line, message));
            }
            return Ok(LiveStep::Wait {
                assertions: live_assertions(wait.assert, line)?,
                within: Duration::from_secs(seconds),
            });
        }
        Ok(match (self.apply, self.assert) {
            (Some(_), _) => LiveStep::Apply,
            (None, Some(asserted)) => LiveStep::Assert(live_assertions(Some(asserted), line)?),
            (None, None) => LiveStep::Delete,
        })
    }
}

/// Parses the assertions of a step. `fails` is not allowed here, because live objects have already been compiled.
fn live_assertions(
    entries: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    line: Option<u32>,
) -> Result<Vec<Placed<Assertion>>, YamlError> {
    let assertions = read_assertions(entries, line)?;
    let fails = |one: &&Placed<Assertion>| matches!(one.value, Assertion::Fails(_));
    match assertions.iter().find(fails) {
        Some(one) => Err(error(
            one.line,
            "`fails` is an assertion of tests without steps: a stack that is refused is not applied",
        )),
        None => Ok(assertions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_file::{StackTest, TestBody};

    fn refusal(steps: &str) -> String {
        let error = StackTest::parse(&format!("name: a\nsteps:\n{steps}")).expect_err(steps);
        format!("{}: {}", error.line.unwrap_or_default(), error.message)
    }

    #[test]
    fn the_documented_form_is_read_with_its_lines() {
        let text = "name: a\nwith: {options: {env: test}}\nsteps:\n- apply: {}\n\
            - wait: {seconds: 90, assert: [{kind: Deployment, has: {status: {readyReplicas: 1}}}]}\n\
            - change: {options: {replicas: 2}}\n- assert: [{kind: Service}]\n- delete: {}\n- assert: [{absent: {kind: Service}}]\n";
        let TestBody::Live(steps) = StackTest::parse(text).unwrap().body else {
            panic!("it has steps");
        };
        let lines: Vec<_> = steps.iter().map(|one| one.line).collect();
        assert_eq!(lines, [4, 5, 6, 7, 8, 9].map(Some));
        assert!(matches!(&steps[1].value, LiveStep::Wait { within, .. } if within.as_secs() == 90));
        assert!(matches!(&steps[2].value, LiveStep::Change(options) if options["replicas"] == 2));
    }

    #[test]
    fn what_would_test_nothing_is_refused_with_its_line() {
        for (steps, expected) in [
            ("- assert: [{kind: Service}]\n", "3: the first step must be"),
            ("  []\n", "3: the first step must be"),
            ("- apply: {}\n", "3: no step asserts anything"),
            (
                "- apply: {}\n- change: {options: {a: 1}}\n",
                "3: no step asserts anything",
            ),
            ("- apply: {}\n- assert: []\n", "4: the test asserts nothing"),
            (
                "- apply: {}\n- wait: {seconds: 3}\n",
                "4: the test asserts nothing",
            ),
            (
                "- apply: {}\n- wait: {seconds: 0, assert: [{kind: Service}]}\n",
                "4: `seconds` must be",
            ),
            (
                "- apply: {}\n- change: {options: {}}\n",
                "4: `change` sets no option",
            ),
            ("- apply: {}\n- {}\n", "4: a step has one of"),
            (
                "- apply: {}\n- assert: [{fails: 'policy a'}]\n",
                "4: `fails` is an assertion",
            ),
            (
                "- apply: {}\n- assert: [{kind: Service}]\n- delete: {}\n- apply: {}\n",
                "6: after `delete` only",
            ),
            ("- apply: {x: 1}\n", "3: unknown key `x`"),
        ] {
            let said = refusal(steps);
            assert!(said.starts_with(expected), "{steps}\n{said}");
        }
        let both = StackTest::parse("name: a\nassert: [{kind: A}]\nsteps: []\n").expect_err("both");
        assert!(both.message.contains("`assert` or `steps`"), "{}", both.message);
    }
}
