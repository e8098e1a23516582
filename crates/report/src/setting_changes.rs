//! Describes how changes of `konverge.yaml` affect stacks: a sentence for each key, with the stacks. All names are
//! escaped, because they come from pull requests.

use maud::{Markup, html};

use super::{
    bounded_part::BoundedPart,
    escape,
    html::elements,
    labels,
    terminal::{Color, Style},
};
use konverge_base::model::{StackId, setting_change::SettingChange, text::first_few};

/// The maximum number of stacks that a comment or a terminal lists for a key.
const STACKS: usize = 20;

/// Renders the section of a comment in at most `room` bytes; empty without changes. If stacks do not fit, their number
/// is shown, with the place that lists all.
pub(super) fn markdown(changes: &[SettingChange], room: usize) -> BoundedPart {
    if changes.is_empty() {
        return BoundedPart::default();
    }
    let named = changes.iter().map(|change| change.stacks.len()).max();
    for most in [STACKS, 5, 1, 0] {
        let mut text = format!("**{}**\n\n", title(changes));
        if named.is_some_and(|named| named > most) {
            text.push_str("Not every stack is named here: `konverge preview --output json` names all.\n\n");
        }
        for change in changes {
            let stacks = list(&change.stacks, most, |id| escape::cell(id.as_str()));
            text.push_str(&format!("- `{}`: {}: {stacks}\n", change.key, change.effect));
        }
        text.push('\n');
        if text.len() <= room || most == 0 {
            let unnamed = changes
                .iter()
                .map(|change| change.stacks.len().saturating_sub(most));
            return BoundedPart {
                text,
                left_out: unnamed.sum(),
            };
        }
    }
    BoundedPart::default()
}

/// Renders the lines for a terminal; empty without changes.
pub fn terminal(changes: &[SettingChange], style: Style) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n", style.paint(Color::Bold, &title(changes)));
    for change in changes {
        let stacks = list(&change.stacks, STACKS, |id| escape::log(id.as_str()));
        text.push_str(&format!("  {}: {}: {stacks}\n", change.key, change.effect));
    }
    text
}

/// Renders the section of a page, with all stacks.
pub(super) fn page(changes: &[SettingChange]) -> Markup {
    html! {
        @if !changes.is_empty() {
            section {
                h2 { (title(changes)) }
                ul {
                    @for change in changes {
                        li {
                            (elements::code(&change.key)) ": " (change.effect) ": "
                            (list(&change.stacks, usize::MAX, |id| id.to_string()))
                        }
                    }
                }
            }
        }
    }
}

fn title(changes: &[SettingChange]) -> String {
    let stacks: std::collections::BTreeSet<_> = changes.iter().flat_map(|change| &change.stacks).collect();
    format!(
        "The configuration changes for {}",
        labels::plural(stacks.len(), "stack")
    )
}

fn list(stacks: &[StackId], most: usize, name: impl Fn(&StackId) -> String) -> String {
    match stacks.len().min(most) {
        0 => labels::plural(stacks.len(), "stack"),
        _ => first_few(stacks.iter().map(name), most),
    }
}
