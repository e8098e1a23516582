//! Shows on a terminal what the first apply would do to stacks that run already.

use super::{
    escape, labels,
    table::{Cell, table},
    terminal::{Color, Style},
};
use konverge_base::model::takeover::{StackTakeover, Takeover, TakeoverReport};

/// The effects of a takeover, each with its text, in the order of their importance to a reader.
const KINDS: [(Takeover, &str); 4] = [
    (Takeover::Failed, "could not be planned"),
    (Takeover::Changed, "would change"),
    (Takeover::Unchanged, "would be taken over unchanged"),
    (Takeover::New, "would be made"),
];

/// Renders a table of the stacks, and the number of stacks with each effect.
pub fn text(report: &TakeoverReport, style: Style) -> String {
    if report.stacks.is_empty() {
        return "Every stack is recorded already: there is nothing to take over.\n".to_owned();
    }
    let count = |takeover| report.stacks_that_are(takeover).count();
    let rows: Vec<_> = KINDS
        .into_iter()
        .flat_map(|(takeover, _)| report.stacks_that_are(takeover))
        .map(row)
        .collect();
    let mut text = table(
        ["STACK", "TAKEN OVER", "UNCHANGED", "CHANGED", "NEW"],
        &rows,
        style,
    );
    text.push('\n');
    for (takeover, what) in KINDS {
        if count(takeover) > 0 {
            text.push_str(&format!("{} {what}\n", labels::plural(count(takeover), "stack")));
        }
    }
    text
}

fn row(stack: &StackTakeover) -> [Cell; 5] {
    let (word, color) = match stack.takeover {
        Takeover::Unchanged => ("unchanged", Color::Green),
        Takeover::Changed => ("with changes", Color::Yellow),
        Takeover::New => ("nothing is there", Color::Cyan),
        Takeover::Failed => ("failed", Color::Red),
    };
    let number = |count: usize| match count {
        0 => Cell::plain(""),
        count => Cell::plain(count.to_string()),
    };
    [
        Cell::plain(escape::log(stack.id.as_str())),
        Cell::colored(color, word),
        number(stack.resources.unchanged),
        number(stack.resources.changed),
        number(stack.resources.new),
    ]
}
