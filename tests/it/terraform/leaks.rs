//! Sensitive values through the commands: searched for in everything that they print and in every file that they leave
//! or hold, with Terraform's logging turned on from outside.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;

use super::{cli_fixture::Place, interruption, runtime_fixture, sensitive::assert_clean};
use crate::support::process::{Konverge, Outcome};

/// As a person sets it who looks for an error of Terraform: logs hold values.
fn with_logging(run: Konverge, log: &Path) -> Konverge {
    run.env("TF_LOG", "TRACE")
        .env("TF_LOG_CORE", "TRACE")
        .env("TF_LOG_PROVIDER", "TRACE")
        .env("TF_LOG_PATH", log)
        .env("TF_ACC_LOG_PATH", log)
        .env("KONVERGE_LOG", "trace")
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "1")
}

fn said_nothing(what: &str, outcome: &Outcome) {
    assert_clean(what, &outcome.stdout);
    assert_clean(what, &outcome.stderr);
}

/// Every file below these folders, no matter who wrote it.
pub fn files_are_clean(place: &Place) {
    let mut files = Vec::new();
    for folder in [&place.store, &place.temporary, &place.home] {
        runtime_fixture::walk(folder.path(), &mut files);
    }
    for file in &files {
        let bytes = std::fs::read(file).unwrap_or_default();
        assert_clean(&file.display().to_string(), &String::from_utf8_lossy(&bytes));
    }
}

pub async fn nothing_leaves(binary: PathBuf) {
    let place = Place::new(&binary);
    let log = place.home.path().join("terraform.log");
    let run = |command: &str| with_logging(place.run(command), &log);
    let secret = |content: &str| place.local("local_sensitive_file", "secret", content, &[]);
    let also = Place::data(
        "also",
        json!("$kusion_path.hashicorp:local:local_sensitive_file:secret.content"),
        &[],
    );
    let id = "hashicorp:local:local_sensitive_file:secret";
    for content in [super::sensitive::SECRET, super::sensitive::NEXT] {
        place.want(&[secret(content), also.clone()]);
        for format in ["text", "json", "markdown", "html"] {
            let outcome = run("preview").arg_all(["--output", format]).run().expect(0);
            said_nothing(&format!("preview --output {format}"), &outcome);
        }
        // While the run holds the plan and the state in memory, too: a pipe holds it up.
        interruption::pipe(&place.path("slow"));
        let slow = place.local("local_file", "slow", "x", &[id]);
        place.want(&[secret(content), also.clone(), slow]);
        let apply = run("apply").arg("--yes").start();
        until(|| place.path("secret").exists()).await;
        files_are_clean(&place);
        interruption::read_pipe(place.path("slow")).await;
        said_nothing("apply", &apply.wait().expect(0));
        std::fs::remove_file(place.path("slow")).unwrap();
        place.want(&[secret(content), also.clone()]);
        said_nothing(
            "apply",
            &run("apply")
                .arg_all(["--yes", "--output", "json"])
                .run()
                .expect(0),
        );
        files_are_clean(&place);
        for shown in [
            &["state", "show", "shop/prod"][..],
            &["state", "history", "shop/prod"],
        ] {
            let outcome = with_logging(place.command(shown), &log).run().expect(0);
            said_nothing("the state", &outcome);
        }
        assert_eq!(std::fs::read_to_string(place.path("secret")).unwrap(), content);
        // The provider fails: its words, and ours.
        std::fs::write(place.path("blocker"), "").unwrap();
        let below = json!(place.path("blocker").join("below"));
        let mut broken = secret(content);
        broken["attributes"]["filename"] = below;
        place.want(&[broken, also.clone()]);
        said_nothing(
            "a failed apply",
            &run("apply")
                .arg_all(["--yes", "--output", "json"])
                .run()
                .expect(1),
        );
        files_are_clean(&place);
        std::fs::remove_file(place.path("secret")).unwrap_or_default();
    }
    assert!(
        !log.exists(),
        "Terraform logs nothing, whatever the environment says"
    );
    let left: Vec<_> = std::fs::read_dir(place.temporary.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Terraform ends as it does when it panics: with words on its standard error that hold whatever it worked on.
pub async fn a_crash_tells_no_value(binary: PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::TempDir::new().unwrap();
    let crashing = folder.path().join("terraform");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = apply ] || exec {} \"$@\"\nprintf '%s\\n' 'panic: index out of range' '{}' >&2\nexit 11\n",
        binary.display(),
        super::sensitive::SECRET
    );
    std::fs::write(&crashing, script).unwrap();
    std::fs::set_permissions(&crashing, std::fs::Permissions::from_mode(0o755)).unwrap();
    let place = Place::new(&crashing);
    place.want(&[place.local("local_sensitive_file", "secret", super::sensitive::SECRET, &[])]);
    let outcome = place.run("apply").arg("--yes").run().expect(1);
    let all = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(all.contains("panic: index out of range"), "{all}");
    said_nothing("a crash", &outcome);
    files_are_clean(&place);
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
