//! Unpacks an archive in a sandboxed process. The process can read only the interpreter and write into only one
//! folder.

use std::path::{Path, PathBuf};

use super::{bounds::Bounds, fetcher::PackageFetcher};
use konverge_base::{checkout::Checkout, error::SharedError, process::Program};
use konverge_sandbox::{SandboxLayers, SandboxProfile};

const SCRIPT: &str = include_str!("unpack.py");

/// The maximum address space in bytes. The archive is streamed, so its size does not matter.
const MEMORY: u64 = 1 << 30;

/// The folders of the shared libraries that the interpreter loads for compressed files.
const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"];

/// Unpacks a tar archive, with or without gzip, into `target`.
pub(super) async fn unpack(
    packages: &PackageFetcher,
    archive: Vec<u8>,
    target: &Path,
    bounds: &Bounds,
) -> Result<(), SharedError> {
    let interpreter = packages
        .checkout
        .executable("the interpreter of the KCL core", &packages.core.interpreter)?;
    let sandbox = sandbox_layers(packages, interpreter.path().to_owned(), target, bounds)?;
    let sandbox = serde_json::to_string(&sandbox)?;
    // The sandboxed process is this same binary with another command.
    let own = Checkout::default().executable("konverge", &packages.executable)?;
    let mut program = Program::new(own).args(["__worker", &sandbox]);
    program.env = Some(Vec::new());
    program.stdin = archive;
    program.deadline = bounds.time;
    program.most_output = 1 << 20;
    let ended = program.run().await?;
    if ended.code == Some(0) {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let last = stderr.lines().last().unwrap_or("the archive cannot be read");
    Err(last.trim_start_matches("error: ").into())
}

fn sandbox_layers(
    packages: &PackageFetcher,
    interpreter: PathBuf,
    target: &Path,
    bounds: &Bounds,
) -> std::io::Result<SandboxLayers> {
    // The rules of the sandbox apply to real paths, so links in the path of the target are resolved.
    let target = target.canonicalize()?;
    let core = &packages.core;
    let libraries = LIBRARIES
        .into_iter()
        .map(PathBuf::from)
        .filter(|path| path.is_dir());
    Ok(SandboxLayers {
        interpreter,
        arguments: ["-I", "-S", "-X", "utf8", "-c", SCRIPT]
            .into_iter()
            .map(str::to_owned)
            .chain([
                target.display().to_string(),
                bounds.unpacked.to_string(),
                bounds.files.to_string(),
            ])
            .collect(),
        environment: std::collections::BTreeMap::new(),
        work_dir: target.clone(),
        readable: core.readable.iter().cloned().chain(libraries).collect(),
        folders: core.folders.clone(),
        writable: Some(target),
        file_size: bounds.unpacked,
        memory: MEMORY,
        mode: packages.sandbox,
        profile: SandboxProfile::Interpreter,
    })
}
