//! [`generate`]: one call of a module in a process of its own.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use h2::client::SendRequest;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, BufReader},
    net::{TcpStream, UnixStream},
    process::{Child, ChildStdout},
};

use super::{
    ModuleError, ModuleReply, ModuleRequest,
    grpc::GrpcCall,
    handshake::{APPLICATION, ModuleAddress},
    messages::Empty,
    plugin_output::{PluginOutput, drain},
};
use konverge_base::{error::SharedError, process, variables};
use konverge_sandbox::{MISSING, SandboxLayers, SandboxMode, SandboxProfile};

/// Maximum time for which a module may go on running after its response before it is killed.
const ENDING: Duration = Duration::from_secs(2);
/// gRPC's status code for a method that the server does not have.
const UNIMPLEMENTED: u32 = 12;

/// The maximum length of the handshake.
const LINE: u64 = 4096;

/// The maximum size of a file that a module writes in its folder.
const FILE_SIZE: u64 = 64 << 20;

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleLimits {
    /// Maximum time of the whole call.
    pub time: Duration,
    /// Maximum address space in bytes.
    pub memory: u64,
    /// Maximum size of the response in bytes.
    pub answer: usize,
    /// Maximum number of bytes on standard output, on standard error, and in go-plugin's stream of either.
    pub output: usize,
}

impl Default for ModuleLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            memory: 4 << 30,
            answer: 64 << 20,
            output: 16 << 20,
        }
    }
}

/// A module, with its files, permissions and limits.
#[derive(Debug, Clone)]
pub struct ModuleSetup {
    /// The name of the module.
    pub name: String,
    /// The module's binary.
    pub binary: PathBuf,
    /// The `konverge` binary, which sets up the sandbox.
    pub executable: PathBuf,
    /// The folder that holds the files of the stack.
    pub files: PathBuf,
    /// The folder within `files` in which the module starts.
    pub work_dir: PathBuf,
    /// Other paths that the module may read.
    pub readable: Vec<PathBuf>,
    /// Environment variables besides those of the protocol.
    pub environment: BTreeMap<String, String>,
    /// True if the module may use the network.
    pub network: bool,
    /// Behaviour if a layer of the sandbox is not available.
    pub sandbox: SandboxMode,
    /// The limits of the process.
    pub limits: ModuleLimits,
}

/// A response, with the handshake and warnings of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleRun {
    /// The module's response.
    pub reply: ModuleReply,
    /// The first line of output, by which the module announced its address.
    pub handshake: String,
    /// Describes the missing layers of the sandbox.
    pub warning: Option<String>,
}

/// Calls a module once.
///
/// # Errors
/// The module cannot be started, violates the protocol or its limits, or refuses the request.
pub async fn generate(setup: &ModuleSetup, request: &ModuleRequest) -> Result<ModuleRun, ModuleError> {
    let mut plugin = Plugin::start(setup)?;
    let called = tokio::time::timeout(setup.limits.time, plugin.call(setup, request)).await;
    called.unwrap_or(Err(ModuleError::Deadline(setup.limits.time)))
}

