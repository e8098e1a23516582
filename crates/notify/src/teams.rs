//! A workflow of Microsoft Teams that posts an adaptive card. <https://adaptivecards.io/explorer/AdaptiveCard.html>

use serde_json::{Value, json};

use crate::{
    error::NotifyError,
    escape::plain,
    message::{Notification, Rendering},
    wording,
};

/// The maximum size of a message is 28 KB, but smaller ones were refused, too.
const LIMIT: usize = 18_000;

/// The text in a response with status 200 if the connector has posted nothing.
const NOT_POSTED: &str = "Webhook message delivery failed";

/// Returns the body of a message. Names are text runs, which are not read as Markdown as a text block is.
pub(crate) fn body(message: &Notification, rendering: &Rendering<'_>) -> String {
    message.fit(LIMIT, |named| {
        let shown = message.text(rendering.language, named, &|name| plain(&(rendering.mask)(name)));
        let color = if message.topic.is_failure() {
            "attention"
        } else {
            "default"
        };
        let title = json!({"type": "TextRun", "text": shown.title, "weight": "bolder", "color": color});
        let mut blocks = vec![line(title), line(run(&format!("Konverge {}", shown.repository)))];
        let stacks = shown.stacks.iter().map(|stack| format!("• {stack}"));
        blocks.extend(stacks.chain(shown.more).map(|text| line(run(&text))));
        let members = rendering.mention.iter();
        let entities: Vec<_> = members
            .map(|member| {
                json!({
                    "type": "mention", "text": format!("<at>{member}</at>"),
                    "mentioned": {"id": member, "name": member},
                })
            })
            .collect();
        for entity in &entities {
            blocks.push(json!({"type": "TextBlock", "text": entity["text"], "wrap": true}));
        }
        let mut card = json!({
            "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
            "type": "AdaptiveCard", "version": "1.4", "body": blocks,
            "msteams": {"width": "Full", "entities": entities},
        });
        if let Some(url) = message.link() {
            let label = wording::link(rendering.language);
            card["actions"] = json!([{"type": "Action.OpenUrl", "title": label, "url": url}]);
        }
        let attachment = json!({"contentType": "application/vnd.microsoft.card.adaptive", "content": card});
        json!({"type": "message", "attachments": [attachment]}).to_string()
    })
}

/// Reads a response with a successful status. A workflow responds with 202 and an empty body.
pub(crate) fn read(name: &str, body: &[u8]) -> Result<(), NotifyError> {
    if String::from_utf8_lossy(body).contains(NOT_POSTED) {
        Err(NotifyError::Unclear {
            name: name.to_owned(),
        })
    } else {
        Ok(())
    }
}

fn run(text: &str) -> Value {
    json!({"type": "TextRun", "text": text})
}

fn line(run: Value) -> Value {
    json!({"type": "RichTextBlock", "inlines": [run]})
}
