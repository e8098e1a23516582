//! Decides which events start a job of a workflow, by the workflow's `on` and the job's `if`. A condition that cannot
//! be evaluated here counts as possibly true.

use serde_json::Value;

/// Returns true if an event may start a job.
pub fn may_start(workflow: &Value, job: &Value, event: &str) -> bool {
    let is_heard = match &workflow["on"] {
        Value::String(only) => only == event,
        Value::Array(events) => events.iter().any(|one| one == event),
        Value::Object(events) => events.contains_key(event),
        _ => false,
    };
    is_heard
        && match &job["if"] {
            Value::Bool(always) => *always,
            Value::String(condition) => may_hold(condition, event),
            _ => true,
        }
}

/// Returns true if a condition may be true for an event. A condition that cannot be parsed may be true.
fn may_hold(condition: &str, event: &str) -> bool {
    let text = condition.trim();
    let inner = text.strip_prefix("${{").and_then(|rest| rest.strip_suffix("}}"));
    let tokens = tokens(inner.unwrap_or(text));
    let mut reader = ConditionReader {
        tokens: tokens.iter().map(String::as_str).collect(),
        event,
    };
    reader.tokens.reverse();
    let outcome = reader.parse_or();
    !reader.tokens.is_empty() || outcome != Some(false)
}

/// A parser of conditions. The value of a part is `None` if it is unknown. The tokens are in reverse order, so that the
/// next one is popped from the end.
struct ConditionReader<'a> {
    tokens: Vec<&'a str>,
    event: &'a str,
}

impl<'a> ConditionReader<'a> {
    fn consume(&mut self, token: &str) -> bool {
        let is_next = self.tokens.last() == Some(&token);
        is_next && self.tokens.pop().is_some()
    }

    fn parse_or(&mut self) -> Option<bool> {
        let mut whole = self.parse_and();
        while self.consume("||") {
            whole = match (whole, self.parse_and()) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), next) => next,
                (None, _) => None,
            };
        }
        whole
    }

    fn parse_and(&mut self) -> Option<bool> {
        let mut whole = self.parse_comparison();
        while self.consume("&&") {
            whole = match (whole, self.parse_comparison()) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), next) => next,
                (None, _) => None,
            };
        }
        whole
    }

    fn parse_comparison(&mut self) -> Option<bool> {
        if self.consume("!") {
            return self.parse_comparison().map(|holds| !holds);
        }
        if self.consume("(") {
            let inner = self.parse_or();
            self.consume(")");
            return inner;
        }
        let left = self.operand();
        let is_equal = self.consume("==");
        if !is_equal && !self.consume("!=") {
            return match left {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            };
        }
        let right = self.operand();
        let outcome = match (left, right) {
            ("github.event_name", text) | (text, "github.event_name") if text.starts_with('\'') => {
                Some(text[1..].eq_ignore_ascii_case(self.event))
            }
            // The job is for one of several schedules. Another event has no schedule, so the comparison is with an
            // empty text.
            ("github.event.schedule", text) | (text, "github.event.schedule")
                if text.starts_with('\'') && self.event != "schedule" =>
            {
                Some(text.len() == 1)
            }
            _ => None,
        };
        outcome.map(|holds| holds == is_equal)
    }

    /// Reads a name or a text. A function call is read as an empty text.
    fn operand(&mut self) -> &'a str {
        let first = match self.tokens.last() {
            Some(&token) if !["(", ")", "||", "&&", "==", "!="].contains(&token) => token,
            _ => return "",
        };
        self.tokens.pop();
        if self.tokens.last() != Some(&"(") {
            return first;
        }
        let mut depth = 0_u32;
        while let Some(token) = self.tokens.pop() {
            match token {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        ""
    }
}

/// Splits a condition into tokens. A text keeps its first quote, so that it differs from a name.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' => {
                let end = rest[1..].find('\'').map_or(rest.len(), |at| at + 1);
                tokens.push(rest[..end].to_owned());
                (end + 1).min(rest.len())
            }
            _ => {
                let operator = ["||", "&&", "==", "!=", "!", "(", ")"];
                let operator = operator.into_iter().find(|operator| rest.starts_with(operator));
                let is_end = |c: char| c.is_whitespace() || "|&=!()'".contains(c);
                let end = operator.map_or_else(|| rest.find(is_end).unwrap_or(rest.len()), str::len);
                let end = end.max(first.len_utf8());
                tokens.push(rest[..end].to_owned());
                end
            }
        };
        rest = rest[end..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of `push`, `pull_request` and `schedule` that may start a job with a condition.
    fn started(condition: &str) -> String {
        let events = ["push", "pull_request", "schedule"];
        let started: Vec<_> = events
            .into_iter()
            .filter(|event| may_hold(condition, event))
            .collect();
        started.join(" ")
    }

    #[test]
    fn a_condition_starts_the_events_that_it_does_not_exclude() {
        let all = "push pull_request schedule";
        for (condition, expected) in [
            ("", all),
            ("github.event_name == 'push'", "push"),
            ("${{ github.event_name == 'push' }}", "push"),
            ("'push' == github.event_name", "push"),
            ("github.event_name=='PUSH'", "push"),
            ("github.event_name != 'pull_request'", "push schedule"),
            ("!(github.event_name == 'pull_request')", "push schedule"),
            ("!(github.event_name != 'pull_request')", "pull_request"),
            ("github.ref == 'refs/heads/main'", all),
            ("github.ref == 'refs/heads/push'", all),
            ("github.actor != 'dependabot[bot]'", all),
            ("startsWith(github.head_ref, 'release')", all),
            ("contains(fromJSON('[\"push\"]'), github.event_name)", all),
            ("always() && github.event_name == 'push'", "push"),
            (
                "github.event_name == 'push' && github.ref == 'refs/heads/main'",
                "push",
            ),
            (
                "github.event_name == 'push' && (github.ref == 'a' || inputs.x)",
                "push",
            ),
            (
                "github.event_name == 'push' || github.event.schedule == '17 5 * * *'",
                "push schedule",
            ),
            ("github.event.schedule == '17 5 * * *'", "schedule"),
            ("github.event.schedule != '17 5 * * *'", all),
            (
                "github.event_name == 'merge_group' || (github.event_name == 'pull_request' && (github.event.action != 'edited' || github.event.changes.base))",
                "pull_request",
            ),
            ("false", ""),
            ("true", all),
            ("github.event_name == 'push' && false", ""),
            ("a ? b : 'push'", all),
            ("github.event_name == ", all),
            ("(((", all),
            ("'", all),
        ] {
            assert_eq!(started(condition), expected, "{condition}");
        }
    }

    #[test]
    fn a_job_that_is_switched_off_is_never_started() {
        let job = |text: &str| konverge_base::yaml::from_str::<Value>(text).unwrap();
        let push = job("on: push");
        assert!(may_start(&push, &job("steps: []"), "push"));
        assert!(!may_start(&push, &job("if: false"), "push"));
        assert!(may_start(&push, &job("if: true"), "push"));
        assert!(!may_start(&push, &job("steps: []"), "schedule"));
    }

    #[test]
    fn any_text_is_read() {
        let parts = [
            "(",
            ")",
            "!",
            "&&",
            "||",
            "=",
            "'",
            "é",
            "a",
            "github.event_name",
            " ",
        ];
        // Each sequence of four parts.
        for number in 0..parts.len().pow(4) {
            let digits = (0..4).map(|place| parts[number / parts.len().pow(place) % parts.len()]);
            may_hold(&digits.collect::<String>(), "push");
        }
    }
}