/// A running module. Dropping it kills the process and its children.
struct Plugin {
    child: Child,
    group: Option<Pid>,
    said: PluginOutput,
    /// The temporary folder that holds the module's socket.
    folder: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Other processes of the group survive the first one, so the whole group is killed.
        if let Some(group) = self.group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Plugin {
    fn start(setup: &ModuleSetup) -> Result<Self, ModuleError> {
        let failed = |error: std::io::Error| ModuleError::Start(error.into());
        // The prefix is short because the path of a Unix socket has at most 107 bytes.
        let temporary = tempfile::Builder::new()
            .prefix("kvm-")
            .tempdir()
            .map_err(failed)?;
        let folder = temporary.path().canonicalize().map_err(failed)?;
        let sandbox = serde_json::to_string(&sandbox_layers(setup, &folder))
            .map_err(|error| ModuleError::Start(error.into()))?;
        let mut command = process::worker(&setup.executable, ["__worker", &sandbox]);
        command.stdin(Stdio::null());
        let child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(|id| i32::try_from(id).ok());
        Ok(Self {
            child,
            group: group.map(Pid::from_raw),
            said: PluginOutput::default(),
            folder,
            _folder: temporary,
        })
    }

    async fn call(&mut self, setup: &ModuleSetup, request: &ModuleRequest) -> Result<ModuleRun, ModuleError> {
        let stdout = self.child.stdout.take().expect("it was asked for");
        let stderr = self.child.stderr.take().expect("it was asked for");
        let said = self.said.clone();
        let most = setup.limits.output;
        // Shared, because the end of standard error is awaited again below for the cause of a failure.
        let listening = said.keep(stderr, most).shared();
        let exchange = self.exchange(setup, request, stdout);
        tokio::pin!(exchange);
        tokio::select! {
            // Only the limit on output is an error here: a module may close standard error and still
            // respond.
            Err(error) = listening.clone() => Err(error),
            done = &mut exchange => match done {
                Err(ModuleError::EndedEarly { status, .. }) => {
                    listening.await?;
                    Err(early(&said, status))
                }
                Err(ModuleError::Lost(_)) => {
                    // The module may have closed only the connection and go on running, so this wait has a
                    // limit.
                    let _ = tokio::time::timeout(ENDING, listening).await;
                    Err(ModuleError::Lost(said.defect()))
                }
                other => other.map(|run| ModuleRun { warning: said.sandbox_line("warning: "), ..run }),
            },
        }
    }

    async fn exchange(
        &mut self,
        setup: &ModuleSetup,
        request: &ModuleRequest,
        stdout: ChildStdout,
    ) -> Result<ModuleRun, ModuleError> {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        let read = (&mut stdout).take(LINE).read_until(b'\n', &mut line).await;
        if read.is_err() || line.is_empty() {
            return Err(self.ended_early().await);
        }
        let line = String::from_utf8_lossy(&line).into_owned();
        let address = ModuleAddress::parse(&line, &self.folder, setup.network)?;
        let reply = async {
            match address {
                ModuleAddress::Unix(path) => {
                    ask(connect_error(UnixStream::connect(path).await)?, setup, request).await
                }
                ModuleAddress::Tcp(address) => {
                    ask(connect_error(TcpStream::connect(address).await)?, setup, request).await
                }
            }
        };
        let (reply, ends) = tokio::select! {
            Err(error) = drain(stdout, setup.limits.output, |_| {}) => Err(error),
            reply = reply => reply,
        }?;
        // A module that understood the shutdown may exit by itself. Any other is killed when the `Plugin`
        // is dropped.
        if ends {
            let _ = tokio::time::timeout(ENDING, self.child.wait()).await;
        }
        Ok(ModuleRun {
            reply,
            handshake: line.trim_end().to_owned(),
            warning: None,
        })
    }

    async fn ended_early(&mut self) -> ModuleError {
        let status = match self.child.wait().await {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (None, signal) => format!("signal {}", signal.unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        };
        ModuleError::EndedEarly {
            status,
            said: String::new(),
        }
    }
}

fn connect_error<T>(connection: std::io::Result<T>) -> Result<T, ModuleError> {
    connection.map_err(|error| {
        ModuleError::Start(
            SharedError::from(error).context("nothing listens at the address in its handshake"),
        )
    })
}

/// Returns the error for a process that exited before the handshake: the sandbox's own error, or else the
/// last lines of the module's output.
fn early(said: &PluginOutput, status: String) -> ModuleError {
    match said.sandbox_line("error: ") {
        Some(line) if line.contains(MISSING) => ModuleError::Sandbox(line),
        Some(line) => ModuleError::Start(line.into()),
        None => ModuleError::EndedEarly {
            status,
            said: said.last_lines(),
        },
    }
}

/// Calls the module over a connection, then asks it to shut down. The second value is false if the module
/// does not support the shutdown.
async fn ask(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    setup: &ModuleSetup,
    request: &ModuleRequest,
) -> Result<(ModuleReply, bool), ModuleError> {
    let lost = |_| ModuleError::Lost(String::new());
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(1 << 20).max_frame_size(1 << 20);
    let (client, connection) = builder.handshake(connection).await.map_err(lost)?;
    let asked = async {
        let call = GrpcCall {
            path: "/Module/Generate",
            metadata: &[("kusion_module_name", setup.name.as_str())],
            most: setup.limits.answer,
        };
        let reply = tokio::select! {
            Err(error) = listen(client.clone(), setup.limits.output) => return Err(error),
            reply = call.unary(client.clone(), request) => reply?,
        };
        let shutdown = GrpcCall {
            path: "/plugin.GRPCController/Shutdown",
            metadata: &[],
            most: 1024,
        };
        // A module in another language than Go may not know this method, and would not exit.
        let ended = tokio::time::timeout(ENDING, shutdown.unary::<Empty>(client, &Empty {})).await;
        let is_unknown = matches!(
            ended,
            Ok(Err(ModuleError::Refused {
                code: UNIMPLEMENTED,
                ..
            }))
        );
        Ok((reply, !is_unknown))
    };
    // This future never completes: a closed connection fails the calls over it, and a module closes it
    // after its response, which must not count as a failure.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        reply = asked => reply,
        never = driven => match never {},
    }
}

/// Reads the output that go-plugin sends over the connection after the handshake, because a module that
/// nobody reads blocks when the pipe is full. Returns only with an error, above the limit.
async fn listen(client: SendRequest<Bytes>, most: usize) -> Result<(), ModuleError> {
    let call = GrpcCall {
        path: "/plugin.GRPCStdio/StreamStdio",
        metadata: &[],
        most,
    };
    let mut read = 0;
    if let Ok(mut answer) = call.start(client, &Empty {}).await {
        while let Some(Ok(part)) = answer.body_mut().data().await {
            read += part.len();
            if read > most {
                return Err(ModuleError::TooMuchOutput(most));
            }
            let _ = answer.body_mut().flow_control().release_capacity(part.len());
        }
    }
    std::future::pending().await
}

fn sandbox_layers(setup: &ModuleSetup, folder: &Path) -> SandboxLayers {
    let own = folder.display().to_string();
    let environment = [
        ("MODULE_PLUGIN", "ON"),
        ("PLUGIN_PROTOCOL_VERSIONS", APPLICATION),
        ("PLUGIN_MIN_PORT", "10000"),
        ("PLUGIN_MAX_PORT", "25000"),
        ("PLUGIN_UNIX_SOCKET_DIR", own.as_str()),
        ("TMPDIR", own.as_str()),
        (variables::HOME, own.as_str()),
        (variables::PATH, "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut all = setup.environment.clone();
    all.extend(environment);
    let mut readable = setup.readable.clone();
    readable.extend([setup.binary.clone(), setup.files.clone()]);
    SandboxLayers {
        interpreter: setup.binary.clone(),
        arguments: Vec::new(),
        environment: all,
        work_dir: setup.work_dir.clone(),
        readable,
        folders: Vec::new(),
        writable: Some(folder.to_owned()),
        file_size: FILE_SIZE,
        memory: setup.limits.memory,
        mode: setup.sandbox,
        profile: SandboxProfile::Module {
            network: setup.network,
        },
    }
}
