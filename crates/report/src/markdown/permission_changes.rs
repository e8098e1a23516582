//! The changes of permission settings that a merge would bring. They are never folded, because no other part of the
//! comment shows them.

use crate::{CommentInput, bounded_part::BoundedPart, escape, labels};
use konverge_base::model::{
    permission_changes::{CODEOWNERS, PowerChange},
    text::first_few,
};

/// The maximum number of stacks in a row.
const STACKS: usize = 5;

/// The maximum number of characters of a value, a key or a name in a row.
const VALUE: usize = 200;

/// The number of common characters before the first difference of two long values.
const BEFORE: usize = 20;

/// Renders the table in at most `room` bytes, with the number of rows that do not fit. Changed or removed settings come
/// first, so that added settings cannot push them out.
pub(super) fn render(input: &CommentInput<'_>, room: usize) -> BoundedPart {
    if input.power.is_empty() {
        return BoundedPart::default();
    }
    let owners = input
        .power
        .iter()
        .filter(|change| change.file() == CODEOWNERS)
        .count();
    let settings = input.power.len() - owners;
    let verb = if settings == 1 { "grants" } else { "grant" };
    let in_file = format!(
        "{} of `konverge.yaml` that {verb} permissions",
        labels::plural(settings, "setting")
    );
    let what = match (settings, owners) {
        (0, _) => "the owners in `CODEOWNERS`, who grant permissions".to_owned(),
        (_, 0) => in_file,
        _ => format!("{in_file}, and the owners in `CODEOWNERS`"),
    };
    let title = format!(
        "> [!IMPORTANT]\n> **This merge changes {what}.** The rules of the default branch decide until the merge. The apply after it checks this pull request by the old and by the new rules: get the approvals that either asks for before you merge.\n\n\
         | key | now | after the merge | stacks |\n|---|---|---|---|\n"
    );
    let mut changes: Vec<&PowerChange> = input.power.iter().collect();
    changes.sort_by_key(|change| (change.from.is_none(), rank(&change.key)));
    let mut text = title;
    let mut left_out = Vec::new();
    for change in changes {
        let row = row(change);
        if text.len() + row.len() > room {
            left_out.push(section(&change.key))
        } else {
            text.push_str(&row)
        }
    }
    let number = left_out.len();
    if number > 0 {
        left_out.sort_unstable();
        left_out.dedup();
        let sections = left_out.into_iter().take(STACKS);
        let sections: Vec<_> = sections
            .map(|section| escape::cell(&section.chars().take(BEFORE).collect::<String>()))
            .collect();
        text.push_str(&format!(
            "\n**{number} more**, of {}: compare `konverge.yaml` with the default branch's.\n",
            sections.join(", ")
        ));
    }
    text.push('\n');
    BoundedPart {
        text,
        left_out: number,
    }
}

/// Returns the section of the configuration that contains a key.
fn section(key: &str) -> &str {
    key.split(['.', ':']).next().unwrap_or_default()
}

/// Returns the position of a key in the table. Sections to which a merge can add any number of keys come last.
fn rank(key: &str) -> usize {
    const ORDER: [&str; 8] = [
        "policy",
        CODEOWNERS,
        "state",
        "kcl",
        "terraform",
        "secrets",
        "stacks[]",
        "apply",
    ];
    let last = match section(key) {
        "clusters" | "notify" => ORDER.len() + 1,
        _ => ORDER.len(),
    };
    ORDER
        .iter()
        .position(|known| *known == section(key))
        .unwrap_or(last)
}

fn row(change: &PowerChange) -> String {
    let skipped = same_start(change.from.as_deref(), change.to.as_deref());
    let value = |value: &Option<String>| match value {
        None => "not set".to_owned(),
        Some(text) => cut(text, skipped),
    };
    let stacks = match &change.stacks {
        None => "all".to_owned(),
        Some(stacks) if stacks.is_empty() => "none yet".to_owned(),
        Some(stacks) => first_few(stacks.iter().map(|id| cut(id.as_str(), 0)), STACKS),
    };
    format!(
        "| {} | {} | {} | {stacks} |\n",
        cut(&change.key, 0),
        value(&change.from),
        value(&change.to)
    )
}

/// Returns the number of common characters at the start of two values that a row leaves out. If a value is too long to
/// be shown, the row then shows where both differ.
fn same_start(from: Option<&str>, to: Option<&str>) -> usize {
    let (Some(from), Some(to)) = (from, to) else {
        return 0;
    };
    if from.chars().count().max(to.chars().count()) <= VALUE {
        return 0;
    }
    let same = from.chars().zip(to.chars()).take_while(|(a, b)| a == b).count();
    same.saturating_sub(BEFORE)
}

/// Returns a table cell with a part of a text, without its first `skipped` characters.
fn cut(text: &str, skipped: usize) -> String {
    let shown: String = text.chars().skip(skipped).take(VALUE).collect();
    let (before, after) = (
        if skipped > 0 { "… " } else { "" },
        if text.chars().count() > skipped + VALUE {
            " …"
        } else {
            ""
        },
    );
    format!("{before}{}{after}", escape::cell(&shown))
}
