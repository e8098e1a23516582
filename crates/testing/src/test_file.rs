//! The format of a test file: one test, with options and at least one assertion. A live test has steps instead
//! ([`LiveStep`]).
//!
//! What would pass whatever the Spec holds is an error: a test without assertions, an empty `has`, an expression that reads
//! nothing.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::live_steps::{self, PlacedStep, StepEntry};

use konverge_base::yaml::{self, Placed, YamlError};
use konverge_cel::cel_expression::CelExpression;

/// The variables of an expression.
pub(crate) const VARIABLES: [&str; 2] = ["resources", "terraform"];

/// The maximum number of loops within each other in an expression.
const MOST_LOOPS: u32 = 2;

/// The largest test file in bytes.
const LARGEST: usize = 64 << 10;

/// One test.
#[derive(Debug)]
pub struct StackTest {
    /// The name, unique in its stack.
    pub name: String,
    /// The line of the name.
    pub line: Option<u32>,
    /// Options of KCL (`-D key=value`) that replace those of the stack.
    pub options: Map<String, Value>,
    /// What it is run on.
    pub body: TestBody,
}

/// What a test asserts, and on what.
#[derive(Debug)]
pub enum TestBody {
    /// Assertions on the compiled Spec; at least one.
    Offline(Vec<PlacedAssertion>),
    /// Steps on a cluster; the first one applies the Spec, and at least one asserts something.
    Live(Vec<PlacedStep>),
}

/// An assertion with its line.
#[derive(Debug)]
pub struct PlacedAssertion {
    /// The line, from 1, if known.
    pub line: Option<u32>,
    /// The assertion.
    pub assertion: Assertion,
}

/// What must hold for a Spec.
#[derive(Debug)]
pub enum Assertion {
    /// At least one resource is selected, and at least one of them has these fields.
    Has(ObjectSelector),
    /// No resource is selected that has these fields.
    Absent(ObjectSelector),
    /// An expression over `resources` and `terraform` is true.
    Cel {
        /// The expression as it is written.
        text: String,
        /// The parsed expression.
        expression: CelExpression,
    },
    /// The stack is refused.
    Fails(ExpectedFailure),
}

/// Selects resources.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectSelector {
    /// The id in the Spec; for resources that are not of Kubernetes.
    pub id: Option<String>,
    /// The API version of the object.
    pub api_version: Option<String>,
    /// The kind of the object.
    pub kind: Option<String>,
    /// The name of the object; without it any object of the kind.
    pub name: Option<String>,
    /// The namespace of the object.
    pub namespace: Option<String>,
    /// A part of the object.
    pub has: Option<Value>,
}

/// Why a stack must be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedFailure {
    /// A policy denies it: the name of a policy set, of one of its rules as `SET/RULE` or `RULE`, or of a policy in KCL whose
    /// message begins with `policy NAME:`.
    Policy(String),
    /// It does not compile, with this text in the message.
    Compile(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    name: Placed<String>,
    with: Option<Placed<With>>,
    assert: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    steps: Option<Placed<Vec<Placed<StepEntry>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct With {
    options: Option<Map<String, Value>>,
}

/// An assertion as it is written: the keys of all kinds.
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

impl StackTest {
    /// Reads a test file.
    ///
    /// # Errors
    /// It is not YAML of this form, or an assertion that it has would hold for every Spec.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        if text.len() > LARGEST {
            return Err(error(None, format!("a test file has at most {LARGEST} bytes")));
        }
        let file: TestFile = yaml::from_str(text)?;
        let name = file.name.value.trim();
        if name.is_empty() {
            return Err(error(file.name.line, "`name` is empty"));
        }
        let options = match file.with {
            None => Map::new(),
            Some(with) => match with.value.options.filter(|options| !options.is_empty()) {
                Some(options) => options,
                None => return Err(error(with.line, "`with` sets no option: remove it")),
            },
        };
        let body = match (file.assert, file.steps) {
            (Some(_), Some(steps)) => {
                let message = "a test has `assert` or `steps`: put the assertions into a step";
                return Err(error(steps.line, message));
            }
            (None, Some(steps)) => TestBody::Live(live_steps::read(steps)?),
            (asserted, None) => TestBody::Offline(read_assertions(asserted, file.name.line)?),
        };
        Ok(Self {
            name: name.to_owned(),
            line: file.name.line,
            options,
            body,
        })
    }

    /// Returns true if an assertion expects that the stack is refused: by a policy set, or by KCL.
    pub fn expects_refusal(&self) -> bool {
        let mut assertions = match &self.body {
            TestBody::Offline(assertions) => assertions.iter(),
            TestBody::Live(_) => return false,
        };
        assertions.any(|one| matches!(one.assertion, Assertion::Fails(_)))
    }
}

