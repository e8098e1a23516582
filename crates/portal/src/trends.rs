//! [`Trends`]: four numbers over the last weeks.

use std::collections::BTreeMap;

use jiff::civil::Date;
use konverge_base::model::week_activity::{Week, WeekActivity};
use serde::Serialize;

/// Four numbers for each of the last weeks. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct Trends {
    /// Version of this format.
    pub version: u32,
    /// The weeks, the oldest first; the last one is the current week.
    pub weeks: Vec<TrendWeek>,
}

/// The numbers of one week.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TrendWeek {
    /// The Monday of the week, in UTC.
    pub monday: Date,
    /// The number of applies that did not fail.
    pub applies: u64,
    /// The applies that failed.
    pub failures: u64,
    /// The mean time from a merge to the end of its apply; `None` without such an apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_seconds: Option<u64>,
    /// The number of stacks with drift at the last check of the week; `None` without a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drifted: Option<usize>,
    /// The age of the oldest drift at that check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_drift_seconds: Option<u64>,
}

/// The drift at the last check of a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeekDrift {
    /// The number of stacks with drift.
    pub stacks: usize,
    /// The age of the oldest drift in seconds.
    pub oldest: u64,
}

impl Trends {
    /// Computes the numbers of the last weeks, up to `now`.
    pub fn new<'a>(
        now: Week,
        activity: impl IntoIterator<Item = &'a WeekActivity>,
        drift: &BTreeMap<Week, WeekDrift>,
    ) -> Self {
        let mut all: BTreeMap<Week, (u64, u64, u64, u64)> = BTreeMap::new();
        for week in activity {
            let sum = all.entry(week.week).or_default();
            sum.0 += u64::from(week.applies);
            sum.1 += u64::from(week.failures);
            sum.2 += u64::from(week.merged);
            sum.3 = sum.3.saturating_add(week.lead);
        }
        let weeks = now.last_weeks().map(|week| {
            let (applies, failures, merged, lead) = all.get(&week).copied().unwrap_or_default();
            let drift = drift.get(&week);
            TrendWeek {
                monday: week.monday(),
                applies,
                failures,
                lead_seconds: lead.checked_div(merged),
                drifted: drift.map(|drift| drift.stacks),
                oldest_drift_seconds: drift.map(|drift| drift.oldest),
            }
        });
        Self {
            version: 1,
            weeks: weeks.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_stacks_are_summed_by_week_and_a_mean_needs_an_apply() {
        let now = Week::from_timestamp("2026-11-29T12:00:00Z".parse().unwrap());
        let last = now.last_weeks().nth(11).unwrap();
        let activity = |week, lead, merged| WeekActivity {
            applies: 2,
            failures: 1,
            lead,
            merged,
            ..WeekActivity::none(week)
        };
        let all = [
            activity(now, 600, 1),
            activity(now, 1200, 2),
            activity(last, 0, 0),
        ];
        let drift = BTreeMap::from([(
            last,
            WeekDrift {
                stacks: 3,
                oldest: 60,
            },
        )]);
        let trends = Trends::new(now, &all, &drift);
        assert_eq!(trends.weeks.len(), 13);
        let [.., before, this] = trends.weeks.as_slice() else {
            panic!("{trends:?}")
        };
        assert_eq!(
            (this.applies, this.failures, this.lead_seconds),
            (4, 2, Some(600))
        );
        assert_eq!((this.drifted, this.oldest_drift_seconds), (None, None));
        assert_eq!((before.applies, before.lead_seconds), (2, None));
        assert_eq!((before.drifted, before.oldest_drift_seconds), (Some(3), Some(60)));
        assert_eq!(this.monday.to_string(), "2026-11-23");
    }
}
