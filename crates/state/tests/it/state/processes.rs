//! Real processes on a real store: many at once, and killed in the middle. A process is this test binary again, running
//! [`worker`] with its orders in the environment; the world outside is a folder of files.

use crate::support::s3::S3;
use konverge_base::model::{
    Digest, RepoPath, StackId,
    plan::Action,
    spec::RuntimeKind,
    state::{JournalEntry, Recorded, StackState},
};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateError, StateStore,
    store::{StoreOptions, open},
};
use std::{
    collections::BTreeSet,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

const ORDERS: &str = "KONVERGE_TEST_WORKER";

#[derive(serde::Serialize, serde::Deserialize, Clone)]
struct Orders {
    url: String,
    stack: String,
    /// The files that this run makes.
    names: Vec<String>,
    outside: String,
    term: Duration,
    /// How long each write takes.
    pace: Duration,
}

fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:x:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: std::sync::Arc::default(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: konverge_base::model::state::RuntimeRecord::default(),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

async fn states(url: &str, run: String) -> StateStore {
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
        ("AWS_REGION", S3::REGION),
    ];
    let options = StoreOptions {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..StoreOptions::default()
    };
    let writer = DocumentWriter {
        run,
        actor: "worker".to_owned(),
    };
    StateStore::open(
        open(url, &options).await.unwrap(),
        RepositoryId::new("processes"),
        writer,
    )
}

async fn obey(orders: &Orders) -> Result<(), StateError> {
    let states = states(&orders.url, format!("process {}", std::process::id())).await;
    let stack: StackId = orders.stack.parse().unwrap();
    let options = LeaseOptions {
        term: orders.term,
        wait: Duration::from_secs(300),
        ..LeaseOptions::default()
    };
    let lease = states.acquire(&stack, options).await?;
    let empty = || StackState::empty(stack.clone(), RepoPath::root());
    let mut state = lease.prior().map_or_else(empty, |prior| prior.state.clone());
    let intent = |name: &String| JournalEntry::Intent {
        recorded: recorded(name),
        action: Action::Create,
    };
    lease.journal(orders.names.iter().map(intent).collect()).await?;
    for name in &orders.names {
        lease.check()?;
        std::fs::write(Path::new(&orders.outside).join(name), lease.epoch().to_string()).unwrap();
        tokio::time::sleep(orders.pace).await;
        lease
            .journal(vec![JournalEntry::Done {
                recorded: recorded(name),
            }])
            .await?;
        state.put(recorded(name));
    }
    state.input_digest = Some(Digest::of_bytes(orders.names.join(" ").as_bytes()));
    lease.commit(state, &[]).await?;
    states.save_index().await
}

/// Not a test by itself: what the processes run.
#[test]
fn worker() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    match runtime.block_on(obey(&orders)) {
        Ok(()) => {}
        // A starved machine may lose a lease; the run says so and ends. What counts is what is recorded.
        Err(StateError::Lost { .. }) => std::process::exit(75),
        Err(error) => panic!("{error}"),
    }
}

