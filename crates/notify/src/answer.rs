//! The answers of chats that say no with status 200.

use std::time::Duration;

use serde_json::Value;

use crate::{error::NotifyError, escape::plain};

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

    /// Reads an answer with a bad status: its code, if it has one. A receiver that says nothing of a wait has its usual limit.
    pub(crate) fn read_refusal(&self, refused: NotifyError, body: &[u8]) -> NotifyError {
        let NotifyError::Refused { name, status, wait } = &refused else {
            return refused;
        };
        match self.read(name, body) {
            Err(NotifyError::Rejected {
                name,
                code,
                says,
                hint,
                wait: of_code,
            }) => NotifyError::Rejected {
                name,
                code,
                says,
                hint,
                wait: wait.or(of_code).or((*status == 429).then_some(self.wait)),
            },
            _ => NotifyError::Refused {
                name: name.clone(),
                status: *status,
                wait: wait.or((*status == 429).then_some(self.wait)),
            },
        }
    }
}
