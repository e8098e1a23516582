//! Server processes that end with the test process, however it ends: even by SIGKILL.
//!
//! Linux ends them through their parent-death signal, which `setpriv` sets before it becomes the server. That signal
//! follows the *thread* that started them, and test threads come and go, so one thread starts them all and stays.
//! A shell that waits for the end of its input removes their folder afterwards.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// A started server. It is killed on drop.
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `command`. Its output goes to `<name>.log` in `folder`.
    pub fn start(name: &str, command: &Command, folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let output = std::fs::File::create(&log).expect("the log can be written");
        let mut bound = bound_to_parent(command);
        bound
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output);
        let (answer, child) = channel();
        keeper()
            .send(Order {
                command: bound,
                answer,
            })
            .expect("the keeper lives as long as the process");
        let child = child.recv().expect("the keeper answers");
        let child = child.unwrap_or_else(|error| panic!("{name} cannot be started: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Waits until `ready` returns a value.
    ///
    /// # Panics
    /// The process ends before that, or `limit` passes. The message has the end of the log.
    pub fn wait_until<T>(&mut self, limit: Duration, mut ready: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(answer) = ready() {
                return answer;
            }
            if let Some(status) = self.child.try_wait().expect("the state of a child can be asked") {
                panic!(
                    "{} ended ({status}) before it was ready:\n{}",
                    self.name,
                    self.log_end()
                );
            }
            assert!(
                started.elapsed() < limit,
                "{} is not ready after {limit:?}:\n{}",
                self.name,
                self.log_end()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until something accepts connections on the port of 127.0.0.1.
    pub fn wait_for_port(&mut self, port: u16, limit: Duration) {
        self.wait_until(limit, || TcpStream::connect(("127.0.0.1", port)).ok());
    }

    /// Waits until the log contains these words.
    pub fn wait_for_words(&mut self, words: &str, limit: Duration) {
        let log = self.log.clone();
        self.wait_until(limit, || {
            std::fs::read_to_string(&log).ok()?.contains(words).then_some(())
        });
    }

    /// Kills the server, as a power cut would.
    pub fn kill(&mut self) {
        // Ignore an error: the process may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the same command, bound to its parent: the kernel kills it when the thread that started it ends.
pub fn bound_to_parent(command: &Command) -> Command {
    let mut bound = Command::new("setpriv");
    bound
        .args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(key, value),
            None => bound.env_remove(key),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

/// A process to start, and the channel for its handle.
struct Order {
    command: Command,
    answer: Sender<std::io::Result<Child>>,
}

/// Returns the channel to the thread that starts every server.
fn keeper() -> Sender<Order> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, receiver) = channel::<Order>();
        std::thread::spawn(move || {
            for Order { mut command, answer } in receiver {
                // Ignore an error: the caller panicked and does not need the handle.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    keeper.lock().expect("nobody panics while holding it").clone()
}

/// Creates a folder for a server's data and log, in memory if there is enough of it. It is removed after the process
/// has ended, unless `KONVERGE_TEST_KEEP=1` is set.
pub fn folder(name: &str) -> PathBuf {
    static SESSION: OnceLock<(PathBuf, Option<Child>)> = OnceLock::new();
    let (session, _) = SESSION.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let roomy = nix::sys::statvfs::statvfs(memory)
            .is_ok_and(|fs| fs.blocks_available() * fs.fragment_size() > 2 << 30);
        let parent = if roomy {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        let session = tempfile::Builder::new()
            .prefix("konverge-test-")
            .tempdir_in(parent)
            .expect("a temporary folder can be made")
            .keep();
        // A server that runs as another user must be able to pass through this folder.
        std::fs::set_permissions(&session, std::fs::Permissions::from_mode(0o711)).expect("it is ours");
        let remover = std::env::var_os("KONVERGE_TEST_KEEP")
            .is_none()
            .then(|| remover(&session));
        (session, remover)
    });
    tempfile::Builder::new()
        .prefix(&format!("{name}-"))
        .tempdir_in(session)
        .expect("a temporary folder can be made")
        .keep()
}

/// Starts a shell that waits for the end of this process, which closes its input, and then removes the folder. The
/// servers are killed at the same moment and may still write, so the removal is repeated.
fn remover(folder: &Path) -> Child {
    const SCRIPT: &str = r#"trap "" INT TERM HUP; read _; for i in 1 2 3 4 5 6 7 8 9; do rm -rf -- "$1" && break; sleep 0.2; done"#;
    Command::new("sh")
        .args(["-c", SCRIPT, "remover"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh can be started")
}

/// A block of ports of 127.0.0.1 that no other test process takes: while it lives, it listens on the first port.
///
/// Blocks are outside of the kernel's range of ephemeral ports, so nobody gets one of these ports by chance before the
/// server binds it.
pub struct Ports {
    guard: TcpListener,
    first: u16,
}

impl Ports {
    const BLOCK: u16 = 8;

    /// Claims a free block.
    pub fn claim() -> Self {
        let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
        let lowest_ephemeral = range
            .split_whitespace()
            .next()
            .and_then(|low| low.parse().ok())
            .unwrap_or(32_768u16);
        let (from, to) = if lowest_ephemeral > 22_000 {
            (20_000, lowest_ephemeral)
        } else {
            (61_000, u16::MAX)
        };
        let blocks = (to - from) / Self::BLOCK;
        // Processes that start at the same time begin their search at different blocks.
        let offset = (std::process::id() % u32::from(blocks)) as u16;
        let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
        (0..blocks)
            .map(|block| from + (block + offset) % blocks * Self::BLOCK)
            .find_map(|first| {
                let guard = free(first)?;
                (1..Self::BLOCK)
                    .all(|nth| free(first + nth).is_some())
                    .then_some(Self { guard, first })
            })
            .expect("a free block of ports")
    }

    /// Returns the nth port of the block, from 1 to 7.
    pub fn nth(&self, nth: u16) -> u16 {
        assert!(
            (1..Self::BLOCK).contains(&nth),
            "a block has seven ports besides its guard"
        );
        self.first + nth
    }
}

/// Polls `condition` until it returns a value.
///
/// # Panics
/// `condition` returns no value within `limit`. The message names `what`.
pub async fn eventually<T, F>(what: &str, limit: Duration, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(answer) = condition().await {
            return answer;
        }
        assert!(started.elapsed() < limit, "{what}: not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
