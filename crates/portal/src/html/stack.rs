//! The page of one stack.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    overview::row_facts,
    parts::{
        action, badge, code, commit, diff_lines, health_badge, issue, lease, line, moment, notices, people,
        prose, pull_request, run, writer,
    },
};
use crate::{
    HistoryDocument, HistoryRow, SeenDifference, SeenStack, StackDetails, difference::readable,
    operation::shell_word, site_path,
};
use konverge_base::model::{
    apply_record::ApplyRecord,
    review::ReviewUnit,
    state::{Recorded, StackState},
};
use konverge_forge::RepositoryPages;
use konverge_report::{
    diff::{self, DiffContext},
    html::of_edges,
    plural,
};

/// The maximum number of resources whose attributes are shown.
const WITH_ATTRIBUTES: usize = 200;
/// The maximum number of resources for which their list is expanded from the start.
const OPEN: usize = 60;
/// The number of unchanged lines that are shown around a change in a text.
const AROUND: usize = 2;

/// The content of the page of a stack.
#[derive(Debug, Clone)]
pub struct StackPage<'a> {
    /// The content of the page.
    pub view: &'a StackDetails,
    /// The pairs of serials whose difference has a static page. A server can show any pair.
    pub differences: &'a [(u64, u64)],
    /// The number of older serials that are kept but not shown.
    pub older: usize,
    /// The program that serves the page.
    pub mode: PageMode,
}

/// Renders the page of one stack.
pub fn stack(page: &StackPage<'_>) -> String {
    let view = page.view;
    let (id, forge) = (view.row.id.as_str(), view.forge.as_ref());
    // A static page leaves out the time of a check without findings, so that the file does not change at each
    // check. The overview has that time.
    let with_time = page.mode.is_served() || !view.row.is_calm();
    let main = html! {
        p.conditions { @for condition in &view.row.conditions { (badge(*condition)) " " } }
        (row_facts(&view.row, forge, with_time))
        @if page.mode == PageMode::Personal { p { a href=(site_path::OPERATIONS) { "Operations" } } }
        (notices(&view.notices))
        (seen(&view.seen, forge))
        @if !view.pending.is_empty() {
            section {
                h2 { "Outcome unknown" }
                p { "A run was interrupted. The next run finds out what happened to these resources:" }
                ul { @for id in &view.pending { li { (code(id.as_str())) } } }
            }
        }
        section {
            h2 { "Lease" }
            @match &view.lease {
                Some(held) => (lease(held, id, forge)),
                None => p { "Nobody holds the lease." },
            }
        }
        @if let Some(state) = &view.state { (resources(state, id)) (graph(state)) }
        (history(page))
    };
    Page {
        depth: 2,
        refreshes: true,
        ..Page::new(id, "", page.mode, main)
    }
    .render()
}

/// Renders the findings of drift checks and previews: objects that are not ready, drift, and changes that are not
/// applied yet.
fn seen(seen: &SeenStack, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        @if !seen.unready.is_empty() {
            section {
                h2 { "Not ready at the last look (" (seen.unready.len()) ")" }
                ul.rows {
                    @for object in &seen.unready {
                        li.row {
                            span.name { (line(object.id.as_str())) }
                            @if let Some(cluster) = &object.cluster { " " span.where { "on " (line(cluster.as_str())) } }
                            " " (health_badge(object.health))
                            @if !object.message.is_empty() { p.facts { (prose(&object.message)) } }
                        }
                    }
                }
            }
        }
        @if let Some(drift) = &seen.drift_difference {
            section {
                h2 { "Drift" }
                p.facts {
                    code { "-" } " is live, " code { "+" } " is what was applied. Seen by " (run(&drift.run, "a drift check", forge))
                    @if let Some(number) = drift.issue { ", issue " (issue(number, forge)) }
                }
                (changes(drift))
            }
        }
        @if !seen.pending_differences.is_empty() {
            section {
                h2 { "Changes that are not applied" }
                p.facts {
                    "As the last preview of each pull request showed them. Changes of an open pull request are only proposed."
                }
                @for pending in &seen.pending_differences {
                    h3 {
                        @if let Some(number) = pending.pull_request { "Pull request " (pull_request(number, forge)) }
                        @if let Some(head) = &pending.head { ", head " (commit(head, forge)) }
                        ", seen by " (run(&pending.run, "a preview", forge))
                    }
                    (changes(pending))
                }
            }
        }
    }
}

