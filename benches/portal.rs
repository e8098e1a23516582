//! The portal of 5,000 stacks with 50 serials each, from MinIO on this machine: the overview cold and again, all pages, and
//! the pages after one change. Prints what it measures.
//!
//! `cargo bench --bench portal`; needs `scripts/parts install minio`, some gigabytes of disk and half an hour. With two
//! numbers, `cargo bench --bench portal -- 50 3`, it is of so many stacks and serials.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::{sync::Arc, time::Instant};

use futures::{StreamExt as _, stream};
use konverge_base::{
    model::{
        Digest, RepoPath, StackId,
        spec::{RuntimeKind, Sharing},
        state::{Recorded, RuntimeRecord, StackState},
    },
    secrets::{HashKey, Secrets},
};
use konverge_run::{
    StateBackend,
    portal::{FolderSite, StackSources, build, read_overview},
};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateStore,
    store::{Store, StoreOptions, open},
};
use konverge_testkit::minio::Minio;
use serde_json::json;

const STACKS: usize = 5000;
const SERIALS: usize = 50;
const RESOURCES: usize = 20;

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

async fn bench() {
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
    for round in 0..serials {
        let work: Vec<_> = (0..stacks).map(|n| apply(&store, n, round)).collect();
        stream::iter(work).buffer_unordered(32).collect::<Vec<()>>().await;
    }
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
    };
    for what in ["overview, cold", "overview, again"] {
        let started = Instant::now();
        let index = read_overview(sources).await.unwrap();
        println!(
            "{what}: {} stacks in {:?}",
            index.overview.stacks.len(),
            started.elapsed()
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let site = FolderSite::open(folder.path()).unwrap();
    for what in ["all pages", "nothing changed", "one change"] {
        if what == "one change" {
            apply(&store, 0, serials).await;
            settle().await;
        }
        let started = Instant::now();
        let report = build(sources, &site).await.unwrap();
        println!(
            "{what}: {} read, {} written in {:?}",
            report.read,
            report.written,
            started.elapsed()
        );
    }
}
