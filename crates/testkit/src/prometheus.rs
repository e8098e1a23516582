//! A Prometheus with series that were written before it started.

use std::{
    fmt::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use super::service::{Ports, Service, folder};

/// A series: its name with its labels, and the value of each of the last minutes, the newest one last.
pub type MadeSeries<'a> = (&'a str, &'a [f64]);

/// A running server.
pub struct PrometheusServer {
    service: Service,
    ports: Ports,
}

impl PrometheusServer {
    /// One that knows these series and scrapes nothing.
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

    /// `http://127.0.0.1:PORT`.
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
