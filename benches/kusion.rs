//! 300 stacks of AppConfigurations with two built-in modules each: generation against the same programs compiled by
//! KCL alone, in one run. Besides, what a call of a module's process takes.
//!
//! Writes its section of `docs/performance.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench kusion`
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stdout)]

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Instant};

use apps::{HELLO_FILE, QUICKSTART, hello_binary, workspace, write_hello_stack, write_stack};
use futures::{StreamExt, stream};
use git::Repository;
use konverge::{
    affected::ClosureFile,
    checkout::Checkout,
    config::Config,
    kcl::{CompileRequest, DEFAULT_VERSION, Pool, PoolOptions, Toolchain},
    model::{event::NoEvents, stack::Stack},
    ops::{Notes, OpenRevision, RevisionSpec, RunContext, compiler::Compiler},
    secrets::{HashKey, Secrets},
};

#[path = "../tests/it/support/apps.rs"]
mod apps;
#[allow(dead_code)]
#[path = "../tests/it/support/git.rs"]
mod git;
#[path = "../tests/it/support/performance.rs"]
mod performance;

/// The program of a part.
fn executable(part: &str, name: &str) -> PathBuf {
    let output = std::process::Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/parts"))
        .args(["path", part])
        .output()
        .expect("scripts/parts runs");
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    assert!(
        path.ends_with(name),
        "{part} is not installed: {}",
        path.display()
    );
    path
}

const STACKS: usize = 300;
const CALLS: usize = 40;
const ROUNDS: usize = 5;
const VERSIONS: (&str, &str) = ("0.2.1", "0.3.0");

struct Quiet;

impl Notes for Quiet {
    fn note(&self, _: &str) {}
    fn command(&self, _: &str) {}
}

/// A repository, opened.
struct Opened {
    repository: Repository,
    stacks: Vec<Stack>,
    revision: OpenRevision,
}

impl Opened {
    fn new(repository: Repository) -> Self {
        repository.commit("Applications");
        let opened = konverge::git::Repository::discover(repository.path()).unwrap();
        let revision = OpenRevision::open(&run(&repository), &opened, &RevisionSpec::Worktree).unwrap();
        let stacks = revision.layout.stacks.to_vec();
        Self {
            repository,
            stacks,
            revision,
        }
    }

    /// Seconds for all Specs, with workers that are warm.
    async fn generate(&self) -> f64 {
        let compiler = Compiler::new(&run(&self.repository), &Config::default())
            .with_executable(env!("CARGO_BIN_EXE_konverge").into());
        for spec in compiler.specs(&self.revision, &self.stacks[..4]).await {
            spec.unwrap();
        }
        let started = Instant::now();
        let specs = compiler.specs(&self.revision, &self.stacks).await;
        let time = started.elapsed().as_secs_f64();
        assert!(specs.iter().all(Result::is_ok));
        time
    }

    /// Seconds for the same programs, compiled by KCL alone: from git's blobs to JSON.
    async fn compile(&self, core: &Toolchain) -> f64 {
        let options = PoolOptions::new(core.clone(), env!("CARGO_BIN_EXE_konverge").into());
        let at_once = options.workers * 2;
        let pool = Pool::start(options).await.unwrap();
        for stack in &self.stacks[..4] {
            pool.compile(&self.request(stack)).await.unwrap();
        }
        let started = Instant::now();
        let compiled = stream::iter(&self.stacks).map(|stack| {
            let pool = &pool;
            async move { pool.compile(&self.request(stack)).await.unwrap() }
        });
        let compiled: Vec<_> = compiled.buffered(at_once).collect().await;
        let time = started.elapsed().as_secs_f64();
        assert_eq!(compiled.len(), self.stacks.len());
        time
    }

