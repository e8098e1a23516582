//! The search pages: a form, the result, and lists of all names by kind, which work without the script.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{code, line},
};
use crate::{SearchIndex, SearchResult, site_path};
use konverge_base::model::StackId;
use konverge_report::{escape, plural};

/// The maximum number of stacks that are linked beside a name.
const STACKS: usize = 50;
/// The maximum number of names on the page of a kind. A browser needs seconds to render more.
const NAMES: usize = 5000;

/// Renders the page. `result` is the result for `text`; on a static page it is `None`, and the script searches.
pub fn search(index: &SearchIndex, mode: PageMode, text: &str, result: Option<&SearchResult>) -> String {
    let unnamed: usize = index.unnamed.values().sum();
    let main = html! {
        form.filter #search-form method="get" action=(site_path::SEARCH) role="search" hidden[mode == PageMode::Static] {
            label.search { "Kind, name or image " input type="search" name="q" value=(line(text)) autocomplete="off"; }
            button type="submit" { "Search" }
        }
        p #found role="status" { @if let Some(result) = result { (plural(result.hits.len() + result.more, "result")) } }
        @if unnamed > 0 {
            p.notice {
                "Of large stacks " (plural(unnamed, "resource or image")) " are not in this search. "
                "Their pages and " (code("konverge state show STACK")) " have them."
            }
        }
        ul.rows #hits {
            @if let Some(result) = result {
                @for hit in &result.hits {
                    li.row { span.where { (line(&hit.kind)) } " " span.name { (line(&hit.name)) } " " (links(hit.stacks.iter(), 0)) }
                }
                @if result.more > 0 { li { "and " (result.more) " more: search for more words" } }
            }
        }
        section {
            h2 { "Kinds" }
            @if index.kinds.is_empty() { p { "Nothing is recorded." } }
            ul.columns {
                @for (kind, names) in &index.kinds {
                    li { a href=(site_path::kind(kind)) { (line(kind)) } " (" (names.len()) ")" }
                }
                @if !index.images.is_empty() {
                    li { a href=(site_path::kind(IMAGES)) { "Images" } " (" (index.images.len()) ")" }
                }
            }
        }
    };
    Page {
        with_search_data: mode == PageMode::Static,
        ..Page::new("Search", site_path::SEARCH, mode, main)
    }
    .render()
}

/// The file name of the page of images. It cannot clash with a kind, because every kind of an API or a provider
/// contains a colon.
const IMAGES: &str = "images";

/// Renders the page of a kind, or of the images; `None` if no stack has such a resource.
pub fn kind(index: &SearchIndex, kind: &str) -> Option<String> {
    let (title, names) = match index.kinds.get(kind) {
        Some(names) => (kind, names),
        None if kind == IMAGES && !index.images.is_empty() => ("Images", &index.images),
        None => return None,
    };
    Some(listing(index, title, names))
}

impl SearchIndex {
    /// Returns the pages that list names: one for each kind, and one for images.
    pub fn listings(&self) -> impl Iterator<Item = &str> {
        let images = (!self.images.is_empty()).then_some(IMAGES);
        let kinds = self
            .kinds
            .keys()
            .map(String::as_str)
            .filter(|kind| *kind != IMAGES);
        kinds.chain(images)
    }
}

fn listing(index: &SearchIndex, title: &str, names: &BTreeMap<String, Vec<usize>>) -> String {
    let main = html! {
        p { a href={ "../" (site_path::SEARCH) } { "All kinds" } }
        ul.rows {
            @for (name, places) in names.iter().take(NAMES) {
                li.row { span.name { (line(name)) } " " (links(index.stacks_at(places), 1)) }
            }
        }
        @if names.len() > NAMES {
            p.notice { (names.len() - NAMES) " more are not on this page. The search finds them, and so do the pages of their stacks." }
        }
    };
    Page {
        depth: 1,
        ..Page::new(title, "", PageMode::Served, main)
    }
    .render()
}

fn links<'a>(stacks: impl Iterator<Item = &'a StackId>, depth: usize) -> Markup {
    let stacks: Vec<_> = stacks.collect();
    html! {
        span.links {
            @for (index, stack) in stacks.iter().take(STACKS).enumerate() {
                @if index > 0 { ", " }
                a href={ ("../".repeat(depth)) (site_path::stack(stack)) } { (line(stack.as_str())) }
            }
            @if stacks.len() > STACKS { " and " (stacks.len() - STACKS) " more" }
        }
    }
}

/// Renders the search data of all stacks as a script, because a page that was opened from a file cannot load JSON.
pub fn search_data(index: &SearchIndex) -> String {
    let paths: Vec<_> = index.stacks.iter().map(site_path::stack).collect();
    let data = serde_json::json!({
        "stacks": index.stacks, "paths": paths, "kinds": index.kinds, "images": index.images,
    });
    // A JSON string is used, because in an object literal a key `__proto__` would set the prototype.
    let literal = serde_json::Value::String(escape::json(&data.to_string())).to_string();
    format!(
        "globalThis.konvergeNames = JSON.parse({});\n",
        escape::json(&literal)
    )
}
