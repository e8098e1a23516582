//! A proxy before a real API server that drops, delays, cuts and refuses requests, and can tell a test when to kill the
//! client.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
};
use futures::future::BoxFuture;
use serde_json::json;
use tokio::sync::Notify;

use super::{cluster::Cluster, service::folder};

/// The faults of the proxy.
pub struct Faults {
    seed: u64,
    /// How many of a hundred requests fail.
    percent: u64,
    /// If true, every watch is told at once that its version is too old.
    expired_watches: bool,
    /// If true, every write is carried out, but its response is lost.
    lost_answers: bool,
    /// If true, every request is delayed.
    slow: bool,
}

impl Faults {
    /// Creates a set without faults.
    pub fn none() -> Self {
        Self::random(1, 0)
    }

    /// Creates random faults for this percentage of the requests.
    pub fn random(seed: u64, percent: u64) -> Self {
        Self {
            seed,
            percent,
            expired_watches: false,
            lost_answers: false,
            slow: false,
        }
    }

    /// Creates only delays, so that requests overlap.
    pub fn slow() -> Self {
        Self {
            slow: true,
            ..Self::none()
        }
    }

    /// Creates lost responses to all writes.
    pub fn lost_answers() -> Self {
        Self {
            lost_answers: true,
            ..Self::none()
        }
    }

    /// Creates expired watches: every watch is told that its version is too old.
    pub fn expired_watches() -> Self {
        Self {
            expired_watches: true,
            ..Self::none()
        }
    }
}

/// Returns the seed of this run, and prints it so that the run can be repeated.
pub fn seed() -> u64 {
    let seed = std::env::var("KONVERGE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_260_101);
    println!("KONVERGE_SEED={seed}");
    seed
}

/// The running proxy, on a port of its own.
pub struct Proxy {
    shared: Arc<Shared>,
    kubeconfig: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    client: kube::Client,
    random: Mutex<u64>,
    percent: u64,
    expired_watches: bool,
    lost_answers: bool,
    slow: bool,
    /// The number of requests under way, and the maximum so far.
    under_way: [AtomicU64; 2],
    calm: AtomicBool,
    faults: AtomicU64,
    /// Counts down to the request at which the client is killed; 0 for never.
    countdown: AtomicU64,
    /// If true, only writes count.
    writes_alone: AtomicBool,
    /// If true, that request still reaches the server.
    forward_last: AtomicBool,
    killed: Notify,
    /// If true, nothing is answered from that request on.
    silent_then: AtomicBool,
    silent: AtomicBool,
    /// The hook that is called before each request.
    hook: Mutex<Option<Arc<Hook>>>,
    /// Locked while the hook runs, so that no other request overtakes it.
    turn: tokio::sync::Mutex<()>,
}

/// A hook before a request, such as `GET /api/v1/namespaces/a?limit=500`. The method of a dry run is `DRY`.
type Hook = dyn Fn(String) -> BoxFuture<'static, ()> + Send + Sync;

impl Proxy {
    /// Starts the proxy in front of `cluster`.
    pub async fn start(cluster: &Cluster, faults: Faults) -> Self {
        let shared = Arc::new(Shared {
            client: cluster.client().await,
            random: Mutex::new(faults.seed.max(1)),
            percent: faults.percent,
            expired_watches: faults.expired_watches,
            lost_answers: faults.lost_answers,
            slow: faults.slow,
            under_way: Default::default(),
            calm: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            countdown: AtomicU64::new(0),
            writes_alone: AtomicBool::new(false),
            forward_last: AtomicBool::new(false),
            killed: Notify::new(),
            silent_then: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            hook: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let routes = axum::Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let kubeconfig = folder("proxy").join("kubeconfig");
        let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "p",
            "clusters": [{"name": "p", "cluster": {"server": server}}],
            "users": [{"name": "p", "user": {}}], "contexts": [{"name": "p", "context": {"cluster": "p", "user": "p"}}]});
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        Self {
            shared,
            kubeconfig,
            task,
        }
    }

    /// Returns the path of a kubeconfig with the address of the proxy.
    pub fn kubeconfig(&self) -> PathBuf {
        self.kubeconfig.clone()
    }

    /// Switches the faults off.
    pub fn calm(&self) {
        self.shared.countdown.store(0, Ordering::SeqCst);
        self.shared.calm.store(true, Ordering::SeqCst);
    }

    /// Switches the faults on again.
    pub fn rage(&self) {
        self.shared.calm.store(false, Ordering::SeqCst);
    }

    /// Returns the number of failed requests.
    pub fn faults(&self) -> u64 {
        self.shared.faults.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of concurrent requests since the last call.
    pub fn most_at_once(&self) -> u64 {
        self.shared.under_way[1].swap(0, Ordering::SeqCst)
    }

    /// Calls this hook before each request reaches the server, from now on. Other requests wait until the hook has
    /// ended.
    pub fn before_each(&self, hook: impl Fn(String) -> BoxFuture<'static, ()> + Send + Sync + 'static) {
        *self.shared.hook.lock().unwrap() = Some(Arc::new(hook));
    }

    /// Signals the kill at the `nth` request from now: before it reaches the server, or after it and before the
    /// response.
    pub fn kill_at(&self, nth: u64, before: bool) {
        self.shared.forward_last.store(!before, Ordering::SeqCst);
        self.shared.countdown.store(nth, Ordering::SeqCst);
    }

    /// Signals the kill at the `nth` write from now, before it reaches the server.
    pub fn kill_at_write(&self, nth: u64) {
        self.shared.writes_alone.store(true, Ordering::SeqCst);
        self.kill_at(nth, true);
    }

    /// Stops answering at the `nth` write, which does not reach the server.
    pub fn silent_at_write(&self, nth: u64) {
        self.shared.silent_then.store(true, Ordering::SeqCst);
        self.kill_at_write(nth);
    }

    /// Completes when that request has come.
    pub async fn killed(&self) {
        self.shared.killed.notified().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn next(&self) -> u64 {
        let mut random = self.random.lock().unwrap();
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    }

    async fn forward(&self, request: http::Request<Bytes>) -> Response {
        let (mut parts, body) = request.into_parts();
        for header in [
            "host",
            "connection",
            "content-length",
            "transfer-encoding",
            "accept-encoding",
        ] {
            parts.headers.remove(header);
        }
        let request = http::Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        match self.client.send(request).await {
            Ok(answer) => {
                let (mut parts, body) = answer.into_parts();
                for header in [
                    "content-length",
                    "transfer-encoding",
                    "connection",
                    "content-encoding",
                ] {
                    parts.headers.remove(header);
                }
                Response::from_parts(parts, Body::new(body))
            }
            Err(error) => panic!("the real server could not be reached: {error}"),
        }
    }
}

/// Returns a response that breaks off.
fn cut() -> Response {
    let broken = futures::stream::iter([
        Ok(Bytes::from_static(b"{\"kind\":")),
        Err(std::io::Error::other("cut")),
    ]);
    Response::new(Body::from_stream(broken))
}

/// Returns the end of a watch whose version the server no longer has.
fn expired() -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired",
        "message": "too old resource version"});
    let event = json!({"type": "ERROR", "object": status});
    Response::new(Body::from(format!("{event}\n")))
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message});
    let response = Response::builder()
        .status(code)
        .header("content-type", "application/json")
        .header("retry-after", "0");
    response.body(Body::from(status.to_string())).unwrap()
}

