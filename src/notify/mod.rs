//! Notifications: a chat's incoming webhook, or a signed webhook of one's own. They carry names, counts and a link to
//! the run; never a value of a resource, so never a secret.

mod message;
mod sender;

pub use crate::model::NotifyEvent;
pub use message::Notification;
pub use sender::{Kind, NotifyError, NotifyTarget, Sender, signature};
