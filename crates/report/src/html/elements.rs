//! Small elements that all parts of the page use. The template escapes all text; in text from outside, hidden
//! characters are made visible, too.

use maud::{Markup, PreEscaped, html};

use crate::{diff, escape, labels};
use konverge_base::model::{FieldPath, plan::Action};

/// Returns text from outside, with hidden characters made visible and with its line breaks.
pub fn text(text: &str) -> Markup {
    PreEscaped(escape::html(text))
}

/// Returns text from outside on one line.
pub fn line(text: &str) -> Markup {
    PreEscaped(escape::html(&escape::line(text)))
}

/// Returns a name, a path or a value on one line, as code.
pub fn code(text: &str) -> Markup {
    html! { code { (line(text)) } }
}

/// Returns a text of sentences, with its commands and names as code.
pub fn prose(text: &str) -> Markup {
    PreEscaped(escape::html_prose(text))
}

/// Returns names as code, with a separator between them.
pub fn codes<'a>(texts: impl Iterator<Item = &'a str>, between: &str) -> Markup {
    html! {
        @for (index, text) in texts.enumerate() {
            @if index > 0 { (between) }
            (code(text))
        }
    }
}

/// Returns paths after a text; empty if there are no paths.
pub(super) fn fields(before: &str, paths: &[FieldPath]) -> Markup {
    let paths: Vec<_> = paths.iter().map(diff::dotted).collect();
    html! {
        @if !paths.is_empty() {
            (before) (codes(paths.iter().map(String::as_str), ", "))
        }
    }
}

/// Returns the lines of a difference, colored by their signs; nothing if there are no lines.
pub fn diff_lines(lines: &[String]) -> Markup {
    html! {
        @if !lines.is_empty() {
            pre.diff tabindex="0" {
                @for line in lines {
                    @match line.as_bytes().first() {
                        Some(b'+') => ins { (text(line)) },
                        Some(b'-') => del { (text(line)) },
                        _ => span { (text(line)) },
                    }
                }
            }
        }
    }
}

/// Returns the sign and the word of an action.
pub fn action(action: Action) -> Markup {
    html! { span.badge.(class(action)) { (labels::sign(action)) " " (action) } }
}

/// Returns the CSS class of an action.
pub(super) fn class(action: Action) -> &'static str {
    match action {
        Action::Create | Action::Adopt | Action::Run => "create",
        Action::Update | Action::Unknown | Action::Unchanged => "update",
        Action::Replace => "replace",
        Action::Delete | Action::Forget => "delete",
    }
}
