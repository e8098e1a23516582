//! The results of `konverge test`: for a terminal, as diagnostics of `konverge check`, and as JUnit XML.

use quick_xml::{Writer, events::BytesText};
use serde_json::Value;

use super::{
    diff::dotted,
    escape::{line, log, log_lines},
    labels::plural,
    terminal::{Color, Style},
};
use konverge_base::model::{
    lint::{Diagnostic, LintRule},
    masked_value::holds_secret,
    stack_test::{FieldMismatch, StackTestFailure, StackTestOutcome, StackTestReport, StackTestResult},
    text::truncate,
};

/// The maximum length of a shown value in bytes.
const LONGEST_VALUE: usize = 120;

/// Renders the tests that did not pass, and a count.
pub fn text(report: &StackTestReport, style: Style) -> String {
    let mut text = String::new();
    let missed = report
        .tests
        .iter()
        .filter(|test| test.result != StackTestOutcome::Passed);
    for test in missed {
        let word = match test.result {
            StackTestOutcome::Error => "ERROR",
            _ => "FAIL",
        };
        text.push_str(&format!(
            "{} {}: {}\n",
            style.paint(Color::Red, word),
            style.paint(Color::Bold, &log(test.id.as_str())),
            log(&test.name)
        ));
        for failure in &test.failures {
            let place = log(&place(test, failure));
            let message = log_lines(&message(failure));
            text.push_str(&format!(
                "    {}\n    {message}\n",
                style.paint(Color::Dim, &place)
            ));
        }
    }
    let count = |result| report.count(result);
    text.push_str(&format!(
        "{} in {}: {} passed, {} failed, {} not run\n",
        plural(report.tests.len(), "test"),
        plural(report.stacks, "stack"),
        count(StackTestOutcome::Passed),
        count(StackTestOutcome::Failed),
        count(StackTestOutcome::Error),
    ));
    text
}

/// Returns one diagnostic for each failure.
pub fn diagnostics(test: &StackTestResult) -> Vec<Diagnostic> {
    let failures = test.failures.iter();
    failures
        .map(|failure| {
            let message = format!("{}: {}", test.name, message(failure));
            let found = Diagnostic::new(&test.file, LintRule::Test, &message).at(failure.line, None);
            found.of_stack(&test.id)
        })
        .collect()
}

/// Returns the failures of a test with their positions, as lines that must be escaped.
pub(crate) fn failure_lines(test: &StackTestResult) -> Vec<String> {
    let failures = test.failures.iter();
    failures
        .map(|failure| format!("{}\n{}", place(test, failure), message(failure)))
        .collect()
}

/// Renders JUnit XML for GitLab, Jenkins and GitHub's actions, with a suite for each stack. GitLab shows the class of a
/// test but not its suite, so the class is the stack, too.
pub fn junit(report: &StackTestReport) -> String {
    let mut suites: Vec<(&str, Vec<&StackTestResult>)> = Vec::new();
    for test in &report.tests {
        let id = test.id.as_str();
        match suites.iter_mut().find(|(suite, _)| *suite == id) {
            Some((_, tests)) => tests.push(test),
            None => suites.push((id, vec![test])),
        }
    }
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    let written = writer
        .create_element("testsuites")
        .with_attribute(("name", "konverge test"))
        .with_attributes(as_attributes(&totals(&report.tests.iter().collect::<Vec<_>>())))
        .write_inner_content(|writer| {
            for (id, tests) in &suites {
                let suite = writer
                    .create_element("testsuite")
                    .with_attribute(("name", valid(id).as_str()));
                suite
                    .with_attributes(as_attributes(&totals(tests)))
                    .write_inner_content(|writer| {
                        tests.iter().try_for_each(|test| junit_case(writer, test))
                    })?;
            }
            Ok(())
        });
    written.expect("writing to memory does not fail");
    let body = String::from_utf8(writer.into_inner()).expect("only text was written");
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{body}\n")
}

fn junit_case(writer: &mut Writer<Vec<u8>>, test: &StackTestResult) -> std::io::Result<()> {
    let case = writer.create_element("testcase").with_attributes([
        ("classname", valid(test.id.as_str()).as_str()),
        ("name", valid(&test.name).as_str()),
        ("file", valid(test.file.as_str()).as_str()),
    ]);
    let element = match test.result {
        StackTestOutcome::Passed => return case.write_empty().map(drop),
        StackTestOutcome::Failed => "failure",
        StackTestOutcome::Error => "error",
    };
    let texts = failure_lines(test);
    let first = test
        .failures
        .first()
        .map(|one| valid(&one.message))
        .unwrap_or_default();
    let body = texts.join("\n").lines().map(valid).collect::<Vec<_>>().join("\n");
    case.write_inner_content(|writer| {
        let failure = writer
            .create_element(element)
            .with_attribute(("message", first.as_str()));
        failure.write_text_content(BytesText::new(&body)).map(drop)
    })
    .map(drop)
}

