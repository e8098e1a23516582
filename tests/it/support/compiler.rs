//! A pool of KCL workers for tests, and small programs to give it.

use std::{path::Path, sync::Arc, time::Duration};

use konverge_base::{
    checkout::Checkout,
    model::{
        RepoPath,
        stack::{CompileSetup, Entry},
    },
};
use konverge_kcl::{CompileRequest, DEFAULT_VERSION, Pool, PoolOptions, Toolchain};

/// The default core, as the parts installed it.
pub async fn core() -> Toolchain {
    Toolchain::from_interpreter(&super::kcl::interpreter(), DEFAULT_VERSION, &Checkout::default())
        .await
        .unwrap()
}

/// Two workers of the default core behind all walls, with a short deadline.
pub async fn options() -> PoolOptions {
    let mut options = PoolOptions::new(core().await, env!("CARGO_BIN_EXE_konverge").into());
    options.workers = 2;
    options.deadline = Duration::from_secs(20);
    options
}

/// A pool of [`options`].
pub async fn pool() -> Pool {
    Pool::start(options().await).await.unwrap()
}

/// A path of a test.
pub fn path(text: &str) -> RepoPath {
    RepoPath::normalize(text).unwrap()
}

/// A request whose entry is `main.k` with this text, in a module of its own.
pub fn program(text: &str) -> CompileRequest {
    request(&[("kcl.mod", ""), ("main.k", text)], "", &["main.k"])
}

/// A request over these files.
pub fn request(files: &[(&str, &str)], work_dir: &str, entries: &[&str]) -> CompileRequest {
    CompileRequest {
        label: "test/stack".to_owned(),
        setup: CompileSetup {
            work_dir: path(work_dir),
            entries: entries.iter().map(|entry| Entry::main(path(entry))).collect(),
            ..CompileSetup::default()
        },
        files: files
            .iter()
            .map(|(name, text)| (path(name), Arc::from(text.as_bytes())))
            .collect(),
        ..CompileRequest::default()
    }
}

/// Every file below a folder, but git's.
pub fn folder(root: &Path) -> Vec<(RepoPath, Arc<[u8]>)> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && entry.file_name() != ".git" {
                folders.push(entry.path());
            } else if kind.is_file() {
                let relative = entry
                    .path()
                    .strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                files.push((path(&relative), std::fs::read(entry.path()).unwrap().into()));
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}
