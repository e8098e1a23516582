//! [`StackOrder`]: the sort orders of the table of all stacks.

use std::cmp::{Ordering, Reverse};

use crate::OverviewRow;

/// A sort order of the table of all stacks. Equal stacks are sorted by identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackOrder {
    /// Sorts by project, then by environment.
    Project,
    /// Sorts by environment, then by project.
    Environment,
    /// Sorts by the time of the last apply, the newest first.
    Applied,
    /// Sorts by the start of the drift, the oldest first.
    Drift,
}

impl StackOrder {
    /// All orders, in the order of the table's columns.
    pub const ALL: [Self; 4] = [Self::Project, Self::Environment, Self::Applied, Self::Drift];

    /// Returns the key of the order in URLs.
    pub fn key(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Environment => "environment",
            Self::Applied => "applied",
            Self::Drift => "drift",
        }
    }

    /// Returns the title of the column.
    pub fn words(self) -> &'static str {
        match self {
            Self::Project => "Project",
            Self::Environment => "Environment",
            Self::Applied => "Last apply",
            Self::Drift => "Drift since",
        }
    }

    /// Sorts rows.
    pub fn sort(self, rows: &mut [&OverviewRow]) {
        rows.sort_by(|a, b| self.compare(a, b).then_with(|| a.id.cmp(&b.id)));
    }

    fn compare(self, a: &OverviewRow, b: &OverviewRow) -> Ordering {
        fn project(row: &OverviewRow) -> (&str, Option<&str>) {
            (row.id.project(), row.id.tenant())
        }
        match self {
            Self::Project => (project(a), a.id.name()).cmp(&(project(b), b.id.name())),
            Self::Environment => (a.id.name(), project(a)).cmp(&(b.id.name(), project(b))),
            Self::Applied => {
                let written = |row: &OverviewRow| row.applied.as_ref().map(|applied| applied.written);
                Reverse(written(a)).cmp(&Reverse(written(b)))
            }
            Self::Drift => {
                let since = |row: &OverviewRow| row.drift.as_ref().map(|drift| drift.since);
                (since(a).is_none(), since(a)).cmp(&(since(b).is_none(), since(b)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use konverge_base::model::{Digest, StackFolder};

    use super::*;
    use crate::{AppliedState, DriftView, Writer};

    fn row(id: &str, written: i64, drift_since: Option<i64>) -> OverviewRow {
        let at = |second| Timestamp::from_second(second).unwrap();
        OverviewRow {
            stack: StackFolder::none(),
            id: id.parse().unwrap(),
            conditions: Vec::new(),
            applied: (written > 0).then(|| AppliedState {
                serial: 1,
                written: at(written),
                reason: "apply".to_owned(),
                writer: Writer {
                    run: "run".to_owned(),
                    actor: "ada".to_owned(),
                },
                result: None,
                commit: None,
                attempted: None,
            }),
            resources: 0,
            stopped: None,
            drift: drift_since.map(|since| DriftView {
                since: at(since),
                checked: at(since),
                digest: Digest::of_bytes(b"drift"),
            }),
            look: None,
            error: None,
        }
    }

    #[test]
    fn each_order_has_the_stacks_that_it_asks_for_first() {
        let rows = [
            row("b/dev", 5, None),
            row("a/prod", 0, Some(9)),
            row("t/a/dev", 9, Some(3)),
            row("a/dev", 5, None),
        ];
        for (order, expected) in [
            (StackOrder::Project, ["a/dev", "a/prod", "t/a/dev", "b/dev"]),
            (StackOrder::Environment, ["a/dev", "t/a/dev", "b/dev", "a/prod"]),
            (StackOrder::Applied, ["t/a/dev", "a/dev", "b/dev", "a/prod"]),
            (StackOrder::Drift, ["t/a/dev", "a/prod", "a/dev", "b/dev"]),
        ] {
            let mut sorted: Vec<_> = rows.iter().collect();
            order.sort(&mut sorted);
            let ids: Vec<_> = sorted.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(ids, expected, "{order:?}");
        }
    }
}
