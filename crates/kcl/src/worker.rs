//! [`Worker`]: a long-lived, sandboxed process with a loaded core. It handles one request at a time.

use std::{
    collections::BTreeMap,
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
    sync::Notify,
};

use super::{
    KclError, PoolOptions,
    protocol::{MAX_ANSWER, WorkerStatus},
    workdir::Workdir,
};
use konverge_base::{error::SharedError, process};
use konverge_sandbox::{SandboxLayers, SandboxProfile};

const SCRIPT: &str = include_str!("worker.py");

/// The maximum time to load the core.
const START: Duration = Duration::from_secs(60);

/// The maximum number of bytes of a worker's standard error that are kept.
const SAID: usize = 64 << 10;

/// A running worker. Dropping it kills the process and deletes its working folder.
pub(super) struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
    said: Arc<WorkerStderr>,
    pub(super) scratch: Workdir,
    _temporary: Option<TempDir>,
    pub(super) served: u32,
    /// The description of missing sandbox layers, if any.
    pub(super) warning: Option<String>,
}

/// The reasons why a call got no response.
#[derive(Debug)]
pub(super) enum WorkerLost {
    /// The deadline passed, and the worker is being killed.
    Deadline,
    /// The worker exited. Holds its exit status and its standard error.
    Ended(ExitStatus, String),
    /// The worker wrote an invalid frame.
    Garbled(String),
}

/// The standard error of a worker, as far as it was read.
#[derive(Default)]
struct WorkerStderr {
    text: Mutex<Vec<u8>>,
    more: Notify,
}

impl Worker {
    /// Starts a worker and waits until it has loaded the core.
    pub(super) async fn start(options: &PoolOptions) -> Result<Self, KclError> {
        let failed = |error: std::io::Error| KclError::Start(error.into());
        let scratch = Workdir::new().map_err(failed)?;
        let temporary = options.temporary_files.then(tempfile::tempdir).transpose();
        let temporary = temporary.map_err(failed)?;
        let sandbox = serde_json::to_string(&sandbox_layers(options, &scratch, temporary.as_ref()))
            .map_err(|error| KclError::Start(error.into()))?;
        let mut command = process::worker(&options.self_exe, ["__worker", &sandbox]);
        let mut child = command.spawn().map_err(|error| {
            KclError::Start(SharedError::from(error).context(format!("`{}`", options.self_exe.display())))
        })?;
        let (Some(requests), Some(answers), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(KclError::Start(
                "the pipes of the worker could not be opened".into(),
            ));
        };
        let said = Arc::new(WorkerStderr::default());
        // Standard error is read all the time: a worker that prints much would block if its pipe were full.
        tokio::spawn(listen(stderr, Arc::clone(&said)));
        let mut worker = Self {
            child,
            requests,
            answers,
            said,
            scratch,
            _temporary: temporary,
            served: 0,
            warning: None,
        };
        match tokio::time::timeout(START, worker.read_answer()).await {
            Ok(Ok((WorkerStatus::Done, _))) => {
                // The worker reports missing sandbox layers as a warning before its first response.
                worker.warning = worker
                    .said
                    .take()
                    .lines()
                    .find_map(|line| line.strip_prefix("warning: ").map(str::to_owned));
                Ok(worker)
            }
            Ok(Ok(_)) => Err(KclError::Start("the core did not load".into())),
            Ok(Err(WorkerLost::Ended(status, said))) => Err(KclError::Start(match said.trim() {
                "" => format!("it ended at once ({status})").into(),
                said => said.trim_start_matches("error: ").into(),
            })),
            Ok(Err(WorkerLost::Garbled(why))) => Err(KclError::Start(
                format!("its first answer cannot be read: {why}").into(),
            )),
            Ok(Err(WorkerLost::Deadline)) => Err(KclError::Start("it did not answer in time".into())),
            Err(_) => Err(KclError::Start(
                format!("the core did not load within {} s", START.as_secs()).into(),
            )),
        }
    }

