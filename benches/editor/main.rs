//! How soon an editor, `watch`, the hooks and stack tests get their answers, at the known scale: 1,667 projects of 3
//! stacks.
//!
//! It fails above the bounds, of which an event of `watch` has none: it waits for a pause and for the core.
//! `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench editor` writes its section of `benches/figures.md`;
//! `KONVERGE_BINARY` names another executable than the bench profile's.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods
)]

#[path = "../affected/monorepo.rs"]
mod monorepo;
mod watched;

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use konverge_testkit::{
    kcl,
    process::{measured, peak_kib},
    tiny_monorepo,
};
use monorepo::Monorepo;
use serde_json::{Value, json};
use watched::Watched;

const TRIES: usize = 11;

fn main() {
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let projects = if quick { 5 } else { 1_667 };
    let monorepo = Monorepo::make(projects);
    let git = |arguments: &[&str]| {
        let status = Command::new("git")
            .args(arguments)
            .current_dir(&monorepo.path)
            .status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    git(&["checkout", "--quiet", "base"]);
    let caches = tempfile::tempdir().unwrap();
    let program = Program {
        folder: monorepo.path.clone(),
        caches: caches.path().to_owned(),
    };
    let files = files_of(&monorepo.path);
    let mut rows = Vec::new();
    let mut editor = Editor::start(&program);
    for (what, file) in [("one stack", &files.own), ("a shared package", &files.shared)] {
        let lens = editor.lens(file);
        println!("{file}: {lens}");
        let times = times(|| editor.save(file));
        rows.push((
            format!("`konverge lsp`: a lens after a save of {what} ({lens})"),
            times,
            Some(100.0),
        ));
    }
    let peak = peak(&editor.child);
    editor.end();
    // A change of the shared file would make every stack an event.
    git(&["checkout", "--quiet", "--force", "base"]);
    let mut watched = Watched::start(&program);
    rows.push((
        "`konverge watch`: an event after a save of one stack, 150 ms of it the pause after the last write"
            .to_owned(),
        times(|| watched.save(&files.own)),
        None,
    ));
    let watch_peak = watched.end();
    git(&["checkout", "--quiet", "--force", "base"]);
    std::fs::write(monorepo.path.join("notes.txt"), "x\n").unwrap();
    git(&["add", "notes.txt"]);
    for (hook, arguments) in [
        ("`konverge-check`", vec!["check", "--staged"]),
        (
            "`konverge-affected`",
            vec!["affected", "--diff", "--base", "HEAD"],
        ),
    ] {
        let times = times(|| program.run(&arguments));
        let what = format!("the hook {hook} with nothing relevant staged");
        rows.push((what, times, Some(300.0)));
    }
    let (tests, number) = stack_tests(if quick { 10 } else { 250 }, caches.path());
    rows.push((
        format!("`konverge test --all`: {number} offline tests, warm"),
        tests,
        Some(5000.0),
    ));
    let mut section = format!(
        "## In the editor and before a commit\n\nMilliseconds, of {TRIES} runs on {} stacks, 2 cores:\n\n| what | best | median | bound |\n| --- | --- | --- | --- |\n",
        projects * 3
    );
    for (what, (best, median), bound) in &rows {
        let bound = bound.map_or_else(|| "none".to_owned(), |bound| format!("{bound:.0}"));
        section.push_str(&format!(
            "| {what} | {:.0} | {:.0} | {bound} |\n",
            ms(*best),
            ms(*median)
        ));
    }
    section.push_str(&format!(
        "\nPeak memory: {peak:.0} MiB of the server, {watch_peak:.0} MiB of `watch`. Bound: 250 MiB. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench editor` writes this."
    ));
    println!("{section}");
    if !quick && std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("editor", &section);
    }
    if !quick {
        for (what, (_, median), bound) in &rows {
            assert!(
                bound.is_none_or(|bound| ms(*median) <= bound),
                "{what}: {median:?}"
            );
        }
        assert!(peak < 250.0 && watch_peak < 250.0, "{peak} MiB, {watch_peak} MiB");
    }
}

