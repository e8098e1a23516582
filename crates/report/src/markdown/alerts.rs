//! The alerts of a comment, which are never folded or dropped: a list of problems that block the apply, a list of
//! deleted, replaced or lost resources, the worst first in each, and notes. If not all of them fit, lines with the same
//! text are combined into one with their number.

use std::collections::BTreeMap;

use crate::{
    CommentInput,
    bounded_part::BoundedPart,
    diff,
    errors::{self, ErrorGroup},
    escape, labels,
    view_model::{PlanView, StackView},
    yaml_text,
};
use konverge_base::model::{
    FieldPath, StackId,
    plan::{Action, Basis, FieldChange, ResourcePlan},
    policy_finding::Enforcement,
    text::first_few,
};

/// The maximum number of resources that are listed if their number matters more.
const NAMED: usize = 5;

struct Alert {
    /// The kind, by which alerts are sorted.
    kind: AlertKind,
    /// The whole line with its error block, without the list bullet.
    line: String,
    /// The line without the parts that differ between stacks, under which alerts can be combined.
    joined: String,
    /// The number of resources or stacks in this alert.
    count: usize,
}

/// The kind of an alert, the worst first within its section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AlertKind {
    Superseded,
    Failed,
    FailedInPart,
    Denied,
    DataLoss,
    Replace,
    Delete,
    MayReplace,
    ChangedByOthers,
    FailedBefore,
    NotValidated,
}

/// A list of alerts with its own title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Section {
    Superseded,
    Blocked,
    Destructive,
    ChangedByOthers,
    FailedBefore,
    NotValidated,
}

impl AlertKind {
    fn section(self) -> Section {
        match self {
            Self::Superseded => Section::Superseded,
            Self::Failed | Self::FailedInPart | Self::Denied => Section::Blocked,
            Self::DataLoss | Self::Replace | Self::Delete | Self::MayReplace => Section::Destructive,
            Self::ChangedByOthers => Section::ChangedByOthers,
            Self::FailedBefore => Section::FailedBefore,
            Self::NotValidated => Section::NotValidated,
        }
    }
}