/// Returns the counts of a suite.
fn totals(tests: &[&StackTestResult]) -> [(&'static str, String); 3] {
    let count = |result| {
        tests
            .iter()
            .filter(|test| test.result == result)
            .count()
            .to_string()
    };
    [
        ("tests", tests.len().to_string()),
        ("failures", count(StackTestOutcome::Failed)),
        ("errors", count(StackTestOutcome::Error)),
    ]
}

fn as_attributes<'a>(pairs: &'a [(&'static str, String)]) -> impl Iterator<Item = (&'a str, &'a str)> {
    pairs.iter().map(|(name, value)| (*name, value.as_str()))
}

/// Returns a text on one line, without characters that XML forbids.
fn valid(text: &str) -> String {
    line(text).replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}

fn place(test: &StackTestResult, failure: &StackTestFailure) -> String {
    match failure.line {
        Some(line) => format!("{}:{line}", test.file),
        None => test.file.to_string(),
    }
}

/// Describes a failure, with the nearest resource and its differences.
fn message(failure: &StackTestFailure) -> String {
    let mut text = failure.message.clone();
    if let Some(nearest) = &failure.nearest {
        text.push_str(&format!("\nnearest: {nearest}"));
    }
    for difference in &failure.differences {
        text.push('\n');
        text.push_str(&difference_line(difference));
    }
    text
}

fn difference_line(difference: &FieldMismatch) -> String {
    let side = |value: &Option<Value>| match value {
        None => "nothing".to_owned(),
        Some(value) if holds_secret(value) => "(secret)".to_owned(),
        Some(value) => truncate(&value.to_string(), LONGEST_VALUE).into_owned(),
    };
    let (expected, found) = (side(&difference.expected), side(&difference.found));
    format!("{}: expected {expected}, found {found}", dotted(&difference.path))
}

/// The result of a test of `shop/dev`, for the tests of this crate.
#[cfg(test)]
pub(crate) fn sample_result(
    name: &str,
    result: StackTestOutcome,
    failures: Vec<StackTestFailure>,
) -> StackTestResult {
    let folder = konverge_base::model::RepoPath::normalize("shop/dev").unwrap();
    StackTestResult {
        file: folder.join("test/a.test.yaml").unwrap(),
        stack: folder,
        id: "shop/dev".parse().unwrap(),
        name: name.to_owned(),
        result,
        failures,
    }
}

#[cfg(test)]
mod tests {
    use super::{sample_result as result, *};
    use serde_json::json;

    fn report() -> StackTestReport {
        let failure = StackTestFailure {
            line: Some(5),
            message: "no Secret has these fields; the nearest differs".to_owned(),
            nearest: Some("v1:Secret:shop:login".parse().unwrap()),
            differences: vec![
                FieldMismatch {
                    path: "/stringData/password".into(),
                    expected: Some(json!({"$secret": "aa"})),
                    found: Some(json!({"$secret": "bb"})),
                },
                FieldMismatch {
                    path: "/spec/ports/name=web/port".into(),
                    expected: Some(json!("x".repeat(500))),
                    found: None,
                },
            ],
        };
        let tests = vec![
            result("passes", StackTestOutcome::Passed, Vec::new()),
            result(
                "<fails> & \"quotes\"\u{1}\u{ffff}",
                StackTestOutcome::Failed,
                vec![failure],
            ),
            result(
                "is broken",
                StackTestOutcome::Error,
                vec![StackTestFailure::new(None, "]]> ::warning::")],
            ),
        ];
        StackTestReport::new(2, tests)
    }

    #[test]
    fn a_failure_is_told_with_its_place_and_its_differences() {
        let text = text(&report(), Style::default());
        for line in [
            "FAIL shop/dev: ",
            "    shop/dev/test/a.test.yaml:5\n",
            "    nearest: v1:Secret:shop:login\n",
            "    stringData.password: expected (secret), found (secret)\n",
            "    spec.ports[name=web].port: expected \"xxx",
            "3 tests in 2 stacks: 1 passed, 1 failed, 1 not run\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(
            !text.contains("\n::") && text.lines().all(|line| line.len() < 300),
            "{text}"
        );
    }

    #[test]
    fn junit_is_well_formed_whatever_a_test_is_called() {
        let xml = junit(&report());
        assert!(
            xml.contains(r#"<testsuites name="konverge test" tests="3" failures="1" errors="1">"#),
            "{xml}"
        );
        assert!(
            xml.contains("name=\"&lt;fails&gt; &amp; &quot;quotes&quot;"),
            "{xml}"
        );
        assert!(!xml.contains('\u{1}') && !xml.contains('\u{ffff}'), "{xml}");
        let mut reader = quick_xml::Reader::from_str(&xml);
        let mut cases = 0;
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Eof => break,
                quick_xml::events::Event::Start(tag) | quick_xml::events::Event::Empty(tag) => {
                    cases += usize::from(tag.name().as_ref() == b"testcase");
                }
                _ => {}
            }
        }
        assert_eq!(cases, 3);
    }

    #[test]
    fn each_failure_is_a_diagnostic_at_its_line() {
        let found: Vec<_> = report().tests.iter().flat_map(diagnostics).collect();
        assert_eq!(found.len(), 2);
        assert!(
            found
                .iter()
                .any(|one| one.line == Some(5) && one.message.contains("nearest: ")),
            "{found:?}"
        );
    }
}
