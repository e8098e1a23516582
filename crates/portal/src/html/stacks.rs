//! The table of all stacks: project, environment, conditions, time of the last apply, start of the drift.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{badge, line, moment},
};
use crate::{Overview, OverviewRow, StackOrder, site_path};
use konverge_report::plural;

/// Renders the page of all stacks in this order.
pub fn stacks(overview: &Overview, order: StackOrder, mode: PageMode) -> String {
    let mut rows: Vec<_> = overview.stacks.iter().collect();
    order.sort(&mut rows);
    let main = html! {
        p.facts { (plural(rows.len(), "stack")) ". Select the head of a column to sort by that column." }
        div.table tabindex="0" role="region" aria-label="Stacks" {
            table {
                thead { tr { @for column in COLUMNS { (head(column, order)) } } }
                tbody { @for row in rows { (self::row(row)) } }
            }
        }
    };
    Page {
        refreshes: true,
        ..Page::new(
            "Stacks by project and environment",
            site_path::PROJECTS,
            mode,
            main,
        )
    }
    .render()
}

/// The titles of the columns. A column with an order can be sorted by.
const COLUMNS: [(&str, Option<StackOrder>); 6] = [
    ("Project", Some(StackOrder::Project)),
    ("Environment", Some(StackOrder::Environment)),
    ("Condition", None),
    ("Live objects", None),
    ("Last write", Some(StackOrder::Applied)),
    ("Drift since", Some(StackOrder::Drift)),
];

fn head((words, column): (&str, Option<StackOrder>), order: StackOrder) -> Markup {
    let is_sorted = column == Some(order);
    let direction = match order {
        StackOrder::Applied => "descending",
        StackOrder::Project | StackOrder::Environment | StackOrder::Drift => "ascending",
    };
    html! {
        th scope="col" aria-sort=[is_sorted.then_some(direction)] {
            @match column {
                Some(column) => a href=(site_path::stacks(column)) { (words) },
                None => (words),
            }
        }
    }
}

fn row(row: &OverviewRow) -> Markup {
    let id = line(row.id.as_str());
    html! {
        tr {
            td { @if let Some(tenant) = row.id.tenant() { (line(tenant)) "/" } (line(row.id.project())) }
            td { a href=(site_path::stack(&row.id)) aria-label=(id) { (line(row.id.name())) } }
            td { @for condition in &row.conditions { (badge(*condition)) " " } }
            td { @if let Some(counts) = row.look.as_ref().and_then(|look| look.health) { (counts.words().join(", ")) } }
            td { @if let Some(applied) = &row.applied { (moment(applied.written)) } }
            td { @if let Some(drift) = &row.drift { (moment(drift.since)) } }
        }
    }
}
