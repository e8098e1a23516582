//! A run that crashes leaves no core dump, which would hold what it worked on.

use std::{net::TcpListener, path::Path};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{git::Repository, process::Konverge};

/// The secret store of the run never answers, so that the run is there to be killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_leaves_no_core_dump() {
    for signal in [Signal::SIGABRT, Signal::SIGSEGV] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let repository = Repository::init();
        let store = json!({"kind": "vault", "address": address, "auth": {"method": "approle"}});
        let configuration = json!({"version": 1, "secrets": {"stores": {"db": store}}});
        repository.write("konverge.yaml", configuration.to_string());
        repository.commit("Configuration");
        // The shell lifts the limit that the tests may have.
        let script = format!(
            "ulimit -c unlimited; exec {} doctor",
            env!("CARGO_BIN_EXE_konverge")
        );
        let running = Konverge::of(Path::new("/bin/sh"), ["-c", &script])
            .dir(repository.path())
            .env("VAULT_ROLE_ID", "role")
            .env("VAULT_SECRET_ID", "canary-of-the-core-dump")
            .start();
        let accepted = tokio::task::spawn_blocking(move || listener.accept());
        let asked = accepted.await.unwrap().unwrap();
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", running.pid())).unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max core file size"));
        let limit: Vec<_> = limit.unwrap().split_whitespace().skip(4).take(2).collect();
        // One byte: the only limit that also holds where the kernel hands dumps to a program.
        assert_eq!(limit, ["1", "1"]);
        running.signal(signal);
        tokio::task::spawn_blocking(|| running.wait()).await.unwrap();
        drop(asked);
        let files = std::fs::read_dir(repository.path()).unwrap().flatten();
        let names: Vec<_> = files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .collect();
        assert!(
            names.iter().all(|name| !name.starts_with("core")),
            "{signal}: {names:?}"
        );
    }
}