/// Renders the alerts in at most `room` bytes if possible: all lines, or else combined lines, or else one line per
/// section.
pub(super) fn render(input: &CommentInput<'_>, view: &PlanView<'_>, room: usize) -> BoundedPart {
    let alerts = collect(input, view);
    if alerts.is_empty() {
        return BoundedPart::default();
    }
    let whole = sections(&alerts, input.mode.stops_at_drift, |alerts| {
        alerts.iter().map(|a| format!("> - {}\n", a.line)).collect()
    });
    if whole.len() <= room {
        return BoundedPart {
            text: whole,
            left_out: 0,
        };
    }
    let joined = sections(&alerts, input.mode.stops_at_drift, |alerts| {
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
    // A combined line leaves out the names of several resources, so these count as left out.
    let joined_lines = joined.lines().filter(|line| line.starts_with("> - ")).count();
    if joined.len() <= room {
        return BoundedPart {
            text: joined,
            left_out: alerts.len().saturating_sub(joined_lines),
        };
    }
    let text = sections(&alerts, input.mode.stops_at_drift, |alerts| {
        let failed = alerts
            .iter()
            .filter(|alert| matches!(alert.kind, AlertKind::Failed | AlertKind::FailedInPart));
        let what = match failed.map(|alert| alert.count).sum() {
            0 => String::new(),
            stacks => format!("{} {}; ", labels::plural(stacks, "stack"), labels::FAILED),
        };
        format!("> - {what}too many to list here: see the job summary and the JSON result\n")
    });
    BoundedPart {
        text,
        left_out: alerts.len(),
    }
}

fn collect(input: &CommentInput<'_>, view: &PlanView<'_>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    if input.mode.superseded {
        let line = "a newer commit was pushed; its own preview follows".to_owned();
        alerts.push(Alert {
            kind: AlertKind::Superseded,
            joined: line.clone(),
            line,
            count: 1,
        });
    }
    for group in errors::group(view.whole_failures()) {
        alerts.push(failed(AlertKind::Failed, labels::FAILED, &group));
    }
    for group in errors::group(view.earlier_failures()) {
        alerts.push(failed(AlertKind::FailedBefore, labels::FAILED_BEFORE, &group));
    }
    for group in errors::group(view.partial_failures()) {
        let mut alert = failed(AlertKind::FailedInPart, labels::FAILED_IN_PART, &group);
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
    alerts.extend(view.changed_by_others().into_iter().map(changed_by_others));
    alerts.extend(not_validated(view));
    for finding in input.findings.iter().filter(|f| f.verdict == Enforcement::Deny) {
        let rule = escape::code(&finding.rule);
        let stack = finding
            .stack
            .as_ref()
            .map_or("this merge".to_owned(), |s| escape::code(s.as_str()));
        let hint = finding
            .hint
            .as_ref()
            .map_or(String::new(), |hint| format!(" (hint: {})", escape::prose(hint)));
        alerts.push(Alert {
            kind: AlertKind::Denied,
            line: format!(
                "{rule} blocks {stack} from being applied: {}{hint}",
                escape::prose(&finding.message)
            ),
            joined: format!("{rule} blocks stacks from being applied"),
            count: 1,
        });
    }
    alerts.sort_by_key(|alert| alert.kind);
    alerts
}

/// Returns the alert for stacks that failed with the same error.
fn failed(kind: AlertKind, failed: &str, group: &ErrorGroup<'_>) -> Alert {
    let (names, error, message) = (group.names(escape::code), group.error, group.message());
    let place = match (&error.file, error.line) {
        (Some(file), Some(line)) => format!(" at {}", escape::code(&format!("{file}:{line}"))),
        (Some(file), None) => format!(" at {}", escape::code(file)),
        (None, _) => String::new(),
    };
    let mut line = format!("{names} {failed}{place}:\n{}", quote(&message));
    for hint in &error.hints {
        line.push_str(&format!("\n>   hint: {}", escape::prose(hint)));
    }
    Alert {
        kind,
        line,
        joined: format!("stacks {failed}: {}", escape::code(&first_line(&message))),
        count: group.stacks.len(),
    }
}

fn destructive_alert(stack: &str, resource: &ResourcePlan) -> Alert {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let kind = match resource.action {
        _ if resource.data_loss => AlertKind::DataLoss,
        Action::Replace => AlertKind::Replace,
        _ => AlertKind::Delete,
    };
    let loss = labels::loss(resource).map_or(String::new(), |loss| format!(": **{}**", escape::prose(loss)));
    let why = if resource.replace.is_empty() {
        String::new()
    } else {
        format!(", forced by {}", fields(&resource.replace))
    };
    let word = resource.action;
    Alert {
        kind,
        line: format!("{word} {} in {stack}{why}{loss}", escape::code(&title.short())),
        joined: format!("{word} {}{loss}", escape::code(&title.kind)),
        count: 1,
    }
}

fn fields(paths: &[FieldPath]) -> String {
    let paths = paths.iter().take(5);
    let paths: Vec<_> = paths.map(|path| escape::code(&diff::dotted(path))).collect();
    paths.join(", ")
}

/// Returns the alert for an update of immutable fields, if no server has checked whether it must be a replacement.
fn may_replace(stack: &str, resource: &ResourcePlan) -> Alert {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let fields = fields(&resource.immutable);
    Alert {
        kind: AlertKind::MayReplace,
        line: format!(
            "update {} in {stack}: {fields} cannot be changed in place",
            escape::code(&title.short())
        ),
        joined: format!("update {}: {fields}", escape::code(&title.kind)),
        count: 1,
    }
}

/// Returns the alert for a value that somebody else changed since the last apply: the live value, and the value after
/// an apply.
fn changed_by_others((stack, resource, change): (&StackId, &ResourcePlan, &FieldChange)) -> Alert {
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    let path = escape::code(&diff::dotted(&change.path));
    let values = yaml_text::short_values(change.from.as_ref(), change.to.as_ref());
    let side = |value: Option<String>| value.map_or("absent".to_owned(), |text| escape::code(&text));
    let values = values.map_or(String::new(), |(from, to)| {
        format!(" {} → {}", side(from), side(to))
    });
    Alert {
        kind: AlertKind::ChangedByOthers,
        line: format!(
            "{path}{values} of {} in {}",
            escape::code(&title.short()),
            escape::code(stack.as_str())
        ),
        joined: format!("{path} of {}", escape::code(&title.kind)),
        count: 1,
    }
}

/// Returns the alerts about data that a preview without a cluster lacks, and about resources that no server has
/// validated.
fn not_validated(view: &PlanView<'_>) -> Vec<Alert> {
    let alert = |line: String, count| Alert {
        kind: AlertKind::NotValidated,
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
        let of = if live.is_empty() {
            String::new()
        } else {
            format!("{}: ", labels::plural(spec.len(), "stack"))
        };
        alerts.push(alert(format!("{of}{}", labels::SPEC_ONLY), spec.len()));
    }
    let open = view.unchecked();
    if !open.is_empty() {
        let named = open.iter().map(|(stack, title)| {
            let title = escape::code(&title.short());
            format!("{title} in {}", escape::code(stack.as_str()))
        });
        let line = format!("{}{}", labels::UNCHECKED, first_few(named, NAMED));
        alerts.push(alert(line, 1));
    }
    alerts
}

fn sections(alerts: &[Alert], stops_at_drift: bool, lines: impl Fn(&[Alert]) -> String) -> String {
    let section = |alert: &Alert| alert.kind.section();
    let is_blocked = alerts.iter().any(|alert| section(alert) == Section::Blocked);
    let mut text = String::new();
    for alerts in alerts.chunk_by(|a, b| section(a) == section(b)) {
        let count = |kinds: &[AlertKind]| -> usize {
            let of_kinds = alerts.iter().filter(|alert| kinds.contains(&alert.kind));
            of_kinds.map(|alert| alert.count).sum()
        };
        let (tone, title) = match section(&alerts[0]) {
            Section::Superseded => ("NOTE", "Superseded".to_owned()),
            Section::Blocked => ("CAUTION", "What blocks the apply, and why".to_owned()),
            Section::Destructive => {
                let lost = count(&[AlertKind::DataLoss]);
                let tone = if lost > 0 && !is_blocked {
                    "CAUTION"
                } else {
                    "WARNING"
                };
                let grave = lost + count(&[AlertKind::Replace, AlertKind::Delete]);
                (tone, destruction(grave, lost, count(&[AlertKind::MayReplace])))
            }
            Section::ChangedByOthers => {
                let values = labels::plural(count(&[AlertKind::ChangedByOthers]), "value");
                let what = if stops_at_drift {
                    "The apply stops before changing anything, because others changed"
                } else {
                    "Merging also takes back what others changed:"
                };
                ("WARNING", format!("{what} {values}"))
            }
            Section::FailedBefore => {
                let stacks = labels::plural(count(&[AlertKind::FailedBefore]), "stack");
                (
                    "NOTE",
                    format!("{stacks} could not be planned before this change either"),
                )
            }
            Section::NotValidated => ("NOTE", "Not validated".to_owned()),
        };
        text.push_str(&format!("> [!{tone}]\n> **{title}**\n{}\n", lines(alerts)));
    }
    text
}

/// Returns the counts of destructive changes: `2 resources will be deleted or replaced, 1 of them with data or an
/// address; 1 may have to be replaced`.
fn destruction(grave: usize, lost: usize, may: usize) -> String {
    let mut parts = Vec::new();
    if grave > 0 {
        let lost = match lost {
            0 => String::new(),
            lost if lost == grave => ", with data or an address".to_owned(),
            lost => format!(", {lost} of them with data or an address"),
        };
        let resources = labels::plural(grave, "resource");
        parts.push(format!("{resources} will be deleted or replaced{lost}"));
    }
    if may > 0 {
        let what = match grave {
            0 => labels::plural(may, "resource"),
            _ => may.to_string(),
        };
        parts.push(format!("{what} may have to be replaced"));
    }
    parts.join("; ")
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

/// Returns the excerpt of an error as a fenced block inside a quoted list item.
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
