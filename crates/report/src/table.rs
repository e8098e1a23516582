//! Renders a table for a terminal. Each column is as wide as its widest cell; cells are padded before they are colored.

use super::{
    escape, labels,
    terminal::{Color, Style},
};
use konverge_base::model::StackId;

/// One cell: its escaped text, and its color.
pub(super) struct Cell {
    text: String,
    color: Option<Color>,
}

impl Cell {
    pub(crate) fn plain(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            color: None,
        }
    }

    pub(crate) fn colored(color: Color, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            color: Some(color),
        }
    }
}

/// The maximum number of equal rows. More of them become one row.
const EQUAL_ROWS: usize = 10;

/// Returns the first cell of a row for many equal ones: `15 stacks, such as orders/dev`. `None` for few stacks, which
/// have a row each.
pub(super) fn folded(stacks: &[&StackId]) -> Option<Cell> {
    let (first, count) = (stacks.first()?, stacks.len());
    let name = escape::log(first.as_str());
    (count > EQUAL_ROWS).then(|| Cell::plain(format!("{}, such as {name}", labels::plural(count, "stack"))))
}

/// Returns the lines of a table with a header. A column without any text is left out.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[Cell; N]], style: Style) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].text.chars().count());
        let widest = cells.max().unwrap_or(0);
        (widest > 0).then(|| widest.max(head[column].chars().count()))
    };
    let columns: Vec<(usize, usize)> = (0..N)
        .filter_map(|column| Some((column, width(column)?)))
        .collect();
    let line = |cells: &[Cell; N]| {
        let last = columns.len().saturating_sub(1);
        let mut line = String::new();
        for (at, (column, width)) in columns.iter().enumerate() {
            let cell = &cells[*column];
            line.push_str(&match cell.color {
                Some(color) => style.paint(color, &cell.text),
                None => cell.text.clone(),
            });
            if at < last {
                let padding = width + 2 - cell.text.chars().count();
                line.push_str(&" ".repeat(padding));
            }
        }
        format!("{}\n", line.trim_end())
    };
    let mut text = line(&head.map(|name| Cell::colored(Color::Dim, name)));
    text.extend(rows.iter().map(line));
    text
}
