//! Server processes that live as long as the test process and no longer, however it ends: also by SIGKILL.
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

/// A started server; dropping it ends it.
pub struct Service {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts `command`, its output in `<name>.log` under `folder`.
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

    /// Waits until `ready` answers.
    ///
    /// # Panics
    /// With the end of the log, if the process ends before that or `limit` passes.
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

    /// Waits until the words stand in its log.
    pub fn wait_for_words(&mut self, words: &str, limit: Duration) {
        let log = self.log.clone();
        self.wait_until(limit, || {
            std::fs::read_to_string(&log).ok()?.contains(words).then_some(())
        });
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        // Already gone is as good.
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

/// The same command, killed by the kernel when the thread that starts it ends.
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

/// A process to be started, and where its handle goes.
struct Order {
    command: Command,
    answer: Sender<std::io::Result<Child>>,
}

/// The thread that starts every server.
fn keeper() -> Sender<Order> {
    static KEEPER: OnceLock<Mutex<Sender<Order>>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (sender, receiver) = channel::<Order>();
        std::thread::spawn(move || {
            for Order { mut command, answer } in receiver {
                // A caller that panicked meanwhile does not want its answer.
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    keeper.lock().expect("nobody panics while holding it").clone()
}

/// A new folder for a server's data and log, in memory where there is enough of it, removed after the process ended
/// (kept with `KONVERGE_TEST_KEEP=1`).
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
        // A server that runs as another user has to come through.
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

/// Waits for the end of this process, which closes its input, and removes the folder. The servers are being killed
/// at the same moment and may still write, hence the repetition.
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

/// A block of ports of 127.0.0.1 that no other test process takes: it holds the first one while it lives.
///
/// Blocks lie outside the range from which the kernel gives ports to anyone who asks for any, so none of them is handed
/// out between the look and the server's own bind.
pub struct Ports {
    guard: TcpListener,
    first: u16,
}

impl Ports {
    const BLOCK: u16 = 8;

    /// Takes a free block.
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
        // Processes that start together begin their search at different places.
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

    /// The nth port of the block, from 1 to 7.
    pub fn nth(&self, nth: u16) -> u16 {
        assert!(
            (1..Self::BLOCK).contains(&nth),
            "a block has seven ports besides its guard"
        );
        self.first + nth
    }
}

/// Polls `condition` until it answers.
///
/// # Panics
/// Naming `what`, if it does not within `limit`.
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
