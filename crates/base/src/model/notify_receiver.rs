//! The protocol and the language of a receiver of notifications.

use derive_more::Display;
use serde::{Deserialize, Serialize};

/// The protocol of a receiver of notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema, Display)]
#[display("{}", self.name())]
#[serde(rename_all = "lowercase")]
pub enum NotifyKind {
    /// An incoming webhook of Slack or a compatible chat.
    Slack,
    /// A JSON POST with an HMAC signature.
    Webhook,
    /// A workflow of Microsoft Teams that posts to a channel when a webhook request is received.
    Teams,
    /// A custom robot of DingTalk with a signature.
    Dingtalk,
    /// A custom bot of Feishu or Lark with a signature.
    Feishu,
    /// A group robot of WeCom.
    Wecom,
    /// A mail, over SMTP with TLS.
    Email,
}

impl NotifyKind {
    /// All kinds, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Slack,
        Self::Webhook,
        Self::Teams,
        Self::Dingtalk,
        Self::Feishu,
        Self::Wecom,
        Self::Email,
    ];

    /// Returns the name in `konverge.yaml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Slack => "slack",
            Self::Webhook => "webhook",
            Self::Teams => "teams",
            Self::Dingtalk => "dingtalk",
            Self::Feishu => "feishu",
            Self::Wecom => "wecom",
            Self::Email => "email",
        }
    }

    /// Returns true if nothing may be sent without a key: the receiver verifies a signature.
    pub fn needs_key(self) -> bool {
        matches!(self, Self::Webhook | Self::Dingtalk | Self::Feishu)
    }
}

/// The language of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NotifyLanguage {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}
