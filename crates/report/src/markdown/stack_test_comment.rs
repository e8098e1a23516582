//! The results of stack tests as Markdown, for the comment on a pull request and the job summary.

use super::{
    apply_result::{footer, heading},
    bounded_writer::BoundedWriter,
};
use crate::{RunInfo, errors, escape, labels, stack_test_results::failure_lines};
use konverge_base::{
    error::UserError,
    model::{
        comment_marker::CommentMarker,
        stack_test::{StackTestOutcome, StackTestReport, StackTestResult},
        text::truncate,
    },
};

/// The maximum number of lines that are shown for a failed test, and of bytes in a line.
const LINES: usize = 40;
const LINE: usize = 400;

/// The results of a job that runs stack tests.
#[derive(Debug, Clone, Copy)]
pub struct TestPage<'a> {
    /// The results of the tests that ran.
    pub report: &'a StackTestReport,
    /// The error because of which live tests did not run although they should.
    pub failure: Option<&'a UserError>,
    /// The reason why this kind of job runs no live tests.
    pub skipped: Option<&'a str>,
}

impl TestPage<'_> {
    /// Returns true if a test did not pass, or live tests did not run although they should.
    pub fn fails(&self) -> bool {
        self.failure.is_some() || self.report.failed()
    }

    /// Returns true if there are no tests and there is nothing to explain.
    pub fn says_nothing(&self) -> bool {
        self.report.tests.is_empty() && self.failure.is_none() && self.skipped.is_none()
    }

    /// Returns the verdict on one line, without Markdown.
    pub fn verdict(&self) -> String {
        let count = |result| self.report.count(result);
        let mut parts = labels::without_zeros([
            (count(StackTestOutcome::Failed), "failed"),
            (count(StackTestOutcome::Error), "not run"),
            (count(StackTestOutcome::Passed), "passed"),
        ]);
        if self.failure.is_some() || self.skipped.is_some() {
            parts.push("live tests not run".to_owned());
        }
        if parts.is_empty() {
            "no affected stack has tests".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

/// Renders in at most `budget` bytes: the verdict, why live tests did not run, the failed tests with their failures,
/// and the names of the others.
pub fn stack_tests(
    page: &TestPage<'_>,
    run: &RunInfo,
    marker: Option<&CommentMarker>,
    budget: usize,
) -> String {
    let mut text = BoundedWriter::new(budget.max(4096));
    let title = format!("Konverge tests: {}", page.verdict());
    text.try_push(&heading(&title, run, marker));
    let footer = footer(run);
    let last = footer.len() + 160;
    text.reserve(last);
    if let Some(failure) = page.failure {
        text.try_push(&alert("CAUTION", &failure.message, &failure.hints));
    }
    if let Some(skipped) = page.skipped {
        text.try_push(&alert("NOTE", skipped, &[]));
    }
    let (passed, missed): (Vec<_>, Vec<_>) = page
        .report
        .tests
        .iter()
        .partition(|test| test.result == StackTestOutcome::Passed);
    let mut omitted = text.push_each(missed.into_iter().map(missed_test));
    if !passed.is_empty() {
        let opening = format!("<details><summary>{} passed</summary>\n\n", passed.len());
        const CLOSING: &str = "\n</details>\n";
        if text.try_push(&opening) && text.reserve(CLOSING.len()) {
            omitted += text.push_each(passed.into_iter().map(|test| format!("- {}\n", name(test))));
            text.release(CLOSING.len());
            text.try_push(CLOSING);
        }
    }
    text.release(last);
    if omitted > 0 {
        text.try_push(&format!(
            "\nOmitted to fit the size limit: {}; the log of the job has them.\n",
            labels::plural(omitted, "test")
        ));
    }
    text.try_push(&footer);
    text.into_text()
}

fn name(test: &StackTestResult) -> String {
    format!(
        "{}: {}",
        escape::code(test.id.as_str()),
        escape::code(&truncate(&test.name, LINE))
    )
}

/// Renders a test that did not pass, with its failures in a fenced block.
fn missed_test(test: &StackTestResult) -> String {
    let word = match test.result {
        StackTestOutcome::Error => "not run",
        StackTestOutcome::Failed | StackTestOutcome::Passed => "failed",
    };
    let lines = errors::first_lines(failure_lines(test).iter().flat_map(|text| text.lines()), LINES);
    format!(
        "**{word}** {}\n\n{}\n",
        name(test),
        escape::fenced("text", &lines.join("\n"))
    )
}

fn alert(kind: &str, message: &str, hints: &[String]) -> String {
    let mut text = format!("> [!{kind}]\n");
    for line in message.lines().take(LINES) {
        text.push_str(&format!("> {}\n", escape::prose(&truncate(line, LINE))));
    }
    for hint in hints.iter().take(4) {
        text.push_str(&format!("> hint: {}\n", escape::prose(&truncate(hint, LINE))));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack_test_results::sample_result as result;
    use konverge_base::{
        error::ErrorKind,
        model::{comment_marker::MarkerKind, stack_test::StackTestFailure},
    };

    const HOSTILE: &str = "```\n@octocat </details> ::error::x \u{202e}<img src=x>| `x`";

    fn failures(message: &str) -> Vec<StackTestFailure> {
        vec![StackTestFailure::new(Some(3), message)]
    }

    fn shown(tests: Vec<StackTestResult>, failure: Option<&UserError>, budget: usize) -> String {
        let report = StackTestReport::new(1, tests);
        let page = TestPage {
            report: &report,
            failure,
            skipped: None,
        };
        let marker = CommentMarker::new(MarkerKind::Tests, "");
        let text = stack_tests(&page, &RunInfo::default(), Some(&marker), budget);
        assert_eq!(CommentMarker::parse(&text), Some(marker));
        text
    }

    #[test]
    fn hostile_names_and_messages_stay_text() {
        let tests = vec![
            result(HOSTILE, StackTestOutcome::Passed, Vec::new()),
            result(HOSTILE, StackTestOutcome::Failed, failures(&HOSTILE.repeat(200))),
        ];
        let failure = UserError::new(ErrorKind::Policy, HOSTILE).hint(HOSTILE);
        let text = shown(tests, Some(&failure), 60_000);
        assert!(
            text.contains("### Konverge tests: 1 failed, 1 passed, live tests not run\n"),
            "{text}"
        );
        assert!(
            text.contains("````text\n") && text.contains("more lines)"),
            "{text}"
        );
        assert!(!text.contains('\u{202e}') && text.len() < 30_000, "{text}");
        for line in text
            .lines()
            .filter(|line| line.starts_with('>') || line.starts_with("- "))
        {
            let code: Vec<_> = line.split('`').step_by(2).collect();
            assert!(
                code.iter()
                    .all(|part| !part.contains("@octocat") && !part.contains("<img")),
                "{line}"
            );
        }
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let many = |outcome: StackTestOutcome, failures: Vec<StackTestFailure>| {
            (0..500).map(move |at| result(&format!("test {at}"), outcome, failures.clone()))
        };
        let failed = many(StackTestOutcome::Failed, failures(&"x".repeat(300)));
        let tests = failed.chain(many(StackTestOutcome::Passed, Vec::new())).collect();
        let text = shown(tests, None, 8_000);
        assert!(text.len() <= 8_000, "{}", text.len());
        assert!(
            text.contains("Omitted to fit the size limit: ") && text.contains("500 failed, 500 passed"),
            "{text}"
        );
        assert_eq!(
            text.matches("<details>").count(),
            text.matches("</details>").count(),
            "{text}"
        );
    }

    #[test]
    fn nothing_to_test_is_said() {
        let report = StackTestReport::new(3, Vec::new());
        let page = TestPage {
            report: &report,
            failure: None,
            skipped: None,
        };
        assert!(page.says_nothing() && !page.fails());
        assert_eq!(page.verdict(), "no affected stack has tests");
    }
}
