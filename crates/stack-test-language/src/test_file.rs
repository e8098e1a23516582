//! The format of a test file: one test, with options and at least one assertion. A live test has steps in place of
//! assertions ([`LiveStep`]).
//!
//! A test that would pass for every Spec is an error: a test without assertions, with an empty `has`, or with an
//! expression that reads no variable.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    assertion_form::{Assertion, AssertionEntry, error, read_assertions},
    live_steps::{self, LiveStep, StepEntry},
    moving::StandIns,
};
use konverge_base::yaml::{self, Placed, YamlError};

/// The maximum size of a test file in bytes.
const LARGEST: usize = 64 << 10;

/// One test.
#[derive(Debug)]
pub struct StackTest {
    /// The name, unique in its stack.
    pub name: String,
    /// The line of the name.
    pub line: Option<u32>,
    /// KCL options (`-D key=value`) that replace those of the stack.
    pub options: Map<String, Value>,
    /// Outputs of other stacks that the stack reads, by `ALIAS.NAME`.
    pub outputs: BTreeMap<String, Value>,
    /// Values in place of Terraform resources. Only live tests have them.
    pub stand_ins: StandIns,
    /// The assertions or the steps.
    pub body: TestBody,
}

/// The body of a test: assertions or steps.
#[derive(Debug)]
pub enum TestBody {
    /// Assertions on the compiled Spec; at least one.
    Offline(Vec<Placed<Assertion>>),
    /// Steps on a cluster; the first one applies the Spec, and at least one asserts something.
    Live(Vec<Placed<LiveStep>>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    name: Placed<String>,
    with: Option<Placed<With>>,
    assert: Option<Placed<Vec<Placed<AssertionEntry>>>>,
    steps: Option<Placed<Vec<Placed<StepEntry>>>>,
}

/// The values that a test replaces.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct With {
    #[serde(default)]
    options: Map<String, Value>,
    #[serde(default)]
    terraform: BTreeMap<String, Map<String, Value>>,
    #[serde(default)]
    outputs: BTreeMap<String, Value>,
}

impl With {
    /// Checks the values. Returns them without those in place of Terraform resources, and these by themselves.
    fn read(with: Placed<Self>, is_live: bool) -> Result<(Self, StandIns), YamlError> {
        let (line, mut with) = (with.line, with.value);
        let terraform = std::mem::take(&mut with.terraform);
        if with.options.is_empty() && terraform.is_empty() && with.outputs.is_empty() {
            return Err(error(line, "`with` sets no option: remove it"));
        }
        if !is_live && !terraform.is_empty() {
            let message = "`with.terraform` is for tests with `steps`: without them nothing is created";
            return Err(error(line, message));
        }
        let stand_in = |(id, values): (String, Map<String, Value>)| match id.parse() {
            Ok(id) => Ok((id, values)),
            Err(_) => {
                let message = format!(
                    "`with.terraform`: `{}` is not the id of a resource (`konverge build` shows the ids)",
                    id.escape_debug()
                );
                Err(error(line, message))
            }
        };
        let stand_ins: Result<_, YamlError> = terraform.into_iter().map(stand_in).collect();
        Ok((with, stand_ins?))
    }
}

impl StackTest {
    /// Parses a test file.
    ///
    /// # Errors
    /// Text of another form, or an assertion that would be true for every Spec.
    pub fn parse(text: &str) -> Result<Self, YamlError> {
        if text.len() > LARGEST {
            return Err(error(None, format!("a test file has at most {LARGEST} bytes")));
        }
        let file: TestFile = yaml::from_str(text)?;
        let name = file.name.value.trim();
        if name.is_empty() {
            return Err(error(file.name.line, "`name` is empty"));
        }
        let is_live = file.steps.is_some();
        let with = file.with.map(|with| With::read(with, is_live));
        let (with, stand_ins) = with.transpose()?.unwrap_or_default();
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
            options: with.options,
            outputs: with.outputs,
            stand_ins,
            body,
        })
    }

    /// Returns true if an assertion expects that a policy set or KCL refuses the stack.
    pub fn expects_refusal(&self) -> bool {
        let mut assertions = match &self.body {
            TestBody::Offline(assertions) => assertions.iter(),
            TestBody::Live(_) => return false,
        };
        assertions.any(|one| matches!(one.value, Assertion::Fails(_)))
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
            matches!(&assertions[2].value, Assertion::Absent(selector) if selector.kind.as_deref() == Some("Secret"))
        );
        assert!(test.expects_refusal());
    }

    /// kuttl runs only the last assertion of a file, and some assertions of chainsaw assert nothing. Here each is an
    /// error.
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
                "4: only one document is allowed",
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
    fn values_stand_in_for_resources_of_a_live_test_alone() {
        let with = "name: a\nwith: {terraform: {'hashicorp:local:local_file:x': {id: abc}}}\n";
        let test = StackTest::parse(&format!(
            "{with}steps: [{{apply: {{}}}}, {{assert: [{{kind: A}}]}}]\n"
        ))
        .unwrap();
        assert_eq!(test.stand_ins.values().next().unwrap()["id"], "abc");
        let offline = refusal(&format!("{with}assert: [{{kind: A}}]\n"));
        assert!(
            offline.starts_with("2: `with.terraform` is for tests with `steps`"),
            "{offline}"
        );
        let unnamed = with.replace("hashicorp:local:local_file:x", "");
        let unnamed = refusal(&format!(
            "{unnamed}steps: [{{apply: {{}}}}, {{assert: [{{kind: A}}]}}]\n"
        ));
        assert!(unnamed.contains("is not the id of a resource"), "{unnamed}");
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
