//! `state.encrypt_to`: the recipients to whom states are encrypted.

use super::{
    config_problem::Problem,
    key_recipients::{StateRecipient, keys_problem},
    secrets::SecretsConfig,
    types::State,
};

/// The maximum number of days for which unmarked documents are accepted.
const MOST_DAYS: i64 = 31;

impl State {
    /// Returns true if documents without a valid mark are accepted at this time (`state.accept_unmarked_until`).
    ///
    /// # Errors
    /// The configured date is invalid, or too far ahead. The error is the message and a hint.
    pub fn accepts_unmarked(&self, now: jiff::Timestamp) -> Result<bool, (String, String)> {
        let Some(text) = &self.accept_unmarked_until else {
            return Ok(false);
        };
        let today = now.to_zoned(jiff::tz::TimeZone::UTC).date();
        let hint = format!("write a day of the next {MOST_DAYS} days: `accept_unmarked_until: {today}`");
        let shown = text.escape_debug();
        let Ok(until) = text.trim().parse::<jiff::civil::Date>() else {
            return Err((
                format!("state.accept_unmarked_until: `{shown}` is not a date"),
                hint,
            ));
        };
        let days = today
            .until((jiff::Unit::Day, until))
            .map_or(i64::MAX, |span| i64::from(span.get_days()));
        if days > MOST_DAYS {
            return Err((
                format!("state.accept_unmarked_until: `{shown}` is more than {MOST_DAYS} days ahead"),
                hint,
            ));
        }
        Ok(days >= 0)
    }

    /// Returns the recipients to whom states are encrypted, each with its text. Invalid entries are skipped: they were
    /// refused when the file was read.
    pub fn recipients(&self) -> Vec<(&str, StateRecipient)> {
        let texts = self.encrypt_to.iter().map(|text| text.trim());
        texts
            .filter_map(|text| Some((text, StateRecipient::parse(text).ok()?)))
            .collect()
    }

    /// Returns the first problem of `encrypt_to`, with a hint.
    pub(super) fn recipients_problem(&self, secrets: &SecretsConfig) -> Option<Problem> {
        keys_problem("state.encrypt_to", &self.encrypt_to, |store| {
            secrets.is_vault(store)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmarked_documents_are_accepted_until_the_end_of_a_day_that_is_near() {
        let now: jiff::Timestamp = "2026-11-25T23:59:59Z".parse().unwrap();
        let accepts = |until: Option<&str>| {
            let state = State {
                accept_unmarked_until: until.map(str::to_owned),
                ..State::default()
            };
            state.accepts_unmarked(now).map_err(|(why, _)| why)
        };
        assert_eq!(accepts(None), Ok(false));
        for (until, expected) in [("2026-11-24", false), ("2026-11-25", true), ("2026-12-26", true)] {
            assert_eq!(accepts(Some(until)), Ok(expected), "{until}");
        }
        for (until, why) in [
            ("2026-12-27", "more than 31 days ahead"),
            ("9999-12-31", "more than 31 days ahead"),
            ("soon", "is not a date"),
            ("", "is not a date"),
        ] {
            assert!(accepts(Some(until)).unwrap_err().contains(why), "{until}");
        }
    }
}
