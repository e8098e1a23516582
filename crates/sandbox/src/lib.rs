//! The sandbox of a KCL worker and of a module. `konverge __worker` applies it to itself before it executes the
//! interpreter, or the module.
//!
//! - Landlock: reads the working folder, the package folder, and what the program needs to start; writes nothing
//!   (except the unpacker of a package, a module and a worker that validates data, into one folder); no TCP, no signals to others, no abstract
//!   sockets.
//! - seccomp: only the system calls of `seccomp`; no process is traced or started. A worker creates no socket. A
//!   module serves one, and connects to nothing unless it may use the network.
//! - limits: memory, no core dumps, no file of more than zero bytes.
//! - an empty environment, and never new privileges.
//!
//! The layers are inherited and cannot be removed. Layers that the kernel lacks are reported; with
//! [`SandboxMode::Required`] the worker then does not start. Only Linux has Landlock and seccomp ([`SUPPORTED`]).

#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod layers;
#[cfg(target_os = "linux")]
mod linux;
mod profile;

use std::{os::unix::process::CommandExt, path::PathBuf, process::Command};

use nix::sys::resource::{Resource, setrlimit};

#[cfg(not(target_os = "linux"))]
use self::elsewhere as platform;
#[cfg(target_os = "linux")]
use self::linux as platform;
pub use self::{
    layers::{SandboxLayers, SandboxMode},
    platform::HINTS,
    profile::SandboxProfile,
};

/// True where the system has a sandbox at all. Elsewhere only a person's own checkout is compiled.
pub const SUPPORTED: bool = cfg!(target_os = "linux");

/// The start of the message of [`SandboxError::Missing`], by which the pool recognizes it in a worker's
/// output.
pub const MISSING: &str = "the sandbox cannot be set up";

/// The sandbox could not be applied, or the interpreter not be started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel lacks layers and the mode is `required`.
    #[error("{MISSING}: {0}")]
    Missing(String),
    /// The interpreter could not be started in the sandbox.
    #[error("`{0}` could not be started: {1}")]
    Start(PathBuf, std::io::Error),
}

impl SandboxLayers {
    /// Applies the sandbox to this thread, then executes the interpreter. Returns only on failure. A missing
    /// layer that the mode tolerates is written to `warn`.
    pub fn enter(&self, warn: &mut dyn std::io::Write) -> SandboxError {
        if let Err(error) = self.apply(warn) {
            return error;
        }
        let error = Command::new(&self.interpreter)
            .args(&self.arguments)
            .env_clear()
            .envs(&self.environment)
            .exec();
        SandboxError::Start(self.interpreter.clone(), error)
    }

    /// Applies the sandbox to this thread and those that it starts. A missing layer that the mode tolerates is written
    /// to `warn`; without its limits nothing runs.
    ///
    /// # Errors
    /// The working folder is not there, or a layer is missing that the mode requires.
    #[expect(
        clippy::disallowed_methods,
        reason = "this process has one thread and is about to become another, or reads no file"
    )]
    pub fn apply(&self, warn: &mut dyn std::io::Write) -> Result<(), SandboxError> {
        if let Err(error) = std::env::set_current_dir(&self.work_dir) {
            return Err(SandboxError::Start(self.work_dir.clone(), error));
        }
        self.limit().map_err(SandboxError::Missing)?;
        let missing = platform::restrict(self);
        if !missing.is_empty() {
            let words = missing.join("; ");
            if self.mode == SandboxMode::Required {
                return Err(SandboxError::Missing(words));
            }
            let what = self.profile.what_runs();
            let _ = writeln!(warn, "warning: {what} {}: {words}", platform::WEAKENED);
        }
        Ok(())
    }

    fn limit(&self) -> Result<(), String> {
        platform::limit_memory(self)?;
        for (resource, name, limit) in [
            (Resource::RLIMIT_CORE, "core file", 0),
            (Resource::RLIMIT_FSIZE, "file size", self.file_size),
            (Resource::RLIMIT_NOFILE, "open files", 256),
        ] {
            setrlimit(resource, limit, limit)
                .map_err(|error| format!("cannot set the limit of {name}: {error}"))?;
        }
        Ok(())
    }
}
