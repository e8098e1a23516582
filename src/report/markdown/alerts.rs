//! The alerts, which are never folded or dropped: failures, deletions, replacements, data loss, denials. If
//! there are more than fit, lines with the same text for several things are joined with a count.

use std::collections::BTreeMap;

use crate::{
    error::ErrorBody,
    model::{
        plan::{Action, ResourcePlan},
        policy_finding::Enforcement,
    },
    report::{CommentInput, errors, escape, labels, terminal, view_model::PlanView},
};

/// The number of error lines that are shown.
const ERROR_LINES: usize = 8;

struct Alert {
    /// The section; sections are shown in this order.
    section: Section,
    /// The whole line with its error block, without the list sign.
    line: String,
    /// The same without the parts that differ between stacks.
    joined: String,
    /// How many things it is about.
    count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Section {
    Superseded,
    Failed,
    Denied,
    DataLoss,
    Replace,
    Delete,
}

/// The alerts in at most `room` bytes, as far as possible: all lines, or else joined lines, or else one line
/// per section.
pub(super) fn render(input: &CommentInput<'_>, view: &PlanView<'_>, room: usize) -> String {
    let alerts = collect(input, view);
    if alerts.is_empty() {
        return String::new();
    }
    let whole = sections(&alerts, |alerts| {
        alerts.iter().map(|a| format!("> - {}\n", a.line)).collect()
    });
    if whole.len() <= room {
        return whole;
    }
    let joined = sections(&alerts, |alerts| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for alert in alerts {
            *counts.entry(&alert.joined).or_default() += 1;
        }
        counts
            .into_iter()
            .map(|(line, n)| {
                if n == 1 {
                    format!("> - {line}\n")
                } else {
                    format!("> - {line} (in {n} places)\n")
                }
            })
            .collect()
    });
    if joined.len() <= room {
        return joined;
    }
    sections(&alerts, |_| {
        "> - too many to list here: the whole list stands in the job summary and the JSON result\n".to_owned()
    })
}

fn collect(input: &CommentInput<'_>, view: &PlanView<'_>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if input.mode.superseded {
        let line = "a later push has replaced this head; its own preview follows".to_owned();
        alerts.push(Alert {
            section: Section::Superseded,
            joined: line.clone(),
            line,
            count: 1,
        });
    }
    let whole = view.stacks.iter().map(|stack| stack.plan);
    let whole = whole.filter_map(|plan| Some((&plan.id, terminal::whole_failure(plan)?)));
    for group in errors::group(whole) {
        let names = group.names(escape::code);
        alerts.push(failed(
            &names,
            "could not be planned",
            group.error,
            &group.message(),
            group.stacks.len(),
        ));
    }
    for stack in &view.stacks {
        let name = escape::code(stack.plan.id.as_str());
        if let (Some(error), Some(rest)) = (&stack.plan.error, labels::left_as_it_is(stack.plan)) {
            let mut alert = failed(&name, labels::failed(stack.plan), error, &error.message, 1);
            alert.line.push_str(&format!("\n>   {rest}"));
            alerts.push(alert);
        }
        for resource in stack.own.iter().filter(|r| labels::is_grave(r)) {
            alerts.push(grave(&name, resource));
        }
    }
    for finding in input.findings.iter().filter(|f| f.verdict == Enforcement::Deny) {
        let rule = escape::code(&finding.rule);
        let message = escape::code(&finding.message);
        let stack = finding
            .stack
            .as_ref()
            .map_or(String::new(), |s| format!("{}: ", escape::code(s.as_str())));
        let hint = finding
            .hint
            .as_ref()
            .map_or(String::new(), |h| format!(" Next: {}", escape::code(h)));
        alerts.push(Alert {
            section: Section::Denied,
            line: format!("{stack}{rule} {message}{hint}"),
            joined: rule,
            count: 1,
        });
    }
    alerts.sort_by_key(|alert| alert.section);
    alerts
}

/// Stacks that failed with the same.
fn failed(names: &str, failed: &str, error: &ErrorBody, message: &str, count: usize) -> Alert {
    let place = match (&error.file, error.line) {
        (Some(file), Some(line)) => format!(" at {}", escape::code(&format!("{file}:{line}"))),
        (Some(file), None) => format!(" at {}", escape::code(file)),
        (None, _) => String::new(),
    };
    let mut line = format!("{names} {failed}{place}:\n{}", quote(message));
    for hint in &error.hints {
        line.push_str(&format!("\n>   Next: {}", escape::code(hint)));
    }
    Alert {
        section: Section::Failed,
        line,
        joined: format!("error {}", escape::code(&first_line(message))),
        count,
    }
}

fn grave(stack: &str, resource: &ResourcePlan) -> Alert {
    let title = labels::Title::of(&resource.id, resource.runtime);
    let section = match resource.action {
        _ if resource.data_loss => Section::DataLoss,
        Action::Replace => Section::Replace,
        _ => Section::Delete,
    };
    let why = if resource.replace.is_empty() {
        String::new()
    } else {
        let paths: Vec<_> = resource
            .replace
            .iter()
            .take(5)
            .map(|p| escape::code(&super::super::diff::dotted(p)))
            .collect();
        format!(", forced by {}", paths.join(", "))
    };
    let word = labels::action_word(resource.action);
    Alert {
        section,
        line: format!("{word} {} in {stack}{why}", escape::code(&title.short())),
        joined: format!("{word} {}", escape::code(&title.kind)),
        count: 1,
    }
}

fn sections(alerts: &[Alert], lines: impl Fn(&[Alert]) -> String) -> String {
    let mut text = String::new();
    for alerts in alerts.chunk_by(|a, b| a.section == b.section) {
        let n: usize = alerts.iter().map(|alert| alert.count).sum();
        let (tone, title) = match alerts[0].section {
            Section::Superseded => ("NOTE", "Superseded".to_owned()),
            Section::Failed => (
                "CAUTION",
                format!("{} could not be planned", labels::plural(n, "stack")),
            ),
            Section::Denied => (
                "CAUTION",
                format!(
                    "{} what merging would do",
                    if n == 1 {
                        "1 guardrail forbids".to_owned()
                    } else {
                        format!("{n} guardrails forbid")
                    }
                ),
            ),
            Section::DataLoss => (
                "CAUTION",
                format!(
                    "{} would lose data or an address for good",
                    labels::plural(n, "resource")
                ),
            ),
            Section::Replace => (
                "WARNING",
                format!(
                    "{} will be replaced (deleted, then recreated)",
                    labels::plural(n, "resource")
                ),
            ),
            Section::Delete => (
                "WARNING",
                format!("{} would be deleted", labels::plural(n, "resource")),
            ),
        };
        text.push_str(&format!("> [!{tone}]\n> **{title}**\n{}\n", lines(alerts)));
    }
    text
}

fn first_line(message: &str) -> String {
    message
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(120)
        .collect()
}

/// The last lines of an error as a fenced block inside a quoted list item.
fn quote(message: &str) -> String {
    let lines: Vec<_> = escape::lines(message).collect();
    let skipped = lines.len().saturating_sub(ERROR_LINES);
    let mut shown: Vec<String> = Vec::new();
    if skipped > 0 {
        shown.push(format!("… {} before", labels::plural(skipped, "line")));
    }
    shown.extend(
        lines
            .into_iter()
            .skip(skipped)
            .map(|line| line.chars().take(400).collect()),
    );
    let fence = escape::fence_for(&shown.join("\n"));
    let mut text = format!(">   {fence}text\n");
    for line in shown {
        text.push_str(&format!(">   {line}\n"));
    }
    text.push_str(&format!(">   {fence}"));
    text
}
