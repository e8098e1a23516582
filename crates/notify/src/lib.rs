//! Notifications: a chat's incoming webhook, or a signed webhook. They contain names, counts and a link to
//! the run, but never a value of a resource, and so never a secret.

mod message;
mod sender;

pub use konverge_base::model::NotifyEvent;
pub use message::Notification;
pub use sender::{Kind, NotifyError, NotifyTarget, Sender, signature};
