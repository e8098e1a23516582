//! The page as a whole: header, tools, sections.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::{
    alerts::alerts,
    elements::{code, codes, line, prose, text},
    graph, stacks,
};
use crate::{
    CommentInput, escape, generation_notes, labels, last_push, model_changes, next_step, setting_changes,
    sums::Sums,
    timeline,
    view_model::{self, PlanView},
};
use konverge_base::model::{StackId, plan::Action};

/// The styles of every page.
pub const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The maximum number of affected stacks for which the graph is open. A larger graph would push the changes down.
const OPEN_GRAPH: usize = 50;

/// Returns the whole preview as one HTML file.
pub fn report(input: &CommentInput<'_>) -> String {
    let view = view_model::build(input);
    let title = if input.run.repository.is_empty() {
        "Konverge preview".to_owned()
    } else {
        format!("Konverge preview · {}", input.run.repository)
    };
    // The page loads nothing, and only its own script and style can run, whatever the data contains.
    let security = format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        sha256(STYLE),
        sha256(SCRIPT)
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(PreEscaped(security));
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (line(&title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header(input, &view, &title))
                (tools(&view))
                main {
                    (alerts(input, &view))
                    (setting_changes::page(input.settings))
                    (last_push(input))
                    (notes_of_generation(input))
                    (model_changes::page(input.models))
                    (stacks::groups(&view))
                    (stacks::stacks(&view))
                    (why(input))
                    (names("Taken over as they run", view.taken_over.iter().map(|stack| stack.id)))
                    (names("Affected, without changes", view.unchanged.iter().copied()))
                    (policies(input))
                    (timeline::page(&input.run.timeline))
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn sha256(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn header(input: &CommentInput<'_>, view: &PlanView<'_>, title: &str) -> Markup {
    let commits = [("head", &input.run.head), ("base", &input.run.base)];
    let run_url = input.run.run_url.as_ref().filter(|url| escape::is_plain_url(url));
    html! {
        header {
            h1 { (line(title)) }
            p.verdict { strong { (text(&view.verdict())) } }
            @for sentence in Sums::of_view(view).sentences(|name| escape::html_code(&escape::line(name))) {
                p.facts { (PreEscaped(sentence)) }
            }
            @if let Some(taken_over) = view.takeover_sentence() { p.facts { (taken_over) } }
            @if let Some(steps) = next_step::next_steps(input, view) { p.facts { strong { "Next" } ": " (steps) "." } }
            p.facts {
                @if let Some(stacks) = view.stacks_line() { (stacks) " · " }
                @if let Some(pr) = input.run.pr { "pull request " (pr) " · " }
                @for (word, commit) in commits {
                    @if let Some(commit) = commit { (word) " " code { (commit.short()) } " · " }
                }
                "digest " code { (view.digest.short()) } ", which names exactly these changes · "
                @if let Some(url) = run_url { a href=(url) { "run" } " · " }
                @for (stage, time) in input.run.timeline.stages() { (stage) " " (format!("{:.1} s", time.as_secs_f64())) " · " }
                @if input.run.compiled + input.run.cached > 0 {
                    "Specs: " (input.run.compiled) " compiled, " (input.run.cached) " from the cache"
                }
            }
        }
    }
}

fn count_actions(view: &PlanView<'_>) -> impl Iterator<Item = Action> {
    let total = &view.total;
    [
        (Action::Create, total.create),
        (Action::Update, total.update),
        (Action::Replace, total.replace),
        (Action::Delete, total.delete),
        (Action::Adopt, total.adopt),
        (Action::Forget, total.forget),
        (Action::Run, total.run),
        (Action::Unknown, total.unknown),
    ]
    .into_iter()
    .filter_map(|(action, count)| (count > 0).then_some(action))
}

/// Returns the search and the filters. They are hidden until the script of the page runs.
fn tools(view: &PlanView<'_>) -> Markup {
    let filter = |key: &str| html! { label { input type="checkbox" data-filter=(key); " " (key) } };
    let is_dangerous = view.stacks.iter().any(|stack| stacks::is_dangerous(&stack.own));
    html! {
        div.tools hidden {
            label.search {
                span { "Search" }
                input #search type="search" placeholder="stack, resource, value" autocomplete="off";
            }
            div.filters {
                @for action in count_actions(view) {
                    (filter(&action.to_string()))
                }
                @if view.failed > 0 { (filter(stacks::FAILED)) }
                @if is_dangerous { (filter(stacks::DANGEROUS)) }
            }
            button #all type="button" { "Open all" }
            p #found role="status" {}
        }
    }
}

fn last_push(input: &CommentInput<'_>) -> Markup {
    let Some(difference) = input.last_push else {
        return html! {};
    };
    let changes = last_push::changes(difference);
    html! {
        section {
            h2 { "Since your last push" }
            p { "Compared with the preview of " code { (difference.earlier.short()) } "." }
            ul {
                @for change in &changes {
                    li {
                        (change.word()) ": " (change.action()) " " (code(change.resource.as_str()))
                        " in " (code(change.stack.as_str()))
                        @if let Some(before) = change.other_action() { " (was: " (before) ")" }
                        @for (index, field) in change.fields.iter().enumerate() {
                            @if index == 0 { ": " } @else { ", " }
                            (code(&field.is))
                            @if let Some(was) = &field.was { " (was " (code(was)) ")" }
                        }
                    }
                }
                @if changes.is_empty() { li { "the same changes" } }
            }
        }
    }
}

fn notes_of_generation(input: &CommentInput<'_>) -> Markup {
    let notes = generation_notes::group(input.plan);
    html! {
        @if !notes.is_empty() {
            section {
                h2 { "Notes" }
                ul {
                    @for note in notes {
                        li {
                            (PreEscaped(note.names(|name| escape::html_code(&escape::line(name))))) ": " (line(note.text))
                        }
                    }
                }
            }
        }
    }
}

fn why(input: &CommentInput<'_>) -> Markup {
    let Some(svg) = graph::svg(input.affected) else {
        return html! {};
    };
    html! {
        section {
            details open[input.affected.stacks.len() <= OPEN_GRAPH] {
                summary { h2 { "Why these stacks" } }
                p.legend {
                    span.swatch.changed {} " changed file "
                    span.swatch.between {} " imports it "
                    span.swatch.stack {} " affected stack"
                }
                div.graph tabindex="0" { (svg) }
            }
        }
    }
}

fn names<'v>(title: &str, stacks: impl Iterator<Item = &'v StackId> + Clone) -> Markup {
    html! {
        @if stacks.clone().next().is_some() {
            section {
                h2 { (title) }
                p.stacks { (codes(stacks.map(StackId::as_str), " ")) }
            }
        }
    }
}

fn policies(input: &CommentInput<'_>) -> Markup {
    html! {
        @if !input.findings.is_empty() {
            section {
                h2 { "Policies" }
                ul {
                    @for finding in input.findings {
                        li {
                            (labels::enforcement_word(finding.verdict)) ": "
                            @if let Some(stack) = &finding.stack { (code(stack.as_str())) " " }
                            (code(&finding.rule)) " "
                            @if let Some(place) = &finding.place {
                                @if let Some(resource) = &place.resource { (code(resource.as_str())) " " }
                                @if let Some(path) = &place.path { (code(path)) " " }
                            }
                            (prose(&finding.message))
                            @if let Some(hint) = &finding.hint { " (hint: " (prose(hint)) ")" }
                        }
                    }
                }
            }
        }
    }
}
