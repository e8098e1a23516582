//! The executable as a person runs it, with a Spec from a file and the state in a folder; its time and its memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use konverge::model::StackId;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    objects,
    page::Measured,
    support::{cluster::Cluster, process::Konverge, stack::id},
};

/// `konverge apply` of objects that are not there.
pub async fn first_apply(cluster: &Cluster, size: usize) -> Measured {
    let ns = cluster.namespace("command").await;
    let before = cluster.audit().len();
    let apply = ["apply", "--yes", "--no-wait", "--stack", "bench/command"];
    let mut measured = run(cluster, &apply, &objects(&ns, size));
    measured.requests = (cluster.audit().len() - before) as u64;
    measured
}

/// `konverge preview` of objects that are there, and that no state knows.
pub fn preview(cluster: &Cluster, stack: &StackId, objects: &[Value]) -> Measured {
    run(cluster, &["preview", "--stack", stack.as_str()], objects)
}

fn run(cluster: &Cluster, arguments: &[&str], objects: &[Value]) -> Measured {
    let home = TempDir::new().unwrap();
    let resource = |object: &Value| json!({"id": id(object), "type": "Kubernetes", "attributes": object});
    let resources: Vec<_> = objects.iter().map(resource).collect();
    std::fs::write(
        home.path().join("spec.json"),
        json!({"resources": resources}).to_string(),
    )
    .unwrap();
    let running = Konverge::new(arguments)
        .arg_all([
            "--quiet",
            "--output",
            "json",
            "--spec",
            "spec.json",
            "--kubeconfig",
        ])
        .arg(cluster.kubeconfig())
        .dir(home.path())
        .limit(Duration::from_secs(900))
        .start();
    let peak = watch_memory(running.pid());
    let outcome = running.wait().expect(0);
    Measured {
        took: outcome.elapsed,
        requests: 0,
        memory: peak.load(Ordering::Relaxed),
    }
}

/// The most memory that a process has had so far, in MiB, until it ends.
fn watch_memory(pid: u32) -> Arc<AtomicU64> {
    let peak = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&peak);
    std::thread::spawn(move || {
        while let Some(now) = high_water_mark(pid) {
            seen.fetch_max(now, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    peak
}

fn high_water_mark(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib.div_ceil(1024))
}
