//! [`ModuleRunner`]: runs the binaries of Kusion modules. It decides which binary is used, and whether the code of a
//! revision may run it.

use std::{
    collections::{BTreeMap, HashSet},
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;
use tempfile::TempDir;

use crate::{
    RunContext,
    module_binaries::{ModuleBinaries, ModuleBinary, digest_of, is_binary_of},
};
use konverge_base::{
    checkout::Checkout,
    error::{ErrorKind, UserError},
    model::{RepoPath, file_source::Source, stack::Stack},
    variables,
};
use konverge_config::ModuleConfig;
use konverge_kcl::{CompileRequest, SandboxMode, Workdir, platform};
use konverge_kusion::{
    ForeignAnswer, ForeignAnswers, ForeignCall,
    module_host::{self, ModuleError, ModuleLimits, ModuleRequest, ModuleSetup},
};
use konverge_repo::konfig::{DeclaredDependency, DependencySource};
use konverge_secrets::{without_credentials, without_secrets};

/// The trust in the code that uses a module.
#[derive(Debug, Clone)]
pub enum ModuleTrust {
    /// Code of this repository: it may run any binary of its modules.
    Own,
    /// Code from outside: it may run only the binaries with these digests, which the base has, and without a network.
    Outside(HashSet<String>),
}

/// Runs the binaries of Kusion modules.
pub struct ModuleRunner {
    /// The `konverge` executable, which starts the module in a sandbox.
    pub executable: PathBuf,
    /// The mode of the sandbox: it decides if a module may run although a layer of the sandbox is not available.
    pub sandbox: SandboxMode,
    /// The trust that decides which binaries may run.
    pub trust: ModuleTrust,
    /// The folder of module binaries on this machine, in the layout of KUSION_MODULE_PATH.
    pub folder: Option<PathBuf>,
    /// The folder of checked binaries, by digest. Only this process can write to it.
    pub checked: TempDir,
}

/// The inputs for the module calls of a stack.
pub struct CallContext<'a> {
    /// The stack that the modules are called for.
    pub stack: &'a Stack,
    /// The dependencies in `kcl.mod` of the stack.
    pub dependencies: &'a [DeclaredDependency],
    /// The binaries of the modules.
    pub binaries: &'a ModuleBinaries,
    /// The files of the KCL program, which the module may read.
    pub request: &'a CompileRequest,
    /// The files of the revision.
    pub source: &'a dyn Source,
    /// The section `modules` of `konverge.yaml`.
    pub settings: &'a BTreeMap<String, ModuleConfig>,
    /// The path of the stack's workspace file, which need not exist.
    pub workspace: RepoPath,
}

/// A binary, with the trust that follows from where it was found.
struct FoundBinary {
    file: String,
    content: Arc<[u8]>,
    /// True if the content is fixed: `kcl.mod.lock` pins the whole package, or git contains the file.
    is_pinned: bool,
    /// True if code from outside cannot have chosen the content.
    is_checked: bool,
}

/// Returns the hint that names the platform settings that a module may need.
fn settings_hint(call: &ForeignCall, context: &CallContext<'_>) -> String {
    let (file, module) = (&context.workspace, &call.module);
    if !call.platform_config.is_empty() {
        return format!(
            "the platform's settings for this module are in `{file}`, under `modules.{module}.configs.default`; a region is `AWS_REGION` or \
             `ALICLOUD_REGION` under `context`"
        );
    }
    let declared = context.dependencies.iter().find(|one| one.name == *module);
    let path = match declared.map(|declared| &declared.source) {
        Some(DependencySource::Oci { url, .. } | DependencySource::Git { url, .. }) => {
            without_credentials(url)
        }
        Some(DependencySource::Path(_) | DependencySource::Version(_)) | None => "PATH".to_owned(),
    };
    let version = declared
        .and_then(DeclaredDependency::version)
        .unwrap_or("VERSION");
    let block = json!({"path": path, "version": version, "configs": {"default": {"KEY": "VALUE"}}});
    format!(
        "the platform has no settings for this module: if it needs some, write them into `{file}`: `{}`",
        json!({"modules": {module.as_str(): block}})
    )
}

