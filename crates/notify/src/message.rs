//! The content of notifications, and how each protocol writes it.

use serde_json::{Value, json};

use konverge_base::model::{NotifyEvent, StackId};

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The event.
    pub topic: NotifyEvent,
    /// `owner/name`.
    pub repository: String,
    /// One line: `3 stacks applied, 1 failed`.
    pub title: String,
    /// The stacks concerned.
    pub stacks: Vec<StackId>,
    /// The URL of the run.
    pub url: Option<String>,
}

/// The maximum number of stacks that are named.
const MOST: usize = 20;

impl Notification {
    /// The document of a signed webhook; `"version":1` first.
    pub(super) fn document(&self) -> Value {
        json!({
            "version": 1, "topic": self.topic, "repository": self.repository, "title": self.title,
            "stacks": self.stacks, "url": self.url,
        })
    }

    /// The body of an incoming webhook of Slack and of compatible chats (Mattermost, Rocket.Chat, Discord's
    /// `/slack`).
    pub(super) fn slack(&self) -> Value {
        let mut text = format!("*{}*: {}", slack(&self.repository), slack(&self.title));
        for stack in self.stacks.iter().take(MOST) {
            text.push_str(&format!("\n• `{}`", slack(stack.as_str()).replace('`', "'")));
        }
        if self.stacks.len() > MOST {
            text.push_str(&format!("\nand {} more", self.stacks.len() - MOST));
        }
        if let Some(url) = self
            .url
            .as_ref()
            .filter(|url| url.starts_with("https://") || url.starts_with("http://"))
        {
            text.push_str(&format!("\n<{}|the run>", slack(url).replace('|', "%7C")));
        }
        json!({"text": text, "unfurl_links": false})
    }
}

/// Slack reads `<…>` as mentions and links, and nothing else once these three are escaped.
fn slack(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('*', "∗")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_mentions_nobody() {
        let message = Notification {
            topic: NotifyEvent::ApplyFailed,
            repository: "acme/konfig".into(),
            title: "failed <!channel> *x*\n<https://evil.example|run>".into(),
            stacks: vec!["p<!here>`x`/dev".parse().unwrap()],
            url: Some("https://github.com/acme/konfig/actions/runs/1".into()),
        };
        let body = message.slack();
        let text = body["text"].as_str().unwrap();
        assert_eq!(text.matches('<').count(), 1, "{text}");
        assert!(text.ends_with("<https://github.com/acme/konfig/actions/runs/1|the run>"));
        assert_eq!(
            message.document().as_object().unwrap().keys().next().unwrap(),
            "version"
        );
    }
}
