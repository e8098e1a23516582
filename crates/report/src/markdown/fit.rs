//! Fits a comment to its size limit. Important parts have room of their own; the rest gets room by its rank.

use std::ops::Add as _;

use super::{
    alerts, details,
    fill::{self, Omitted, Section},
    footer::{self, Surface},
    headline, last_push, permission_changes, policy_findings, table,
};
use crate::{
    CommentInput, generation_notes, model_changes, setting_changes,
    view_model::{self, PlanView},
};

/// A comment that fits its size limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedComment {
    /// The Markdown text. Its first line is the marker.
    pub body: String,
    /// The counts of the parts that did not fit, which the text also has at its top.
    pub omitted: Omitted,
}

/// Renders the comment of a preview in at most `input.budget` bytes (at least 4 KiB).
pub fn comment(input: &CommentInput<'_>) -> FittedComment {
    let marker = format!("{}\n", input.marker.line());
    fit(input, input.budget, &marker, Surface::Comment)
}

/// Renders the preview for the job summary, without a marker.
pub fn summary(input: &CommentInput<'_>, budget: usize) -> FittedComment {
    fit(input, budget, "", Surface::Summary)
}

fn fit(input: &CommentInput<'_>, budget: usize, marker: &str, surface: Surface) -> FittedComment {
    let view = view_model::build(input);
    let head = format!("{marker}{}", headline::render(input, &view));
    // The top of the comment has the counts of the parts that are left out. These are known only at the end, so room
    // for the longest counts is reserved.
    let most = Omitted {
        values: usize::MAX,
        resources: 0,
        lines: usize::MAX,
    };
    let footer = footer::footer(input, &view);
    let longest = footer::cut_note(input, most, surface).len()
        + footer::decision(input, &view, most, surface).len()
        + footer.len();
    let room = budget.max(4096).saturating_sub(head.len() + longest);
    let (parts, left_out) = parts(input, &view, room);
    let sections = sections(input, &view);
    let filled = fill::fill(&sections, room.saturating_sub(parts.len()));
    let omitted = filled.omitted.add(Omitted::lines(left_out));
    let body = [
        head,
        footer::cut_note(input, omitted, surface),
        footer::decision(input, &view, omitted, surface),
        parts,
        filled.texts.concat(),
        footer,
    ];
    FittedComment {
        body: body.concat(),
        omitted,
    }
}

/// Renders the first parts, each with room of its own. Returns the number of lines that did not fit, too.
fn parts(input: &CommentInput<'_>, view: &PlanView<'_>, room: usize) -> (String, usize) {
    let share = room / 8;
    let alerts = alerts::render(input, view, room / 2);
    let permissions = permission_changes::render(input, share);
    let mut text = alerts.text + &permissions.text;
    let mut left_out = alerts.left_out + permissions.left_out;
    for part in [
        setting_changes::markdown(input.settings, share),
        last_push::render(input, share),
        generation_notes::markdown(input.plan, share),
        model_changes::markdown(input.models, share),
    ] {
        if text.len() + part.text.len() <= room {
            text.push_str(&part.text);
            left_out += part.left_out;
        } else {
            left_out += part.left_out + part.text.lines().filter(|line| line.starts_with("- ")).count();
        }
    }
    (text, left_out)
}

/// Returns the sections that share the remaining room, in their order.
fn sections<'v>(input: &'v CommentInput<'v>, view: &'v PlanView<'v>) -> Vec<Section<'v>> {
    let mut sections = Vec::new();
    let table = table::section(input, view);
    // With many stacks, most changes are equal, so the equal changes come before the table.
    if table::is_by_stack(view) {
        sections.extend(table);
        sections.extend(details::sections(view));
    } else {
        sections.extend(details::sections(view));
        sections.extend(table);
    }
    sections.extend(table::taken_over(view));
    sections.extend(table::unchanged(view));
    sections.extend(footer::why(input));
    sections.extend(footer::drift(view));
    sections.extend(footer::findings(input));
    sections.extend(policy_findings::section(input));
    sections
}
