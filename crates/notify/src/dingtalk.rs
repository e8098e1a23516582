//! A custom robot of DingTalk. <https://open.dingtalk.com/document/robots/custom-robot-access>

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use url::Url;

use crate::{
    answer::AnswerCodes,
    escape::inert,
    message::{Notification, Rendering},
    webhook::hmac_sha256,
    wording,
};

/// The maximum size of a text in bytes.
const LIMIT: usize = 5_000;

/// The limit is 20 messages per minute; after that the robot is blocked for up to ten minutes.
pub(crate) const ANSWERS: AnswerCodes = AnswerCodes {
    keys: &["errcode"],
    says: &["errmsg"],
    limits: &[130_101],
    wait: Duration::from_secs(60),
    hints: &[
        (
            310_000,
            "a security setting of the robot refuses it: compare the key of the signature; a keyword must be `Konverge`",
        ),
        (300_001, "the token in the URL is not that of a robot"),
    ],
};

/// Returns the URL with a signature: HMAC-SHA-256 of `TIME\nKEY` under the key, with the time in milliseconds.
pub(crate) fn signed(mut url: Url, key: &str, milliseconds: i64) -> Url {
    let signature = STANDARD.encode(hmac_sha256(key, &format!("{milliseconds}\n{key}")));
    // A signature contains `+`, which means a space in a query unless it is escaped.
    url.query_pairs_mut()
        .append_pair("timestamp", &milliseconds.to_string())
        .append_pair("sign", &signature);
    url
}

/// Returns the body of a Markdown message.
pub(crate) fn body(message: &Notification, rendering: &Rendering<'_>) -> String {
    message.fit(LIMIT, |named| {
        let shown = message.text(rendering.language, named, &|name| inert(&(rendering.mask)(name)));
        let title = format!("Konverge: {}", shown.title);
        let mut text = format!("**Konverge** {}: {}\n", shown.repository, shown.title);
        let lines = shown.stacks.into_iter().chain(shown.more);
        text.extend(lines.map(|line| format!("\n- {line}")));
        let label = wording::link(rendering.language);
        text.extend(message.link().map(|url| format!("\n\n[{label}]({url})")));
        let members = rendering.mention.iter().filter(|member| *member != "all");
        let (mobiles, users): (Vec<_>, Vec<_>) =
            members.partition(|member| member.chars().all(|c| c.is_ascii_digit() || "+-".contains(c)));
        // DingTalk mentions only people whose number or id is also in the text.
        let members = mobiles.iter().chain(&users);
        text.extend(members.map(|member| format!("\n\n@{member}")));
        let everybody = rendering.mention.iter().any(|member| member == "all");
        json!({
            "msgtype": "markdown",
            "markdown": {"title": title, "text": text},
            "at": {"atMobiles": mobiles, "atUserIds": users, "isAtAll": everybody},
        })
        .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the vendor's sample in Python prints for the key of the sample: `urllib.parse.quote_plus(base64.b64encode(
    /// hmac.new(secret, "{timestamp}\n{secret}", sha256).digest()))`.
    #[test]
    fn the_signature_is_that_of_the_vendors_sample() {
        let url = Url::parse("https://oapi.dingtalk.com/robot/send?access_token=XXX").unwrap();
        let url = signed(url, "this is secret", 1_577_262_236_757);
        assert_eq!(
            url.query(),
            Some(
                "access_token=XXX&timestamp=1577262236757&sign=hmPWwU%2B7lVdm3ZZz0r9tSfx0L4Q26jWOZr9%2BGs6EZQM%3D"
            )
        );
    }
}
