//! Readiness rules in KCL: assertions that an object must pass, or a `status` and a `message` as in Argo CD's
//! scripts. The caller runs them with KCL; this module interprets the result.

use serde_json::Value;

use super::{
    Health,
    verdict::{HealthVerdict, WaitPolicy},
};

/// The result of running a health rule in KCL.
#[derive(Debug, Clone, PartialEq)]
pub enum AssertionResult {
    /// All assertions passed; with the values of the program.
    Values(Value),
    /// An assertion or a check failed; with its message.
    Failed(String),
}

/// Interprets a result. A failed assertion may pass later, so only a rule that returns `Degraded` reports a
/// failure.
pub(super) fn verdict(answer: &AssertionResult) -> Result<HealthVerdict, String> {
    let values = match answer {
        AssertionResult::Failed(message) => return Ok(HealthVerdict::progressing(message.as_str())),
        AssertionResult::Values(values) => values,
    };
    let message = values["message"].as_str().unwrap_or_default();
    let health = match &values["status"] {
        Value::Null => Health::Ready,
        Value::String(word) => Health::from_argo_cd(word).ok_or_else(|| {
            format!(
                "`status` is `{}`, which is not a valid health",
                word.escape_debug()
            )
        })?,
        _ => return Err("`status` must be a string".to_owned()),
    };
    // As for a Lua script, `Degraded` counts only after it has lasted for a while.
    Ok(HealthVerdict::new(health, message).with_wait_policy(WaitPolicy::Blocked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_answer_means() {
        let of = |values: Value| verdict(&AssertionResult::Values(values)).map(|v| (v.health, v.message));
        assert_eq!(of(json!({"res": {"status": {}}})).unwrap().0, Health::Ready);
        let broken = json!({"status": "Degraded", "message": "its disk is full"});
        assert_eq!(
            of(broken).unwrap(),
            (Health::Failed, "its disk is full".to_owned())
        );
        assert!(of(json!({"status": "Fine"})).unwrap_err().contains("`Fine`"));
        assert!(of(json!({"status": {"phase": "x"}})).is_err());
        let waiting = verdict(&AssertionResult::Failed("no phase".to_owned())).unwrap();
        assert_eq!(
            (waiting.health, waiting.message.as_str()),
            (Health::Progressing, "no phase")
        );
    }
}
