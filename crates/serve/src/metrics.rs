//! The counters of `/metrics`, in the text format of Prometheus.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The counters since the start of the process.
#[derive(Default)]
pub(super) struct Metrics(Mutex<Counters>);

#[derive(Default)]
struct Counters {
    /// The number of responses by route and status.
    requests: BTreeMap<(&'static str, u16), u64>,
    reads: u64,
    failed_reads: u64,
    stacks: usize,
}

impl Metrics {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count_request(&self, route: &'static str, status: u16) {
        *self.counters().requests.entry((route, status)).or_default() += 1;
    }

    /// Counts a read of the index, with the number of its stacks; `None` for a failed read.
    pub(super) fn count_read(&self, stacks: Option<usize>) {
        let mut counters = self.counters();
        counters.reads += 1;
        match stacks {
            Some(stacks) => counters.stacks = stacks,
            None => counters.failed_reads += 1,
        }
    }

    /// Writes all counters. `counts_stacks` includes the number of stacks: set it only if all readers may see all
    /// stacks.
    pub(super) fn text(&self, counts_stacks: bool) -> String {
        let counters = self.counters();
        let mut text = String::from("# TYPE konverge_portal_requests_total counter\n");
        for ((route, status), count) in &counters.requests {
            let _ = writeln!(
                text,
                "konverge_portal_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"
            );
        }
        let mut values = vec![
            ("index_reads_total", "counter", counters.reads),
            ("index_read_failures_total", "counter", counters.failed_reads),
        ];
        if counts_stacks {
            values.push(("stacks", "gauge", counters.stacks as u64));
        }
        for (name, kind, value) in values {
            let _ = writeln!(
                text,
                "# TYPE konverge_portal_{name} {kind}\nkonverge_portal_{name} {value}"
            );
        }
        text
    }
}
