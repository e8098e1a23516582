//! The portal of 5,000 stacks with 50 serials each, from MinIO on this machine: the overview read twice, all pages, the
//! pages after one change, and `konverge serve` under 200 requests a second. Prints what it measures; of all stacks and
//! serials it fails above the bounds, and writes its section of `benches/figures.md` with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! The serials are applied in memory, stack by stack, and what the applies left is copied to MinIO.
//!
//! `cargo bench --bench portal`; needs `scripts/parts install minio`, some gigabytes of disk and half an hour. With two
//! numbers, `cargo bench --bench portal -- 50 3`, it is of so many stacks and serials. `KONVERGE_BINARY` names another
//! executable than the bench profile's.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use konverge_base::model::{
    Digest, RepoPath, StackId,
    spec::{RuntimeKind, Sharing},
    state::{Recorded, RuntimeRecord, StackState},
};
use konverge_portal_site::{FolderSite, StackSources, build, read_overview};
use konverge_run::StateBackend;
use konverge_secrets::{HashKey, Secrets};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateStore,
    store::{Key, MemoryStore, Store, StoreOptions, open},
};
use konverge_testkit::{
    git::Repository,
    minio::Minio,
    portal_server::PortalServer,
    process::{measured, peak_kib},
};
use serde_json::json;

const STACKS: usize = 5000;
const SERIALS: usize = 50;
const RESOURCES: usize = 20;
/// The requests of a second, and for how long.
const RATE: u32 = 200;
const SECONDS: u32 = 10;
/// The number of stacks whose pages are asked for.
const VISITED: usize = 20;

/// The numbers of stacks and serials that the command line gives.
fn figures() -> (usize, usize) {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    (
        numbers.next().unwrap_or(STACKS),
        numbers.next().unwrap_or(SERIALS),
    )
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(bench());
}

fn states(store: &Arc<dyn Store>) -> StateStore {
    let writer = DocumentWriter {
        run: "https://ci.example/runs/1".to_owned(),
        actor: "bench".to_owned(),
    };
    StateStore::open(Arc::clone(store), RepositoryId::new("bench"), writer)
}

async fn apply(store: &Arc<dyn Store>, n: usize, round: usize) {
    let id: StackId = format!("project-{n:04}/prod").parse().unwrap();
    let folder = RepoPath::normalize(&format!("apps/project-{n:04}/prod")).unwrap();
    let mut state = StackState::empty(id.clone(), folder);
    state.input_digest = Some(Digest::of_bytes(format!("{n} {round}").as_bytes()));
    for resource in 0..RESOURCES {
        let container = json!([{"name": "web", "image": format!("registry.example/{n}:{round}")}]);
        let attributes = json!({"spec": {"template": {"spec": {"containers": container}}}});
        state.put(Recorded {
            id: format!("apps/v1:Deployment:project-{n:04}:web-{resource:02}")
                .parse()
                .unwrap(),
            runtime: RuntimeKind::Kubernetes,
            cluster: None,
            attributes: Arc::new(attributes.as_object().unwrap().clone()),
            depends_on: Vec::new(),
            extensions: serde_json::Map::new(),
            sharing: Sharing::default(),
            object_hash: None,
            private: RuntimeRecord::default(),
        });
    }
    let lease = states(store).acquire(&id, LeaseOptions::default()).await.unwrap();
    lease.commit(state, &[]).await.unwrap();
}

/// All serials of one stack, as so many applies leave them.
async fn record(store: Arc<dyn Store>, n: usize, serials: usize) {
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::default());
    for round in 0..serials {
        apply(&memory, n, round).await;
    }
    for key in memory.list(&Key::from_components(&["stacks"])).await.unwrap() {
        let content = memory.get(&key).await.unwrap().unwrap();
        store.create(&key, content).await.unwrap();
    }
}

/// Records all stacks, two cores at work.
async fn record_all(store: &Arc<dyn Store>, stacks: usize, serials: usize) {
    let started = Instant::now();
    let work = stream::iter(0..stacks).map(|n| tokio::spawn(record(Arc::clone(store), n, serials)));
    let mut done = work.buffer_unordered(24).enumerate();
    while let Some((n, recorded)) = done.next().await {
        recorded.unwrap();
        if n % 500 == 499 {
            println!("{} stacks recorded in {:?}", n + 1, started.elapsed());
        }
    }
}

/// What was measured, in the order of the section.
struct Measures {
    rows: Vec<(String, Duration, Option<Duration>)>,
}

impl Measures {
    /// A time, and how long it may be.
    fn add(&mut self, what: impl Into<String>, took: Duration, bound: Option<Duration>) {
        let what = what.into();
        println!("{what}: {took:?}");
        self.rows.push((what, took, bound));
    }

    /// The table of a section.
    fn table(&self) -> String {
        let ms = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e3);
        let rows = self.rows.iter().map(|(what, took, bound)| {
            let bound = bound.map_or_else(|| "none".to_owned(), ms);
            format!("| {what} | {} | {bound} |\n", ms(*took))
        });
        let head = "| what | ms | bound |\n| --- | --- | --- |\n";
        std::iter::once(head.to_owned()).chain(rows).collect()
    }

    /// # Panics
    /// Something took longer than its bound.
    fn hold(&self) {
        for (what, took, bound) in &self.rows {
            assert!(bound.is_none_or(|bound| *took <= bound), "{what}: {took:?}");
        }
    }
}