fn start(orders: &Orders) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "state::processes::worker"])
        .env(ORDERS, serde_json::to_string(orders).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for its end; whether it ended well.
fn finish(child: Child) -> bool {
    let output = child.wait_with_output().unwrap();
    let code = output.status.code();
    assert!(
        matches!(code, Some(0 | 75)),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    code == Some(0)
}

fn made(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn names(state: &StackState) -> BTreeSet<String> {
    state
        .resources
        .iter()
        .map(|r| r.id.as_str().rsplit(':').next().unwrap().to_owned())
        .collect()
}

async fn many(processes: usize, stacks: usize) {
    let server = S3::shared();
    let bucket = server.bucket("many");
    let url = format!("s3://{bucket}/p?endpoint={}&allow_http=true", server.endpoint());
    let outside = tempfile::tempdir().unwrap();
    let orders = |n: usize| Orders {
        url: url.clone(),
        stack: format!("app{}/prod", n % stacks),
        names: vec![format!("r{n}-a"), format!("r{n}-b")],
        outside: outside.path().to_str().unwrap().to_owned(),
        term: Duration::from_secs(30),
        pace: Duration::ZERO,
    };
    let children: Vec<_> = (0..processes).map(|n| start(&orders(n))).collect();
    let well = children.into_iter().map(finish).filter(|well| *well).count();
    let states = states(&url, "the test".to_owned()).await;
    let mut all = BTreeSet::new();
    let mut serials = 0;
    for n in 0..stacks {
        let loaded = states
            .load(&format!("app{n}/prod").parse().unwrap())
            .await
            .unwrap()
            .unwrap();
        all.extend(names(&loaded.state));
        serials += loaded.serial;
    }
    assert_eq!(all, made(outside.path()));
    assert_eq!(all.len(), 2 * processes);
    assert!(
        well > 0 && serials as usize >= well,
        "{well} ended well, {serials} serials"
    );
    let known = states.read_all().await.unwrap();
    assert_eq!(
        known.entries.values().map(|entry| entry.resources).sum::<usize>(),
        2 * processes
    );
}

#[tokio::test]
async fn processes_on_one_stack_are_all_accounted_for() {
    many(12, 1).await;
}

#[tokio::test]
async fn processes_on_as_many_stacks_are_all_accounted_for() {
    many(12, 12).await;
}

#[tokio::test]
#[ignore = "a hundred processes; `make test-all` runs it"]
async fn a_hundred_processes_on_one_stack() {
    many(100, 1).await;
}

#[tokio::test]
#[ignore = "a hundred processes; `make test-all` runs it"]
async fn a_hundred_processes_on_a_hundred_stacks() {
    many(100, 100).await;
}

/// Kills at moments spread over the whole of a run; after each, everything that exists is in state and journal, and the
/// next run takes over.
#[tokio::test]
async fn a_kill_at_any_moment_forgets_nothing() {
    let server = S3::shared();
    let bucket = server.bucket("killed");
    let url = format!("s3://{bucket}?endpoint={}&allow_http=true", server.endpoint());
    let outside = tempfile::tempdir().unwrap();
    let orders = |n: u32| Orders {
        url: url.clone(),
        stack: "shop/prod".to_owned(),
        names: (0..4).map(|part| format!("r{n}-{part}")).collect(),
        outside: outside.path().to_str().unwrap().to_owned(),
        term: Duration::from_secs(1),
        pace: Duration::from_millis(25),
    };
    let states = states(&url, "the test".to_owned()).await;
    let stack: StackId = "shop/prod".parse().unwrap();
    let (mut killed_at_work, started) = (0, Instant::now());
    for n in 0..8 {
        let mut child = start(&orders(n));
        // The moment counts from when it holds the lease: before that there is nothing to forget.
        let before = made(outside.path());
        while child.try_wait().unwrap().is_none()
            && states
                .holder(&stack)
                .await
                .unwrap()
                .is_none_or(|holder| holder.writer.run != format!("process {}", child.id()))
        {
            assert!(
                started.elapsed() < Duration::from_secs(120),
                "process {n} does not get the lease"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(u64::from(n) * 18)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        let exists = made(outside.path());
        killed_at_work += usize::from(exists != before);
        let recorded = states
            .load(&stack)
            .await
            .unwrap()
            .map(|loaded| names(&loaded.state))
            .unwrap_or_default();
        let forgotten: Vec<_> = exists.difference(&recorded).collect();
        assert!(forgotten.is_empty(), "after kill {n}: forgot {forgotten:?}");
    }
    assert!(killed_at_work > 0, "no kill came while it was at work");
    assert!(finish(start(&Orders {
        term: Duration::from_secs(5),
        ..orders(99)
    })));
    let loaded = states.load(&stack).await.unwrap().unwrap();
    assert!(loaded.pending.is_empty());
    assert!(made(outside.path()).is_subset(&names(&loaded.state)));
}
