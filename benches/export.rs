//! `konverge export helm --all` of 500 stacks: the whole process, with the Specs of an earlier run in the cache.
//!
//! `cargo bench --bench export` writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`;
//! `KONVERGE_BINARY` names another executable than the bench profile's.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{path::Path, time::Duration};

use konverge_testkit::{
    git::Repository,
    process::{Konverge, measured},
    tiny_monorepo,
};

const TRIES: usize = 5;
/// The longest that an export of all stacks may take with a warm cache.
const BOUND: Duration = Duration::from_secs(10);
/// The objects of a stack, besides its Namespace.
const OBJECTS: usize = 12;

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let (stacks, tries) = if quick { (5, 1) } else { (500, TRIES) };
    let monorepo = monorepo(stacks);
    let cache = tempfile::tempdir().unwrap();
    let cold = export(&monorepo, cache.path());
    let mut warm: Vec<_> = (0..tries).map(|_| export(&monorepo, cache.path())).collect();
    warm.sort();
    let seconds = |time: Duration| time.as_secs_f64();
    let section = format!(
        "## Export of {stacks} stacks to charts\n\n`konverge export helm --all --rev HEAD` of {stacks} stacks with {} objects each, {tries} runs with a warm cache: best {:.1} s, median {:.1} s. The first run, which compiles every stack, took {:.1} s. Bound: 10 s with a warm cache. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench export` writes this.",
        OBJECTS + 1,
        seconds(warm[0]),
        seconds(warm[warm.len() / 2]),
        seconds(cold),
    );
    println!("{section}");
    let median = warm[warm.len() / 2];
    assert!(quick || median < BOUND, "{median:?} is not below {BOUND:?}");
    if !quick && std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("export", &section);
    }
}

fn monorepo(stacks: usize) -> Repository {
    let repository = tiny_monorepo::monorepo();
    for stack in 0..stacks {
        let name = format!("app{stack}");
        let objects = (0..OBJECTS).map(|at| {
            format!(
                "    {{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {{\"name\": \"c{at}\", \"namespace\": \"{name}\"}}, \"data\": {{\"color\": app.color, \"text\": \"{{{{ .Values.x }}}} {stack}\"}}}}\n"
            )
        });
        tiny_monorepo::write_resources(
            &repository,
            &format!("{name}/dev"),
            &name,
            &objects.collect::<String>(),
        );
    }
    repository.commit("Many stacks");
    repository
}

/// Exports every stack into a new folder, and checks that each is there.
fn export(monorepo: &Repository, cache: &Path) -> Duration {
    let to = tempfile::tempdir().unwrap();
    let folder = to.path().join("charts");
    let arguments = ["export", "helm", "--all", "--rev", "HEAD", "--to"];
    let binary = measured(env!("CARGO_BIN_EXE_konverge"));
    let outcome = Konverge::of(&binary, arguments)
        .arg(&folder)
        .with_kcl()
        .dir(monorepo.path())
        .env("XDG_CACHE_HOME", cache)
        .limit(Duration::from_secs(1_800))
        .run()
        .expect(0);
    let charts = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(charts, outcome.stdout.lines().count());
    outcome.elapsed
}
