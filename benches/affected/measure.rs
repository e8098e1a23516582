//! Whole processes, measured.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use crate::monorepo::{Change, Monorepo};

/// Medians: milliseconds, MiB.
#[derive(Debug)]
pub struct Figure {
    pub floor: f64,
    pub cold: f64,
    pub warm: f64,
    pub peak: f64,
    pub named: usize,
}

/// Runs floor, cold and warm by turns, so that a disturbance of the machine meets all of them.
pub fn processes(repo: &Monorepo, change: Change, runs: usize) -> Figure {
    let cache = tempfile::tempdir().unwrap();
    let (mut floor, mut cold, mut warm, mut peak) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut named = 0;
    let floor_program = std::env::current_exe().unwrap();
    let (base, head) = ("base", change.name());
    for _ in 0..runs {
        let mut program = Command::new(&floor_program);
        program.args([
            "--floor".as_ref(),
            repo.path.as_os_str(),
            base.as_ref(),
            head.as_ref(),
        ]);
        floor.push(timed(program).0);
        let place = cache.path().join("konverge");
        let _ = std::fs::remove_dir_all(&place);
        let (time, memory, _) = timed(affected(&repo.path, cache.path(), base, head));
        cold.push(time);
        peak.push(memory);
        let (time, _, output) = timed(affected(&repo.path, cache.path(), base, head));
        warm.push(time);
        let answer: serde_json::Value = serde_json::from_slice(&output).unwrap();
        named = answer["stacks"].as_array().unwrap().len();
    }
    Figure {
        floor: median(floor),
        cold: median(cold),
        warm: median(warm),
        peak: median(peak),
        named,
    }
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

/// Milliseconds, peak MiB, standard output.
fn timed(mut program: Command) -> (f64, f64, Vec<u8>) {
    program.stdout(Stdio::piped()).stderr(Stdio::inherit());
    let started = Instant::now();
    let child = program.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let watcher = std::thread::spawn(move || {
        let mut peak = 0.0_f64;
        while let Ok(text) = std::fs::read_to_string(&status) {
            let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let Some(kib) = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()) else {
                break;
            };
            peak = peak.max(kib / 1024.0);
            std::thread::sleep(Duration::from_millis(1));
        }
        peak
    });
    let output = child.wait_with_output().unwrap();
    let time = started.elapsed().as_secs_f64() * 1000.0;
    assert!(output.status.success(), "{program:?}");
    (time, watcher.join().unwrap(), output.stdout)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
