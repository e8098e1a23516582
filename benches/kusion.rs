//! 300 stacks of AppConfigurations with two built-in modules each: `konverge build` against a program that only compiles
//! the same KCL, whole process against whole process. Besides, what a call of a module's process takes.
//!
//! Writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench kusion`; needs the parts `kcl` and `kusion-module`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use futures::{StreamExt, stream};
use konverge_base::{
    checkout::Checkout,
    model::{event::NoEvents, stack::Stack},
};
use konverge_kcl::{CompileRequest, DEFAULT_VERSION, Pool, PoolOptions, Toolchain};
use konverge_repo::affected::ClosureFile;
use konverge_run::{NoNotes, OpenRevision, RevisionSpec, RunContext};
use konverge_secrets::{HashKey, Secrets};
use konverge_testkit::{
    apps::{HELLO_FILE, QUICKSTART, hello_binary, workspace, write_hello_stack, write_stack},
    git::Repository,
    kcl, performance,
};

const STACKS: usize = 300;
const CALLS: usize = 40;
const ROUNDS: usize = 5;
const VERSIONS: (&str, &str) = ("0.2.1", "0.3.0");
/// The argument with which this program is the floor.
const FLOOR: &str = "--floor";

/// Seconds for a process that has to succeed; its output must hold this many stacks.
fn time(command: &mut Command, stacks: usize) -> f64 {
    let started = Instant::now();
    let output = command
        .env("KONVERGE_CACHE", "off")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let time = started.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.matches("kusionstack/kusion-quickstart").count() >= stacks,
        "{said}"
    );
    time
}

fn build(repository: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_konverge"));
    command.current_dir(repository).args(["build", "--all"]);
    command
}

fn floor(repository: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(FLOOR).arg(repository);
    command
}

/// The floor: opens the repository, compiles the program of each stack once, and prints what it gives.
async fn compile_alone(repository: &Path) {
    let (python, checkout) = (kcl::interpreter(), Checkout::default());
    let core = Toolchain::from_interpreter(&python, DEFAULT_VERSION, &checkout).await;
    let options = PoolOptions::new(core.unwrap(), env!("CARGO_BIN_EXE_konverge").into());
    let opened = konverge_repo::git::Repository::discover(repository).unwrap();
    let revision = OpenRevision::open(&run(repository), &opened, &RevisionSpec::Worktree).unwrap();
    let at_once = options.workers * 2;
    let pool = Pool::start(options).await.unwrap();
    let compiled = stream::iter(revision.layout.stacks.iter()).map(|stack| {
        let (pool, revision) = (&pool, &revision);
        async move { pool.compile(&request(revision, stack)).await.unwrap() }
    });
    let compiled: Vec<_> = compiled.buffered(at_once).collect().await;
    let mut output = std::io::stdout().lock();
    for one in compiled {
        for document in one.documents {
            writeln!(output, "{document}").unwrap();
        }
    }
}

fn request(revision: &OpenRevision, stack: &Stack) -> CompileRequest {
    let closure = revision.analysis.closure(stack).unwrap();
    let read = |file: ClosureFile| (file.path, revision.source.read(file.blob).unwrap());
    CompileRequest {
        label: stack.id.to_string(),
        setup: stack.compile.clone().unwrap(),
        files: closure.files.into_iter().map(read).collect(),
        folders: closure.folders,
        ..CompileRequest::default()
    }
}

fn run(repository: &Path) -> RunContext {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    RunContext {
        dir: repository.to_owned(),
        env,
        secrets: Secrets::new(HashKey::random()),
        writes: Arc::default(),
        cancel: tokio_util::sync::CancellationToken::new(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: Default::default(),
    }
}

/// Applications with a service and a network each, and a workspace with settings for both.
fn native() -> Repository {
    let repository = Repository::init();
    for project in 0..STACKS / 3 {
        for stack in ["dev", "staging", "prod"] {
            let folder = format!("apps/shop-{project}/{stack}");
            write_stack(&repository, &folder, VERSIONS, QUICKSTART);
        }
    }
    repository.write(
        "workspaces/default.yaml",
        workspace("0.2.1", "      default: {replicas: 2, labels: {team: shop}}\n")
            + "  network:\n    path: oci://ghcr.io/kusionstack/network\n    version: 0.3.0\n    configs:\n      default: {port: {type: aws}}\n",
    );
    repository.commit("Applications");
    repository
}

/// Applications with a module that runs as a process.
fn foreign() -> Repository {
    let repository = Repository::init();
    let binary = std::fs::read(hello_binary()).unwrap();
    for project in 0..CALLS {
        let folder = format!("apps/shop-{project}/dev");
        write_hello_stack(&repository, &folder, "");
        repository.write(&format!("{folder}/vendor/hello_0.1.0/{HELLO_FILE}"), &binary);
    }
    repository.commit("Applications");
    repository
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(FLOOR) {
        let repository = PathBuf::from(arguments.next().unwrap());
        let runtime = tokio::runtime::Builder::new_multi_thread();
        return { runtime }
            .enable_all()
            .build()
            .unwrap()
            .block_on(compile_alone(&repository));
    }
    let (native, foreign) = (native(), foreign());
    let mut rows: [Vec<(f64, f64)>; 2] = Default::default();
    // By turns, so that a disturbance of the machine meets all.
    for round in 0..=ROUNDS {
        for (row, (repository, stacks)) in rows.iter_mut().zip([(&native, STACKS), (&foreign, CALLS)]) {
            let alone = time(&mut floor(repository.path()), stacks);
            let ours = time(&mut build(repository.path()), stacks);
            // The first round fills the caches of the system.
            if round > 0 {
                row.push((ours, alone));
            }
        }
    }
    let text = section(&rows);
    println!("{text}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        performance::write("kusion", &text);
    }
}

fn section([native, foreign]: &[Vec<(f64, f64)>; 2]) -> String {
    let of = |row: &[(f64, f64)], value: fn(&(f64, f64)) -> f64| median(row.iter().map(value).collect());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (ours, alone) = (of(native, |(ours, _)| *ours), of(native, |(_, alone)| *alone));
    let ratio = of(native, |(ours, alone)| ours / alone);
    let (calls, calls_alone) = (of(foreign, |(ours, _)| *ours), of(foreign, |(_, alone)| *alone));
    let each = of(foreign, |(ours, alone)| (ours - alone) / CALLS as f64);
    format!(
        "## Applications of today's Kusion\n\n\
         Whole processes without a cache, medians of {ROUNDS} rounds alternately, {cores} cores, an optimised build. *KCL alone* compiles the same programs with the same workers. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench kusion` writes this.\n\n\
         | what | `konverge build --all` | KCL alone | ratio | bound |\n|---|---|---|---|---|\n\
         | {STACKS} stacks with `service` and `network` | {ours:.2} s | {alone:.2} s | {ratio:.2} | 1.3 |\n\
         | {CALLS} stacks with a module that runs as a process | {calls:.2} s | {calls_alone:.2} s | | |\n\n\
         A call of a module, from the check of its binary to the end of its process, adds {:.0} ms to a stack.",
        each * 1000.0
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
