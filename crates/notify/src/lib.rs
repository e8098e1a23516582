//! Sends notifications to chats, by mail, or to a signed webhook. They contain names, counts and a link to the run, but
//! never a value of a resource, and so never a secret.
//!
//! Each kind of receiver has a file of its own: its signature, its limits, its escaping, and its error responses.

mod answer;
mod dingtalk;
mod email;
mod error;
mod escape;
#[cfg(test)]
mod escape_tests;
mod feishu;
mod message;
mod sender;
mod slack;
mod target;
mod teams;
mod webhook;
mod wecom;
mod wording;

pub use error::NotifyError;
pub use konverge_base::model::{NotifyEvent, NotifyKind, NotifyLanguage};
pub use message::Notification;
pub use sender::Sender;
pub use target::NotifyTarget;
pub use webhook::signature;
pub use wording::NotifyDetail;
