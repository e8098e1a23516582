//! Processor time, from `/proc`.

use std::{fs, time::Duration};

use crate::support::cluster::Cluster;

/// The length of a tick, which Linux fixes for its users.
const TICK: Duration = Duration::from_millis(10);

/// What ended children of this process have taken.
pub fn of_children() -> Duration {
    ticks("/proc/self/stat", 13)
}

/// What a cluster's API server and its etcd have taken.
pub fn of_servers(cluster: &Cluster) -> Duration {
    let folder = cluster.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    let mut all = Duration::ZERO;
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        let program = line.split('\0').next().unwrap_or_default();
        if line.contains(folder) && (program.ends_with("/kube-apiserver") || program.ends_with("/etcd")) {
            all += ticks(&entry.path().join("stat").display().to_string(), 11);
        }
    }
    all
}

/// Two fields after the name: the time as a user and in the kernel.
fn ticks(path: &str, first: usize) -> Duration {
    let text = fs::read_to_string(path).unwrap_or_default();
    let after = text.rsplit(") ").next().unwrap_or_default();
    let fields = after.split(' ').skip(first).take(2);
    let ticks: u32 = fields.filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}