/// Reads the assertions of a test, or of a step at this line.
pub(crate) fn read_assertions(
    entries: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    line: Option<u32>,
) -> Result<Vec<PlacedAssertion>, YamlError> {
    let Some(entries) = entries.filter(|list| !list.value.is_empty()) else {
        let message = "the test asserts nothing: `assert` must be a list with at least one assertion";
        return Err(error(line, message));
    };
    let assertions = entries.value.into_iter().map(|entry| {
        let assertion = entry.value.into_assertion();
        match assertion {
            Ok(assertion) => Ok(PlacedAssertion {
                line: entry.line,
                assertion,
            }),
            Err(message) => Err(error(entry.line, message)),
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
    /// Refuses a selector that selects nothing in particular.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        let error = StackTest::parse(text).expect_err(text);
        format!("{}: {}", error.line.unwrap_or_default(), error.message)
    }

    #[test]
    fn the_documented_form_is_read_with_its_lines() {
        let text = "name: production has TLS\nwith: {options: {env: prod}}\nassert:\n\
            \x20 - {kind: Ingress, name: storefront, has: {spec: {tls: [{hosts: [shop.example.com]}]}}}\n\
            \x20 - {cel: 'size(resources.filter(r, r.kind == \"Deployment\")) == 1'}\n\
            \x20 - {absent: {kind: Secret}}\n\
            \x20 - {fails: 'policy no-latest'}\n";
        let test = StackTest::parse(text).unwrap();
        assert_eq!(test.name, "production has TLS");
        assert_eq!(test.options["env"], "prod");
        let TestBody::Offline(assertions) = &test.body else {
            panic!("it has no steps");
        };
        let lines: Vec<_> = assertions.iter().map(|one| one.line).collect();
        assert_eq!(lines, [Some(4), Some(5), Some(6), Some(7)]);
        assert!(
            matches!(&assertions[2].assertion, Assertion::Absent(selector) if selector.kind.as_deref() == Some("Secret"))
        );
        assert!(test.expects_refusal());
    }

    /// kuttl runs only the last assertion of a file, and some assertions of chainsaw assert nothing. Here each is an error.
    #[test]
    fn what_would_pass_for_every_spec_is_refused_with_its_line() {
        for (text, expected) in [
            ("name: a\n", "1: the test asserts nothing"),
            ("name: a\nassert: []\n", "1: the test asserts nothing"),
            (
                "name: a\nassert:\n- {kind: Secret, has: {}}\n",
                "3: `has` is empty",
            ),
            (
                "name: a\nassert:\n- {kind: Secret, has: [x]}\n",
                "3: `has` must be a mapping",
            ),
            (
                "name: a\nassert:\n- {kind: Secret}\n- {cel: '1 == 1'}\n",
                "4: `cel`: it reads neither",
            ),
            ("name: a\nassert:\n- {}\n", "3: an assertion has one of"),
            (
                "name: a\nassert:\n- {kind: Secret, cel: 'resources == []'}\n",
                "3: an assertion has one of",
            ),
            ("name: a\nassert:\n- {absent: {}}\n", "3: `kind` is missing"),
            ("name: a\nassert:\n- {name: web}\n", "3: `kind` is missing"),
            ("name: a\nassert:\n- {id: x, kind: y}\n", "3: `id` cannot be used"),
            ("name: a\nassert:\n- {kind: ''}\n", "3: `id`, `apiVersion`"),
            ("name: a\nassert:\n- {fails: 'policy'}\n", "3: `fails` must be"),
            ("name: a\nassert:\n- {fails: 'compile '}\n", "3: `fails` must be"),
            (
                "name: a\nwith: {}\nassert: [{kind: Secret}]\n",
                "2: `with` sets no option",
            ),
            ("name: ' '\nassert: [{kind: Secret}]\n", "1: `name` is empty"),
            (
                "name: a\nassert: [{kind: Secret}]\n---\nname: b\n",
                "4: there may be one document only",
            ),
            ("name: a\nasert: [{kind: Secret}]\n", "2: unknown key `asert`"),
            ("name: a\nname: b\nassert: [{kind: Secret}]\n", "2: duplicate"),
            (
                "name: a\nassert: [{cel: 'resources.all(a, resources.all(b, resources.all(c, a == b)))'}]\n",
                "2: `cel`: more than 2 loops",
            ),
            ("name: a\nassert: [{cel: 'resources =='}]\n", "2: `cel`: "),
        ] {
            let said = refusal(text);
            assert!(said.starts_with(expected), "{text}\n{said}");
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let text = format!("name: a\nassert:\n{}", "- {kind: Secret}\n".repeat(5_000));
        assert!(refusal(&text).contains("at most 65536 bytes"));
    }

    #[test]
    fn an_anchor_bomb_is_refused() {
        let mut text = "name: a\nassert: [{kind: Secret}]\nwith:\n  options:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let refs = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("    a{level}: &a{level} [{refs}]\n"));
        }
        assert!(StackTest::parse(&text).is_err());
    }
}
