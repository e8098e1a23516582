//! Generated models: all kinds of Kubernetes 1.34, what the import of one kind adds to a compile, and how long the model of
//! an ApplicationSet is.
//!
//! `cargo bench --bench models` writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`;
//! `KONVERGE_BINARY` names another executable than the bench profile's. It needs `scripts/parts install operator-crds`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_testkit::{
    cache,
    cluster::Cluster,
    git::Repository,
    installed,
    process::{Konverge, Outcome, measured},
    tiny_monorepo,
};

const TRIES: usize = 25;
/// The bound for all kinds of Kubernetes.
const ALL: Duration = Duration::from_secs(20);
/// The bound for the import of a kind of a custom resource, in milliseconds.
const IMPORT: f64 = 15.0;
/// The lines that kcl-openapi e017c24, which is `kcl import --mode crd`, wrote for ApplicationSet. Its module cannot be
/// fetched where this is measured, so the count is a recorded one.
const PUBLISHED_LINES: usize = 36_449;

/// The kinds: a name, the source below the folder of operators or a cluster, the kind, its package below `base.pkg`.
const KINDS: [(&str, &str, &str, &str); 5] = [
    ("deployment", "cluster:test", "Deployment", "apps.v1"),
    ("application", "argo-cd", "Application", "argoproj_io.v1alpha1"),
    (
        "applicationset",
        "argo-cd",
        "ApplicationSet",
        "argoproj_io.v1alpha1",
    ),
    (
        "rules",
        "prometheus-operator",
        "PrometheusRule",
        "monitoring_coreos_com.v1",
    ),
    (
        "secret",
        "external-secrets",
        "ExternalSecret",
        "external_secrets_io.v1",
    ),
];

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let tries = if quick { 1 } else { TRIES };
    let cluster = Cluster::shared();
    let operators = installed("operator-crds", cache().join("operator-crds"));
    let repository = tiny_monorepo::monorepo();
    repository.write(
        "konverge.yaml",
        "version: 1\nclusters: {test: {kubeconfig_env: TEST}}\n",
    );
    let bench = Bench {
        repository,
        kubeconfig: cluster.kubeconfig(),
        cache: tempfile::tempdir().unwrap(),
    };
    let mut all = Duration::MAX;
    if !quick {
        for _ in 0..3 {
            all = all.min(bench.import("cluster:test", None, "kubernetes").elapsed);
        }
        fs::remove_dir_all(bench.folder("kubernetes")).unwrap();
    }
    for (name, source, kind, _) in KINDS {
        let source = if source.starts_with("cluster:") {
            source.to_owned()
        } else {
            operators.join(source).display().to_string()
        };
        bench.import(&source, Some(kind), name);
    }
    let mut plain_times = Vec::new();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); KINDS.len()];
    for round in 0..tries {
        plain_times.push(bench.compile("plain", None, round));
        for ((name, _, kind, package), times) in KINDS.iter().zip(&mut times) {
            times.push(bench.compile(name, Some((package, kind)), round));
        }
    }
    let (mut rows, mut most) = (String::new(), 0.0f64);
    for ((name, _, kind, _), times) in KINDS.iter().zip(&mut times) {
        let added = ms(median(times)) - ms(median(&mut plain_times));
        if *kind != "Deployment" {
            most = most.max(added);
        }
        let _ = writeln!(rows, "| {kind} | {} | {added:.0} |", lines(&bench.folder(name)));
    }
    let set_lines = lines(&bench.folder("applicationset"));
    let section = format!(
        "## Generated models\n\nAll kinds of Kubernetes 1.34, read from a cluster, translated and formatted by the core: {:.1} s, best of 3. Bound: {} s.\n\nA stack that imports the model of one kind against one that imports none: medians of {tries} runs of `konverge build` alternately. Each compiles anew, and the index is warm. Bound for a kind of a custom resource: {IMPORT:.0} ms.\n\n| kind | lines of its model | added, ms |\n|---|---|---|\n{rows}\n`kcl import` wrote {PUBLISHED_LINES} lines for ApplicationSet, {:.0} times as many. That count is a recorded one: the tool cannot be fetched where this is measured. Bound: 8 times. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench models` writes this.",
        all.as_secs_f64(),
        ALL.as_secs(),
        PUBLISHED_LINES as f64 / set_lines as f64,
    );
    println!("{section}");
    assert!(set_lines * 8 <= PUBLISHED_LINES, "{set_lines} lines");
    if quick {
        return;
    }
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("models", &section);
    }
    assert!(all <= ALL, "{all:?}");
    assert!(most <= IMPORT, "{most} ms");
}

/// A monorepo with models.
struct Bench {
    repository: Repository,
    kubeconfig: PathBuf,
    cache: tempfile::TempDir,
}

impl Bench {
    fn folder(&self, name: &str) -> PathBuf {
        self.repository.path().join("base/pkg").join(name)
    }

    fn konverge(&self, arguments: &[&str]) -> Outcome {
        let binary = measured(env!("CARGO_BIN_EXE_konverge"));
        Konverge::of(&binary, arguments)
            .with_kcl()
            .dir(self.repository.path())
            .env("XDG_CACHE_HOME", self.cache.path())
            .env("TEST", &self.kubeconfig)
            .limit(Duration::from_secs(600))
            .run()
            .expect(0)
    }

    fn import(&self, source: &str, only: Option<&str>, name: &str) -> Outcome {
        let into = format!("base/pkg/{name}");
        let mut arguments = vec!["models", "import", source, "--into", &into];
        arguments.extend(only.iter().flat_map(|kind| ["--only", kind]));
        self.konverge(&arguments)
    }

    /// The time of a compile that no cache answers, of a stack that can import the package of a kind.
    fn compile(&self, name: &str, import: Option<(&str, &str)>, round: usize) -> Duration {
        let stack = format!("{name}/dev");
        let (import, used) = match import {
            Some((package, kind)) => (
                format!("import base.pkg.{name}.{package} as models\n"),
                format!("_kind: models.{kind} = None\n"),
            ),
            None => (String::new(), String::new()),
        };
        let program = format!(
            "{import}\n{used}resources = [\n    {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"round-{round}\", namespace = \"a\"}}}}\n]\n"
        );
        tiny_monorepo::write_program(&self.repository, &stack, &program);
        let outcome = self.konverge(&["build", &stack]);
        assert!(
            outcome.stdout.contains(&format!("round-{round}")),
            "{}",
            outcome.stdout
        );
        outcome.elapsed
    }
}

/// The lines of all files of a folder.
fn lines(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            if path.is_dir() {
                lines(&path)
            } else {
                fs::read_to_string(path).unwrap().lines().count()
            }
        })
        .sum()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
