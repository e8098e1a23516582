//! 200 stacks of the example's kind through the pool, against the official core called in a plain loop in one process;
//! a stack from the cache; start-up to the first result. Ratios in one run decide.
//!
//! Writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use konverge_base::{
    checkout::Checkout,
    model::{event::NoEvents, stack::Stack},
};
use konverge_config::Config;
use konverge_kcl::{CompileRequest, DEFAULT_VERSION, Pool, PoolOptions, Toolchain};
use konverge_repo::{affected::ClosureFile, git::Repository};
use konverge_run::{NoNotes, OpenRevision, RevisionSpec, RunContext, compiler::Compilers};
use konverge_secrets::{HashKey, Secrets};
use serde_json::Value;
use tempfile::TempDir;

const STACKS: usize = 200;
const ROUNDS: usize = 5;
const OPEN: &str = "<!-- bench:kcl -->";
const CLOSE: &str = "<!-- /bench:kcl -->";

/// The file that names a project: copies are told apart by it.
const NAMED: &str = "project.yaml";

/// The example, its projects copied until there are enough stacks, and somewhere to keep a cache.
struct Bench {
    core: Toolchain,
    folder: TempDir,
    stacks: Vec<Stack>,
    workspace: OpenRevision,
}

/// Seconds.
#[derive(Default)]
struct Figures {
    pool: Vec<f64>,
    floor: Vec<f64>,
    /// Of the processor: this process, its workers, the floor's process.
    ours_used: Vec<f64>,
    workers_used: Vec<f64>,
    floor_used: Vec<f64>,
    cached: Vec<f64>,
    first: Vec<f64>,
    first_floor: Vec<f64>,
}

fn run(dir: PathBuf, env: BTreeMap<String, String>) -> RunContext {
    RunContext {
        dir,
        env,
        secrets: Secrets::new(HashKey::random()),
        writes: std::sync::Arc::default(),
        cancel: tokio_util::sync::CancellationToken::new(),
        events: Arc::new(NoEvents),
        notes: Arc::new(NoNotes),
        recorder: Default::default(),
    }
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
    let bench = Bench::set_up(core.unwrap());
    let mut figures = Figures::default();
    // By turns, so that a disturbance of the machine meets all.
    for _ in 0..ROUNDS {
        let floor = bench.python("loop", STACKS);
        figures.floor.push(floor["seconds"].as_f64().unwrap());
        figures.floor_used.push(floor["used"].as_f64().unwrap());
        runtime.block_on(bench.pool(&mut figures));
        figures.cached.push(runtime.block_on(bench.cached()));
        figures.first_floor.push(bench.process("first"));
        figures.first.push(runtime.block_on(bench.first()));
    }
    let parts = bench.python("parts", 28);
    let text = section(&figures, &parts);
    println!("{text}");
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        write(&text);
    }
}

impl Bench {
    fn set_up(core: Toolchain) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let repository = folder.path().join("konfig");
        copy(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("konfig-example"),
            &repository,
        );
        let projects: Vec<PathBuf> = fs::read_dir(repository.join("appops"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let git = |arguments: &[&str]| {
            let done = Command::new("git")
                .current_dir(&repository)
                .args(arguments)
                .output()
                .unwrap();
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        let mut copies = 0;
        loop {
            let stacks = count(&repository);
            if stacks >= STACKS {
                break;
            }
            copies += 1;
            for project in &projects {
                let name = format!("{}-{copies}", project.file_name().unwrap().to_str().unwrap());
                let at = project.with_file_name(&name);
                copy(project, &at);
                let text = fs::read_to_string(at.join(NAMED)).unwrap();
                let old = text
                    .lines()
                    .find(|line| line.starts_with("name:"))
                    .unwrap()
                    .to_owned();
                fs::write(at.join(NAMED), text.replace(&old, &format!("name: {name}"))).unwrap();
            }
        }
        git(&["init", "--quiet", "--initial-branch=main"]);
        git(&["add", "--all"]);
        git(&[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@b",
            "commit",
            "--quiet",
            "--message=a",
        ]);
        let opened = Repository::discover(&repository).unwrap();
        let surroundings = run(repository.clone(), std::env::vars().collect());
        let workspace = OpenRevision::open(&surroundings, &opened, &RevisionSpec::Worktree).unwrap();
        let stacks = workspace.layout.stacks.iter().take(STACKS).cloned().collect();
        Self {
            core,
            folder,
            stacks,
            workspace,
        }
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("konfig")
    }

    fn compilers(&self, cache: &str) -> Compilers {
        let mut env: BTreeMap<String, String> = std::env::vars().collect();
        env.insert(
            "XDG_CACHE_HOME".to_owned(),
            self.folder.path().display().to_string(),
        );
        env.insert("KONVERGE_CACHE".to_owned(), cache.to_owned());
        Compilers::new(&run(self.repository(), env), &Config::default())
            .with_executable(env!("CARGO_BIN_EXE_konverge").into())
    }

    /// All stacks, from their blobs to their Specs, with workers that are warm as the floor's process is.
    async fn pool(&self, figures: &mut Figures) {
        let compilers = self.compilers("off");
        for spec in compilers
            .for_revision(&self.workspace)
            .specs(&self.stacks[..4])
            .await
        {
            spec.unwrap();
        }
        let (ours, workers) = (used_here(), used_by_children());
        let started = Instant::now();
        let specs = compilers.for_revision(&self.workspace).specs(&self.stacks).await;
        figures.pool.push(started.elapsed().as_secs_f64());
        figures.ours_used.push(used_here() - ours);
        figures.workers_used.push(used_by_children() - workers);
        assert!(specs.iter().all(Result::is_ok));
        // A stack that is compiled again is counted once.
        assert_eq!(compilers.counts().compiled, STACKS);
    }

    /// All stacks from the cache; a stack's share.
    async fn cached(&self) -> f64 {
        let fill = self.compilers("on");
        for spec in fill.for_revision(&self.workspace).specs(&self.stacks).await {
            spec.unwrap();
        }
        let compilers = self.compilers("on");
        let started = Instant::now();
        let specs = compilers.for_revision(&self.workspace).specs(&self.stacks).await;
        let time = started.elapsed();
        assert!(specs.iter().all(Result::is_ok));
        assert_eq!(compilers.counts().cached, STACKS);
        time.as_secs_f64() / STACKS as f64
    }

    /// From nothing to the first value, of a core that is known, as an installed one is.
    async fn first(&self) -> f64 {
        let stack = &self.stacks[0];
        let closure = self.workspace.analysis.closure(stack).unwrap();
        let read = |file: ClosureFile| (file.path, self.workspace.source.read(file.blob).unwrap());
        let request = CompileRequest {
            label: stack.id.to_string(),
            setup: stack.compile.clone().unwrap(),
            files: closure.files.into_iter().map(read).collect(),
            folders: closure.folders,
            ..CompileRequest::default()
        };
        let started = Instant::now();
        let options = PoolOptions::new(self.core.clone(), env!("CARGO_BIN_EXE_konverge").into());
        let pool = Pool::start(options).await.unwrap();
        pool.compile(&request).await.unwrap();
        started.elapsed().as_secs_f64()
    }

    /// The core by hand.
    fn python(&self, what: &str, stacks: usize) -> Value {
        let output = Command::new(interpreter())
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/kcl.py"))
            .arg(what)
            .arg(self.repository())
            .args(self.stacks.iter().take(stacks).map(|stack| stack.folder.as_str()))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The whole time of a process.
    fn process(&self, what: &str) -> f64 {
        let started = Instant::now();
        self.python(what, 1);
        started.elapsed().as_secs_f64()
    }
}

/// Seconds of the processor that a process has had: the 14th and 15th field of its `stat`, in hundredths.
fn used(stat: &Path) -> f64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11);
    fields
        .take(2)
        .map(|field| field.parse::<f64>().unwrap())
        .sum::<f64>()
        / 100.0
}

fn used_here() -> f64 {
    used(Path::new("/proc/self/stat"))
}

/// By the children that live: the workers.
fn used_by_children() -> f64 {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    let children = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("children")).unwrap());
    let used = |pids: String| -> f64 {
        pids.split_whitespace()
            .map(|pid| used(&Path::new("/proc").join(pid).join("stat")))
            .sum()
    };
    children.map(used).sum()
}