    /// Sends a frame and waits for the response. After an error the worker must not be used again.
    pub(super) async fn call(
        &mut self,
        frame: &[u8],
        deadline: Duration,
    ) -> Result<(WorkerStatus, Vec<u8>), WorkerLost> {
        self.served += 1;
        let exchange = async {
            // Write errors are ignored: they mean that the worker has exited, and `read_answer` returns the reason.
            let _ = self.requests.write_all(frame).await;
            let _ = self.requests.flush().await;
            let (status, body) = self.read_answer().await?;
            if !body.is_empty() {
                return Ok((status, body));
            }
            // Old cores respond to a panic with an empty body and print it to standard error.
            let said = self.said.up_to_mark().await;
            Ok(if said.trim().is_empty() {
                (status, body)
            } else {
                (WorkerStatus::Panicked, said.into_bytes())
            })
        };
        match tokio::time::timeout(deadline, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                let _ = self.child.start_kill();
                Err(WorkerLost::Deadline)
            }
        }
    }

    /// Returns the current memory of the worker, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let statm = self
            .child
            .id()
            .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok());
        let pages: Option<u64> = statm.and_then(|text| text.split(' ').nth(1)?.parse().ok());
        pages.unwrap_or(0) * 4096
    }

    /// Returns the process id while the worker runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    async fn read_answer(&mut self) -> Result<(WorkerStatus, Vec<u8>), WorkerLost> {
        let Ok(length) = self.answers.read_u32().await else {
            return Err(self.wait_exit().await);
        };
        let length = length as usize;
        if length == 0 || length > MAX_ANSWER {
            return Err(WorkerLost::Garbled(format!("a frame of {length} bytes")));
        }
        let mut frame = vec![0; length];
        if self.answers.read_exact(&mut frame).await.is_err() {
            return Err(self.wait_exit().await);
        }
        let status = WorkerStatus::from_byte(frame[0])
            .ok_or_else(|| WorkerLost::Garbled(format!("status {:#x}", frame[0])))?;
        frame.remove(0);
        Ok((status, frame))
    }

    async fn wait_exit(&mut self) -> WorkerLost {
        match self.child.wait().await {
            Ok(status) => {
                self.said.wait_closed().await;
                WorkerLost::Ended(status, self.said.take())
            }
            Err(error) => WorkerLost::Garbled(error.to_string()),
        }
    }
}

impl WorkerLost {
    /// Returns true if something outside killed the worker: the kernel because memory was short, or an operator.
    pub(super) fn killed_from_outside(&self) -> bool {
        matches!(self, Self::Ended(status, _) if status.signal() == Some(nix::libc::SIGKILL))
    }
}

fn sandbox_layers(options: &PoolOptions, scratch: &Workdir, temporary: Option<&TempDir>) -> SandboxLayers {
    let core = &options.core;
    let mut readable = core.readable.clone();
    readable.push(scratch.root().to_owned());
    readable.extend(options.packages.clone());
    // The core always looks for packages in a vendor folder, so it gets the path of one that does not exist.
    let no_vendor = scratch.root().join(".konverge-no-vendor").display().to_string();
    let mut environment = BTreeMap::from([("KCL_PKG_PATH".to_owned(), no_vendor)]);
    if let Some(folder) = temporary {
        environment.insert("TMPDIR".to_owned(), folder.path().display().to_string());
    }
    SandboxLayers {
        interpreter: core.interpreter.clone(),
        arguments: ["-I", "-S", "-X", "utf8", "-c", SCRIPT]
            .into_iter()
            .map(str::to_owned)
            .chain([core.extension.display().to_string()])
            .collect(),
        environment,
        work_dir: scratch.root().to_owned(),
        readable,
        folders: core.folders.clone(),
        writable: temporary.map(|folder| folder.path().to_owned()),
        file_size: 0,
        memory: options.memory_limit,
        mode: options.sandbox,
        profile: SandboxProfile::Interpreter,
    }
}

async fn listen(mut stderr: ChildStderr, said: Arc<WorkerStderr>) {
    let mut part = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut part).await {
        {
            let mut text = said.text.lock().unwrap_or_else(PoisonError::into_inner);
            text.extend_from_slice(&part[..count]);
            let excess = text.len().saturating_sub(SAID);
            text.drain(..excess);
        }
        said.more.notify_one();
    }
    // The end is marked like the end of a call, so that no caller waits for more output.
    said.text.lock().unwrap_or_else(PoisonError::into_inner).push(END);
    said.more.notify_one();
}

/// The byte that the worker writes to standard error after a call with an empty response.
const MARK: u8 = 0;
/// The byte that is recorded when standard error is closed.
const END: u8 = 4;

impl WorkerStderr {
    fn take(&self) -> String {
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = std::mem::take(&mut *text);
        String::from_utf8_lossy(&bytes).replace([MARK as char, END as char], "")
    }

    async fn up_to_mark(&self) -> String {
        self.wait_for(MARK).await;
        self.take()
    }

    async fn wait_closed(&self) {
        self.wait_for(END).await;
    }

    async fn wait_for(&self, byte: u8) {
        loop {
            let more = self.more.notified();
            let found = {
                let text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
                text.contains(&byte) || text.contains(&END)
            };
            if found {
                return;
            }
            more.await;
        }
    }
}