impl ModuleRunner {
    /// Creates a runner that has checked no binary yet.
    pub fn new(
        run: &RunContext,
        executable: PathBuf,
        sandbox: SandboxMode,
        trust: ModuleTrust,
    ) -> Result<Self, UserError> {
        let checked = tempfile::Builder::new().prefix("konverge-modules-").tempdir();
        let checked = checked.map_err(|error| {
            UserError::from_error(ErrorKind::Internal, error)
                .context("there is no folder for modules")
                .hint("set TMPDIR to a folder that may be written")
        })?;
        Ok(Self {
            executable,
            sandbox,
            trust,
            folder: offline_folder(run)?,
            checked,
        })
    }

    /// Runs the module calls of a stack one after the other. Returns the responses, and notes for the user.
    pub async fn answer(
        &self,
        calls: &[ForeignCall],
        context: &CallContext<'_>,
    ) -> Result<(ForeignAnswers, Vec<String>), UserError> {
        let mut answers = ForeignAnswers::new();
        let mut notes = Vec::new();
        if calls.is_empty() {
            return Ok((answers, notes));
        }
        let io = |error: std::io::Error| {
            UserError::from_error(ErrorKind::Internal, error).context(format!(
                "the files of {} could not be laid out for its modules",
                context.stack.id
            ))
        };
        // The modules get a copy of the program's files, and never the checkout itself.
        let mut files = Workdir::new().map_err(io)?;
        files.lay(context.request).map_err(io)?;
        let work_dir = files.root().join(&context.stack.folder);
        std::fs::create_dir_all(&work_dir).map_err(io)?;
        for call in calls {
            let binary = self.checked_binary(call, context)?;
            let setting = context.settings.get(&call.module).cloned().unwrap_or_default();
            let mut limits = ModuleLimits::default();
            if let Some(timeout) = setting.timeout {
                limits.time = timeout.duration();
            }
            let setup = ModuleSetup {
                name: call.module.clone(),
                binary,
                executable: self.executable.clone(),
                files: files.root().to_owned(),
                work_dir: work_dir.clone(),
                readable: Vec::new(),
                environment: call.environment.clone(),
                // Code from outside gets no network, whatever `konverge.yaml` allows.
                network: setting.network && matches!(self.trust, ModuleTrust::Own),
                sandbox: self.sandbox,
                limits,
            };
            let run = module_host::generate(&setup, &request_of(call, context.stack)).await;
            let run = run.map_err(|error| {
                let hint = matches!(error, ModuleError::Refused { .. }).then(|| settings_hint(call, context));
                let failure = error.into_user_error(&call.module);
                // The message of a module may quote values of the program, which may be secret.
                let message = without_secrets(&failure.message);
                let failure = UserError { message, ..failure }.context(format!("`{}`", call.part.app));
                hint.into_iter().fold(failure, UserError::hint)
            })?;
            notes.extend(
                run.warning
                    .map(|warning| format!("the module `{}`: {warning}", call.module)),
            );
            let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            answers.insert(
                call.part.clone(),
                ForeignAnswer {
                    resources: run.reply.resources.iter().map(text).collect(),
                    patchers: run.reply.patchers.iter().map(text).collect(),
                },
            );
        }
        Ok((answers, notes))
    }

    /// Checks the binary of a call, and copies it to a folder that only this process can write to.
    fn checked_binary(&self, call: &ForeignCall, context: &CallContext<'_>) -> Result<PathBuf, UserError> {
        let known = context.binaries.find(&call.module);
        let found = self.found_binary(call, context, &known)?;
        let digest = digest_of(&found.content);
        // A pin in `kcl.mod.lock` holds for the binary wherever it was found.
        if let Some(pin) = known.pin()
            && pin != digest
        {
            return Err(refuse(call, &format!("its binary is {digest}, and kcl.mod.lock pins {pin}"))
                .hint("if the change is wanted, write the new digest into kcl.mod.lock and have it reviewed; else ask who changed the binary"));
        }
        // Without a pin, the content must be fixed in another way: by git, or with the whole package.
        if known.pin().is_none() && !found.is_pinned {
            let (system, architecture) = platform();
            return Err(refuse(call, &format!("its binary `{}` is not pinned", found.file)).hint(format!(
                "review the binary, then add to `[dependencies.{}]` of kcl.mod.lock: `binaries = {{ {system}-{architecture} = \"{digest}\" }}`",
                call.module
            )));
        }
        // A pull request from outside could bring a binary with its pin, so only binaries of the base may run.
        if let ModuleTrust::Outside(known) = &self.trust
            && !found.is_checked
            && !known.contains(&digest)
        {
            return Err(refuse(call, &format!("this module is not run for this pull request: the target branch does not have this binary ({digest})"))
                .hint("ask a maintainer to bring the module in by a branch of this repository, then merge that into this pull request"));
        }
        self.copy(&found, &digest)
            .map_err(|error| refuse(call, &format!("its binary could not be copied: {error}")))
    }

