//! The time since a phase of a rollout began. A single clock is never trusted: either two clocks agree, or this
//! process itself has watched the time pass.

use std::time::Duration;

use jiff::Timestamp;
use konverge_base::model::rollout::ClockReading;

/// Time since a phase began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElapsedTime {
    /// At least this much time has passed.
    AtLeast(Duration),
    /// Unknown: a clock was set back, or one of the two readings has no second clock. The phase must begin again.
    Unknown,
}

/// Returns the time from one reading to another. `watched` is the time that this process has seen pass by its
/// monotonic clock since it wrote the first reading.
pub fn elapsed(since: &ClockReading, now: &ClockReading, watched: Option<Duration>) -> ElapsedTime {
    let watched_time = ElapsedTime::AtLeast(watched.unwrap_or(Duration::ZERO));
    let Some(server_now) = now.server else {
        // Without GitHub's clock only the watched time is certain. A later run can know more.
        return watched_time;
    };
    let server = since.server.and_then(|start| between_answers(start, server_now));
    match (server, between(since.local, now.local), watched) {
        // Either clock may be wrong, so the shorter time counts.
        (Some(server), Some(local), _) => {
            ElapsedTime::AtLeast(server.min(local).max(watched.unwrap_or(Duration::ZERO)))
        }
        (_, _, Some(_)) => watched_time,
        _ => ElapsedTime::Unknown,
    }
}

/// Returns the time between two responses of GitHub. Its clock has whole seconds, so a later response may carry a
/// time up to one second earlier; that counts as zero.
fn between_answers(from: Timestamp, to: Timestamp) -> Option<Duration> {
    match between(to, from) {
        Some(back) if back < Duration::from_secs(1) => Some(Duration::ZERO),
        _ => between(from, to),
    }
}

/// Returns the time between two timestamps; `None` if it goes backwards.
fn between(from: Timestamp, to: Timestamp) -> Option<Duration> {
    to.duration_since(from).try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn reading(local: i64, server: Option<i64>) -> ClockReading {
        ClockReading {
            local: at(local),
            server: server.map(at),
        }
    }

    #[test]
    fn a_clock_is_never_trusted_alone() {
        let seconds = |count| ElapsedTime::AtLeast(Duration::from_secs(count));
        let since = reading(0, Some(0));
        for (now, watched, expected) in [
            (reading(60, Some(60)), None, seconds(60)),
            (reading(9000, Some(60)), None, seconds(60)),
            (reading(60, Some(9000)), None, seconds(60)),
            (reading(9000, None), None, seconds(0)),
            (reading(-1, Some(60)), None, ElapsedTime::Unknown),
            (reading(60, Some(-1)), None, ElapsedTime::Unknown),
            (reading(-1, Some(60)), Some(Duration::from_secs(50)), seconds(50)),
            (reading(9000, None), Some(Duration::from_secs(50)), seconds(50)),
            (reading(40, Some(40)), Some(Duration::from_secs(50)), seconds(50)),
        ] {
            assert_eq!(elapsed(&since, &now, watched), expected, "{now:?} {watched:?}");
        }
        // GitHub's clock has whole seconds, so it may seem to go back by any part of one.
        for back in [1, 999_999, 1_000_000, 900_000_000, 999_999_999] {
            let early = ClockReading {
                local: at(0),
                server: Some(at(0) - Duration::from_nanos(back)),
            };
            assert_eq!(elapsed(&since, &early, None), seconds(0), "{back}");
        }
        // The start has no second clock.
        let alone = reading(0, None);
        assert_eq!(
            elapsed(&alone, &reading(60, Some(60)), None),
            ElapsedTime::Unknown
        );
        assert_eq!(elapsed(&alone, &reading(60, None), None), seconds(0));
    }
}
