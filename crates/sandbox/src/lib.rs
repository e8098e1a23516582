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
//! [`SandboxMode::Required`] the worker then does not start.

mod profile;
mod seccomp;

use std::{
    collections::BTreeMap,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::sys::resource::{Resource, setrlimit};
use serde::{Deserialize, Serialize};

pub use self::profile::SandboxProfile;

/// What to do if the kernel lacks a sandbox layer (`kcl.sandbox` of the default branch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Do not compile. The default.
    #[default]
    Required,
    /// Compile in a partial sandbox, and warn about each missing layer.
    BestEffort,
}

/// The settings of `konverge __worker`, passed as one JSON argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLayers {
    /// The program to execute.
    pub interpreter: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
    /// Its working directory.
    pub work_dir: PathBuf,
    /// Files, and whole folders, that may be read.
    pub readable: Vec<PathBuf>,
    /// Folders that may be listed.
    pub folders: Vec<PathBuf>,
    /// The one folder in which files may be created and written, with everything below.
    #[serde(default)]
    pub writable: Option<PathBuf>,
    /// The maximum size of a file there in bytes.
    #[serde(default)]
    pub file_size: u64,
    /// The address space in bytes.
    pub memory: u64,
    /// What to do if a layer is not available.
    pub mode: SandboxMode,
    /// What the program is for.
    #[serde(default)]
    pub profile: SandboxProfile,
}

/// What a module may read and execute of the system.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc/ssl"];

/// The devices without content of their own.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// What finds the address of a host.
const RESOLVER: [&str; 4] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
];

/// The start of the message of [`SandboxError::Missing`], by which the pool recognizes it in a worker's
/// output.
/// How the error of a missing sandbox begins.
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
        let mut missing = Vec::new();
        missing.extend(self.landlock().err());
        missing.extend(seccomp::restrict(self.profile, self.writable.is_some()).err());
        if !missing.is_empty() {
            let words = missing.join("; ");
            if self.mode == SandboxMode::Required {
                return Err(SandboxError::Missing(words));
            }
            let what = self.profile.what_runs();
            let _ = writeln!(warn, "warning: {what} without a full sandbox: {words}");
        }
        Ok(())
    }

    fn limit(&self) -> Result<(), String> {
        for (resource, name, limit) in [
            (Resource::RLIMIT_AS, "memory", self.memory),
            (Resource::RLIMIT_STACK, "stack", self.profile.stack()),
            (Resource::RLIMIT_CORE, "core file", 0),
            (Resource::RLIMIT_FSIZE, "file size", self.file_size),
            (Resource::RLIMIT_NOFILE, "open files", 256),
        ] {
            setrlimit(resource, limit, limit).map_err(|error| format!("the limit of {name}: {error}"))?;
        }
        Ok(())
    }

    fn landlock(&self) -> Result<(), String> {
        let words = |error: &dyn std::fmt::Display| format!("Landlock: {error}");
        let read_all = AccessFs::ReadFile | AccessFs::ReadDir;
        let mut rules: Vec<(&Path, BitFlags<AccessFs>)> = Vec::new();
        for path in &self.readable {
            let is_folder = path.is_dir();
            rules.push((
                path,
                if is_folder {
                    read_all
                } else {
                    AccessFs::ReadFile.into()
                },
            ));
            if *path == self.interpreter || (!is_folder && is_loader(path)) {
                rules.push((path, AccessFs::ReadFile | AccessFs::Execute));
            }
        }
        rules.extend(
            self.folders
                .iter()
                .map(|path| (path.as_path(), AccessFs::ReadDir.into())),
        );
        rules.push((Path::new("/etc/ld.so.cache"), AccessFs::ReadFile.into()));
        if let Some(folder) = &self.writable {
            let write = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::Truncate;
            rules.push((folder, read_all | write | self.profile.more_writes()));
        }
        let network = self.profile == (SandboxProfile::Module { network: true });
        if let SandboxProfile::Module { .. } = self.profile {
            let run = read_all | AccessFs::Execute;
            rules.extend(SYSTEM.iter().map(|folder| (Path::new(*folder), run)));
            let device = AccessFs::ReadFile | AccessFs::WriteFile;
            rules.extend(DEVICES.iter().map(|file| (Path::new(*file), device)));
        }
        if network {
            let files = RESOLVER
                .iter()
                .map(|file| (Path::new(*file), AccessFs::ReadFile.into()));
            rules.extend(files);
        }
        let newest = ABI::V6;
        let ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(ABI::V1))
            .map_err(|error| words(&error))?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(newest))
            .and_then(|ruleset| {
                if network {
                    Ok(ruleset)
                } else {
                    ruleset.handle_access(AccessNet::from_all(newest))
                }
            })
            .and_then(|ruleset| ruleset.scope(Scope::from_all(newest)))
            .map_err(|error| words(&error))?;
        let mut created = ruleset.create().map_err(|error| words(&error))?;
        for (path, access) in rules {
            // What does not exist cannot be read either.
            if let Ok(opened) = PathFd::new(path) {
                created = created
                    .add_rule(PathBeneath::new(opened, access))
                    .map_err(|error| words(&error))?;
            }
        }
        let status = created.restrict_self().map_err(|error| words(&error))?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err("Landlock is not enabled in this kernel".to_owned());
        }
        Ok(())
    }
}

/// Returns true if a shared object is the dynamic loader, which the kernel executes together with the
/// interpreter.
fn is_loader(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("ld-") || name.starts_with("ld.so"))
}
