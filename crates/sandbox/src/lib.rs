//! The sandbox of a KCL worker and of a Kusion module. `konverge __worker` applies it to itself, and then executes
//! the interpreter or the module.
//!
//! - Landlock: the process can read the working folder, the package folder, and what the program needs to start. It
//!   can write nothing; only the unpacker of packages, a module and a worker that validates data have one writable
//!   folder. No TCP, no signals to other processes, no abstract sockets.
//! - seccomp: only the system calls in `seccomp`. The process cannot trace or start another one. A worker cannot
//!   create a socket. A module can serve one, and can connect only if it may use the network.
//! - limits: memory, no core dumps, no written file larger than zero bytes.
//! - an empty environment, and no new privileges.
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

/// True if the system has a sandbox. On other systems only the user's own checkout is compiled.
pub const SUPPORTED: bool = cfg!(target_os = "linux");

/// The prefix of the message of [`SandboxError::Missing`], by which the worker pool recognizes the error in a
/// worker's output.
pub const MISSING: &str = "the sandbox cannot be set up";

/// The sandbox could not be applied, or the program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel lacks layers, and the mode is `required`.
    #[error("{MISSING}: {0}")]
    Missing(String),
    /// The interpreter could not be started in the sandbox.
    #[error("`{0}` could not be started: {1}")]
    Start(PathBuf, std::io::Error),
}

impl SandboxLayers {
    /// Applies the sandbox to this thread, then executes the program. Returns only after a failure. Writes
    /// tolerated missing layers to `warn`.
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

    /// Applies the sandbox to this thread and to threads that it starts. Writes tolerated missing layers to `warn`;
    /// missing limits are never tolerated.
    ///
    /// # Errors
    /// The working folder does not exist, or a required layer is missing.
    #[expect(
        clippy::disallowed_methods,
        reason = "this process has one thread and is about to become another, or reads no file"
    )]
    pub fn apply(&self, warn: &mut dyn std::io::Write) -> Result<(), SandboxError> {
        if let Err(error) = std::env::set_current_dir(&self.work_dir) {
            return Err(SandboxError::Start(self.work_dir.clone(), error));
        }
        // The limits come first and are never optional, because every supported system has them.
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
