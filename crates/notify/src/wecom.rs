//! A group robot of WeCom. <https://developer.work.weixin.qq.com/document/path/91770>

use std::time::Duration;

use serde_json::json;

use crate::{
    answer::AnswerCodes,
    escape::inert,
    message::{Notification, Rendering},
    wording,
};

/// The maximum size of a text in bytes, a little below WeCom's limit of 2,048. The body around the text does not count.
const LIMIT: usize = 2_000;

/// The limit is 20 messages per minute.
pub(crate) const ANSWERS: AnswerCodes = AnswerCodes {
    keys: &["errcode"],
    says: &["errmsg"],
    limits: &[45_009],
    wait: Duration::from_secs(60),
    hints: &[(93_000, "the key in the URL is not that of a robot")],
};

/// Returns the body of a text message: only this type can mention everybody, and it has no markup.
pub(crate) fn body(message: &Notification, rendering: &Rendering<'_>) -> String {
    let text = message.fit(LIMIT, |named| {
        let shown = message.text(rendering.language, named, &|name| inert(&(rendering.mask)(name)));
        let mut text = format!("Konverge {}: {}", shown.repository, shown.title);
        for stack in &shown.stacks {
            text.push_str(&format!("\n- {stack}"));
        }
        if let Some(line) = &shown.more {
            text.push_str(&format!("\n{line}"));
        }
        if let Some(url) = message.link() {
            text.push_str(&format!("\n{} {url}", wording::link(rendering.language)));
        }
        text
    });
    let members = rendering.mention.iter().map(|member| match member.as_str() {
        "all" => "@all",
        member => member,
    });
    let members: Vec<_> = members.collect();
    json!({"msgtype": "text", "text": {"content": text, "mentioned_list": members}}).to_string()
}
