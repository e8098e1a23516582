//! Four numbers over the last weeks, from what the index and the drift history carry.

use jiff::Timestamp;
use konverge_base::model::week_activity::Week;
use konverge_portal::{StackIndex, Trends, WeekDrift};
use konverge_state::DriftHistory;

/// The numbers of the stacks of an index. `history` is of all stacks, so it counts for who sees them all: `None` leaves the
/// drift out.
pub fn trends(index: &StackIndex, history: Option<&DriftHistory>) -> Trends {
    let weeks = history.iter().flat_map(|history| &history.weeks);
    let drift = weeks.map(|(week, known)| {
        let known = WeekDrift {
            stacks: known.stacks,
            oldest: known.oldest,
        };
        (*week, known)
    });
    Trends::new(
        Week::from_timestamp(Timestamp::now()),
        index.activity.values().flatten(),
        &drift.collect(),
    )
}
