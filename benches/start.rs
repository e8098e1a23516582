//! How soon Konverge is at work: the start of the process, and a whole run of `konverge ci` in a
//! merge queue, cold, which ends some time after its first KCL compile. Writes its section of `benches/figures.md` when
//! run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench start`; `KONVERGE_BINARY` names another executable than the bench profile's.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use konverge_testkit::{
    git::Repository,
    payloads,
    process::{Konverge, measured},
    tiny_monorepo,
};

const TRIES: usize = 11;

fn main() {
    let binary = measured(env!("CARGO_BIN_EXE_konverge"));
    let version = times(|| started(&binary));
    let scene = Scene::set();
    let queue = times(|| scene.run(&binary));
    let rows = [
        ("`konverge --version`", version),
        (
            "`konverge ci` on `merge_group`, one stack changed, nothing cached",
            queue,
        ),
    ];
    let mut section = format!(
        "## Start\n\nMilliseconds, of {TRIES} runs of the optimized build of the benches:\n\n| what | best | median |\n| --- | --- | --- |\n"
    );
    for (what, (best, median)) in &rows {
        section.push_str(&format!("| {what} | {:.0} | {:.0} |\n", ms(*best), ms(*median)));
    }
    section.push_str("\nThe second row reads two revisions, finds the affected stacks, starts the KCL core and compiles two Specs. Bound until the first compile begins: 300 ms. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench start` writes this.");
    println!("{section}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("start", &section);
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The best and the median.
fn times(work: impl Fn() -> Duration) -> (Duration, Duration) {
    let mut times: Vec<_> = (0..TRIES).map(|_| work()).collect();
    times.sort();
    (times[0], times[TRIES / 2])
}

fn started(binary: &Path) -> Duration {
    let started = Instant::now();
    let output = std::process::Command::new(binary)
        .arg("--version")
        .output()
        .unwrap();
    let took = started.elapsed();
    assert!(output.status.success());
    took
}

/// A merge queue's checkout.
struct Scene {
    monorepo: Repository,
    group: String,
    payload: PathBuf,
}

impl Scene {
    fn set() -> Self {
        let monorepo = tiny_monorepo::monorepo();
        tiny_monorepo::write_stack(&monorepo, "web/dev", "web-dev", "info");
        let base = monorepo.commit("The stack");
        tiny_monorepo::write_stack(&monorepo, "web/dev", "web-dev", "debug");
        let group = monorepo.commit("More words");
        let payload = monorepo.path().join(".git/event.json");
        fs::write(&payload, payloads::merge_group(7, &base, &group).to_string()).unwrap();
        Self {
            monorepo,
            group,
            payload,
        }
    }

    fn run(&self, binary: &Path) -> Duration {
        Konverge::of(binary, ["ci"])
            .with_kcl()
            .dir(self.monorepo.path())
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_EVENT_NAME", "merge_group")
            .env("GITHUB_EVENT_PATH", &self.payload)
            .env("GITHUB_REPOSITORY", "acme/konfig")
            .env("GITHUB_SHA", &self.group)
            .env("GITHUB_REF", "refs/heads/gh-readonly-queue/main/pr-7")
            .run()
            .expect(0)
            .elapsed
    }
}