fn interpreter() -> PathBuf {
    std::env::var_os("KONVERGE_KCL")
        .map(PathBuf::from)
        .expect("KONVERGE_KCL names the core; run: eval \"$(scripts/parts env)\"")
}

/// How many stacks lie below a folder.
fn count(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.path() {
            path if path.is_dir() => count(&path),
            path => usize::from(path.ends_with("stack.yaml")),
        })
        .sum()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median of the ratios of each round.
fn ratio(ours: &[f64], floor: &[f64]) -> f64 {
    let ratios: Vec<f64> = ours.iter().zip(floor).map(|(ours, floor)| ours / floor).collect();
    median(&ratios)
}

fn section(figures: &Figures, parts: &Value) -> String {
    let Figures {
        pool,
        floor,
        cached,
        first,
        first_floor,
        ours_used,
        workers_used,
        floor_used,
    } = figures;
    let share = |seconds: &[f64]| median(seconds) / STACKS as f64 * 1e3;
    let part = |name: &str| parts["seconds"][name].as_f64().unwrap() / 28.0 * 1e3;
    let profile = if cfg!(debug_assertions) {
        "an unoptimized"
    } else {
        "an optimized"
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{OPEN}\n## Compiling {STACKS} stacks of the example's kind\n\n\
         Medians of {ROUNDS} rounds alternately, {cores} cores, {profile} build. The floor is the official core, called in one Python \
         process. Ours goes from git's blobs to checked Specs, sandboxed. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench kcl` \
         writes this.\n\n\
         | what | ours | floor | ratio | goal |\n|---|---|---|---|---|\n\
         | {STACKS} stacks, warm | {:.2} s | {:.2} s | {:.2} | 0.6 |\n\
         | start-up to the first Spec | {:.0} ms | {:.0} ms | {:.2} | 1.3 |\n\
         | a stack from the cache | {:.2} ms | | | 2 ms |\n\n\
         Processor time a stack: {:.1} ms in the workers and {:.1} ms in Konverge itself, against {:.1} ms in the plain loop. The \
         core spends {:.1} ms (least of 5), {:.1} ms of it on reading and parsing the closure, {:.1} ms with checking types. Its switch `fast_eval` takes {:.1} ms and gave the same JSON for {} of \
         28 stacks. That is no gain, so it is not used. What saves time is the cache.\n{CLOSE}",
        median(pool),
        median(floor),
        ratio(pool, floor),
        median(first) * 1e3,
        median(first_floor) * 1e3,
        ratio(first, first_floor),
        median(cached) * 1e3,
        share(workers_used),
        share(ours_used),
        share(floor_used),
        part("whole"),
        part("parsed"),
        part("checked"),
        part("fast_eval"),
        parts["equal"],
    )
}

fn write(section: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/figures.md");
    let text = fs::read_to_string(&path).unwrap();
    let text = match (text.find(OPEN), text.find(CLOSE)) {
        (Some(from), Some(to)) => format!("{}{section}{}", &text[..from], &text[to + CLOSE.len()..]),
        _ => format!("{}\n\n{section}\n", text.trim_end()),
    };
    fs::write(path, text).unwrap();
}
