//! The small elements that all parts of the page use. A template escapes what it is given; text from others gets its
//! hidden characters made visible, too.

use maud::{Markup, PreEscaped, html};

use crate::{diff, escape, labels};
use konverge_base::model::plan::Action;

/// Text from others: hidden characters are made visible, line breaks stay.
pub fn text(text: &str) -> Markup {
    PreEscaped(escape::html(text))
}

/// Text from others in one line.
pub fn line(text: &str) -> Markup {
    PreEscaped(escape::html(&escape::line(text)))
}

/// A name, a path or a value in one line.
pub fn code(text: &str) -> Markup {
    html! { code { (line(text)) } }
}

/// A text in sentences, with its commands and names as code.
pub fn prose(text: &str) -> Markup {
    PreEscaped(escape::html_prose(text))
}

/// Names with something between each two.
pub fn codes<'a>(texts: impl Iterator<Item = &'a str>, between: &str) -> Markup {
    html! {
        @for (index, text) in texts.enumerate() {
            @if index > 0 { (between) }
            (code(text))
        }
    }
}

/// Paths after a text; nothing without paths.
pub(super) fn fields(before: &str, paths: &[String]) -> Markup {
    let paths: Vec<_> = paths.iter().map(|path| diff::dotted(path)).collect();
    html! {
        @if !paths.is_empty() {
            (before) (codes(paths.iter().map(String::as_str), ", "))
        }
    }
}

/// The sign and the word of an action.
pub fn action(action: Action) -> Markup {
    html! { span.badge.(class(action)) { (labels::sign(action)) " " (labels::action_word(action)) } }
}

/// The style of an action.
pub(super) fn class(action: Action) -> &'static str {
    match action {
        Action::Create | Action::Adopt | Action::Run => "create",
        Action::Update | Action::Unknown | Action::Unchanged => "update",
        Action::Replace => "replace",
        Action::Delete | Action::Forget => "delete",
    }
}
