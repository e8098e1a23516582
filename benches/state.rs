//! Deciding what to apply among 4,500 stacks, from MinIO on this machine: one LIST, one compaction, sixteen deltas, with
//! and without the marks of `state.encrypt_to`.
//! Writes its section of `benches/figures.md` when run with `KONVERGE_WRITE_PERFORMANCE=1`.
//!
//! `cargo bench --bench state`; needs `scripts/parts install minio`.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

#[path = "../crates/state/tests/it/support/counting_store.rs"]
mod counting_store;

use std::{
    fs,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use counting_store::Counted;
use futures::{StreamExt as _, stream};
use konverge_base::model::{CommitId, Digest, RepoPath, StackId, state::StackState};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, SealScope, Sealer, StateStore,
    store::{Store, StoreOptions, open},
};
use konverge_testkit::minio::Minio;

const STACKS: usize = 4500;
const DELTAS: usize = 16;
const ROUNDS: usize = 21;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(bench());
}

fn states(store: Arc<dyn Store>, sealer: Option<&Sealer>) -> StateStore {
    let writer = DocumentWriter {
        run: "bench".to_owned(),
        actor: "bench".to_owned(),
    };
    let scope = sealer.map_or(SealScope::Values, |_| SealScope::Documents);
    StateStore::open(store, RepositoryId::new("bench"), writer).with_sealer(sealer.cloned(), scope)
}

async fn apply(states: &StateStore, n: usize, round: usize) {
    let id: StackId = format!("project-{:04}/prod", n / 3).parse().unwrap();
    let id = if n.is_multiple_of(3) {
        id
    } else {
        format!("project-{:04}/stage-{}", n / 3, n % 3).parse().unwrap()
    };
    let mut state = StackState::empty(
        id.clone(),
        RepoPath::normalize(&format!("appops/project-{:04}/{}", n / 3, n % 3)).unwrap(),
    );
    state.input_digest = Some(Digest::of_bytes(format!("{n} {round}").as_bytes()));
    state.spec_digest = Some(Digest::of_bytes(&n.to_le_bytes()));
    state.commit = Some(
        "c0ffee0000c0ffee0000c0ffee0000c0ffee0000"
            .parse::<CommitId>()
            .unwrap(),
    );
    let lease = states.acquire(&id, LeaseOptions::default()).await.unwrap();
    lease.commit(state, &[]).await.unwrap();
}

async fn bench() {
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
    let mut measured = Vec::new();
    for (bucket, sealer) in [("bench", None), ("bench-marked", Some(Sealer::generate()))] {
        let bucket = minio.bucket(bucket);
        let url = format!("s3://{bucket}?endpoint={}&allow_http=true", minio.endpoint());
        let store = open(&url, &options).await.unwrap();
        let times = measure(&store, sealer.as_ref()).await;
        let (best, median) = (times[0], times[ROUNDS / 2]);
        let marks = if sealer.is_some() { "marked" } else { "unmarked" };
        println!("{STACKS} stacks, {DELTAS} deltas, {marks}: best {best:?}, median {median:?} of {ROUNDS}");
        measured.push((best, median));
    }
    if std::env::var_os("KONVERGE_WRITE_PERFORMANCE").is_some() {
        write(&measured);
    }
}

/// The times of a look at every stack, sorted.
async fn measure(store: &Arc<dyn Store>, sealer: Option<&Sealer>) -> Vec<Duration> {
    let all = states(Arc::clone(store), sealer);
    let work: Vec<_> = (0..STACKS).map(|n| apply(&all, n, 0)).collect();
    stream::iter(work).buffer_unordered(16).collect::<Vec<_>>().await;
    all.save_index().await.unwrap();
    let known = all.read_all().await.unwrap();
    all.maintain_index(&known).await.unwrap();
    for delta in 0..DELTAS {
        let run = states(Arc::clone(store), sealer);
        apply(&run, delta, 1).await;
        run.save_index().await.unwrap();
    }
    let counted = Arc::new(Counted::new(Arc::clone(store)));
    let reader = states(Arc::clone(&counted) as Arc<dyn Store>, sealer);
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        counted.reset();
        let started = Instant::now();
        let known = reader.read_all().await.unwrap();
        times.push(started.elapsed());
        assert_eq!(
            known
                .entries
                .values()
                .filter(|entry| entry.settled_digest().is_some())
                .count(),
            STACKS
        );
        let count = counted.count();
        // A run among them may have made a compaction of those before it.
        assert!(count.lists == 1 && count.gets <= 1 + DELTAS, "{count:?}");
    }
    times.sort();
    times
}

fn write(measured: &[(Duration, Duration)]) {
    const OPEN: &str = "<!-- bench:state -->";
    const CLOSE: &str = "<!-- /bench:state -->";
    let build = if cfg!(debug_assertions) {
        "an unoptimized build, which is the slower one"
    } else {
        "an optimized build"
    };
    let section = format!(
        "{OPEN}\n## What to apply among {STACKS} stacks\n\nFrom MinIO on the same machine, one LIST, one compaction and at most {DELTAS} deltas: best of {ROUNDS} {:.0} ms, median {:.0} ms; with the marks of `state.encrypt_to` {:.0} ms and {:.0} ms, measured with {build}. Bound: 150 ms. `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench state` writes this.\n{CLOSE}",
        measured[0].0.as_secs_f64() * 1e3,
        measured[0].1.as_secs_f64() * 1e3,
        measured[1].0.as_secs_f64() * 1e3,
        measured[1].1.as_secs_f64() * 1e3
    );
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/figures.md");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|_| "# Performance\n\nMeasured by the benches, never by hand.\n".to_owned());
    let text = match (text.find(OPEN), text.find(CLOSE)) {
        (Some(from), Some(to)) => format!("{}{section}{}", &text[..from], &text[to + CLOSE.len()..]),
        _ => format!("{}\n\n{section}\n", text.trim_end()),
    };
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
