//! A Prometheus with series that were written before it started, and a fake Prometheus with scripted responses.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Uri, header},
    response::Response,
};

use super::service::{Ports, Service, folder};

/// A series: its name with its labels, and one value for each of the last minutes, the newest last.
pub type MadeSeries<'a> = (&'a str, &'a [f64]);

/// A running server.
pub struct PrometheusServer {
    service: Service,
    ports: Ports,
}

impl PrometheusServer {
    /// Starts a server with these series that scrapes nothing.
    pub fn start(series: &[MadeSeries<'_>]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let folder = folder(&format!("prometheus-{}", STARTED.fetch_add(1, Ordering::Relaxed)));
        write_series(&folder, series);
        let configuration = folder.join("prometheus.yml");
        std::fs::write(&configuration, "global: {evaluation_interval: 15s}\n").expect("it can be written");
        let ports = Ports::claim();
        let address = format!("127.0.0.1:{}", ports.nth(1));
        let mut command = Command::new(super::executable("prometheus", "prometheus"));
        command
            .arg(format!("--config.file={}", configuration.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .current_dir(&folder);
        let mut service = Service::start("prometheus", &command, &folder);
        service.wait_for_words("Server is ready to receive web requests", Duration::from_secs(60));
        service.wait_for_port(ports.nth(1), Duration::from_secs(60));
        Self { service, ports }
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.nth(1))
    }
}

/// Writes the blocks of the series.
fn write_series(folder: &Path, series: &[MadeSeries<'_>]) {
    let now = jiff::Timestamp::now().as_second();
    let mut text = String::new();
    for (name, values) in series {
        let family = name.split('{').next().expect("split gives one part at least");
        writeln!(text, "# TYPE {family} gauge").expect("a string");
        for (age, value) in (0..values.len()).rev().zip(*values) {
            writeln!(text, "{name} {value} {}", now - 60 * age as i64).expect("a string");
        }
    }
    text.push_str("# EOF\n");
    let file = folder.join("series.txt");
    std::fs::write(&file, text).expect("it can be written");
    let written = Command::new(super::executable("prometheus", "promtool"))
        .args(["tsdb", "create-blocks-from", "openmetrics"])
        .arg(&file)
        .arg(folder.join("data"))
        .stdout(Stdio::null())
        .status();
    assert!(
        written.expect("promtool runs").success(),
        "promtool cannot read {}",
        file.display()
    );
}

/// The response of a fake.
#[derive(Debug, Clone)]
pub struct CannedAnswer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
}

impl CannedAnswer {
    /// Creates a response with a status and a body.
    pub fn new(status: u16, body: &str) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_owned(),
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A request that a fake received.
#[derive(Debug, Clone)]
pub struct SeenQuery {
    pub path: String,
    pub authorization: Option<String>,
    pub body: String,
}

/// A fake that gives the same response to every request.
#[derive(Clone)]
pub struct FakePrometheus {
    address: String,
    answer: Arc<Mutex<CannedAnswer>>,
    seen: Arc<Mutex<Vec<SeenQuery>>>,
}

impl FakePrometheus {
    pub async fn start(answer: CannedAnswer) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fake = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            answer: Arc::new(Mutex::new(answer)),
            seen: Arc::default(),
        };
        let router = Router::new().fallback(respond).with_state(fake.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        fake
    }

    /// Returns the address, `http://127.0.0.1:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sets the response from now on.
    pub fn set(&self, answer: CannedAnswer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Returns all requests so far.
    pub fn seen(&self) -> Vec<SeenQuery> {
        self.seen.lock().unwrap().clone()
    }
}

async fn respond(State(fake): State<FakePrometheus>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let authorization = headers.get(header::AUTHORIZATION);
    fake.seen.lock().unwrap().push(SeenQuery {
        path: uri.path().to_owned(),
        authorization: authorization.map(|value| value.to_str().unwrap().to_owned()),
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    let answer = fake.answer.lock().unwrap().clone();
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).unwrap()
}
