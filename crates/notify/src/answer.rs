//! The answers of chats that say no with status 200.

use std::time::Duration;

use serde_json::Value;

use crate::{error::NotifyError, escape::plain};

/// How long a limit lasts, if a receiver of another kind does not say it.
const LIMIT_WAIT: Duration = Duration::from_secs(30);

/// How the answers of a chat are read.
pub(crate) struct AnswerCodes {
    /// The keys that hold the code, the newest first; 0 is a success.
    pub(crate) keys: &'static [&'static str],
    /// The keys that hold the message.
    pub(crate) says: &'static [&'static str],
    /// The codes of a limit: the message was not taken, and may be sent again later.
    pub(crate) limits: &'static [i64],
    /// How long a limit lasts, unless the answer says it in `wait`.
    pub(crate) wait: Duration,
    /// Codes of settings, and what to do about them.
    pub(crate) hints: &'static [(i64, &'static str)],
}

impl AnswerCodes {
    /// Reads an answer with a good status.
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

/// The error for an answer with a bad status. A chat may say a code besides. A receiver with a limit that does not say how
/// long it lasts has its usual one. Without codes the body is not read.
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
        && let Err(NotifyError::Rejected {
            name,
            code,
            says,
            hint,
            wait,
        }) = codes.read(name, body)
    {
        return NotifyError::Rejected {
            name,
            code,
            says,
            hint,
            wait: limit(wait.unwrap_or(codes.wait)).or(wait),
        };
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
