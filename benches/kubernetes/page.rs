//! The section of `benches/figures.md`.

use std::{fmt::Write as _, path::Path, time::Duration};

const BEGIN: &str = "<!-- bench:kubernetes -->";
const END: &str = "<!-- /bench:kubernetes -->";

/// What was measured of one thing.
pub struct Measured {
    pub took: Duration,
    pub requests: u64,
    /// MiB; 0 if it was not looked at.
    pub memory: u64,
    /// Processor time of the process, and of the API server with its etcd meanwhile; zero if it was not looked at.
    pub own: Duration,
    pub servers: Duration,
}

impl Measured {
    /// Nothing yet: anything is better.
    pub const NOTHING: Self = Self {
        took: Duration::MAX,
        requests: 0,
        memory: 0,
        own: Duration::ZERO,
        servers: Duration::ZERO,
    };

    /// The faster of two runs; the most memory that either took.
    pub fn best(self, other: Self) -> Self {
        let memory = self.memory.max(other.memory);
        let faster = if other.took < self.took { other } else { self };
        Self { memory, ..faster }
    }
}

/// The rows so far.
#[derive(Default)]
pub struct Page {
    against: String,
    /// What no client can do better.
    bounds: String,
    memory: String,
    processor: String,
    scheduler: String,
}

impl Page {
    /// Where we are faster.
    pub fn faster(&mut self, what: &str, size: usize, ours: &Measured, against: &str, theirs: Duration) {
        let ratio = theirs.as_secs_f64() / ours.took.as_secs_f64();
        self.row(
            what,
            size,
            ours,
            against,
            theirs,
            &format!("{ratio:.*}× as fast", usize::from(ratio < 10.0)),
        );
    }

    /// Where the other is the floor.
    pub fn longer(&mut self, what: &str, size: usize, ours: &Measured, against: &str, theirs: Duration) {
        let ratio = ours.took.as_secs_f64() / theirs.as_secs_f64();
        self.row(what, size, ours, against, theirs, &format!("{ratio:.2}× as long"));
    }

    /// What no client can do better that asks the server about each object before it writes the first one.
    pub fn bound(&mut self, size: usize, kubectl: Option<Duration>, bare: Duration, both: Duration) {
        let (bare, both) = (bare.as_secs_f64(), both.as_secs_f64());
        let _ = write!(
            self.bounds,
            "- {size} objects: a bare client takes {bare:.2} s for the creates, and {both:.2} s ({:.2}×) for dry runs and creates.",
            both / bare
        );
        let _ = match kubectl.map(|kubectl| kubectl.as_secs_f64()) {
            Some(kubectl) => writeln!(
                self.bounds,
                " That is at most {:.1} times as fast as `kubectl apply --server-side`, which sends one request an object.",
                kubectl / both
            ),
            None => writeln!(self.bounds),
        };
    }

    /// Where the processor time of a whole command went.
    pub fn processor(&mut self, what: &str, size: usize, of: &Measured) {
        let share = of.own.as_secs_f64() / (of.own + of.servers).as_secs_f64().max(0.01) * 100.0;
        let _ = writeln!(
            self.processor,
            "| {what} | {size} | {:.2} s | {:.2} s | {share:.0} % |",
            of.own.as_secs_f64(),
            of.servers.as_secs_f64()
        );
    }

    fn row(
        &mut self,
        what: &str,
        size: usize,
        ours: &Measured,
        against: &str,
        theirs: Duration,
        ratio: &str,
    ) {
        let _ = writeln!(
            self.against,
            "| {what} | {size} | {:.3} s | {} | {against}: {:.3} s | {ratio} |",
            ours.took.as_secs_f64(),
            ours.requests,
            theirs.as_secs_f64()
        );
    }

    pub fn memory(&mut self, what: &str, size: usize, mib: u64) {
        let _ = writeln!(self.memory, "| {what} | {size} | {mib} MiB |");
    }

    pub fn scheduler(&mut self, shape: &str, nodes: usize, edges: usize, took: Duration) {
        let millis = took.as_secs_f64() * 1e3;
        let _ = writeln!(self.scheduler, "| {shape} | {nodes} | {edges} | {millis:.2} ms |");
    }

    pub fn text(&self) -> String {
        let build = if cfg!(debug_assertions) {
            "an unoptimized build"
        } else {
            "an optimized build"
        };
        format!(
            "## Kubernetes\n\n\
             One real kube-apiserver (v1.34) on etcd, loopback TLS, two cores shared by client and server, {build}. 40 % are ConfigMaps\n\
             of 1 KB, 30 % Deployments, 20 % Services, 10 % Secrets. Each figure is the best of several runs. Those that write run by\n\
             turns with the bare client's, each on a new server. Read the ratios, not the seconds.\n\
             \n\
             Rows without *alone* are whole commands from start to exit, without waiting, against `kubectl`'s with its discovery cached.\n\
             `KONVERGE_WRITE_PERFORMANCE=1 cargo bench --bench kubernetes` writes this.\n\
             \n\
             | what | objects | Konverge | requests | against | ratio |\n|---|---|---|---|---|---|\n{}\n{}\n\
             A first apply sends both requests for each object: nothing is written before the plan is complete.\n\n\
             | processor time | objects | Konverge | API server and etcd | Konverge's share |\n|---|---|---|---|---|\n{}\n\
             | memory of the executable | objects | at most |\n|---|---|---|\n{}\n\
             The graph and the ready queue alone:\n\n\
             | shape | nodes | edges | time |\n|---|---|---|---|\n{}",
            self.against, self.bounds, self.processor, self.memory, self.scheduler
        )
    }
}

pub fn write_section(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/figures.md");
    let old = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Performance\n".to_owned());
    let section = format!("{BEGIN}\n{text}{END}");
    let new = match (old.find(BEGIN), old.find(END)) {
        (Some(from), Some(to)) => format!("{}{section}{}", &old[..from], &old[to + END.len()..]),
        _ => format!("{}\n\n{section}\n", old.trim_end()),
    };
    std::fs::write(path, new).unwrap();
}
