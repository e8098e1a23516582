//! A receiver of notifications, as in `konverge.yaml`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use konverge_base::model::{NotifyEvent, NotifyKind, NotifyLanguage};

/// One receiver. Its address is a secret and comes from the environment.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Notify {
    /// The chat, `webhook` (signed), or `email`.
    pub kind: NotifyKind,
    /// The environment variable with the URL. Of `email`: `smtps://USER@HOST`, or `smtp://USER@HOST` with STARTTLS.
    pub url_env: String,
    /// The environment variable with the secret: the signing key of `webhook`, `dingtalk` and `feishu`, or the password
    /// of `email`.
    #[serde(default)]
    pub key_env: Option<String>,
    /// A glob for the folders or identities of stacks. Events of other stacks are not sent. Default: every stack.
    #[serde(rename = "match", default)]
    pub pattern: Option<String>,
    /// Events to send; default: everything.
    #[serde(default)]
    pub on: Vec<NotifyEvent>,
    /// The language of the message. Default: `en`.
    #[serde(default)]
    pub lang: NotifyLanguage,
    /// The members to mention when something failed or was stopped: `all`, or members by the ids of the chat.
    #[serde(default)]
    pub mention: Vec<String>,
    /// The address that an `email` comes from.
    #[serde(default)]
    pub from: Option<String>,
    /// The addresses that an `email` goes to.
    #[serde(default)]
    pub to: Vec<String>,
}
