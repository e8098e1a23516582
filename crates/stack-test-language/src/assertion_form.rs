//! The format of assertions. An assertion that would be true for every Spec is an error: an empty `has`, or an
//! expression that reads no variable.

use serde::Deserialize;
use serde_json::Value;

use konverge_base::yaml::{Placed, YamlError};
use konverge_cel::cel_expression::CelExpression;

/// The variables that an expression may read.
pub(crate) const VARIABLES: [&str; 2] = ["resources", "terraform"];

/// The maximum number of nested loops in an expression.
const MOST_LOOPS: u32 = 2;

/// A condition on a Spec.
#[derive(Debug)]
pub enum Assertion {
    /// At least one selected resource has these fields.
    Has(ObjectSelector),
    /// No selected resource has these fields.
    Absent(ObjectSelector),
    /// The expression over `resources` and `terraform` is true.
    Cel {
        /// The source of the expression.
        text: String,
        /// The parsed expression.
        expression: CelExpression,
    },
    /// The stack is refused for this reason.
    Fails(ExpectedFailure),
}

/// Selects resources by their identity and fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectSelector {
    /// The id in the Spec, for resources that are not Kubernetes objects.
    pub id: Option<String>,
    /// The API version of the object.
    pub api_version: Option<String>,
    /// The kind of the object.
    pub kind: Option<String>,
    /// The name of the object; `None` selects all objects of the kind.
    pub name: Option<String>,
    /// The namespace of the object.
    pub namespace: Option<String>,
    /// The fields that the object must have.
    pub has: Option<Value>,
}

/// The reason for which a stack must be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedFailure {
    /// A policy denies the stack. The name is that of a policy set, of one of its rules (`SET/RULE` or `RULE`), or
    /// of a policy in KCL whose message begins with `policy NAME:`.
    Policy(String),
    /// The stack does not compile, and the message contains this text.
    Compile(String),
}

/// An assertion in the form of the file, with the keys of all kinds of assertions.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AssertionEntry {
    id: Option<String>,
    api_version: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    has: Option<Value>,
    cel: Option<String>,
    absent: Option<ObjectSelector>,
    fails: Option<String>,
}

/// Parses the assertions of a test, or of a step at this line.
pub(crate) fn read_assertions(
    entries: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    line: Option<u32>,
) -> Result<Vec<Placed<Assertion>>, YamlError> {
    let Some(entries) = entries.filter(|list| !list.value.is_empty()) else {
        let message = "the test asserts nothing: `assert` must be a list with at least one assertion";
        return Err(error(line, message));
    };
    let assertions = entries.value.into_iter().map(|entry| {
        let line = entry.line;
        match entry.value.into_assertion() {
            Ok(value) => Ok(Placed { line, value }),
            Err(message) => Err(error(line, message)),
        }
    });
    assertions.collect()
}

impl AssertionEntry {
    fn into_assertion(self) -> Result<Assertion, String> {
        let selector = ObjectSelector {
            id: self.id,
            api_version: self.api_version,
            kind: self.kind,
            name: self.name,
            namespace: self.namespace,
            has: self.has,
        };
        let selects = selector != ObjectSelector::default();
        let kinds = [
            selects,
            self.cel.is_some(),
            self.absent.is_some(),
            self.fails.is_some(),
        ];
        if kinds.iter().filter(|is_given| **is_given).count() != 1 {
            return Err(
                "an assertion has one of: `kind` or `id` with `has`; `cel`; `absent`; `fails`".to_owned(),
            );
        }
        if let Some(text) = self.cel {
            return cel(text);
        }
        if let Some(text) = self.fails {
            return Ok(Assertion::Fails(expected_failure(&text)?));
        }
        match self.absent {
            Some(absent) => Ok(Assertion::Absent(absent.checked()?)),
            None => Ok(Assertion::Has(selector.checked()?)),
        }
    }
}

impl ObjectSelector {
    /// Returns an error if the selector has contradictions, or would select everything.
    fn checked(self) -> Result<Self, String> {
        let of_object = [&self.api_version, &self.kind, &self.name, &self.namespace];
        match (&self.id, &self.kind) {
            (Some(_), _) if of_object.iter().any(|given| given.is_some()) => {
                return Err(
                    "`id` cannot be used with `apiVersion`, `kind`, `name` or `namespace`".to_owned(),
                );
            }
            (None, None) => {
                return Err("`kind` is missing: name the kind of the object, or an `id`".to_owned());
            }
            _ => {}
        }
        let is_blank = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
        if is_blank(&self.id) || of_object.into_iter().any(is_blank) {
            return Err("`id`, `apiVersion`, `kind`, `name` and `namespace` cannot be empty".to_owned());
        }
        let fault = match &self.has {
            None => None,
            Some(Value::Object(fields)) if !fields.is_empty() => None,
            Some(Value::Object(_)) => {
                Some("`has` is empty, so every object would match: name a field, or remove it")
            }
            Some(_) => Some("`has` must be a mapping (`key: value`)"),
        };
        match fault {
            Some(fault) => Err(fault.to_owned()),
            None => Ok(self),
        }
    }
}

fn cel(text: String) -> Result<Assertion, String> {
    let expression = CelExpression::compile(&text).map_err(|error| format!("`cel`: {error}"))?;
    if expression.nested_loops() > MOST_LOOPS {
        return Err(format!("`cel`: more than {MOST_LOOPS} loops within each other"));
    }
    if !VARIABLES.iter().any(|variable| expression.reads(variable)) {
        return Err(
            "`cel`: it reads neither `resources` nor `terraform`, so its value is the same for every Spec"
                .to_owned(),
        );
    }
    Ok(Assertion::Cel { text, expression })
}

fn expected_failure(text: &str) -> Result<ExpectedFailure, String> {
    let (what, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let rest = rest.trim().to_owned();
    match (what, rest.is_empty()) {
        ("policy", false) => Ok(ExpectedFailure::Policy(rest)),
        ("compile", false) => Ok(ExpectedFailure::Compile(rest)),
        _ => Err(
            "`fails` must be `policy NAME` (a policy set or one of its rules), or `compile TEXT` (a part of the message)"
                .to_owned(),
        ),
    }
}

pub(crate) fn error(line: Option<u32>, message: impl Into<String>) -> YamlError {
    YamlError {
        line,
        column: None,
        message: message.into(),
    }
}
