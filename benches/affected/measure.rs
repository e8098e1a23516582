//! Whole processes, measured.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use konverge_testkit::process::peak_kib;
use nix::sys::resource::{UsageWho, getrusage};

use crate::monorepo::{Change, Monorepo};

/// What a process took: milliseconds by the clock and of processor time, the least of all runs.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub time: f64,
    pub cpu: f64,
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0} ({:.0})", self.time, self.cpu)
    }
}

#[derive(Debug)]
pub struct Figure {
    /// As libgit2 comes, and without its second hashing.
    pub floor: Cost,
    pub trusting: Cost,
    pub cold: Cost,
    pub warm: Cost,
    /// MiB.
    pub peak: f64,
    /// What the cold run keeps for the next, MiB.
    pub kept: f64,
    pub named: usize,
}

/// Runs floor, cold and warm by turns, so that a disturbance of the machine meets all of them.
pub fn processes(repo: &Monorepo, change: Change, runs: usize) -> Figure {
    let cache = tempfile::tempdir().unwrap();
    let place = cache.path().join("konverge");
    let head = change.name();
    let konverge = || affected(&repo.path, cache.path(), "base", head);
    let mut costs = [const { Vec::new() }; 4];
    let (mut kept, mut named) = (0.0, 0);
    for _ in 0..runs {
        costs[0].push(timed(floor("--floor", &repo.path, head)).0);
        costs[1].push(timed(floor("--trusting-floor", &repo.path, head)).0);
        let _ = std::fs::remove_dir_all(&place);
        costs[2].push(timed(konverge()).0);
        kept = size_of(&place) as f64 / f64::from(1 << 20);
        let (cost, output) = timed(konverge());
        costs[3].push(cost);
        let answer: serde_json::Value = serde_json::from_slice(&output).unwrap();
        named = answer["stacks"].as_array().unwrap().len();
    }
    let _ = std::fs::remove_dir_all(&place);
    let [floor, trusting, cold, warm] = costs.map(|costs| least(&costs));
    Figure {
        floor,
        trusting,
        cold,
        warm,
        peak: peak(konverge()),
        kept,
        named,
    }
}

/// A warm run with and without references between stacks, by turns.
pub fn with_and_without_reads(repos: [&Monorepo; 2], runs: usize) -> [Cost; 2] {
    let caches = repos.map(|_| tempfile::tempdir().unwrap());
    let run = |at: usize| {
        affected(
            &repos[at].path,
            caches[at].path(),
            "base",
            Change::Application.name(),
        )
    };
    let mut costs = [const { Vec::new() }; 2];
    for at in (0..=runs).flat_map(|round| [round % 2, 1 - round % 2]) {
        let (cost, output) = timed(run(at));
        let answer: serde_json::Value = serde_json::from_slice(&output).unwrap();
        assert_eq!(answer["stacks"].as_array().unwrap().len(), 1);
        costs[at].push(cost);
    }
    costs.map(|costs| least(&costs))
}

fn floor(how: &str, repo: &Path, head: &str) -> Command {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg(how).arg(repo).args(["base", head]);
    program
}

fn affected(repo: &Path, cache: &Path, base: &str, head: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_konverge"));
    program
        .args([
            "affected", "--output", "json", "--base", base, "--head", head, "--repo",
        ])
        .arg(repo)
        .env("XDG_CACHE_HOME", cache);
    program
}

/// What it took, and standard output.
fn timed(mut program: Command) -> (Cost, Vec<u8>) {
    let before = children();
    let started = Instant::now();
    let output = program.stderr(Stdio::inherit()).output().unwrap();
    let time = started.elapsed();
    assert!(output.status.success(), "{program:?}");
    let cost = Cost {
        time: milliseconds(time),
        cpu: milliseconds(children().saturating_sub(before)),
    };
    (cost, output.stdout)
}

/// Processor time of all children that ended.
fn children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let spent = usage.user_time() + usage.system_time();
    Duration::new(spent.tv_sec() as u64, spent.tv_usec() as u32 * 1000)
}

/// The most resident memory, sampled every millisecond; in a run of its own, for looking takes time too.
fn peak(mut program: Command) -> f64 {
    let mut child = program.stdout(Stdio::null()).spawn().unwrap();
    let mut peak = 0.0_f64;
    while let Some(kib) = peak_kib(child.id()) {
        peak = peak.max(kib as f64 / 1024.0);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(child.wait().unwrap().success(), "{program:?}");
    peak
}

fn size_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let sizes = entries.map(|path| {
        if path.is_dir() {
            size_of(&path)
        } else {
            path.metadata().unwrap().len()
        }
    });
    sizes.sum()
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn least(costs: &[Cost]) -> Cost {
    let of = |value: fn(&Cost) -> f64| costs.iter().map(value).fold(f64::INFINITY, f64::min);
    Cost {
        time: of(|cost| cost.time),
        cpu: of(|cost| cost.cpu),
    }
}
