//! `konverge set --image` in a monorepo of 1,500 projects of 3 stacks: the whole process, with the index of earlier runs, on
//! a value that was never compiled and on one that was.
//!
//! `cargo bench --bench set` writes its section of `docs/performance.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`;
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

const TRIES: usize = 15;
/// The most that the median may be.
const BOUND: Duration = Duration::from_millis(300);
const IMAGE: &str = "ghcr.io/acme/app";

/// What the stacks of a project share, after what a stack sets.
const MODEL: &str = r#"schema Server:
    name: str
    image: str
    replicas: int = 1
    env: {str:str} = {}

render = lambda server: Server {
    {
        apiVersion = "apps/v1"
        kind = "Deployment"
        metadata = {name = server.name, namespace = server.name}
        spec = {
            replicas = server.replicas
            selector.matchLabels.app = server.name
            template = {
                metadata.labels.app = server.name
                spec.containers = [{name = "app", image = server.image, env = [{name = k, value = v} for k, v in server.env]}]
            }
        }
    }
}
"#;

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let (projects, tries) = if quick { (10, 1) } else { (1_500, TRIES) };
    let monorepo = monorepo(projects);
    let cache = tempfile::tempdir().unwrap();
    let stack = format!("app{}/dev", projects / 2);
    // Files and Specs are known from here on.
    set(&monorepo, cache.path(), &stack, "known");
    let mut fresh: Vec<_> = (0..tries)
        .map(|at| set(&monorepo, cache.path(), &stack, &format!("new-{at}")))
        .collect();
    let mut known: Vec<_> = (0..tries)
        .map(|_| set(&monorepo, cache.path(), &stack, "known"))
        .collect();
    let row = |what: &str, times: &mut Vec<Duration>| {
        times.sort();
        format!(
            "| {what} | {:.0} | {:.0} |\n",
            ms(times[0]),
            ms(times[times.len() / 2])
        )
    };
    let section = format!(
        "## Set an image\n\nMilliseconds of `konverge set STACK --image NAME=REF --check`, of {tries} runs, in a monorepo of {projects} projects with 3 stacks each. The index is warm.\n\n| what | best | median |\n| --- | --- | --- |\n{}{}\nThe first row starts the KCL core, parses the files of the stack and compiles the Spec with the edit. The bench fails if a median is 300 ms or more. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench set` writes this.",
        row("a new reference", &mut fresh),
        row("a reference that was compiled before", &mut known),
    );
    println!("{section}");
    // A debug build and a first run prove nothing about it.
    for times in [&fresh, &known] {
        let median = times[times.len() / 2];
        assert!(
            quick || median < BOUND,
            "the median is {median:?}, and the bound is {BOUND:?}"
        );
    }
    if !quick && std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("set", &section);
    }
}

fn monorepo(projects: usize) -> Repository {
    let repository = tiny_monorepo::monorepo();
    repository.write("base/app.k", MODEL);
    for project in 0..projects {
        for stack in ["dev", "test", "prod"] {
            let program = format!(
                "import base.app\n\n_server = app.Server {{\n    name = \"app{project}-{stack}\"\n    image = \"{IMAGE}:1.0.{project}\"\n    env.LEVEL = \"{stack}\"\n}}\nresources = [app.render(_server)]\n"
            );
            tiny_monorepo::write_program(&repository, &format!("app{project}/{stack}"), &program);
        }
    }
    repository.commit("Many stacks");
    repository
}

fn set(monorepo: &Repository, cache: &Path, stack: &str, tag: &str) -> Duration {
    let image = format!("{IMAGE}={IMAGE}:{tag}");
    let binary = measured(env!("CARGO_BIN_EXE_konverge"));
    let outcome = Konverge::of(&binary, ["set", stack, "--image", &image, "--check"])
        .with_kcl()
        .dir(monorepo.path())
        .env("XDG_CACHE_HOME", cache)
        .run()
        .expect(0);
    assert!(outcome.stdout.contains(tag), "{}", outcome.stdout);
    outcome.elapsed
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
