//! [`PoolOptions`]: the options and limits of a worker pool.

use std::{path::PathBuf, time::Duration};

use super::{SandboxMode, Toolchain};

/// The options of a pool.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// The KCL core that the workers run.
    pub core: Toolchain,
    /// The `konverge` binary, which is started as `konverge __worker`.
    pub self_exe: PathBuf,
    /// The number of workers, and so of concurrent compilations.
    pub workers: usize,
    /// The maximum address space of one worker, in bytes.
    pub memory_limit: u64,
    /// The time limit of one compilation.
    pub deadline: Duration,
    /// The mode of the sandbox: what happens if a layer is not available.
    pub sandbox: SandboxMode,
    /// The folder of fetched packages, which workers may read.
    pub packages: Option<PathBuf>,
    /// The number of compilations after which a worker is replaced.
    pub serve: u32,
    /// True if a worker may create empty files in a folder of its own, as some methods of the core do.
    pub temporary_files: bool,
}

impl PoolOptions {
    /// Creates the default options: one worker per processor, 2 GiB, one minute, the full sandbox.
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
            temporary_files: false,
        }
    }
}
