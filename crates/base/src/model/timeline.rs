//! [`Timeline`]: the parts of a run, and how long each of them took.

use std::{collections::BTreeMap, time::Duration};

/// The parts of a run, in the order in which they began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// The parts that are kept.
    pub parts: Vec<TimelinePart>,
    /// The number of parts that are left out.
    pub left_out: usize,
}

/// A part of a run with a beginning and a duration: a stage, the work on a stack, a request or a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelinePart {
    /// The kind of the part.
    pub kind: PartKind,
    /// The name of the stack, the stage, the host, or the thing that the run waited for.
    pub name: String,
    /// The part that contains this one, by its index in [`Timeline::parts`].
    pub within: Option<usize>,
    /// The time between the start of the run and the start of this part.
    pub begin: Duration,
    /// The duration. For a part that has not ended, the time until now.
    pub length: Duration,
    /// The work on a stack, such as `plan`; for a request its HTTP method.
    pub work: Option<String>,
    /// The HTTP status of the response, if the part is a request.
    pub status: Option<u16>,
    /// The size of the response in bytes, if known.
    pub bytes: Option<u64>,
}

/// The kind of a part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartKind {
    /// The whole run.
    Run,
    /// A stage of the run.
    Stage,
    /// The work on a stack.
    Stack,
    /// An HTTP request.
    Request,
    /// A wait, such as for a lease.
    Wait,
}

/// The requests to one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostRequests {
    /// The number of requests.
    pub count: usize,
    /// The number of requests without a response, or with an error that may be temporary (429, 5xx). A 404 does not
    /// count.
    pub failed: usize,
    /// The sum of the durations. Requests may have overlapped.
    pub time: Duration,
    /// The longest duration.
    pub longest: Duration,
}

impl Timeline {
    /// Renames the hosts.
    #[must_use]
    pub fn with_hosts(mut self, shown: impl Fn(&str) -> String) -> Self {
        for part in self
            .parts
            .iter_mut()
            .filter(|part| part.kind == PartKind::Request)
        {
            part.name = shown(&part.name);
        }
        self
    }

    /// Returns the parts of a kind.
    pub fn of(&self, kind: PartKind) -> impl Iterator<Item = &TimelinePart> {
        self.parts.iter().filter(move |part| part.kind == kind)
    }

    /// Returns the name and the time of each stage.
    pub fn stages(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.of(PartKind::Stage)
            .map(|part| (part.name.as_str(), part.length))
    }

    /// Returns the end of the last part.
    pub fn length(&self) -> Duration {
        let ends = self.parts.iter().map(|part| part.begin + part.length);
        ends.max().unwrap_or_default()
    }

    /// Returns how long the run waited, for each cause of a wait. Overlapping times count once.
    pub fn waits(&self) -> BTreeMap<&str, Duration> {
        let mut waits: BTreeMap<&str, (Duration, Duration)> = BTreeMap::new();
        let mut parts: Vec<_> = self.of(PartKind::Wait).collect();
        parts.sort_by_key(|part| part.begin);
        for part in parts {
            let (sum, until) = waits.entry(&part.name).or_default();
            let end = part.begin + part.length;
            *sum += end.saturating_sub(part.begin.max(*until));
            *until = end.max(*until);
        }
        waits.into_iter().map(|(what, (sum, _))| (what, sum)).collect()
    }

    /// Returns the requests by host.
    pub fn requests(&self) -> BTreeMap<&str, HostRequests> {
        let mut hosts: BTreeMap<&str, HostRequests> = BTreeMap::new();
        for part in self.of(PartKind::Request) {
            let host = hosts.entry(&part.name).or_default();
            host.count += 1;
            host.failed += usize::from(part.status.is_none_or(|status| status == 429 || status >= 500));
            host.time += part.length;
            host.longest = host.longest.max(part.length);
        }
        hosts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(kind: PartKind, name: &str, begin: u64, length: u64) -> TimelinePart {
        TimelinePart {
            kind,
            name: name.to_owned(),
            within: None,
            begin: Duration::from_secs(begin),
            length: Duration::from_secs(length),
            work: None,
            status: None,
            bytes: None,
        }
    }

    #[test]
    fn waits_that_overlap_are_counted_once() {
        let waits = [("a", 5, 5), ("a", 0, 3), ("a", 1, 1), ("b", 0, 2), ("a", 7, 5)];
        let parts = waits.map(|(name, begin, length)| part(PartKind::Wait, name, begin, length));
        let timeline = Timeline {
            parts: parts.into(),
            left_out: 0,
        };
        let sums = timeline.waits();
        assert_eq!(sums["a"], Duration::from_secs(3 + 7));
        assert_eq!(sums["b"], Duration::from_secs(2));
        assert_eq!(timeline.length(), Duration::from_secs(12));
    }

    #[test]
    fn requests_are_summed_by_host() {
        let answered = |length, status| TimelinePart {
            status,
            ..part(PartKind::Request, "api.example", 0, length)
        };
        let timeline = Timeline {
            parts: vec![answered(1, Some(200)), answered(3, Some(503)), answered(2, None)],
            left_out: 0,
        };
        let host = timeline.requests()["api.example"];
        assert_eq!((host.count, host.failed), (3, 2));
        assert_eq!(
            (host.time, host.longest),
            (Duration::from_secs(6), Duration::from_secs(3))
        );
    }
}
