//! A run that is asked to stop while a store or an API server is silent: it ends, and what it did is known to the next.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use nix::sys::signal::Signal::SIGINT;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{
    faulty_api_server::{Faults, Proxy},
    git::Repository,
    process::{Konverge, Outcome, Running},
    s3::S3,
    service::eventually,
    spec_runs::SpecRuns,
};

/// An answer within about a second is promised. A run that waits for the silent side instead takes 45 s for a request,
/// and for each try of it; the seconds between are for a machine that is busy.
const AT_ONCE: Duration = Duration::from_secs(5);
const STACK: &str = "shop/prod";

/// A server that accepts and never answers.
struct Silent {
    port: u16,
    callers: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Silent {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let callers = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&callers);
        let task = tokio::spawn(async move {
            let mut kept = Vec::new();
            loop {
                kept.push(listener.accept().await.unwrap());
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { port, callers, task }
    }

    /// Starts a run, asks it to stop as soon as it has called, and expects that it does.
    async fn interrupts(&self, run: Konverge) -> Outcome {
        let before = self.callers.load(Ordering::SeqCst);
        let running = run.start();
        eventually("the silent server is called", Duration::from_secs(60), || async {
            (self.callers.load(Ordering::SeqCst) > before).then_some(())
        })
        .await;
        interrupt(running)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Commits the stack of that name, for commands that want a repository.
fn with_stack(runs: &SpecRuns) {
    runs.repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("apps/shop/project.yaml", "name: shop\n")
        .write("apps/shop/prod/stack.yaml", "name: prod\n")
        .write("apps/shop/prod/main.k", "resources = []\n")
        .commit("A stack");
}

fn interrupt(running: Running) -> Outcome {
    let asked = Instant::now();
    running.signal(SIGINT);
    let outcome = running.wait();
    let took = asked.elapsed();
    println!("ended after {} ms", took.as_millis());
    assert!(took < AT_ONCE, "{took:?}: {}", outcome.stderr);
    outcome.expect(130)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_waits_for_a_silent_store() {
    let silent = Silent::start().await;
    let url = format!(
        "s3://bucket/p?endpoint=http://127.0.0.1:{}&allow_http=true",
        silent.port
    );
    let runs = SpecRuns::at("silent-store", &url, "").await;
    runs.spec("spec.json", &["one"]);
    with_stack(&runs);
    let pulled = json!({"version": 1, "repository": "spec-runs", "serial": 1, "state":
        {"version": 1, "stack": STACK, "folder": "", "resources": [], "runtime_data": {}}});
    std::fs::write(runs.repository.path().join("pulled.json"), pulled.to_string()).unwrap();
    let object = format!(
        "{}/kusion_state.json?endpoint=http://127.0.0.1:{}&allow_http=true",
        "s3://bucket", silent.port
    );
    let commands: &[&[&str]] = &[
        &["preview", "--spec", "spec.json"],
        &["apply", "--yes", "--spec", "spec.json"],
        &["destroy", "--yes", STACK],
        &["drift", STACK],
        &["status", STACK],
        &["doctor"],
        &["state", "list"],
        &["state", "show", STACK],
        &["state", "history", STACK],
        &["state", "diff", STACK, "1", "2"],
        &["state", "pull", STACK],
        &["state", "push", STACK, "pulled.json"],
        &["state", "move", STACK, "shop/other"],
        &["state", "forget", STACK, "--yes"],
        &["state", "unlock", STACK, "--lease", "1-a", "--reason", "dead"],
        &["state", "rollback", STACK, "--to", "1", "--yes"],
        &["state", "import", &object, "--stack", STACK],
        &["state", "doctor"],
        &["state", "doctor", "--repair"],
    ];
    for command in commands {
        println!("{command:?}");
        silent.interrupts(runs.konverge(command).with_kcl()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_kind_of_store_holds_up_a_run_that_is_asked_to_stop() {
    let silent = Silent::start().await;
    let port = silent.port;
    for url in [
        format!("http://127.0.0.1:{port}/p?allow_http=true"),
        format!("gs://bucket/p?endpoint=http://127.0.0.1:{port}&allow_http=true"),
        format!("az://bucket/p?endpoint=http://127.0.0.1:{port}&allow_http=true"),
        format!("oss://bucket/p?endpoint=http://127.0.0.1:{port}&allow_http=true"),
        format!("postgres://me@127.0.0.1:{port}/db/p"),
        format!("mysql://me@127.0.0.1:{port}/db/p"),
    ] {
        println!("{url}");
        let repository = Repository::init();
        repository.write(
            "konverge.yaml",
            format!("version: 1\nstate:\n  id: silent\n  url: '{url}'\n"),
        );
        repository.commit("Nothing but a store");
        let run = Konverge::new(["state", "list"])
            .dir(repository.path())
            .env("PGPASSWORD", "x")
            .env("MYSQL_PWD", "x")
            .env("OSS_REGION", "cn-hangzhou")
            .env("OSS_ACCESS_KEY_ID", "x")
            .env("OSS_ACCESS_KEY_SECRET", "xxxxxxxx")
            .env("AZURE_STORAGE_ACCOUNT_NAME", "me")
            .env("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0LXNlY3JldA==")
            .env("GOOGLE_SERVICE_ACCOUNT_KEY", r#"{"gcs_base_url": "x", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}"#);
        silent.interrupts(run).await;
    }
}

/// A kubeconfig that leads to a port of this machine.
fn kubeconfig(folder: &Path, port: u16) -> PathBuf {
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "s",
        "clusters": [{"name": "s", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
        "users": [{"name": "s", "user": {}}], "contexts": [{"name": "s", "context": {"cluster": "s", "user": "s"}}]});
    let path = folder.join("kubeconfig");
    std::fs::write(&path, text.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_waits_for_a_silent_cluster() {
    let silent = Silent::start().await;
    let state = tempfile::tempdir().unwrap();
    let url = format!("file://{}", state.path().display());
    let mut runs = SpecRuns::at("silent-cluster", &url, "clusters: {test: {}}\n").await;
    runs.env
        .push(("KUBECONFIG", runs.cluster.kubeconfig().display().to_string()));
    runs.spec("spec.json", &["one"]);
    with_stack(&runs);
    let apply = ["apply", "--yes", "--spec", "spec.json", "--stack", STACK];
    // Something is recorded, so that there is something to look at.
    runs.konverge(&apply).run().expect(0);
    let kubeconfig = kubeconfig(&runs.repository.path().join(".git"), silent.port);
    let commands: &[&[&str]] = &[
        &["preview", "--spec", "spec.json", "--stack", STACK],
        &["apply", "--yes", "--spec", "spec.json", "--stack", STACK],
        &["destroy", "--yes", STACK],
        &["drift", STACK],
        &["status", STACK],
        &["doctor"],
    ];
    for command in commands {
        println!("{command:?}");
        let run = runs.konverge(command).with_kcl();
        silent.interrupts(run.env("KUBECONFIG", &kubeconfig)).await;
    }
    // The run that was interrupted blocks nothing.
    runs.konverge(&apply).run().expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_cluster_falls_silent_records_what_it_did_and_gives_its_lease_back() {
    let mut runs = SpecRuns::on_s3("falls-silent", "").await;
    let proxy = Proxy::start(runs.cluster, Faults::none()).await;
    runs.spec("spec.json", &["one", "two", "three"]);
    runs.repository.write(
        "konverge.yaml",
        format!(
            "version: 1\nstate:\n  id: spec-runs\n  url: '{}'\napply: {{parallel_resources: 1}}\n",
            runs.url
        ),
    );
    runs.env.push(("GITHUB_ACTIONS", String::new()));
    proxy.silent_at_write(2);
    let arguments = ["apply", "--yes", "--spec", "spec.json", "--stack", STACK];
    let run = runs
        .konverge(&arguments)
        .arg("--kubeconfig")
        .arg(proxy.kubeconfig());
    let running = run.start();
    proxy.killed().await;
    interrupt(running);
    // The second was under way: it may be there.
    assert_eq!(
        (runs.recorded(STACK).await.len(), runs.made(STACK).await.len()),
        (2, 1)
    );
    // The lease is free: nobody waits.
    let stack = STACK.parse().unwrap();
    assert!(
        runs.states("the test")
            .await
            .holder(&stack)
            .await
            .unwrap()
            .is_none()
    );
    runs.apply("spec.json", STACK).run().expect(0);
    assert_eq!(
        (runs.recorded(STACK).await.len(), runs.made(STACK).await.len()),
        (3, 3)
    );
}

/// Passes bytes on to a server until it is told to fall silent.
async fn gate(to: String, silent: Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let mut far = TcpStream::connect(&to).await.unwrap();
            let silent = Arc::clone(&silent);
            tokio::spawn(async move {
                let fallen = async {
                    while !silent.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::select! {
                    biased;
                    () = fallen => std::future::pending().await,
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                }
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_whose_store_and_cluster_fall_silent_is_taken_up_by_the_next() {
    let server = S3::shared();
    let bucket = server.bucket("both-silent");
    let direct = format!("s3://{bucket}/p?endpoint={}&allow_http=true", server.endpoint());
    let silent = Arc::<AtomicBool>::default();
    let address = server.endpoint().trim_start_matches("http://").to_owned();
    let port = gate(address, Arc::clone(&silent)).await;
    let through = format!("s3://{bucket}/p?endpoint=http://127.0.0.1:{port}&allow_http=true");
    let config = |url: &str| {
        format!(
            "version: 1\nstate:\n  id: spec-runs\n  url: '{url}'\n  lease: {{term: 3s}}\napply: {{parallel_resources: 1}}\n"
        )
    };
    let mut runs = SpecRuns::at("both-silent", &through, "").await;
    runs.repository.write("konverge.yaml", config(&through));
    runs.spec("spec.json", &["one", "two", "three"]);
    let proxy = Proxy::start(runs.cluster, Faults::none()).await;
    proxy.silent_at_write(2);
    let arguments = ["apply", "--yes", "--spec", "spec.json", "--stack", STACK];
    let running = runs
        .konverge(&arguments)
        .arg("--kubeconfig")
        .arg(proxy.kubeconfig())
        .start();
    proxy.killed().await;
    silent.store(true, Ordering::SeqCst);
    interrupt(running);

    runs.repository.write("konverge.yaml", config(&direct));
    runs.url = direct;
    runs.apply("spec.json", STACK).run().expect(0);
    assert_eq!(
        (runs.recorded(STACK).await.len(), runs.made(STACK).await.len()),
        (3, 3)
    );
}
