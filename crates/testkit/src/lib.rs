//! The support for integration tests and benches: real servers and tools, started with their own folders and ports and
//! stopped with the test process, and builders for repositories and for runs of the binary.
//!
//! Nothing is installed from here. A missing part fails the test with the command that installs it. This crate uses no
//! other crate of Konverge, so that the tests of a crate wait only for that crate. Helpers that need a type of Konverge
//! are beside the tests: in `tests/it/support/` of the package or of a crate.
// A server stops when its handle is dropped, so handles are stored in fields that are never read.
#![allow(dead_code)]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

pub mod apps;
pub mod audit;
pub mod browser;
pub mod chats;
pub mod closable_proxy;
pub mod clouds;
pub mod cluster;
pub mod container;
pub mod faulty_api_server;
pub mod file_server;
pub mod forgery;
pub mod gcs;
pub mod git;
pub mod git_server;
pub mod gitea;
pub mod gitea_runner;
pub mod github;
pub mod gitlab;
pub mod golden;
pub mod hiding;
pub mod identities;
pub mod job_tokens;
pub mod json_answer;
pub mod kcl;
pub mod key_clouds;
pub mod konfig_history;
pub mod konfigs;
pub mod mails;
pub mod minio;
pub mod moto;
pub mod objects;
pub mod octokit;
pub mod openid;
pub mod package_registry;
pub mod pages;
pub mod payloads;
pub mod performance;
pub mod portal_server;
pub mod process;
pub mod prometheus;
pub mod random;
pub mod random_kills;
pub mod repository_shapes;
pub mod s3;
pub mod sequential_apply;
pub mod service;
pub mod stores;
pub mod tcp_relay;
pub mod terraform;
pub mod tiny_monorepo;
pub mod vault;
pub mod webhook_receiver;

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the folder of the checkout.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate is two folders below").to_owned()
}

/// Returns the folder into which `scripts/parts` installs.
pub fn cache() -> PathBuf {
    if let Some(folder) = std::env::var_os("KONVERGE_PARTS") {
        return folder.into();
    }
    let base = std::env::var_os("XDG_CACHE_HOME")
        .filter(|base| !base.is_empty())
        .map(PathBuf::from);
    base.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache"))
        .join("konverge")
}

/// Returns the path of an installed executable of the part `part`.
///
/// # Panics
/// The executable is missing. The message has the command that installs it.
pub fn executable(part: &str, name: &str) -> PathBuf {
    installed(part, cache().join("bin").join(name))
}

/// Returns `path`, which the part `part` installs. Waits for it while `scripts/parts` is installing.
///
/// # Panics
/// The path is missing. The message has the command that installs it.
pub fn installed(part: &str, path: PathBuf) -> PathBuf {
    // An installation removes the stamp of a part before it replaces the part, so that the old one is not used.
    let stamp = cache().join("stamps").join(part);
    while !stamp.exists() && installation_runs() {
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(
        path.exists(),
        "{} is not installed; run: scripts/parts install {part}",
        path.display()
    );
    path
}

/// Returns true while `scripts/parts` holds its lock.
fn installation_runs() -> bool {
    let lock = std::fs::File::open(cache().join("parts.lock"));
    lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Returns the Python interpreter with the SDKs of Google, Azure and Alibaba.
///
/// # Panics
/// The interpreter is missing. The message has the command that installs it.
pub fn cloud_sdks() -> PathBuf {
    installed("cloud-sdks", cache().join("cloud-sdks/bin/python3"))
}
