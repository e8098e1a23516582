//! [`Pool`]: workers that stay loaded. A worker runs one compilation at a time. A worker that fails is
//! replaced.

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    CompileRequest, Compiled, KclError, Toolchain, compile, diagnostic,
    pool_options::PoolOptions,
    protocol,
    worker::{Worker, WorkerLost},
};

/// The status and the message of a response, with the folder of the files.
type WorkerResponse = (protocol::WorkerStatus, Vec<u8>, PathBuf);

/// The workers that compile. Cheap to clone; dropping the last clone ends them.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    options: PoolOptions,
    permits: Semaphore,
    idle: Mutex<Vec<Worker>>,
    started: AtomicU32,
    warning: Option<String>,
}

impl Pool {
    /// Starts the first worker, so that a broken core or sandbox is reported at once. The others start when they are
    /// needed.
    ///
    /// # Errors
    /// The worker does not start, or a sandbox layer is missing and the mode is `required`.
    pub async fn start(options: PoolOptions) -> Result<Self, KclError> {
        let first = Worker::start(&options).await?;
        let warning = first.warning.clone();
        Ok(Self {
            inner: Arc::new(Inner {
                permits: Semaphore::new(options.workers.max(1)),
                options,
                idle: Mutex::new(vec![first]),
                started: AtomicU32::new(1),
                warning,
            }),
        })
    }

    /// Starts another pool with the same options, whose workers may create empty temporary files in a folder of their
    /// own.
    ///
    /// # Errors
    /// The errors of [`Pool::start`].
    pub async fn start_with_temporary_files(&self) -> Result<Self, KclError> {
        Self::start(PoolOptions {
            temporary_files: true,
            ..self.inner.options.clone()
        })
        .await
    }

    /// Describes the missing sandbox layers; `None` if none is missing.
    pub fn warning(&self) -> Option<&str> {
        self.inner.warning.as_deref()
    }

    /// Returns the KCL core that its workers run.
    pub fn core(&self) -> &Toolchain {
        &self.inner.options.core
    }

    /// Returns the number of workers started so far, including replacements.
    pub fn workers_started(&self) -> u32 {
        self.inner.started.load(Ordering::Relaxed)
    }

    /// Returns the process ids of the idle workers.
    pub fn idle_pids(&self) -> Vec<u32> {
        self.inner.idle().iter().filter_map(Worker::pid).collect()
    }

    /// Compiles one stack.
    ///
    /// # Errors
    /// KCL rejects the code, or the compilation exceeds its time or memory or crashes the worker. Other
    /// stacks are not affected.
    pub async fn compile(&self, request: &CompileRequest) -> Result<Compiled, KclError> {
        let message = |root: &Path| compile::arguments(request, root);
        let (status, body, root) = self.exchange(request, "ExecProgram", message).await?;
        compile::answer(status, &body, &request.label, &root)
    }

    /// Calls a method whose response is one message. Returns the response with the folder of the files.
    pub(super) async fn call<M: Message, R: Message + Default>(
        &self,
        request: &CompileRequest,
        method: &str,
        message: impl Fn(&Path) -> M,
    ) -> Result<(R, PathBuf), KclError> {
        let (status, body, root) = self.exchange(request, method, message).await?;
        let text = String::from_utf8_lossy(&body);
        match status {
            protocol::WorkerStatus::Done => {
                let result = R::decode(body.as_slice()).map_err(|error| KclError::Answer(error.into()))?;
                Ok((result, root))
            }
            protocol::WorkerStatus::Refused => Err(KclError::Code(diagnostic::read(&text, &root))),
            protocol::WorkerStatus::Panicked => Err(KclError::Crash {
                label: request.label.clone(),
                why: diagnostic::plain(&text, &root).trim().to_owned(),
            }),
        }
    }