/// Renders the changes of each resource.
fn changes(difference: &SeenDifference) -> Markup {
    let mut resources: BTreeMap<_, Vec<&ReviewUnit>> = BTreeMap::new();
    for unit in &difference.units {
        resources.entry(&unit.resource).or_default().push(unit);
    }
    html! {
        @for (id, units) in &resources {
            @let lines = diff::recorded(units, DiffContext::Tree(AROUND));
            article.resource {
                p { @if let Some(first) = units.first() { (action(first.action)) } " " span.name { (line(id.as_str())) } }
                (diff_lines(&lines))
            }
        }
        @if difference.more > 0 {
            p.facts { "and " (plural(difference.more, "more change")) ", which are not recorded here" }
        }
    }
}

fn resources(state: &StackState, stack: &str) -> Markup {
    let count = state.resources.len();
    html! {
        section {
            details open[count <= OPEN] {
                summary { h2 { "Resources (" (count) ")" } }
                @if count == 0 { p { "Nothing is recorded." } }
                @if count > WITH_ATTRIBUTES {
                    p.facts {
                        "The attributes of the first " (WITH_ATTRIBUTES) " are on this page; of all: "
                        (code(&format!("konverge state show {}", shell_word(stack))))
                    }
                }
                ul.rows {
                    @for (index, resource) in state.resources.iter().enumerate() {
                        (self::resource(resource, index < WITH_ATTRIBUTES))
                    }
                }
            }
        }
    }
}

fn resource(resource: &Recorded, with_attributes: bool) -> Markup {
    let title = html! {
        span.name { (line(resource.id.as_str())) }
        @if let Some(cluster) = &resource.cluster { " " span.where { "on " (line(cluster.as_str())) } }
    };
    html! {
        li.resource {
            @if with_attributes {
                details {
                    summary { (title) }
                    pre.diff tabindex="0" {
                        @for text in konverge_report::yaml_lines(&readable(resource)) { span { (line(&text)) } }
                    }
                }
            } @else { (title) }
        }
    }
}

fn graph(state: &StackState) -> Markup {
    let edges: BTreeSet<(String, String)> = state
        .resources
        .iter()
        .flat_map(|resource| {
            let to = resource.id.to_string();
            resource
                .depends_on
                .iter()
                .map(move |from| (from.to_string(), to.clone()))
        })
        .collect();
    if edges.is_empty() {
        return html! {};
    }
    let count = edges.len();
    html! {
        section {
            h2 { "Dependencies (" (count) ")" }
            @match of_edges(edges, BTreeSet::new(), "From each resource to those that depend on it") {
                Some(svg) => div.graph tabindex="0" role="region" aria-label="Dependencies" { (svg) },
                None => p { "There are too many resources to draw. The attributes of each resource list what it depends on." },
            }
        }
    }
}

fn history(page: &StackPage<'_>) -> Markup {
    let rows = &page.view.history;
    let id = shell_word(page.view.row.id.as_str());
    html! {
        section {
            h2 { "History (" (plural(rows.len() + page.older, "serial")) ")" }
            @if page.mode.is_served() && rows.len() > 1 { (choice(rows)) }
            ol.rows reversed {
                @for row in rows {
                    li.row id={ "serial-" (row.serial) } {
                        (history_row(row, page.view.forge.as_ref()))
                        @if let Some((from, to)) = page.differences.iter().find(|(_, to)| *to == row.serial) {
                            p.facts { a href=(site_path::difference(*from, *to)) { "What changed since serial " (from) } }
                        }
                    }
                }
            }
            @if page.older > 0 {
                p.facts {
                    "The " (page.older) " older are not on this page: "
                    (code(&format!("konverge state history {id}")))
                }
            }
            @if page.mode == PageMode::Static && rows.len() > 1 {
                p.facts {
                    "To compare any two serials: "
                    (code(&format!("konverge state diff {id} FROM TO")))
                }
            }
        }
    }
}

