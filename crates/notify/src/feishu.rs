//! A custom bot of Feishu or Lark. <https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot>

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    answer::AnswerCodes,
    escape::plain,
    message::{Notification, Rendering},
    webhook::hmac_sha256,
    wording,
};

/// The maximum size of a message in bytes, below Feishu's limit of 20 KB for a request.
const LIMIT: usize = 18_000;

/// The limit is five messages per second and 100 per minute.
pub(crate) const ANSWERS: AnswerCodes = AnswerCodes {
    keys: &["code", "StatusCode"],
    says: &["msg", "StatusMessage"],
    limits: &[11_232, 99_991_400],
    wait: Duration::from_secs(2),
    hints: &[
        (
            19_021,
            "compare the key of the signature, and the clock of this machine",
        ),
        (19_022, "the address of this machine is not in the bot's list"),
        (19_024, "the bot wants a keyword: it must be `Konverge`"),
        (19_001, "the token in the URL is not that of a bot"),
    ],
};

/// Returns the signature: HMAC-SHA-256 of an empty text, under the key `TIME\nKEY`, with the time in seconds.
pub(crate) fn signature(key: &str, seconds: i64) -> String {
    STANDARD.encode(hmac_sha256(&format!("{seconds}\n{key}"), ""))
}

/// Returns the body of a card message. Names are in elements without markup.
pub(crate) fn body(message: &Notification, rendering: &Rendering<'_>, key: &str, seconds: i64) -> String {
    message.fit(LIMIT, |named| {
        let shown = message.text(rendering.language, named, &|name| plain(&(rendering.mask)(name)));
        let lines: Vec<_> = [format!("Konverge {}", shown.repository)]
            .into_iter()
            .chain(shown.stacks.iter().map(|stack| format!("• {stack}")))
            .chain(shown.more)
            .collect();
        let mut elements = vec![json!({"tag": "div", "text": words(&lines.join("\n"))})];
        if !rendering.mention.is_empty() {
            let members: String = rendering.mention.iter().map(|member| mention(member)).collect();
            elements.push(json!({"tag": "div", "text": {"tag": "lark_md", "content": members}}));
        }
        if let Some(url) = message.link() {
            let label = words(wording::link(rendering.language));
            let button = json!({"tag": "button", "type": "default", "text": label, "url": url});
            elements.push(json!({"tag": "action", "actions": [button]}));
        }
        let template = if message.topic.is_failure() { "red" } else { "blue" };
        json!({
            "timestamp": seconds.to_string(), "sign": signature(key, seconds), "msg_type": "interactive",
            "card": {
                "config": {"wide_screen_mode": true},
                "header": {"title": words(&shown.title), "template": template},
                "elements": elements,
            },
        })
        .to_string()
    })
}

fn words(text: &str) -> Value {
    json!({"tag": "plain_text", "content": text})
}

fn mention(member: &str) -> String {
    if member.contains('@') {
        format!("<at email={member}></at>")
    } else {
        format!("<at id={member}></at>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the vendor's sample in Python prints: `base64.b64encode(hmac.new("{timestamp}\n{secret}",
    /// digestmod=sha256).digest())`. Key and message the other way round give another one.
    #[test]
    fn the_signature_is_that_of_the_vendors_sample() {
        assert_eq!(
            signature("demo", 1_599_360_473),
            "l1N0gAcBjdwBvGm1xMjOF0XSyaLRpR7tuO5dHfhAYc8="
        );
    }
}
