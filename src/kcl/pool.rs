//! [`Pool`]: workers kept ready; each compile gets one to itself and a worker that misbehaves is replaced.

use std::{
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use prost::Message;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    CompileRequest, Compiled, KclError, SandboxMode, Toolchain, compile, diagnostic, protocol,
    worker::{Worker, WorkerLost},
};

/// How a pool works.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The core.
    pub core: Toolchain,
    /// The `konverge` binary, which is started as `konverge __worker`.
    pub self_exe: PathBuf,
    /// How many compiles run at once.
    pub workers: usize,
    /// Bytes of address space for one worker.
    pub memory_limit: u64,
    /// For one compile.
    pub deadline: Duration,
    /// What to do where a wall cannot be put up.
    pub sandbox: SandboxMode,
    /// The folder of fetched packages, which workers may read.
    pub packages: Option<PathBuf>,
    /// A worker is replaced after so many compiles.
    pub serve: u32,
}

impl PoolOptions {
    /// One worker a processor, 2 GiB, one minute, the full sandbox.
    pub fn new(core: Toolchain, self_exe: PathBuf) -> Self {
        Self {
            core,
            self_exe,
            workers: std::thread::available_parallelism().map_or(2, usize::from),
            memory_limit: 2 << 30,
            deadline: Duration::from_secs(60),
            sandbox: SandboxMode::Required,
            packages: None,
            serve: 1000,
        }
    }
}

/// Status, message, and the folder where the files lay.
pub(super) type WorkerAnswer = (protocol::WorkerStatus, Vec<u8>, PathBuf);

/// Workers that compile. Cheap to clone; dropping the last clone ends them.
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
    /// Starts the first worker, so that a core or a sandbox that does not work is known at once; the others start when
    /// there is work for them.
    ///
    /// # Errors
    /// The worker does not start, or a wall is missing and the mode is `required`.
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

    /// The walls that are missing, in words; `None` if all stand.
    pub fn warning(&self) -> Option<&str> {
        self.inner.warning.as_deref()
    }

    /// The core that compiles.
    pub fn core(&self) -> &Toolchain {
        &self.inner.options.core
    }

    /// How many workers were started so far, replacements included.
    pub fn workers_started(&self) -> u32 {
        self.inner.started.load(Ordering::Relaxed)
    }

    /// The process ids of the workers that wait for work.
    pub fn idle_pids(&self) -> Vec<u32> {
        self.inner.idle().iter().filter_map(Worker::pid).collect()
    }

    /// Compiles one stack.
    ///
    /// # Errors
    /// KCL refuses the code, or the compile exceeds its time or memory or takes the worker down: of that one stack.
    pub async fn compile(&self, request: &CompileRequest) -> Result<Compiled, KclError> {
        let message = |root: &Path| compile::arguments(request, root);
        let (status, body, root) = self.exchange(request, "ExecProgram", message).await?;
        compile::answer(status, &body, &request.label, &root)
    }

    /// Lays the request's files and calls one of the core's methods; the message is made for the folder where they lie.
    pub(super) async fn exchange<M: Message>(
        &self,
        request: &CompileRequest,
        method: &str,
        message: impl Fn(&Path) -> M,
    ) -> Result<WorkerAnswer, KclError> {
        let mut lent = self.lend().await?;
        let answer = match self.attempt(&mut lent, request, method, &message).await? {
            Ok(answer) => answer,
            // Killed from outside: not this stack's fault, until it happens again.
            Err(lost) if lost.killed_from_outside() => {
                drop(lent);
                lent = self.lend().await?;
                self.attempt(&mut lent, request, method, &message)
                    .await?
                    .map_err(|lost| self.explain(lost, request))?
            }
            Err(lost) => return Err(self.explain(lost, request)),
        };
        lent.give_back();
        Ok(answer)
    }

    async fn attempt<M: Message>(
        &self,
        lent: &mut BorrowedWorker<'_>,
        request: &CompileRequest,
        method: &str,
        message: impl Fn(&Path) -> M,
    ) -> Result<Result<WorkerAnswer, WorkerLost>, KclError> {
        let options = &self.inner.options;
        let worker = lent.worker();
        // Writing a few small files takes less than handing the folder to another thread.
        worker.scratch.lay(request).map_err(|error| KclError::Scratch {
            label: request.label.clone(),
            why: error.to_string(),
        })?;
        let root = worker.scratch.root().to_owned();
        let frame = protocol::request(&options.core.method(method), &message(&root));
        let answer = worker.call(&frame, options.deadline).await;
        Ok(answer.map(|(status, body)| (status, body, root)))
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
            WorkerLost::Garbled(why) => format!("it answered nonsense: {why}"),
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

    async fn lend(&self) -> Result<BorrowedWorker<'_>, KclError> {
        let inner = &*self.inner;
        let permit = inner
            .permits
            .acquire()
            .await
            .map_err(|error| KclError::Start(error.to_string()))?;
        let idle = inner.idle().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => {
                let worker = Worker::start(&inner.options).await?;
                inner.started.fetch_add(1, Ordering::Relaxed);
                worker
            }
        };
        Ok(BorrowedWorker {
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

/// A worker in use; dropped without [`BorrowedWorker::give_back`] it is killed.
struct BorrowedWorker<'pool> {
    inner: &'pool Inner,
    worker: Option<Worker>,
    _permit: SemaphorePermit<'pool>,
}

impl BorrowedWorker<'_> {
    fn worker(&mut self) -> &mut Worker {
        self.worker
            .as_mut()
            .expect("taken only by give_back, which consumes self")
    }

    fn give_back(mut self) {
        let options = &self.inner.options;
        if let Some(worker) = self.worker.take()
            && worker.served < options.serve
            && worker.resident() < options.memory_limit / 2
        {
            self.inner.idle().push(worker);
        }
    }
}