fn binary() -> PathBuf {
    measured(env!("CARGO_BIN_EXE_konverge"))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The best and the median.
fn times(mut work: impl FnMut() -> Duration) -> (Duration, Duration) {
    let mut times: Vec<_> = (0..TRIES).map(|_| work()).collect();
    times.sort();
    (times[0], times[TRIES / 2])
}

/// Adds a line to a file.
fn edit(path: &Path) {
    let mut text = std::fs::read_to_string(path).unwrap();
    text.push_str("# edited\n");
    std::fs::write(path, text).unwrap();
}

/// The program in a repository, with caches of its own.
struct Program {
    folder: PathBuf,
    caches: PathBuf,
}

impl Program {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .current_dir(&self.folder)
            .env("XDG_CACHE_HOME", &self.caches)
            .env("KONVERGE_KCL", kcl::interpreter());
        command
    }

    fn run(&self, arguments: &[&str]) -> Duration {
        let started = Instant::now();
        let output = self.command(arguments).output().unwrap();
        let took = started.elapsed();
        assert!(output.status.success(), "{output:?}");
        took
    }
}

/// The times of four tests of each of so many stacks that are compiled already, and their number.
fn stack_tests(stacks: usize, caches: &Path) -> ((Duration, Duration), usize) {
    let repository = tiny_monorepo::monorepo();
    for stack in 0..stacks {
        let (id, namespace) = (format!("app{stack}/dev"), format!("app{stack}"));
        tiny_monorepo::write_stack(&repository, &id, &namespace, "info");
        for (name, assertion) in [
            ("namespace", format!("{{kind: Namespace, name: {namespace}}}")),
            (
                "map",
                "{kind: ConfigMap, name: settings, has: {data: {level: info, color: green}}}".to_owned(),
            ),
            (
                "cel",
                "{cel: 'resources.all(r, has(r.metadata.name))'}".to_owned(),
            ),
            ("absent", "{absent: {kind: Secret}}".to_owned()),
        ] {
            let test = format!("name: {name}\nassert: [{assertion}]\n");
            repository.write(&format!("appops/{id}/test/{name}.test.yaml"), test);
        }
    }
    repository.commit("Stacks with tests");
    let program = Program {
        folder: repository.path().to_owned(),
        caches: caches.to_owned(),
    };
    let all = ["test", "--all"];
    let cold = program.run(&all);
    println!("cold: {:.0} ms", ms(cold));
    (times(|| program.run(&all)), stacks * 4)
}

/// The most resident memory of a process so far, in MiB.
fn peak(child: &Child) -> f64 {
    peak_kib(child.id()).unwrap() as f64 / 1024.0
}

/// A file of one stack, and one that many stacks import.
struct SavedFiles {
    own: String,
    shared: String,
}

fn files_of(folder: &Path) -> SavedFiles {
    let listed = Command::new("git")
        .args(["ls-files"])
        .current_dir(folder)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let find =
        |is_meant: &dyn Fn(&str) -> bool| listed.lines().find(|line| is_meant(line)).unwrap().to_owned();
    SavedFiles {
        own: find(&|line| line.ends_with("/main.k")),
        shared: find(&|line| line.starts_with("base/pkg/") && line.ends_with(".k")),
    }
}

struct Editor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    ids: u64,
}

impl Editor {
    fn start(program: &Program) -> Self {
        let mut child = program
            .command(&["lsp"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut editor = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
            folder: program.folder.clone(),
            ids: 0,
        };
        let root = editor.uri("");
        editor.ask("initialize", &json!({"rootUri": root, "capabilities": {}}));
        editor
    }

    fn uri(&self, file: &str) -> String {
        url::Url::from_file_path(self.folder.join(file)).unwrap().into()
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        write!(self.input, "Content-Length: {}\r\n\r\n{text}", text.len()).unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.ids += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}));
        loop {
            let (mut header, mut empty) = (String::new(), String::new());
            self.output.read_line(&mut header).unwrap();
            self.output.read_line(&mut empty).unwrap();
            let length = header.trim_start_matches("Content-Length: ").trim_end();
            let mut content = vec![0; length.parse().unwrap()];
            self.output.read_exact(&mut content).unwrap();
            let message: Value = serde_json::from_slice(&content).unwrap();
            if message["id"] == self.ids {
                return message["result"].clone();
            }
        }
    }

    fn lens(&mut self, file: &str) -> String {
        let uri = self.uri(file);
        let lenses = self.ask("textDocument/codeLens", &json!({"textDocument": {"uri": uri}}));
        lenses[0]["command"]["title"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// From a save to its lens.
    fn save(&mut self, file: &str) -> Duration {
        edit(&self.folder.join(file));
        let started = Instant::now();
        let uri = self.uri(file);
        self.send(&json!({"jsonrpc": "2.0", "method": "textDocument/didSave", "params": {"textDocument": {"uri": uri}}}));
        self.lens(file);
        started.elapsed()
    }

    fn end(mut self) {
        self.ask("shutdown", &Value::Null);
        self.send(&json!({"jsonrpc": "2.0", "method": "exit"}));
        assert!(self.child.wait().unwrap().success());
    }
}
