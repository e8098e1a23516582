//! [`WeekActivity`]: the applies of a stack in one week. Each state contains the last weeks, so that a page can show
//! trends without reading old states.

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use super::apply_result::StackResult;

/// The number of weeks that a state contains, including the current one.
pub const WEEKS: usize = 13;
/// The seconds of a week.
const LENGTH: i64 = 7 * 24 * 3600;
/// The first Monday in Unix time, in seconds.
const FIRST_MONDAY: i64 = 4 * 24 * 3600;
/// The maximum time from a commit to its apply that is counted, in seconds. The age of an older commit does not show
/// how long its change waited after the merge.
const LONGEST_LEAD: i64 = 90 * 24 * 3600;

/// A week, from Monday 00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Week(i64);

impl Week {
    /// Returns the week that contains a time.
    pub fn from_timestamp(at: Timestamp) -> Self {
        Self((at.as_second() - FIRST_MONDAY).div_euclid(LENGTH))
    }

    /// Returns the Monday of the week.
    pub fn monday(self) -> jiff::civil::Date {
        let start = self.0.saturating_mul(LENGTH).saturating_add(FIRST_MONDAY);
        let start = Timestamp::from_second(start).unwrap_or(Timestamp::UNIX_EPOCH);
        start.to_zoned(jiff::tz::TimeZone::UTC).date()
    }

    /// Returns the weeks that a state contains in this week, the oldest first.
    pub fn last_weeks(self) -> impl Iterator<Item = Self> {
        let all = i64::try_from(WEEKS).unwrap_or(i64::MAX);
        (0..all).map(move |back| Self(self.0.saturating_sub(all - 1 - back)))
    }
}

/// The applies of a stack in one week. It is serialized as a list of numbers, because the index contains many. Their
/// order is that of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::From, derive_more::Into)]
#[serde(from = "WeekNumbers", into = "WeekNumbers")]
pub struct WeekActivity {
    /// The week of these applies.
    pub week: Week,
    /// The number of applies that ended as applied or waiting.
    pub applies: u32,
    /// The number of applies that failed.
    pub failures: u32,
    /// The number of applies of a commit that the stack did not have before.
    pub merged: u32,
    /// The sum of the times from those commits to the ends of their applies, in seconds.
    pub lead: u64,
}

type WeekNumbers = (Week, u32, u32, u32, u64);

/// An apply that has ended.
#[derive(Debug, Clone, Copy)]
pub struct EndedApply {
    /// The time at which the apply ended.
    pub at: Timestamp,
    /// The result of the apply.
    pub result: StackResult,
    /// The time of the applied commit, if the stack did not have that commit before.
    pub merged: Option<Timestamp>,
}

/// Adds an apply to the weeks of a stack, and drops weeks that are too old.
pub fn record(weeks: &mut Vec<WeekActivity>, ended: EndedApply) {
    let now = Week::from_timestamp(ended.at);
    let oldest = now.last_weeks().next();
    weeks.retain(|known| Some(known.week) >= oldest && known.week <= now);
    let (applies, failures) = match ended.result {
        StackResult::Applied | StackResult::Waiting => (1, 0),
        StackResult::Failed => (0, 1),
        StackResult::Unchanged | StackResult::Stopped | StackResult::HeldBack => return,
    };
    let lead = ended.merged.filter(|_| ended.result == StackResult::Applied);
    let lead = lead.and_then(|merged| ended.at.since((Unit::Second, merged)).ok());
    let lead = lead.map(|span| span.get_seconds());
    let lead = lead.filter(|seconds| (0..=LONGEST_LEAD).contains(seconds));
    let this = WeekActivity {
        week: now,
        applies,
        failures,
        merged: u32::from(lead.is_some()),
        lead: lead.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0),
    };
    match weeks.last_mut().filter(|last| last.week == now) {
        Some(last) => *last = last.joined(this),
        None => weeks.push(this),
    }
}

impl WeekActivity {
    /// Creates a week without applies.
    pub fn none(week: Week) -> Self {
        Self {
            week,
            applies: 0,
            failures: 0,
            merged: 0,
            lead: 0,
        }
    }

    /// Returns the sum of two counts of the same week.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        Self {
            week: self.week,
            applies: self.applies.saturating_add(other.applies),
            failures: self.failures.saturating_add(other.failures),
            merged: self.merged.saturating_add(other.merged),
            lead: self.lead.saturating_add(other.lead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn ended(time: &str, result: StackResult, merged: Option<&str>) -> EndedApply {
        EndedApply {
            at: at(time),
            result,
            merged: merged.map(at),
        }
    }

    #[test]
    fn a_week_begins_on_monday_and_the_last_ones_end_with_it() {
        let week = Week::from_timestamp(at("2026-11-29T23:59:59Z"));
        assert_eq!(week.monday().to_string(), "2026-11-23");
        assert!(Week::from_timestamp(at("2026-11-30T00:00:00Z")) > week);
        let last: Vec<_> = week.last_weeks().map(|week| week.monday().to_string()).collect();
        assert_eq!(
            (last.len(), last[0].as_str(), last[12].as_str()),
            (13, "2026-08-31", "2026-11-23")
        );
        assert_eq!(
            Week::from_timestamp(at("1970-01-01T00:00:00Z"))
                .monday()
                .to_string(),
            "1969-12-29"
        );
    }

    #[test]
    fn applies_are_counted_by_week_and_old_weeks_go() {
        let mut weeks = Vec::new();
        record(
            &mut weeks,
            ended("2026-08-01T00:00:00Z", StackResult::Applied, None),
        );
        let merged = Some("2026-11-24T10:00:00Z");
        for (result, merged) in [
            (StackResult::Applied, merged),
            (StackResult::Waiting, merged),
            (StackResult::Failed, merged),
            (StackResult::Unchanged, merged),
            (StackResult::Stopped, None),
            (StackResult::Applied, Some("2026-11-24T12:00:00Z")),
            (StackResult::Applied, Some("2020-01-01T00:00:00Z")),
        ] {
            record(&mut weeks, ended("2026-11-24T10:10:00Z", result, merged));
        }
        let [week] = weeks.as_slice() else {
            panic!("{weeks:?}")
        };
        assert_eq!((week.applies, week.failures), (4, 1));
        // A time of a commit that lies ahead, or long ago, is none of a merge.
        assert_eq!((week.merged, week.lead), (1, 600));
        let text = serde_json::to_string(week).unwrap();
        assert_eq!(text, "[2968,4,1,1,600]");
        assert_eq!(serde_json::from_str::<WeekActivity>(&text).unwrap(), *week);
    }
}