    /// Copies a binary under its own file name, once for each digest.
    fn copy(&self, found: &FoundBinary, digest: &str) -> std::io::Result<PathBuf> {
        let root = self.checked.path().canonicalize()?;
        let folder = root.join(digest.trim_start_matches("sha256:"));
        let target = folder.join(&found.file);
        if target.is_file() {
            return Ok(target);
        }
        std::fs::create_dir_all(&folder)?;
        let fresh = tempfile::NamedTempFile::new_in(&folder)?;
        std::fs::write(fresh.path(), &found.content)?;
        std::fs::set_permissions(fresh.path(), std::fs::Permissions::from_mode(0o500))?;
        // The file must be closed first: Linux does not execute a file that is open for writing.
        fresh
            .into_temp_path()
            .persist(&target)
            .map_err(|error| error.error)?;
        Ok(target)
    }

    fn found_binary(
        &self,
        call: &ForeignCall,
        context: &CallContext<'_>,
        known: &ModuleBinary,
    ) -> Result<FoundBinary, UserError> {
        // A binary in the repository comes first, because git fixes its content.
        match known.files.as_slice() {
            [(file, blob)] => {
                let content = context.source.read(*blob);
                return Ok(FoundBinary {
                    file: file.as_str().rsplit('/').next().unwrap_or_default().to_owned(),
                    content: content?,
                    is_pinned: true,
                    is_checked: false,
                });
            }
            [(first, _), (second, _), ..] => {
                return Err(refuse(
                    call,
                    &format!("its package has two binaries: `{first}` and `{second}`"),
                )
                .hint("keep only the binary whose version is that of the package"));
            }
            [] => {}
        }
        let mut packages = context.request.packages.iter();
        if let Some((_, folder)) = packages.find(|(name, _)| *name == call.module)
            && let Some(path) = binary_in(folder, &call.module).map_err(|why| refuse(call, &why))?
            && !is_of_another_architecture(&path)
        {
            if known.pin().is_none() && context.request.unlocked.contains(&call.module) {
                return Err(
                    refuse(call, "its package is not locked, so nothing pins its binary").hint(
                        "run `konverge kcl lock`, review what it writes into kcl.mod.lock, and commit that",
                    ),
                );
            }
            // The whole package was verified against `kcl.mod.lock` when it was resolved, for code from outside, too.
            return read(call, &path, true, true);
        }
        // The folder of this machine comes last, because the revision does not fix what it contains.
        let declared = context
            .dependencies
            .iter()
            .find(|declared| declared.name == call.module);
        let path = declared.and_then(|declared| offline_path(self.folder.as_deref()?, declared));
        if let Some(path) = path.as_ref().filter(|path| path.is_file()) {
            return read(call, path, false, false);
        }
        let (system, architecture) = platform();
        let source = declared.map(ToString::to_string).unwrap_or_default();
        let missing = refuse(
            call,
            &format!("its package ({source}) has no binary for {system}/{architecture}"),
        );
        Err(match path {
            Some(path) => missing.hint(format!("KUSION_MODULE_PATH has none either: {}", path.display())),
            None => missing.hint(format!(
                "depend on it by `oci = \"oci://…\"`, or put `kusion-module-{}_VERSION` beside its kcl.mod, or set KUSION_MODULE_PATH",
                call.module
            )),
        })
    }
}

fn request_of(call: &ForeignCall, stack: &Stack) -> ModuleRequest {
    ModuleRequest {
        project: stack.names.project().to_owned(),
        stack: stack.names.name().to_owned(),
        app: call.part.app.clone(),
        workload: call.workload.clone().into_bytes(),
        dev_config: call.dev_config.clone().into_bytes(),
        platform_config: call.platform_config.clone().into_bytes(),
        context: call.context.clone().into_bytes(),
        secret_store: Vec::new(),
    }
}

