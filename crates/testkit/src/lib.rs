//! What the integration tests stand on: the real parts, started with their own folders and ports and ended with the
//! test process, and builders for repositories and runs of the binary.
//!
//! Nothing is installed from here. A part that is missing fails the test with the command that installs it.
// Each subject uses some of it, and the benches others.
#![allow(dead_code)]

pub mod apps;
pub mod audit;
pub mod browser;
pub mod ci_stage;
pub mod closable_proxy;
pub mod clouds;
pub mod cluster;
pub mod compiler;
pub mod container;
pub mod counting_store;
pub mod faulty_api_server;
pub mod faulty_store;
pub mod file_server;
pub mod gcs;
pub mod git;
pub mod git_server;
pub mod github;
pub mod github_output;
pub mod golden;
pub mod hiding;
pub mod identities;
pub mod kcl;
pub mod key_clouds;
pub mod konfig_history;
pub mod konfigs;
pub mod minio;
pub mod moto;
pub mod objects;
pub mod octokit;
pub mod package_registry;
pub mod payloads;
pub mod performance;
pub mod plain_core;
pub mod process;
pub mod random;
pub mod repository_shapes;
pub mod sample_plans;
pub mod sequential_apply;
pub mod service;
pub mod shop_monorepo;
pub mod small_stage;
pub mod spec_runs;
pub mod stack;
pub mod stores;
pub mod tcp_relay;
pub mod terraform;
pub mod timeline;
pub mod tiny_monorepo;
pub mod vault;
pub mod webhook_receiver;

use std::path::PathBuf;

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

/// `path` itself, which the part `part` should have put there.
///
/// # Panics
/// With the command that installs it, if it is not there.
pub fn installed(part: &str, path: PathBuf) -> PathBuf {
    assert!(
        path.exists(),
        "{} is not installed; run: scripts/parts install {part}",
        path.display()
    );
    path
}

/// The Python with the SDKs of Google, Azure and Alibaba.
///
/// # Panics
/// With the command that installs it, if it is not there.
pub fn cloud_sdks() -> PathBuf {
    installed("cloud-sdks", cache().join("cloud-sdks/bin/python3"))
}
