//! The page with the difference of two serials.

use maud::html;

use super::{
    layout::{Page, PageMode},
    parts::line,
    stack::changed_lines,
};
use crate::{SerialChange, StateDifference};
use konverge_report::plural;

/// Renders the page with the difference of two serials.
pub fn difference(difference: &StateDifference) -> String {
    let title = format!(
        "{}: serial {} to {}",
        difference.stack, difference.from, difference.to
    );
    let count = |change: SerialChange| {
        let resources = difference.resources.iter();
        resources.filter(|resource| resource.change == change).count()
    };
    let main = html! {
        p { a href="index.html" { "Back to " (line(difference.stack.as_str())) } }
        p.verdict {
            @if difference.resources.is_empty() { "The resources are the same." }
            @else {
                (plural(difference.resources.len(), "resource")) ": "
                (count(SerialChange::Added)) " added, " (count(SerialChange::Changed)) " changed, "
                (count(SerialChange::Removed)) " removed"
            }
        }
        @for resource in &difference.resources {
            article.resource {
                h2 {
                    span.badge.(class(resource.change)) { (resource.change.word()) } " " (line(resource.id.as_str()))
                }
                (changed_lines(&resource.lines))
            }
        }
    };
    Page {
        depth: 2,
        ..Page::new(&title, "", PageMode::Served, main)
    }
    .render()
}

fn class(change: SerialChange) -> &'static str {
    match change {
        SerialChange::Added => "create",
        SerialChange::Changed => "update",
        SerialChange::Removed => "delete",
    }
}
