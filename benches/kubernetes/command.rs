//! The executable as a person runs it, with a Spec from a file and the state in a folder; its time and its memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    ROUNDS, objects,
    page::Measured,
    processor,
    support::{
        cluster::Cluster,
        process::{Konverge, peak_kib},
        stack::id,
    },
};

/// Where the namespace of the objects comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    /// It is there.
    There,
    /// The Spec makes it.
    Own,
}

impl Namespace {
    /// The objects of a Spec of that shape, in a namespace of their own.
    pub async fn objects(self, cluster: &Cluster, size: usize) -> Vec<Value> {
        let there = cluster.namespace("command").await;
        match self {
            Self::There => objects(&there, size),
            Self::Own => {
                let name = format!("{there}-own");
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                std::iter::once(namespace).chain(objects(&name, size)).collect()
            }
        }
    }
}

/// A folder with a Spec, and the state of what was applied of it.
pub struct Command<'c> {
    cluster: &'c Cluster,
    home: TempDir,
}

impl<'c> Command<'c> {
    /// For these objects; nothing is recorded yet.
    pub fn new(cluster: &'c Cluster, objects: &[Value]) -> Self {
        let home = TempDir::new().unwrap();
        let resource = |object: &Value| json!({"id": id(object), "type": "Kubernetes", "attributes": object});
        let resources: Vec<_> = objects.iter().map(resource).collect();
        let spec = json!({ "resources": resources }).to_string();
        std::fs::write(home.path().join("spec.json"), spec).unwrap();
        Self { cluster, home }
    }

    /// `konverge apply`, without waiting for readiness.
    pub fn apply(&self) -> Measured {
        self.run(&["apply", "--yes", "--no-wait", "--stack", "bench/command"])
    }

    /// `konverge preview`, the best of several runs.
    pub fn preview(&self) -> Measured {
        let mut best = Measured::NOTHING;
        for _ in 0..ROUNDS {
            best = best.best(self.run(&["preview", "--stack", "bench/command"]));
        }
        best
    }

    fn run(&self, arguments: &[&str]) -> Measured {
        let before = self.cluster.audit().len();
        let (own, servers) = (processor::of_children(), processor::of_servers(self.cluster));
        let running = Konverge::new(arguments)
            .arg_all([
                "--quiet",
                "--output",
                "json",
                "--spec",
                "spec.json",
                "--kubeconfig",
            ])
            .arg(self.cluster.kubeconfig())
            .dir(self.home.path())
            .env("XDG_STATE_HOME", self.home.path().join("state"))
            .limit(Duration::from_secs(900))
            .start();
        let peak = watch_memory(running.pid());
        let outcome = running.wait().expect(0);
        Measured {
            took: outcome.elapsed,
            requests: (self.cluster.audit().len() - before) as u64,
            memory: peak.load(Ordering::Relaxed),
            own: processor::of_children().saturating_sub(own),
            servers: processor::of_servers(self.cluster).saturating_sub(servers),
        }
    }
}

/// The most memory that a process has had so far, in MiB, until it ends.
fn watch_memory(pid: u32) -> Arc<AtomicU64> {
    let peak = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&peak);
    std::thread::spawn(move || {
        while let Some(now) = peak_kib(pid) {
            seen.fetch_max(now.div_ceil(1024), Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    peak
}
