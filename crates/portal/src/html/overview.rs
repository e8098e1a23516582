//! The overview page: all stacks, grouped by their worst condition.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{badge, code, commit, health, line, moment, notices, prose, writer},
};
use crate::{Overview, OverviewRow, StackCondition, site_path};
use konverge_forge::RepositoryPages;
use konverge_report::plural;

/// The maximum number of healthy stacks for which their list is expanded from the start.
const OPEN: usize = 40;

/// Renders the page. `overview` has the stacks that match the filter of the URL (`condition` and `text`), `total`
/// has all stacks.
pub fn overview(
    overview: &Overview,
    total: &Overview,
    mode: PageMode,
    condition: Option<StackCondition>,
    text: &str,
) -> String {
    let is_filtered = condition.is_some() || !text.trim().is_empty();
    let main = html! {
        (freeze_notice(overview))
        (notices(&overview.notices))
        (facts(total))
        (counts(total, condition))
        (filter(total, mode, condition, text))
        @if overview.stacks.is_empty() {
            p.empty {
                @if is_filtered { "No stack matches. " a href=(site_path::OVERVIEW) { "Show all" } }
                @else { "No stack is recorded. The first " (code("konverge apply")) " writes a state." }
            }
        }
        @for condition in StackCondition::ALL {
            @let rows: Vec<_> = overview.stacks.iter().filter(|row| row.worst() == condition).collect();
            @if !rows.is_empty() { (section(condition, &rows, overview.forge.as_ref(), is_filtered)) }
        }
    };
    Page {
        refreshes: true,
        ..Page::new(&overview.repository, site_path::OVERVIEW, mode, main)
    }
    .render()
}

pub(super) fn freeze_notice(overview: &Overview) -> Markup {
    html! {
        @if let Some(freeze) = &overview.freeze {
            p.notice.freeze {
                strong { "Applies are frozen" } " since " (moment(freeze.since)) " by " (writer(&freeze.writer, overview.forge.as_ref())) ": "
                (prose(&freeze.reason))
            }
        }
    }
}

fn facts(overview: &Overview) -> Markup {
    html! {
        p.facts {
            (plural(overview.stacks.len(), "stack")) " · "
            @match &overview.head {
                Some(head) => { "compared with commit " (commit(head, overview.forge.as_ref())) },
                None => { "not compared with the repository: pending changes and stacks that were never applied are unknown" },
            }
        }
    }
}

/// Renders the number of stacks with each condition, as a link to them.
fn counts(overview: &Overview, current: Option<StackCondition>) -> Markup {
    html! {
        nav.counts aria-label="Conditions" {
            @for condition in StackCondition::ALL {
                @let count = overview.count(condition);
                @if count > 0 {
                    // Without the script, a static page jumps to the section. With the script, or on a server, the
                    // filter also finds stacks that have the condition but a worse one too.
                    a href={ (site_path::OVERVIEW) "?condition=" (condition) "#" (condition) }
                        aria-current=[(current == Some(condition)).then_some("true")] {
                        strong { (count) } " " (condition.words())
                    }
                }
            }
        }
    }
}

/// Renders the filter. On a static page it is shown only with the script.
fn filter(overview: &Overview, mode: PageMode, current: Option<StackCondition>, text: &str) -> Markup {
    html! {
        form.filter #filter method="get" action=(site_path::OVERVIEW) role="search" hidden[mode == PageMode::Static] {
            label {
                "Condition "
                select name="condition" {
                    option value="" { "all" }
                    @for condition in StackCondition::ALL {
                        @if overview.count(condition) > 0 || current == Some(condition) {
                            option value=(condition) selected[current == Some(condition)] { (condition.words()) }
                        }
                    }
                }
            }
            label.search { "Stack, folder or person " input type="search" name="q" value=(line(text)) autocomplete="off"; }
            button type="submit" { "Filter" }
            p #found role="status" {}
        }
    }
}

fn section(
    condition: StackCondition,
    rows: &[&OverviewRow],
    forge: Option<&RepositoryPages>,
    is_filtered: bool,
) -> Markup {
    let list = html! {
        ul.rows { @for row in rows { (self::row(row, forge)) } }
    };
    let is_calm = matches!(condition, StackCondition::Applied | StackCondition::Destroyed);
    html! {
        section id=(condition) {
            @if is_calm {
                details open[is_filtered || rows.len() <= OPEN] {
                    summary { h2 { (heading(condition)) " (" (rows.len()) ")" } }
                    (list)
                }
            } @else {
                h2 { (heading(condition)) " (" (rows.len()) ")" }
                (list)
            }
        }
    }
}

fn heading(condition: StackCondition) -> String {
    let words = condition.words();
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

fn row(row: &OverviewRow, forge: Option<&RepositoryPages>) -> Markup {
    let keys: Vec<_> = row.conditions.iter().map(ToString::to_string).collect();
    html! {
        li.row data-conditions=(keys.join(" ")) data-text=(line(&row.filter_text())) {
            a.name href=(site_path::stack(&row.id)) { (line(row.id.as_str())) }
            @for condition in &row.conditions { " " (badge(*condition)) }
            (row_facts(row, forge, true))
        }
    }
}

/// Renders the facts of a stack in one paragraph: who applied it and when, and the result of the last drift check.
/// `with_time` adds the time of that check.
pub(super) fn row_facts(row: &OverviewRow, forge: Option<&RepositoryPages>, with_time: bool) -> Markup {
    html! {
        p.facts {
            @if let Some(folder) = row.stack.path() { (code(&folder.to_string())) " · " }
            @if let Some(applied) = &row.applied {
                "serial " (applied.serial) ", " (line(&applied.reason)) " " (moment(applied.written)) " by " (writer(&applied.writer, forge))
                @if let Some(id) = &applied.commit { " · commit " (commit(id, forge)) }
                @if let Some(tried) = applied.attempted.as_ref().filter(|tried| applied.commit.as_ref() != Some(tried)) {
                    " · tried commit " (commit(tried, forge))
                }
                " · " (plural(row.resources, "resource"))
            } @else { "no state" }
        }
        @if let Some(stopped) = &row.stopped {
            p.facts { "The last apply ended " (moment(stopped.at)) " before it wrote a state; by " (writer(&stopped.writer, forge)) }
        }
        @if let Some(drift) = &row.drift {
            p.facts { "Drift since " (moment(drift.since)) ", last checked " (moment(drift.checked)) ", digest " code { (drift.digest.short()) } }
        }
        @if let Some(look) = row.look.as_ref().filter(|look| look.health.is_some()) { p.facts { (health(look, with_time)) } }
        @if let Some(error) = &row.error { p.note { (prose(error)) } }
    }
}
