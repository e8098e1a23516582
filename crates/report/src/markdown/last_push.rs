//! Renders the changes that the last push made to the plan, for a reviewer who has read the earlier preview.
//! [`crate::last_push`] computes them.

use crate::{
    CommentInput,
    bounded_part::BoundedPart,
    escape, labels,
    last_push::{EditedField, PushedChange, changes},
};
use konverge_base::model::text::first_few;

/// The maximum number of fields in a line.
const FIELDS: usize = 3;

/// Renders the section in at most `room` bytes, with the number of lines that do not fit.
pub(super) fn render(input: &CommentInput<'_>, room: usize) -> BoundedPart {
    let Some(difference) = input.last_push else {
        return BoundedPart::default();
    };
    let changes = changes(difference);
    let title = format!(
        "<b>Since your last push</b> (<code>{}</code>): {}",
        difference.earlier.short(),
        verdict(&changes, difference.incomparable.len())
    );
    if changes.is_empty() {
        return BoundedPart {
            text: format!("{title}.\n\n"),
            left_out: 0,
        };
    }
    let lines = changes.iter().map(|change| format!("- {}\n", line(change)));
    BoundedPart::open_fold(&title, lines, room, "")
}

/// Returns the counts of the changes: `2 values changed, 1 resource added, 1 reverted`.
fn verdict(changes: &[PushedChange<'_>], incomparable: usize) -> String {
    let values: usize = changes
        .iter()
        .filter(|change| change.is_of_values())
        .map(|change| change.fields.len())
        .sum();
    let mut parts: Vec<String> = Vec::new();
    parts.extend((values > 0).then(|| format!("{} changed", labels::plural(values, "value"))));
    let mut is_named = false;
    for word in ["edited", "changed", "added", "reverted"] {
        let whole = changes
            .iter()
            .filter(|change| change.word() == word && !change.is_of_values());
        match whole.count() {
            0 => {}
            count if is_named => parts.push(format!("{count} {word}")),
            count => {
                parts.push(format!("{} {word}", labels::plural(count, "resource")));
                is_named = true;
            }
        }
    }
    if parts.is_empty() {
        parts.push("the same changes".to_owned());
    }
    if incomparable > 0 {
        parts.push(format!(
            "{} cannot be compared",
            labels::plural(incomparable, "stack")
        ));
    }
    parts.join(", ")
}

/// Returns one line for a resource: ``edited: update `Deployment web/api` in `shop/dev`: `spec.replicas = 3` (was
/// `2`)``.
fn line(change: &PushedChange<'_>) -> String {
    let fields = if change.fields.is_empty() {
        String::new()
    } else {
        format!(": {}", first_few(change.fields.iter().map(field), FIELDS))
    };
    let before = match change.other_action() {
        Some(before) => format!(" (was: {before})"),
        None => String::new(),
    };
    format!(
        "{}: {} {} in {}{before}{fields}",
        change.word(),
        change.action(),
        escape::code(&labels::Title::from_id(change.resource).short()),
        escape::code(change.stack.as_str())
    )
}

fn field(field: &EditedField) -> String {
    let was = field
        .was
        .as_ref()
        .map_or(String::new(), |was| format!(" (was {})", escape::code(was)));
    format!("{}{was}", escape::code(&field.is))
}