fn refuse(call: &ForeignCall, why: &str) -> UserError {
    let message = format!("`{}` needs the module `{}`: {why}", call.part.app, call.module);
    UserError::new(ErrorKind::Spec, message)
}

fn read(
    call: &ForeignCall,
    path: &Path,
    is_pinned: bool,
    is_checked: bool,
) -> Result<FoundBinary, UserError> {
    let content = std::fs::read(path);
    let content = content.map_err(|error| refuse(call, &format!("{}: {error}", path.display())))?;
    let file = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    Ok(FoundBinary {
        file,
        content: content.into(),
        is_pinned,
        is_checked,
    })
}

/// Returns the only binary of a module in the folder of a package.
fn binary_in(folder: &Path, module: &str) -> Result<Option<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut found: Vec<PathBuf> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_binary_of(&entry.file_name().to_string_lossy(), module) {
            found.push(entry.path());
        }
    }
    match found.len() {
        0 | 1 => Ok(found.pop()),
        count => Err(format!("its package has {count} binaries")),
    }
}

/// Returns true for a Linux executable of another processor architecture. A package may contain such a binary where it
/// has none for this architecture.
fn is_of_another_architecture(path: &Path) -> bool {
    let own: u16 = match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        _ => return false,
    };
    let mut start = [0; 20];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut start));
    // In an ELF header, byte 5 is the byte order, and bytes 18 and 19 are the machine type.
    let is_program = read.is_ok() && start.starts_with(b"\x7fELF") && start[5] == 1;
    is_program && u16::from_le_bytes([start[18], start[19]]) != own
}

/// Returns the path of a module's binary: `<org>/<name>/<version>/<os>/<arch>/kusion-module-<name>_<version>`.
fn offline_path(folder: &Path, declared: &DeclaredDependency) -> Option<PathBuf> {
    let (DependencySource::Oci { url, .. } | DependencySource::Git { url, .. }) = &declared.source else {
        return None;
    };
    let version = declared.version()?;
    let mut parts = url.trim_end_matches('/').trim_end_matches(".git").rsplit('/');
    let (name, organization) = (parts.next()?, parts.next()?);
    let is_plain = |part: &str| {
        let mut characters = part.chars();
        !part.is_empty()
            && !part.starts_with('.')
            && characters.all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
    };
    if ![name, organization, version].into_iter().all(is_plain) {
        return None;
    }
    let (system, architecture) = platform();
    let folder = folder
        .join(organization)
        .join(name)
        .join(version)
        .join(system)
        .join(architecture);
    Some(folder.join(format!("kusion-module-{name}_{version}")))
}

/// Returns the binary of a module on this machine, by the name of the module. Of several paths, the one that sorts last
/// is used.
pub fn offline_binary(run: &RunContext, name: &str) -> Result<Option<PathBuf>, UserError> {
    let Some(folder) = offline_folder(run)? else {
        return Ok(None);
    };
    let (system, architecture) = platform();
    let mut found: Vec<PathBuf> = Vec::new();
    for organization in entries(&folder) {
        for version in entries(&organization.join(name)) {
            let binaries = entries(&version.join(system).join(architecture)).into_iter();
            found.extend(binaries.filter(|path| path.is_file()));
        }
    }
    found.sort();
    Ok(found.pop())
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Returns the folder KUSION_MODULE_PATH, or else the folder `modules` in KUSION_HOME.
fn offline_folder(run: &RunContext) -> Result<Option<PathBuf>, UserError> {
    let home = || {
        run.var(variables::KUSION_HOME)
            .map(|home| Path::new(home).join("modules"))
    };
    let folder = run
        .var(variables::KUSION_MODULE_PATH)
        .map(PathBuf::from)
        .or_else(home);
    if let Some(folder) = &folder {
        let checkout: Checkout = run.checkout();
        checkout.trust(variables::KUSION_MODULE_PATH, folder)?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_for_another_processor_is_found_by_its_header() {
        let folder = tempfile::tempdir().unwrap();
        let other = |content: &[u8]| {
            let path = folder.path().join("program");
            std::fs::write(&path, content).unwrap();
            is_of_another_architecture(&path)
        };
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(!other(&own));
        let mut foreign = own;
        foreign[18] ^= 1;
        assert!(other(&foreign));
        assert!(!other(b"#!/bin/sh\n"), "a script runs everywhere");
        assert!(!other(b""));
    }
}
