//! [`RuleWorker`]: a process that parses and evaluates rules, one request at a time.

use std::{collections::BTreeSet, os::unix::process::ExitStatusExt, path::Path, time::Duration};

use nix::libc;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout},
};

use super::{
    protocol::{Answer, MAX_ANSWER, Request, RuleLimits},
    sent_document::KeptDocument,
};
use konverge_base::{model::Digest, process};

/// The maximum of a worker's standard error that is read, in bytes. It may contain secrets, so it is never shown.
const SAID: u64 = 64 << 10;

/// A running worker; dropping it kills it.
pub(super) struct RuleWorker {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
    limits: RuleLimits,
    /// The digests of the sets that the worker has parsed.
    pub(super) parsed: BTreeSet<Digest>,
    /// The last document that the worker received.
    pub(super) document: Option<KeptDocument>,
}

/// Reasons why a request has no response. The worker has ended in all cases.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WorkerEnd {
    #[error("the worker for rules did not start ({0})")]
    NotStarted(String),
    /// The worker reached its limit of processor time.
    #[error("it took more than {} s of processor time", .0.as_secs())]
    Time(Duration),
    /// The worker reached its wall-clock deadline.
    #[error("it did not end within {} s", .0.as_secs())]
    Deadline(Duration),
    /// The worker reached its memory limit, in bytes.
    #[error("it needed more than {} MiB of memory", .0 >> 20)]
    Memory(u64),
    #[error("it is nested too deeply, or never ends: the stack overflowed")]
    StackOverflow,
    /// Something outside killed the worker.
    #[error("its worker was killed twice from outside, by the kernel if memory was short")]
    Killed,
    #[error("its worker crashed")]
    Crashed,
    /// The worker refused the request, or sent an unexpected response.
    #[error("its worker gave no usable answer")]
    NoAnswer,
}

impl RuleWorker {
    /// Starts a worker. An error of the new process shows only in the first [`Self::call`].
    pub(super) fn start(executable: Option<&Path>, limits: RuleLimits) -> Result<Self, WorkerEnd> {
        let failed = |error: std::io::Error| WorkerEnd::NotStarted(error.to_string());
        let executable = match executable {
            Some(path) => path.to_owned(),
            None => std::env::current_exe().map_err(failed)?,
        };
        let settings = serde_json::to_string(&limits);
        let settings = settings.map_err(|error| WorkerEnd::NotStarted(error.to_string()))?;
        let mut command = process::worker(&executable, ["__rules", &settings]);
        // By default the allocator reserves a GiB of the address space at once, which would exceed the limit.
        command.env("MIMALLOC_ARENA_RESERVE", "64M");
        let mut child = command.spawn().map_err(failed)?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(WorkerEnd::NotStarted("it has no pipes".to_owned()));
        };
        Ok(Self {
            child,
            requests,
            answers,
            limits,
            parsed: BTreeSet::new(),
            document: None,
        })
    }

    /// Sends a request and waits for the response. After an error the worker is unusable.
    pub(super) async fn call(&mut self, request: Request) -> Result<Answer, WorkerEnd> {
        // Serializing a large document is slow, so it does not run on the async threads.
        let frame = tokio::task::spawn_blocking(move || frame(&request)).await;
        let frame = frame.ok().flatten().ok_or(WorkerEnd::NoAnswer)?;
        let deadline = self.limits.deadline();
        let exchange = async {
            // A failed write means that the worker has ended. The read below reports the reason.
            let _ = self.requests.write_all(&frame).await;
            let _ = self.requests.flush().await;
            self.read_answer().await
        };
        match tokio::time::timeout(deadline, exchange).await {
            Ok(answer) => answer,
            Err(_) => {
                let _ = self.child.start_kill();
                Err(WorkerEnd::Deadline(deadline))
            }
        }
    }

    /// Returns the process id; `None` if the worker has ended.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    async fn read_answer(&mut self) -> Result<Answer, WorkerEnd> {
        let Ok(length) = self.answers.read_u32().await else {
            return Err(self.end().await);
        };
        let length = length as usize;
        if length > MAX_ANSWER {
            return Err(WorkerEnd::NoAnswer);
        }
        let mut answer = vec![0; length];
        if self.answers.read_exact(&mut answer).await.is_err() {
            return Err(self.end().await);
        }
        serde_json::from_slice(&answer).map_err(|_| WorkerEnd::NoAnswer)
    }

    /// Waits for the end of the process, and returns its reason.
    async fn end(&mut self) -> WorkerEnd {
        let mut said = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _ = stderr.take(SAID).read_to_end(&mut said).await;
        }
        let said = String::from_utf8_lossy(&said);
        let Ok(status) = self.child.wait().await else {
            return WorkerEnd::Crashed;
        };
        match status.signal() {
            Some(libc::SIGXCPU) => WorkerEnd::Time(self.limits.time),
            Some(libc::SIGKILL) => WorkerEnd::Killed,
            _ if said.contains("memory allocation of") => WorkerEnd::Memory(self.limits.memory),
            _ if said.contains("has overflowed its stack") => WorkerEnd::StackOverflow,
            None if self.parsed.is_empty() && self.document.is_none() && said.starts_with("error: ") => {
                let why = said.lines().next().unwrap_or_default();
                WorkerEnd::NotStarted(why.trim_start_matches("error: ").to_owned())
            }
            _ => WorkerEnd::Crashed,
        }
    }
}

/// Serializes a request with its length.
fn frame(request: &Request) -> Option<Vec<u8>> {
    let mut frame = vec![0; 4];
    serde_json::to_writer(&mut frame, request).ok()?;
    let length = u32::try_from(frame.len() - 4).ok()?;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    Some(frame)
}
