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
    process::{Child, ChildStdout, Command},
};

use super::{
    ModuleError, ModuleReply, ModuleRequest,
    grpc::GrpcCall,
    handshake::{APPLICATION, ModuleAddress},
    messages::Empty,
    plugin_output::{PluginOutput, drain},
};
use konverge_base::{error::SharedError, process::die_with_parent, variables};
use konverge_sandbox::{MISSING, SandboxLayers, SandboxMode, SandboxProfile};

/// Maximum time for a module to end by itself after its response.
const ENDING: Duration = Duration::from_secs(2);
/// The status of gRPC for a method that the server does not have.
const UNIMPLEMENTED: u32 = 12;

/// The maximum length of the handshake.
const LINE: u64 = 4096;

/// The maximum size of a file that a module writes in its folder.
const FILE_SIZE: u64 = 64 << 20;

/// The bounds of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModuleLimits {
    /// Maximum time of the whole call.
    pub time: Duration,
    /// The address space in bytes.
    pub memory: u64,
    /// The bytes of the answer.
    pub answer: usize,
    /// The bytes on standard output, on standard error, and of either within go-plugin.
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

/// A module, and what it may do.
#[derive(Debug, Clone)]
pub struct ModuleSetup {
    /// The name of the module.
    pub name: String,
    /// The module's binary.
    pub binary: PathBuf,
    /// The `konverge` binary, which puts up the sandbox.
    pub executable: PathBuf,
    /// The folder that holds the files of the stack.
    pub files: PathBuf,
    /// The folder in it where the module starts.
    pub work_dir: PathBuf,
    /// Other paths that the module may read.
    pub readable: Vec<PathBuf>,
    /// Variables of its environment, beside those of the protocol.
    pub environment: BTreeMap<String, String>,
    /// True if the module may use the network.
    pub network: bool,
    /// Behaviour if a layer of the sandbox is not available.
    pub sandbox: SandboxMode,
    /// The limits of the process.
    pub limits: ModuleLimits,
}

/// An answer, and what else is worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleRun {
    /// The module's answer.
    pub reply: ModuleReply,
    /// The first line of output.
    pub handshake: String,
    /// Describes the missing layers of the sandbox.
    pub warning: Option<String>,
}

/// Calls a module once.
///
/// # Errors
/// It cannot be started, does not keep to the protocol or its limits, or refuses the request.
pub async fn generate(setup: &ModuleSetup, request: &ModuleRequest) -> Result<ModuleRun, ModuleError> {
    let mut plugin = Plugin::start(setup)?;
    let called = tokio::time::timeout(setup.limits.time, plugin.call(setup, request)).await;
    called.unwrap_or(Err(ModuleError::Deadline(setup.limits.time)))
}

/// A running module. Dropping it kills it with everything that it started.
struct Plugin {
    child: Child,
    group: Option<Pid>,
    said: PluginOutput,
    /// Its own folder, for its socket.
    folder: PathBuf,
    _folder: tempfile::TempDir,
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // The group outlives its first process if that started others.
        if let Some(group) = self.group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

impl Plugin {
    fn start(setup: &ModuleSetup) -> Result<Self, ModuleError> {
        let failed = |error: std::io::Error| ModuleError::Start(error.into());
        // The path of a socket has at most 107 bytes.
        let temporary = tempfile::Builder::new()
            .prefix("kvm-")
            .tempdir()
            .map_err(failed)?;
        let folder = temporary.path().canonicalize().map_err(failed)?;
        let sandbox = serde_json::to_string(&sandbox_layers(setup, &folder))
            .map_err(|error| ModuleError::Start(error.into()))?;
        let mut command = Command::new(&setup.executable);
        command
            .arg("__worker")
            .arg(sandbox)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0);
        die_with_parent(&mut command);
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
        // What ended is asked again.
        let listening = said.keep(stderr, most).shared();
        let exchange = self.exchange(setup, request, stdout);
        tokio::pin!(exchange);
        tokio::select! {
            // A stream that ended says nothing about the answer.
            Err(error) = listening.clone() => Err(error),
            done = &mut exchange => match done {
                Err(ModuleError::EndedEarly { status, .. }) => {
                    listening.await?;
                    Err(early(&said, status))
                }
                Err(ModuleError::Lost(_)) => {
                    // It may be that it has only closed the connection.
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
        // A process that does not end is killed.
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

/// A process that exited before the handshake: the sandbox says so itself.
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

/// Asks over a connection, and asks the process to end. Returns whether it knows that question.
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
        // A module in another language may not know it, and would not end.
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
    // A connection that ends fails what is asked over it. After the answer the module closes it.
    let driven = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        reply = asked => reply,
        never = driven => match never {},
    }
}

/// Reads what the module prints since it serves: go-plugin sends it over the connection, and a module that nobody reads
/// stops when the pipe is full. Ends with an error above the limit, otherwise never.
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
