//! The report of a failed run: the error, and the data about the run.

use super::apply_result::{footer, heading};
use crate::{RunInfo, errors, escape};
use konverge_base::{
    error::UserError,
    model::{comment_marker::CommentMarker, text::truncate},
};

/// The kind of run that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// A preview of a pull request.
    Preview,
    /// An apply of merged changes.
    Apply,
    /// The command that keeps the drift of a stack in the code.
    Keep,
    /// Any other run.
    Run,
}

/// The maximum number of message lines that are shown.
const LINES: usize = 20;

/// The maximum number of bytes of a line that are shown.
const LINE: usize = 400;

/// Renders the failure of a whole run, as a comment or for the summary. It is short, so it needs no size limit.
pub fn failure(what: Failed, failure: &UserError, run: &RunInfo, marker: Option<&CommentMarker>) -> String {
    let (title, known) = match what {
        Failed::Preview => (
            "Konverge preview: failed",
            "This run has no plan, so the effect of merging is unknown. An earlier preview in this comment is no longer valid.",
        ),
        Failed::Apply => (
            "Konverge apply: failed",
            "This run has no result. What it applied before it failed is recorded with each stack; the next run continues from there.",
        ),
        Failed::Keep => (
            "Konverge: the difference is not kept",
            "Nothing was written. Edit the code by hand, or restore what was applied last.",
        ),
        Failed::Run => ("Konverge: failed", "This run has no result."),
    };
    let mut lines = errors::first_lines(failure.message.lines(), LINES);
    if let Some(place) = &failure.location {
        lines.push(format!("at {}", escape::line(&place.to_string())));
    }
    let fence = escape::fence_for(&lines.join("\n"));
    let heading = heading(title, run, marker);
    let mut text = format!("{heading}> [!CAUTION]\n> {known}\n>\n> {fence}text\n");
    for line in lines {
        text.push_str(&format!("> {line}\n"));
    }
    text.push_str(&format!("> {fence}\n"));
    for hint in failure.hints.iter().take(4) {
        text.push_str(&format!("> hint: {}\n", escape::prose(&truncate(hint, LINE))));
    }
    text + &footer(run)
}

/// Renders the summary of a run that had nothing to do. `why` may be empty.
pub fn nothing_to_do(why: &str) -> String {
    let why: String = escape::lines(why.trim())
        .take(LINES)
        .map(|line| format!("{}\n\n", escape::code(&truncate(&line, LINE))))
        .collect();
    format!("### Konverge: nothing to do\n\n{why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::ErrorKind,
        model::comment_marker::{CommentMarker, MarkerKind},
    };

    #[test]
    fn a_failure_stays_in_its_fence_and_keeps_its_place() {
        let hostile = "```\n@octocat ::error::x \u{202e}<img src=x>\n".repeat(30);
        let reason = UserError::new(ErrorKind::Kcl, hostile).hint("`rm` @octocat");
        let marker = CommentMarker::new(MarkerKind::Preview, "2/8");
        let text = failure(Failed::Preview, &reason, &RunInfo::default(), Some(&marker));
        assert_eq!(CommentMarker::parse(&text), Some(marker));
        assert!(
            text.contains("> ````text\n") && !text.contains('\u{202e}'),
            "{text}"
        );
        assert!(text.contains("more lines)") && text.len() < 10_000, "{text}");
        assert!(text.contains("> hint: `rm` `@octocat`"), "{text}");
    }
}
