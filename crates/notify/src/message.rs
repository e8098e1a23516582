//! The content of a notification, and its text as the kinds render it.

use serde_json::{Value, json};

use konverge_base::model::{NotifyEvent, NotifyLanguage, StackId};

use crate::wording::{self, NotifyDetail};

/// One notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The event.
    pub topic: NotifyEvent,
    /// The details besides the stacks.
    pub detail: NotifyDetail,
    /// `owner/name`.
    pub repository: String,
    /// The stacks concerned.
    pub stacks: Vec<StackId>,
    /// The URL of the run.
    pub url: Option<String>,
}

/// The maximum number of stacks that are named.
const MOST: usize = 20;

/// The characters of a link to a run. Others end a link somewhere.
const LINK: &str = "-._~:/?#@!$&+,;=%";

/// The text of a notification, whose names are escaped for one kind.
pub(crate) struct MessageText {
    /// `owner/name`.
    pub(crate) repository: String,
    /// The event, in one line.
    pub(crate) title: String,
    /// The stacks that are named.
    pub(crate) stacks: Vec<String>,
    /// The number of those that are not, as a sentence.
    pub(crate) more: Option<String>,
}

impl Notification {
    /// The document of a signed webhook; `"version":1` first. `mask` masks secrets.
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

    /// The text with at most so many stacks by name.
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

    /// The rendering with as many stacks by name as fit into `limit` bytes: a text is cut at a stack.
    pub(crate) fn fit(&self, limit: usize, render: impl Fn(usize) -> String) -> String {
        let most = self.stacks.len().min(MOST);
        let fitting = (1..=most).rev().map(&render).find(|text| text.len() <= limit);
        fitting.unwrap_or_else(|| render(0))
    }

    /// The URL of the run, if no kind reads something else in it.
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

/// How a message is rendered for a receiver.
pub(crate) struct Rendering<'a> {
    /// The language.
    pub(crate) language: NotifyLanguage,
    /// Who is mentioned in this message.
    pub(crate) mention: &'a [String],
    /// Masks secrets in a name.
    pub(crate) mask: &'a (dyn Fn(&str) -> String + Sync),
}
