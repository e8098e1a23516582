//! The check run of the stack tests of a commit.

use super::{
    CHECK_BUDGET, RunInfo,
    escape::line,
    labels::plural,
    markdown::{self, TestPage},
    stack_test_results::diagnostics,
};
use konverge_base::model::check_run::{Annotation, CheckRun, Conclusion, Level};

/// The name of the check run.
pub const NAME: &str = "konverge/test";

/// Returns the check run for the tests of a commit. It is neutral if there are no tests, or if this kind of job runs no
/// live tests: only tests that ran are a success.
pub fn check(page: &TestPage<'_>) -> CheckRun {
    let conclusion = match (
        page.fails(),
        page.report.tests.is_empty() || page.skipped.is_some(),
    ) {
        (true, _) => Conclusion::Failure,
        (false, true) => Conclusion::Neutral,
        (false, false) => Conclusion::Success,
    };
    CheckRun {
        name: NAME.to_owned(),
        conclusion,
        title: page.verdict(),
        summary: format!("{} in {}.", page.verdict(), plural(page.report.stacks, "stack")),
        text: markdown::stack_tests(page, &RunInfo::default(), None, CHECK_BUDGET),
        annotations: annotations(page),
    }
}

/// Returns annotations for the failed tests at their lines.
pub fn annotations(page: &TestPage<'_>) -> Vec<Annotation> {
    let failed = page.report.tests.iter().flat_map(diagnostics);
    let annotations = failed.map(|found| Annotation {
        level: Level::Error,
        file: found.file.to_string(),
        line: found.line,
        column: None,
        title: "stack test".to_owned(),
        message: found.message.lines().map(line).collect::<Vec<_>>().join("\n"),
    });
    annotations.collect()
}

/// Returns the check run for a commit that is not tested.
pub fn skipped(why: &str) -> CheckRun {
    CheckRun {
        name: NAME.to_owned(),
        conclusion: Conclusion::Neutral,
        title: "not run".to_owned(),
        summary: why.to_owned(),
        text: String::new(),
        annotations: Vec::new(),
    }
}
