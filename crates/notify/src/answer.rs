//! The responses of chats that report an error with status 200.

use std::time::Duration;

use serde_json::Value;

use crate::{error::NotifyError, escape::plain};

/// The pause after a rate limit, if neither the response nor the kind of receiver says how long to wait.
const LIMIT_WAIT: Duration = Duration::from_secs(30);

/// The format in which a kind of chat responds.
pub(crate) struct AnswerCodes {
    /// The JSON keys of the code, the newest first. The code 0 is a success.
    pub(crate) keys: &'static [&'static str],
    /// The JSON keys of the message.
    pub(crate) says: &'static [&'static str],
    /// The codes for a rate limit: the message was not accepted, and may be sent again later.
    pub(crate) limits: &'static [i64],
    /// The pause after a rate limit, unless the response has one in `wait`.
    pub(crate) wait: Duration,
    /// The codes for wrong settings, each with a hint.
    pub(crate) hints: &'static [(i64, &'static str)],
}

impl AnswerCodes {
    /// Reads a response with a successful status.
    pub(crate) fn read(&self, name: &str, body: &[u8]) -> Result<(), NotifyError> {
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        let code = self.keys.iter().find_map(|key| answer.get(key)?.as_i64());
        let says = self.says.iter().find_map(|key| answer.get(key)?.as_str());
        match code {
            Some(0) => Ok(()),
            Some(code) => {
                let asked = answer
                    .get("wait")
                    .and_then(Value::as_u64)
                    .map(Duration::from_secs);
                let mut hints = self.hints.iter();
                Err(NotifyError::Rejected {
                    name: name.to_owned(),
                    code,
                    says: plain(says.unwrap_or("no message")),
                    hint: hints.find(|(known, _)| *known == code).map(|(_, hint)| *hint),
                    wait: self.limits.contains(&code).then(|| asked.unwrap_or(self.wait)),
                })
            }
            None => Err(NotifyError::Unclear {
                name: name.to_owned(),
            }),
        }
    }
}

/// Returns the error for a response with an error status. A chat may add a code of its own. A rate limit without a
/// duration gets the usual pause of the receiver. Without `chat` the body is not read.
pub(crate) fn refusal(
    name: &str,
    status: u16,
    asked: Option<Duration>,
    chat: Option<&AnswerCodes>,
    body: &[u8],
) -> NotifyError {
    let limit = |usual: Duration| match status {
        429 => Some(asked.unwrap_or(usual)),
        _ => None,
    };
    if let Some(codes) = chat
        && let Err(mut error) = codes.read(name, body)
        && let NotifyError::Rejected { wait, .. } = &mut error
    {
        *wait = limit(wait.unwrap_or(codes.wait)).or(*wait);
        return error;
    }
    NotifyError::Refused {
        name: name.to_owned(),
        status,
        wait: limit(chat.map_or(LIMIT_WAIT, |codes| codes.wait)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dingtalk, feishu};

    const SECOND: Duration = Duration::from_secs(1);

    fn wait(error: &NotifyError) -> Option<Duration> {
        match error {
            NotifyError::Refused { wait, .. } | NotifyError::Rejected { wait, .. } => *wait,
            _ => None,
        }
    }

    #[test]
    fn a_limit_without_a_time_is_waited_for() {
        let refusal = |status, asked, chat| refusal("N", status, asked, chat, b"<html>");
        let chat = Some(&dingtalk::ANSWERS);
        assert_eq!(wait(&refusal(429, None, None)), Some(LIMIT_WAIT));
        assert_eq!(wait(&refusal(429, None, chat)), Some(dingtalk::ANSWERS.wait));
        for chat in [None, chat] {
            assert_eq!(wait(&refusal(429, Some(SECOND), chat)), Some(SECOND));
            let refused = refusal(503, Some(SECOND), chat);
            assert_eq!(wait(&refused), None, "whether it was taken is not known");
            assert!(matches!(refused, NotifyError::Refused { status: 503, .. }));
        }
    }

    #[test]
    fn a_code_beside_a_bad_status_is_read() {
        let read = |status, body: &str| refusal("N", status, None, Some(&feishu::ANSWERS), body.as_bytes());
        let wrong = read(400, r#"{"code": 19021, "msg": "sign match fail"}"#);
        assert!(
            matches!(
                &wrong,
                NotifyError::Rejected {
                    code: 19_021,
                    hint: Some(_),
                    wait: None,
                    ..
                }
            ),
            "{wrong:?}"
        );
        let limited = read(400, r#"{"code": 11232, "msg": "frequency limited"}"#);
        assert_eq!(wait(&limited), Some(feishu::ANSWERS.wait), "{limited:?}");
        // A good code beside a bad status is not a success.
        for body in [r#"{"code": 0}"#, "", "{}"] {
            let refused = read(500, body);
            assert!(
                matches!(refused, NotifyError::Refused { status: 500, .. }),
                "{refused:?}"
            );
        }
    }
}
