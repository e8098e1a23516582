//! How a merge would change the configuration that grants permissions. Never folded, because nothing else in
//! the comment shows it.

use crate::{
    model::power::PowerChange,
    report::{CommentInput, escape, labels},
};

/// The number of stacks that a row names.
const STACKS: usize = 5;

/// The number of characters of a value that a row shows.
const VALUE: usize = 200;

/// The table in at most `room` bytes; rows that do not fit are counted.
pub(super) fn render(input: &CommentInput<'_>, room: usize) -> String {
    if input.power.is_empty() {
        return String::new();
    }
    let title = format!(
        "> [!IMPORTANT]\n> **{} that grant power would change with this merge.** Until then the default branch's hold. \
         After it, this pull request is judged by both: each of the rules before and after has to be satisfied.\n\n\
         | key | now | after the merge | stacks |\n|---|---|---|---|\n",
        labels::plural(input.power.len(), "setting")
    );
    let mut text = title;
    let mut left_out = 0;
    for change in input.power {
        let row = row(change);
        match text.len() + row.len() > room {
            true => left_out += 1,
            false => text.push_str(&row),
        }
    }
    if left_out > 0 {
        text.push_str(&format!(
            "\n{} more: compare `konverge.yaml` with the default branch's.\n",
            left_out
        ));
    }
    text.push('\n');
    text
}

fn row(change: &PowerChange) -> String {
    let value = |value: &Option<String>| match value {
        None => "not set".to_owned(),
        Some(text) if text.chars().count() > VALUE => {
            let start: String = text.chars().take(VALUE).collect();
            format!("{} …", escape::cell(&start))
        }
        Some(text) => escape::cell(text),
    };
    let stacks = match &change.stacks {
        None => "all".to_owned(),
        Some(stacks) if stacks.is_empty() => "none yet".to_owned(),
        Some(stacks) => {
            let named: Vec<_> = stacks
                .iter()
                .take(STACKS)
                .map(|id| escape::cell(id.as_str()))
                .collect();
            let more = match stacks.len().saturating_sub(STACKS) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{}{more}", named.join(", "))
        }
    };
    format!(
        "| {} | {} | {} | {stacks} |\n",
        escape::cell(&change.key),
        value(&change.from),
        value(&change.to)
    )
}