/// Renders the form to select two serials to compare.
fn choice(rows: &[HistoryRow]) -> Markup {
    let select = |label: &str, name: &str, chosen: usize| {
        html! {
            label {
                (label) " "
                select name=(name) {
                    @for (index, row) in rows.iter().enumerate() {
                        option value=(row.serial) selected[index == chosen] { (row.serial) }
                    }
                }
            }
        }
    };
    html! {
        form.filter method="get" action="difference.html" {
            (select("From serial", "from", 1)) (select("to serial", "to", 0))
            button type="submit" { "Compare" }
        }
    }
}

fn history_row(row: &HistoryRow, forge: Option<&RepositoryPages>) -> Markup {
    html! {
        span.name { "Serial " (row.serial) }
        @match &row.document {
            HistoryDocument::Unreadable { unreadable } => p.note { "This serial cannot be read: " (prose(unreadable)) },
            HistoryDocument::Read { reason, writer: by, time, commit: applied, resources, note, receipt } => {
                p.facts {
                    (line(reason)) " " (moment(*time)) " by " (writer(by, forge))
                    @if let Some(applied) = applied { " · commit " (commit(applied, forge)) }
                    " · " (plural(*resources, "resource"))
                }
                @if let Some(note) = note { p.facts { (prose(note)) } }
                @if let Some(receipt) = receipt { (record(receipt, forge.filter(|forge| forge.run(&by.run).is_some()))) }
            }
        }
    }
}

/// Renders an apply record: the result and the reviewers. Pass `forge` only if the run belongs to the repository:
/// elsewhere a name may be an account of some machine, which must not become a link to a user of the forge.
fn record(record: &ApplyRecord, forge: Option<&RepositoryPages>) -> Markup {
    let result = serde_json::to_value(record.result).unwrap_or_default();
    let grounds = &record.grounds;
    html! {
        dl.record {
            dt { "Result" }
            dd { (line(result.as_str().unwrap_or_default())) ", plan digest " code { (record.digest.short()) } }
            @for pull in &grounds.pull_requests {
                dt { "Pull request" }
                dd {
                    (pull_request(pull.number, forge)) ", head " (commit(&pull.head, forge)) ", "
                    @match pull.reviewers.as_deref() {
                        None => "reviewers unknown",
                        Some([]) => "no approvals",
                        Some(names) => { "approved by " (people(names, forge)) },
                    }
                }
            }
            @if !grounds.agreed_by.is_empty() {
                dt { "Digest approved by" }
                dd {
                    (people(&grounds.agreed_by, forge))
                    @if let Some(why) = &grounds.why { ": " (prose(why)) }
                }
            }
            @for overridden in &grounds.overrides {
                dt { "Override" }
                dd { (code(&overridden.rule)) " by " (line(&overridden.giver())) ": " (prose(&overridden.message)) }
            }
            @if grounds.findings.shown.len() + grounds.findings.more > 0 {
                dt { "Policy findings" }
                dd {
                    ul {
                        @for finding in &grounds.findings.shown { li { (code(&finding.rule)) " " (prose(&finding.message)) } }
                        @if grounds.findings.more > 0 { li { "and " (grounds.findings.more) " more" } }
                    }
                }
            }
            @if grounds.reconciled { dt { "Drift" } dd { "restored" } }
        }
    }
}

/// Renders the changed lines of a resource, with a note if there are too many to show.
pub(super) fn changed_lines(lines: &[String]) -> Markup {
    html! {
        @if lines.is_empty() { p.facts { "Its lines are not on this page: there are too many." } }
        @else { (diff_lines(lines)) }
    }
}
