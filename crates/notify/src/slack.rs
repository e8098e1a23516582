//! Slack, and chats that accept its incoming webhooks (Mattermost, Rocket.Chat, Discord's `/slack`).

use serde_json::json;

use crate::{
    escape::{inert, plain},
    message::{Notification, Rendering},
    wording,
};

/// The maximum size of a text. Slack truncates a text at 40,000 characters, and warns above 4,000.
const LIMIT: usize = 4_000;

/// Returns the body of a message.
pub(crate) fn body(message: &Notification, rendering: &Rendering<'_>) -> String {
    message.fit(LIMIT, |named| {
        let outside = |name: &str| inert(&(rendering.mask)(name));
        let shown = message.text(rendering.language, named, &outside);
        let mut text = format!("*{}*: {}", shown.repository, shown.title);
        for stack in message.stacks.iter().take(named) {
            text.push_str(&format!("\n• `{}`", code(&(rendering.mask)(stack.as_str()))));
        }
        text.extend(shown.more.map(|line| format!("\n{line}")));
        for member in rendering.mention {
            text.push_str(&match member.as_str() {
                "all" => "\n<!channel>".to_owned(),
                member => format!("\n<@{member}>"),
            });
        }
        if let Some(url) = message.link() {
            let label = wording::link(rendering.language);
            text.push_str(&format!("\n<{}|{label}>", url.replace('&', "&amp;")));
        }
        json!({"text": text, "unfurl_links": false}).to_string()
    })
}

/// Returns a name between backticks, where only Slack's angle brackets and Discord's `@everyone` have a meaning.
fn code(name: &str) -> String {
    plain(name)
        .replace('&', "&amp;")
        .replace('`', "'")
        .replace('@', "＠")
}