async fn bench() {
    let mut measures = Measures { rows: Vec::new() };
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    let (stacks, serials) = figures();
    let minio = Minio::start();
    let environment = [
        ("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY),
        ("AWS_REGION", Minio::REGION),
    ];
    let options = StoreOptions {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..StoreOptions::default()
    };
    let url = format!(
        "s3://{}?endpoint={}&allow_http=true",
        minio.bucket("portal"),
        minio.endpoint()
    );
    let store = open(&url, &options).await.unwrap();
    record_all(&store, stacks, serials).await;
    let settle = async || {
        let states = states(&store);
        let rebuilt = states.rebuild_index().await.unwrap();
        states.maintain_index(&rebuilt).await.unwrap();
    };
    settle().await;
    let backend = StateBackend {
        states: states(&store),
        secrets: Secrets::new(HashKey::random()),
        is_shared: true,
        is_encrypted: false,
        age_recipients: Vec::new(),
    };
    let sources = StackSources {
        backend: &backend,
        head: None,
        forge: None,
    };
    for what in ["overview, cold", "overview, again"] {
        let started = Instant::now();
        let index = read_overview(sources).await.unwrap();
        assert_eq!(index.overview.stacks.len(), stacks);
        measures.add(what, started.elapsed(), None);
    }
    let folder = tempfile::tempdir().unwrap();
    let site = FolderSite::open(folder.path()).unwrap();
    for (what, bound) in [
        ("all pages", seconds(60)),
        ("nothing changed", None),
        ("one change", seconds(2)),
    ] {
        if what == "one change" {
            apply(&store, 0, serials).await;
            settle().await;
        }
        let started = Instant::now();
        let report = build(sources, None, &site).await.unwrap();
        let what = format!(
            "{what}: {} stacks read, {} files written",
            report.read, report.written
        );
        measures.add(what, started.elapsed(), bound);
    }
    let repository = Repository::init();
    let config = format!("version: 1\nstate: {{url: '{url}', id: bench}}\n");
    repository.write("konverge.yaml", config);
    repository.commit("configuration");
    let served = PortalServer::start(
        &measured(env!("CARGO_BIN_EXE_konverge")),
        repository.path(),
        repository.path(),
        "127.0.0.1:0",
        &environment,
    );
    let rate = visit(served, stacks, &mut measures).await;
    if (stacks, serials) != (STACKS, SERIALS) {
        return;
    }
    let section = format!(
        "## The portal of {stacks} stacks with {serials} serials each\n\nFrom MinIO on the same machine, 2 cores:\n\n{}\n{}. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench portal` writes this.",
        measures.table(),
        rate.text
    );
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        konverge_testkit::performance::write("portal", &section);
    }
    measures.hold();
    assert!(rate.peak_kib < MOST_KIB, "{} KiB", rate.peak_kib);
}

/// The most memory of `konverge serve`.
const MOST_KIB: u64 = 200 << 10;

/// What a steady rate of requests did.
struct SteadyRate {
    text: String,
    peak_kib: u64,
}

/// Asks for pages and documents at a steady rate, whether earlier ones are answered or not.
async fn visit(served: PortalServer, stacks: usize, measures: &mut Measures) -> SteadyRate {
    let client = reqwest::Client::new();
    let get = async |path: String| {
        let started = Instant::now();
        let answer = client.get(format!("{}{path}", served.root)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        let size = answer.bytes().await.unwrap().len();
        (started.elapsed(), size)
    };
    for (what, bound) in [("cold", None), ("warm", Some(Duration::from_millis(150)))] {
        let (time, size) = get("/".to_owned()).await;
        let what = format!("the overview of `konverge serve`, {what}, {} KiB", size >> 10);
        measures.add(what, time, bound);
    }
    let addresses: Vec<_> = (0..RATE * SECONDS)
        .map(|n| {
            let stack = (n as usize * 7) % stacks.min(VISITED);
            match n % 4 {
                0 => "/".to_owned(),
                1 => format!("/stacks/project-{stack:04}@prod/index.html"),
                2 => format!("/api/v1/stacks/project-{stack:04}%2Fprod"),
                _ => format!("/search.html?q=web-{stack:02}"),
            }
        })
        .collect();
    let started = Instant::now();
    let requests = addresses.into_iter().enumerate().map(|(n, address)| {
        let get = &get;
        async move {
            let due = Duration::from_secs(1) * u32::try_from(n).unwrap() / RATE;
            tokio::time::sleep_until((started + due).into()).await;
            get(address).await.0
        }
    });
    let mut times = futures::future::join_all(requests).await;
    let took = started.elapsed();
    times.sort();
    let peak_kib = peak_kib(served.pid()).unwrap();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let text = format!(
        "{} requests in {:.1} s, {RATE} a second were sent: median {:.0} ms, 99 of 100 within {:.0} ms. `konverge serve` took at most {} MiB, of 200 MiB that it may take",
        times.len(),
        took.as_secs_f64(),
        ms(times[times.len() / 2]),
        ms(times[times.len() * 99 / 100]),
        peak_kib >> 10
    );
    println!("{text}");
    SteadyRate { text, peak_kib }
}