async fn pass(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let [now, most] = &shared.under_way;
    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    if shared.slow {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = treat(&shared, request).await;
    now.fetch_sub(1, Ordering::SeqCst);
    answer
}

async fn treat(shared: &Shared, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let request = http::Request::from_parts(parts, body);
    let is_dry = |query: &str| query.contains("dryRun");
    let is_write = request.method() != http::Method::GET && !request.uri().query().is_some_and(is_dry);
    let hook = shared.hook.lock().unwrap().clone();
    if let Some(hook) = hook {
        let method = match request.method() {
            _ if request.uri().query().is_some_and(is_dry) => "DRY",
            method => method.as_str(),
        };
        let _turn = shared.turn.lock().await;
        hook(format!("{method} {}", request.uri())).await;
    }
    let counts = is_write || !shared.writes_alone.load(Ordering::SeqCst);
    let left = shared.countdown.load(Ordering::SeqCst);
    if left > 0 && counts {
        shared.countdown.store(left - 1, Ordering::SeqCst);
        if left == 1 {
            if shared.forward_last.load(Ordering::SeqCst) {
                drop(shared.forward(request.clone()).await);
            }
            let silent = shared.silent_then.load(Ordering::SeqCst);
            shared.silent.store(silent, Ordering::SeqCst);
            shared.killed.notify_one();
            std::future::pending::<()>().await;
        }
    }
    if shared.silent.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let is_watch = |query: &str| query.split('&').any(|pair| pair == "watch=true");
    if shared.expired_watches && request.uri().query().is_some_and(is_watch) {
        shared.faults.fetch_add(1, Ordering::SeqCst);
        return expired();
    }
    if shared.lost_answers && is_write && !shared.calm.load(Ordering::SeqCst) {
        drop(shared.forward(request).await);
        return cut();
    }
    let dice = shared.next();
    if shared.calm.load(Ordering::SeqCst) || dice % 100 >= shared.percent {
        return shared.forward(request).await;
    }
    shared.faults.fetch_add(1, Ordering::SeqCst);
    match (dice / 100) % 7 {
        0 => refusal(429, "TooManyRequests", "slow down"),
        1 => refusal(500, "InternalError", "etcdserver: request timed out"),
        2 => refusal(
            409,
            "Conflict",
            "the object has been modified; please apply your changes to the latest version",
        ),
        3 => refusal(503, "ServiceUnavailable", "starting"),
        4 => cut(),
        5 => {
            drop(shared.forward(request).await);
            cut()
        }
        _ => {
            tokio::time::sleep(Duration::from_millis(dice % 50)).await;
            shared.forward(request).await
        }
    }
}
