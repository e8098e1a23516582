//! The content of a notification, and its text for each kind of receiver.

use serde_json::{Value, json};

use konverge_base::model::{NotifyEvent, NotifyLanguage, StackId};

use crate::wording::{self, NotifyDetail};

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The event that happened.
    pub topic: NotifyEvent,
    /// The details of the event besides its stacks.
    pub detail: NotifyDetail,
    /// The repository, as `owner/name`.
    pub repository: String,
    /// The stacks of the event.
    pub stacks: Vec<StackId>,
    /// The URL of the run.
    pub url: Option<String>,
}

/// The maximum number of stacks that are listed by name.
const MOST: usize = 20;

/// The special characters that a link may have. Any other character ends a link in some chat.
const LINK: &str = "-._~:/?#@!$&+,;=%";

/// The text of a notification, with names escaped for one kind of receiver.
pub(crate) struct MessageText {
    /// The repository, as `owner/name`.
    pub(crate) repository: String,
    /// The event on one line.
    pub(crate) title: String,
    /// The stacks that are listed by name.
    pub(crate) stacks: Vec<String>,
    /// A sentence with the number of the remaining stacks.
    pub(crate) more: Option<String>,
}

impl Notification {
    /// Returns the JSON document of a signed webhook, with `"version":1` first. `mask` masks secrets.
    pub(crate) fn document(&self, mask: &dyn Fn(&str) -> String) -> Value {
        let stacks: Vec<_> = self.stacks.iter().map(|stack| mask(stack.as_str())).collect();
        let mut document = json!({
            "version": 1, "topic": self.topic, "repository": mask(&self.repository),
            "title": self.title(NotifyLanguage::En, mask), "stacks": stacks, "url": self.url,
        });
        if self.detail == NotifyDetail::Sample {
            document["test"] = true.into();
        }
        document
    }

    /// Returns the text, with at most `most` stacks listed by name.
    pub(crate) fn text(
        &self,
        language: NotifyLanguage,
        named: usize,
        escape: &dyn Fn(&str) -> String,
    ) -> MessageText {
        let stacks: Vec<_> = self.stacks.iter().take(named).collect();
        let left = self.stacks.len() - stacks.len();
        MessageText {
            repository: escape(&self.repository),
            title: self.title(language, escape),
            stacks: stacks.into_iter().map(|stack| escape(stack.as_str())).collect(),
            more: (left > 0).then(|| wording::more(language, left)),
        }
    }

    /// Renders the message with as many stacks by name as fit into `limit` bytes, so that no name is cut.
    pub(crate) fn fit(&self, limit: usize, render: impl Fn(usize) -> String) -> String {
        let most = self.stacks.len().min(MOST);
        let fitting = (1..=most).rev().map(&render).find(|text| text.len() <= limit);
        fitting.unwrap_or_else(|| render(0))
    }

    /// Returns the URL of the run, if no kind of receiver would read it as something else.
    pub(crate) fn link(&self) -> Option<&str> {
        let is_safe = |url: &&str| {
            let starts = url.starts_with("https://") || url.starts_with("http://");
            starts && url.len() <= 500 && url.chars().all(|c| c.is_ascii_alphanumeric() || LINK.contains(c))
        };
        self.url.as_deref().filter(is_safe)
    }

    fn title(&self, language: NotifyLanguage, escape: &dyn Fn(&str) -> String) -> String {
        let stacks = match self.stacks.as_slice() {
            [one] => escape(one.as_str()),
            many => wording::count(language, many.len()),
        };
        wording::title(self.topic, &self.detail, language, &stacks)
    }
}

/// The settings with which a message is rendered for one receiver.
pub(crate) struct Rendering<'a> {
    /// The language of the message.
    pub(crate) language: NotifyLanguage,
    /// The people whom this message mentions.
    pub(crate) mention: &'a [String],
    /// Masks secrets in a name.
    pub(crate) mask: &'a (dyn Fn(&str) -> String + Sync),
}