    fn request(&self, stack: &Stack) -> CompileRequest {
        let closure = self.revision.analysis.closure(stack).unwrap();
        let read = |file: ClosureFile| (file.path, self.revision.source.read(file.blob).unwrap());
        CompileRequest {
            label: stack.id.to_string(),
            setup: stack.compile.clone().unwrap(),
            files: closure.files.into_iter().map(read).collect(),
            folders: closure.folders,
            ..CompileRequest::default()
        }
    }
}

fn run(repository: &Repository) -> RunContext {
    let mut env: BTreeMap<String, String> = std::env::vars().collect();
    env.insert("KONVERGE_CACHE".to_owned(), "off".to_owned());
    RunContext {
        dir: repository.path().to_owned(),
        env,
        secrets: Secrets::new(HashKey::random()),
        writes: Arc::default(),
        cancel: tokio_util::sync::CancellationToken::new(),
        events: Arc::new(NoEvents),
        notes: Arc::new(Quiet),
    }
}

/// Applications with a service and a network each, and a workspace with settings for both.
fn native() -> Opened {
    let repository = Repository::init();
    for project in 0..STACKS / 3 {
        for stack in ["dev", "staging", "prod"] {
            write_stack(
                &repository,
                &format!("apps/shop-{project}/{stack}"),
                VERSIONS,
                QUICKSTART,
            );
        }
    }
    repository.write(
        "workspaces/default.yaml",
        workspace("0.2.1", "      default: {replicas: 2, labels: {team: shop}}\n")
            + "  network:\n    path: oci://ghcr.io/kusionstack/network\n    version: 0.3.0\n    configs:\n      default: {port: {type: aws}}\n",
    );
    Opened::new(repository)
}

/// Applications with a module that runs as a process.
fn foreign() -> Opened {
    let repository = Repository::init();
    let binary = std::fs::read(hello_binary()).unwrap();
    for project in 0..CALLS {
        let folder = format!("apps/shop-{project}/dev");
        write_hello_stack(&repository, &folder, "");
        repository.write(&format!("{folder}/vendor/hello_0.1.0/{HELLO_FILE}"), &binary);
    }
    Opened::new(repository)
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let core = runtime.block_on(Toolchain::from_interpreter(
        &interpreter(),
        DEFAULT_VERSION,
        &Checkout::default(),
    ));
    let core = core.unwrap();
    let (native, foreign) = (native(), foreign());
    let mut rows: [Vec<(f64, f64)>; 2] = Default::default();
    // By turns, so that a disturbance of the machine meets all.
    for _ in 0..ROUNDS {
        for (row, opened) in rows.iter_mut().zip([&native, &foreign]) {
            let floor = runtime.block_on(opened.compile(&core));
            row.push((runtime.block_on(opened.generate()), floor));
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
    let (ours, floor) = (of(native, |(ours, _)| *ours), of(native, |(_, floor)| *floor));
    let ratio = of(native, |(ours, floor)| ours / floor);
    let (calls, alone) = (of(foreign, |(ours, _)| *ours), of(foreign, |(_, floor)| *floor));
    let each = of(foreign, |(ours, floor)| (ours - floor) / CALLS as f64);
    format!(
        "## Applications of today's Kusion\n\n\
         Medians of {ROUNDS} rounds by turns, {cores} cores, an optimised build. The floor is the same programs, compiled by KCL alone with the same workers. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench kusion` writes this.\n\n\
         | what | ours | floor | ratio | goal |\n|---|---|---|---|---|\n\
         | {STACKS} stacks with `service` and `network` | {ours:.2} s | {floor:.2} s | {ratio:.2} | 1.3 |\n\
         | {CALLS} stacks with a module that runs as a process | {calls:.2} s | {alone:.2} s | | |\n\n\
         A call of a module, from its binary's check to the end of its process in the sandbox, adds {:.0} ms to a stack.",
        each * 1000.0
    )
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn interpreter() -> PathBuf {
    std::env::var_os("KONVERGE_KCL")
        .map(PathBuf::from)
        .expect("KONVERGE_KCL names the core; run: eval \"$(scripts/parts env)\"")
}
