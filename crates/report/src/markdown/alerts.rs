//! The alerts, which are never folded or dropped: failures, deletions, replacements, data loss, denials. If
//! there are more than fit, lines with the same text for several things are joined with a count.

use std::collections::BTreeMap;

use crate::{
    CommentInput, diff, errors, escape, labels,
    view_model::{PlanView, StackView},
};
use konverge_base::{
    error::ErrorBody,
    model::{
        plan::{Action, Basis, ResourcePlan},
        policy_finding::Enforcement,
    },
};

/// The number of resources that are named where only their number matters.
const NAMED: usize = 5;

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
    FailedBefore,
    Denied,
    DataLoss,
    Replace,
    Delete,
    MayReplace,
    NotValidated,
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
        "> - too many to list here: see the job summary and the JSON result\n".to_owned()
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
    for group in errors::group(view.whole_failures()) {
        let names = group.names(escape::code);
        alerts.push(failed(
            &names,
            labels::FAILED,
            group.error,
            &group.message(),
            group.stacks.len(),
        ));
    }
    for group in errors::group(view.earlier_failures()) {
        let names = group.names(escape::code);
        let n = group.stacks.len();
        let alert = failed(&names, labels::FAILED_BEFORE, group.error, &group.message(), n);
        alerts.push(Alert {
            section: Section::FailedBefore,
            ..alert
        });
    }
    for group in errors::group(view.partial_failures()) {
        let names = group.names(escape::code);
        let n = group.stacks.len();
        let mut alert = failed(&names, labels::FAILED_IN_PART, group.error, &group.message(), n);
        let of_group = view
            .stacks
            .iter()
            .filter(|stack| group.stacks.contains(&&stack.plan.id));
        let skipped = of_group.map(|stack| stack.plan.held_back.len()).sum();
        alert
            .line
            .push_str(&format!("\n>   {}", labels::skipped(skipped)));
        alerts.push(alert);
    }
    for stack in &view.stacks {
        let name = escape::code(stack.plan.id.as_str());
        for resource in &stack.own {
            if labels::is_grave(resource) {
                alerts.push(destructive_alert(&name, resource));
            } else if !resource.immutable.is_empty() {
                alerts.push(may_replace(&name, resource));
            }
        }
    }
    alerts.extend(not_validated(view));
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
            .map_or(String::new(), |h| format!(" hint: {}", escape::code(h)));
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
        line.push_str(&format!("\n>   hint: {}", escape::code(hint)));
    }
    Alert {
        section: Section::Failed,
        line,
        joined: format!("error {}", escape::code(&first_line(message))),
        count,
    }
}

fn destructive_alert(stack: &str, resource: &ResourcePlan) -> Alert {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
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
            .map(|p| escape::code(&diff::dotted(p)))
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

/// An update of fields that Kubernetes documents as immutable, where no server was asked.
fn may_replace(stack: &str, resource: &ResourcePlan) -> Alert {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let paths = resource.immutable.iter().take(5);
    let paths: Vec<_> = paths.map(|path| escape::code(&diff::dotted(path))).collect();
    let fields = paths.join(", ");
    Alert {
        section: Section::MayReplace,
        line: format!(
            "update {} in {stack}: {fields} cannot be changed in place",
            escape::code(&title.short())
        ),
        joined: format!("update {}: {fields}", escape::code(&title.kind)),
        count: 1,
    }
}

/// What a preview without a cluster cannot know, and what no server has validated; once for all stacks.
fn not_validated(view: &PlanView<'_>) -> Vec<Alert> {
    let alert = |line: String, count| Alert {
        section: Section::NotValidated,
        joined: line.clone(),
        line,
        count,
    };
    let (spec, live): (Vec<&StackView<'_>>, Vec<&StackView<'_>>) = view
        .stacks
        .iter()
        .filter(|stack| !stack.own.is_empty())
        .partition(|stack| stack.plan.basis == Basis::Spec);
    let mut alerts = Vec::new();
    if !spec.is_empty() {
        let of = match live.is_empty() {
            true => String::new(),
            false => format!("{}: ", labels::plural(spec.len(), "stack")),
        };
        alerts.push(alert(format!("{of}{}", labels::SPEC_ONLY), spec.len()));
    }
    let open = view.unchecked();
    if !open.is_empty() {
        let named = open.iter().take(NAMED);
        let named: Vec<_> = named
            .map(|(stack, title)| {
                format!(
                    "{} in {}",
                    escape::code(&title.short()),
                    escape::code(stack.as_str())
                )
            })
            .collect();
        let more = match open.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let line = format!("{}{}{more}", labels::UNCHECKED, named.join(", "));
        alerts.push(alert(line, 1));
    }
    alerts
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
            Section::FailedBefore => (
                "NOTE",
                format!(
                    "{} could not be planned before this change either",
                    labels::plural(n, "stack")
                ),
            ),
            Section::Denied => (
                "CAUTION",
                match n {
                    1 => "1 policy blocks this merge from being applied".to_owned(),
                    n => format!("{n} policies block this merge from being applied"),
                },
            ),
            Section::DataLoss => (
                "CAUTION",
                format!(
                    "{}: data is permanently deleted, or an address released",
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
                format!("{} will be deleted", labels::plural(n, "resource")),
            ),
            Section::MayReplace => (
                "WARNING",
                format!("{} may have to be replaced", labels::plural(n, "resource")),
            ),
            Section::NotValidated => ("NOTE", "Not validated".to_owned()),
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

/// The excerpt of an error as a fenced block inside a quoted list item.
fn quote(message: &str) -> String {
    let shown = errors::excerpt(message);
    let fence = escape::fence_for(&shown.join("\n"));
    let mut text = format!(">   {fence}text\n");
    for line in shown {
        text.push_str(&format!(">   {line}\n"));
    }
    text.push_str(&format!(">   {fence}"));
    text
}
