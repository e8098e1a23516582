//! Runs of the built `konverge` in a clean environment, with a deadline.

use super::service::bound_to_parent;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Returns the path of the built `konverge`. Cargo tells it only to the tests of the package, and builds the binary for
/// them. If a test binary is started by hand, `konverge` is in the folder above.
///
/// # Panics
/// The binary does not exist.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("CARGO_BIN_EXE_konverge") {
        return path.into();
    }
    let test = std::env::current_exe().expect("the path of this test binary");
    let built = test
        .ancestors()
        .nth(2)
        .expect("a folder of builds")
        .join("konverge");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

/// Returns the path of the executable that a bench measures: that of `KONVERGE_BINARY`, or else `built`, which Cargo
/// tells only to the bench itself.
///
/// # Panics
/// The executable does not exist.
pub fn measured(built: &str) -> PathBuf {
    let named = std::env::var_os("KONVERGE_BINARY").map_or_else(|| PathBuf::from(built), PathBuf::from);
    named
        .canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}", named.display()))
}

/// Returns the peak resident memory of a process so far, in KiB; `None` after its end.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse().ok()
}

/// A run of a program that is not yet started. Its home is an empty folder of its own; of the caller's environment it
/// gets only `PATH`.
pub struct Konverge {
    command: Command,
    home: TempDir,
    limit: Duration,
}

impl Konverge {
    /// Creates a run of `konverge` with these arguments.
    pub fn new<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::of(&binary(), arguments)
    }

    /// Creates a run with these arguments, as on a kernel without Landlock.
    pub fn on_an_old_kernel<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/without_landlock.py");
        let python = super::kcl::interpreter();
        Self::of(&python, [script.as_ref(), binary().as_os_str()]).arg_all(arguments)
    }

    /// Creates a run of another executable in the same environment.
    pub fn of<S: AsRef<OsStr>>(executable: &Path, arguments: impl IntoIterator<Item = S>) -> Self {
        let home = tempfile::Builder::new()
            .prefix("konverge-home-")
            .tempdir()
            .expect("a temporary folder");
        let mut command = Command::new(executable);
        command.args(arguments).current_dir(home.path());
        let run = Self {
            command,
            home,
            limit: Duration::from_secs(120),
        };
        let home = run.home.path().to_owned();
        run.env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("GIT_CONFIG_NOSYSTEM", "1")
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn arg_all<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets the current folder.
    pub fn dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Sets the variable for the KCL core.
    pub fn with_kcl(self) -> Self {
        self.env("KONVERGE_KCL", super::kcl::interpreter())
    }

    /// Sets another deadline than two minutes.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// The program does not end in time. The message has its output so far.
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Starts the program, for a test that stops it half-way.
    pub fn start(self) -> Running {
        let description = format!("{:?}", self.command);
        // `bound_to_parent` copies the variables that were set. Remove all others, which the process would inherit.
        let mut command = bound_to_parent(&self.command);
        let inherited = std::env::vars_os().map(|(key, _)| key);
        let set: Vec<_> = self.command.get_envs().map(|(key, _)| key.to_owned()).collect();
        inherited.filter(|key| !set.contains(key)).for_each(|key| {
            command.env_remove(key);
        });
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{description}: {error}"));
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        Running {
            child,
            stdout,
            stderr,
            description,
            home: self.home,
            started: Instant::now(),
            limit: self.limit,
        }
    }
}

/// A running program.
pub struct Running {
    child: Child,
    stdout: JoinHandle<String>,
    stderr: JoinHandle<String>,
    description: String,
    home: TempDir,
    started: Instant,
    limit: Duration,
}

impl Running {
    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns true if the program has ended.
    pub fn has_ended(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("the state of a child can be asked").is_some()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.pid()).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("the process is there");
    }

    /// Waits for the end of the program.
    ///
    /// # Panics
    /// The program does not end in time. The message has its output so far.
    pub fn wait(mut self) -> Outcome {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the state of a child can be asked") {
                break Some(status);
            }
            if self.started.elapsed() > self.limit {
                self.child.kill().expect("it can be killed");
                self.child.wait().expect("it was killed");
                break None;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let elapsed = self.started.elapsed();
        let stdout = self.stdout.join().expect("the reader does not panic");
        let stderr = self.stderr.join().expect("the reader does not panic");
        let Some(status) = status else {
            panic!(
                "{} did not end within {:?}\n{stdout}\n{stderr}",
                self.description, self.limit
            );
        };
        Outcome {
            code: status.code(),
            stdout,
            stderr,
            elapsed,
            description: self.description,
        }
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8(bytes).expect("the output is UTF-8")
    })
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The exit code; absent if a signal ended it.
    pub code: Option<i32>,
    /// The whole standard output.
    pub stdout: String,
    /// The whole standard error.
    pub stderr: String,
    /// The duration from start to end.
    pub elapsed: Duration,
    description: String,
}

impl Outcome {
    /// Returns the outcome itself, if the exit code is `code`.
    ///
    /// # Panics
    /// The exit code differs. The message has the whole output.
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{}\n--- stdout\n{}\n--- stderr\n{}",
            self.description,
            self.stdout,
            self.stderr
        );
        self
    }

    /// Panics with the whole output if the exit code is not `code`.
    pub fn check(&self, code: i32) {
        assert_eq!(
            self.code,
            Some(code),
            "--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
    }

    /// Parses the standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!(
                "{}: not JSON: {error}\n{}\n{}",
                self.description, self.stdout, self.stderr
            )
        })
    }
}
