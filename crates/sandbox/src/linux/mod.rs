//! The sandbox layers of Linux: Landlock and seccomp.

mod seccomp;

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::sys::resource::{Resource, setrlimit};

use super::{layers::SandboxLayers, profile::SandboxProfile};

/// Hints for [`SandboxError::Missing`](super::SandboxError::Missing).
pub const HINTS: [&str; 2] = [
    "run on a kernel with Landlock (Linux 5.13 or newer, not switched off, not denied by the container's seccomp profile)",
    "or accept a partial sandbox: `kcl.sandbox: best-effort` in konverge.yaml, in `ci` the default branch's",
];

/// The words of a warning for a process that runs without a layer of the sandbox.
pub(super) const WEAKENED: &str = "without a full sandbox";

/// The system folders that a module may read and execute.
const SYSTEM: [&str; 5] = ["/usr", "/bin", "/lib", "/lib64", "/etc/ssl"];

/// Devices that give no access to anything else.
const DEVICES: [&str; 2] = ["/dev/null", "/dev/urandom"];

/// The files that the name resolution of hosts needs.
const RESOLVER: [&str; 4] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
];

/// Applies the layers to this thread. Returns the reasons for the missing ones.
pub(super) fn restrict(layers: &SandboxLayers) -> Vec<String> {
    let mut missing = Vec::new();
    // Landlock comes first, because the seccomp filter forbids its system calls.
    missing.extend(landlock(layers).err());
    missing.extend(seccomp::restrict(layers.profile, layers.writable.is_some()).err());
    missing
}

/// Limits the address space and the stack.
pub(super) fn limit_memory(layers: &SandboxLayers) -> Result<(), String> {
    for (resource, name, limit) in [
        (Resource::RLIMIT_AS, "memory", layers.memory),
        (Resource::RLIMIT_STACK, "stack", layers.profile.stack()),
    ] {
        setrlimit(resource, limit, limit)
            .map_err(|error| format!("cannot set the limit of {name}: {error}"))?;
    }
    Ok(())
}

fn landlock(layers: &SandboxLayers) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| format!("Landlock: {error}");
    let read_all = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules: Vec<(&Path, BitFlags<AccessFs>)> = Vec::new();
    for path in &layers.readable {
        let is_folder = path.is_dir();
        rules.push((
            path,
            if is_folder {
                read_all
            } else {
                AccessFs::ReadFile.into()
            },
        ));
        // Only the interpreter and the dynamic loader may be executed.
        if *path == layers.interpreter || (!is_folder && is_loader(path)) {
            rules.push((path, AccessFs::ReadFile | AccessFs::Execute));
        }
    }
    rules.extend(
        layers
            .folders
            .iter()
            .map(|path| (path.as_path(), AccessFs::ReadDir.into())),
    );
    // The loader finds shared libraries with this cache.
    rules.push((Path::new("/etc/ld.so.cache"), AccessFs::ReadFile.into()));
    if let Some(folder) = &layers.writable {
        let write = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::MakeDir | AccessFs::Truncate;
        rules.push((folder, read_all | write | more_writes(layers.profile)));
    }
    let network = layers.profile == (SandboxProfile::Module { network: true });
    // A module may need shared libraries of the system, and CA certificates in `/etc/ssl`.
    if let SandboxProfile::Module { .. } = layers.profile {
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
        // Version 1 of Landlock is required above. Later versions are used if the kernel supports them.
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
        // A path that does not exist cannot be opened for a rule, and needs none.
        if let Ok(opened) = PathFd::new(path) {
            created = created
                .add_rule(PathBeneath::new(opened, access))
                .map_err(|error| words(&error))?;
        }
    }
    let status = created.restrict_self().map_err(|error| words(&error))?;
    // The calls above also succeed on a kernel that does not enforce the rules.
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err("Landlock is not enabled in this kernel".to_owned());
    }
    Ok(())
}

/// Returns additional permissions in the writable folder: a module creates its socket there, and removes it.
fn more_writes(profile: SandboxProfile) -> BitFlags<AccessFs> {
    match profile {
        SandboxProfile::Interpreter => BitFlags::empty(),
        SandboxProfile::Module { .. } => AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::RemoveDir,
    }
}

/// Returns true if a shared object is the dynamic loader, which the kernel executes for the interpreter.
fn is_loader(path: &Path) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("ld-") || name.starts_with("ld.so"))
}
