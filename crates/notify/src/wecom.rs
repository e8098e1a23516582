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
        text.extend(shown.stacks.iter().map(|stack| format!("\n- {stack}")));
        text.extend(shown.more.map(|line| format!("\n{line}")));
        let label = wording::link(rendering.language);
        text.extend(message.link().map(|url| format!("\n{label} {url}")));
        text
    });
    let members = rendering.mention.iter();
    let members: Vec<_> = members
        .map(|member| if member == "all" { "@all" } else { member.as_str() })
        .collect();
    json!({"msgtype": "text", "text": {"content": text, "mentioned_list": members}}).to_string()
}