    /// Writes the files of the request and calls one of the core's methods. `message` builds the call for the
    /// folder of the files.
    async fn exchange<M: Message>(
        &self,
        request: &CompileRequest,
        method: &str,
        message: impl Fn(&Path) -> M,
    ) -> Result<WorkerResponse, KclError> {
        let mut lent = self.acquire_worker().await?;
        let deadline = self.inner.options.deadline;
        let (frame, mut root) = self.prepare(&mut lent, request, method, &message)?;
        let mut answer = lent.worker().call(&frame, deadline).await;
        // If something outside killed the worker (such as the kernel, out of memory), the compilation is tried once
        // more with a new worker: this stack need not be the cause.
        if answer.as_ref().is_err_and(WorkerLost::killed_from_outside) {
            drop(lent);
            lent = self.acquire_worker().await?;
            let (frame, other) = self.prepare(&mut lent, request, method, &message)?;
            answer = lent.worker().call(&frame, deadline).await;
            root = other;
        }
        let (status, body) = answer.map_err(|lost| self.explain(lost, request))?;
        lent.give_back();
        Ok((status, body, root))
    }

    /// Writes the files of a request. Returns the frame to send and the folder of the files.
    fn prepare<M: Message>(
        &self,
        lent: &mut WorkerGuard<'_>,
        request: &CompileRequest,
        method: &str,
        message: impl Fn(&Path) -> M,
    ) -> Result<(Vec<u8>, PathBuf), KclError> {
        let options = &self.inner.options;
        let worker = lent.worker();
        // This blocks, but writing a few small files takes less time than moving the work to another thread.
        worker.scratch.lay(request).map_err(|error| KclError::Scratch {
            label: request.label.clone(),
            why: error.into(),
        })?;
        let root = worker.scratch.root().to_owned();
        Ok((
            protocol::request(&options.core.method(method), &message(&root)),
            root,
        ))
    }

    fn explain(&self, lost: WorkerLost, request: &CompileRequest) -> KclError {
        let label = request.label.clone();
        let memory = self.inner.options.memory_limit >> 20;
        let why = match lost {
            WorkerLost::Deadline => {
                return KclError::Deadline {
                    label,
                    deadline: self.inner.options.deadline,
                };
            }
            WorkerLost::Garbled(why) => format!("invalid response: {why}"),
            WorkerLost::Ended(_, said)
                if said.contains("memory allocation of") || said.contains("MemoryError") =>
            {
                format!("it needed more memory than the {memory} MiB of `kcl.memory_mib`")
            }
            WorkerLost::Ended(status, said) => match status.signal() {
                Some(nix::libc::SIGSEGV) => "the stack overflowed: look for an endless recursion".to_owned(),
                Some(nix::libc::SIGKILL) => {
                    "it was killed twice from outside, by the kernel if memory was short".to_owned()
                }
                _ => {
                    let said = diagnostic::plain(&said, Path::new("/nonexistent"));
                    let first = said
                        .lines()
                        .find(|line| !line.trim().is_empty())
                        .unwrap_or_default();
                    format!("{status} {first}").trim().to_owned()
                }
            },
        };
        KclError::Crash { label, why }
    }

    async fn acquire_worker(&self) -> Result<WorkerGuard<'_>, KclError> {
        let inner = &*self.inner;
        let permit = inner
            .permits
            .acquire()
            .await
            .map_err(|error| KclError::Start(error.into()))?;
        // The lock is released here, because starting a worker takes a while.
        let idle = inner.idle().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => {
                let worker = Worker::start(&inner.options).await?;
                inner.started.fetch_add(1, Ordering::Relaxed);
                worker
            }
        };
        Ok(WorkerGuard {
            inner,
            worker: Some(worker),
            _permit: permit,
        })
    }
}

impl Inner {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker in use. Dropping the guard without [`WorkerGuard::give_back`] kills the worker.
struct WorkerGuard<'pool> {
    inner: &'pool Inner,
    worker: Option<Worker>,
    _permit: SemaphorePermit<'pool>,
}

impl WorkerGuard<'_> {
    fn worker(&mut self) -> &mut Worker {
        self.worker
            .as_mut()
            .expect("taken only by give_back, which consumes self")
    }

    fn give_back(mut self) {
        let options = &self.inner.options;
        if let Some(worker) = self.worker.take()
            && worker.served < options.serve
            // A worker that uses much memory is replaced, so that its next compilation does not hit the limit.
            && worker.memory_bytes() < options.memory_limit / 2
        {
            self.inner.idle().push(worker);
        }
    }
}
