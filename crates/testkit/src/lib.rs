//! What the integration tests and the benches stand on: the real parts, started with their own folders and ports and
//! ended with the test process, and builders for repositories and runs of the binary.
//!
//! Nothing is installed from here. A part that is missing fails the test with the command that installs it. It uses no
//! other crate of ours, so that the tests of a crate wait for that crate alone. What holds one of our types stands beside
//! the tests: `tests/it/support/` of the package or of a crate.
// What is started ends when its handle is dropped: it is held, and never read.
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

/// The folder of the checkout.
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("the crate is two folders below").to_owned()
}

/// The folder into which `scripts/parts` installs.
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

/// An installed executable of the part `part`.
///
/// # Panics
/// With the command that installs it, if it is not there.
pub fn executable(part: &str, name: &str) -> PathBuf {
    installed(part, cache().join("bin").join(name))
}

/// `path` itself, which the part `part` should have put there. Waits for it while `scripts/parts` installs parts.
///
/// # Panics
/// With the command that installs it, if it is not there.
pub fn installed(part: &str, path: PathBuf) -> PathBuf {
    // An installation removes the stamp of a part that it makes again, so that an older one is not taken.
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

/// The Python with the SDKs of Google, Azure and Alibaba.
///
/// # Panics
/// With the command that installs it, if it is not there.
pub fn cloud_sdks() -> PathBuf {
    installed("cloud-sdks", cache().join("cloud-sdks/bin/python3"))
}
