//! What Terraform reported complete is in the store two seconds later, by Terraform's own clock; what was in flight
//! when the run was killed is named, with the command that imports it.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{
    cli_fixture::{self, Place},
    interruption, leaks, sensitive,
};
use crate::support::process::Running;

/// What the issue promises.
const BOUND: Duration = Duration::from_secs(2);

/// The executable, and a file into which everything goes that it says while it applies.
fn overheard(binary: &Path, folder: &Path) -> (PathBuf, PathBuf) {
    let (wrapper, log) = (folder.join("terraform"), folder.join("log"));
    let script = format!(
        "#!/bin/bash\n[ \"$1\" = apply ] || exec {0} \"$@\"\nexec {0} \"$@\" > >(exec tee -a {1})\n",
        binary.display(),
        log.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, Permissions::from_mode(0o755)).unwrap();
    (wrapper, log)
}

/// A run under way, with all that can be seen of it.
struct Watched<'a> {
    place: &'a Place,
    log: PathBuf,
    run: Running,
}

impl Watched<'_> {
    /// The line in which Terraform says this of a resource, as soon as it did.
    async fn said(&self, kind: &str, address: &str) -> Value {
        let found = || {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            let mut lines = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["type"] == kind && line["hook"]["resource"]["addr"] == address)
        };
        let deadline = std::time::Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(line) = found() {
                return line;
            }
            assert!(std::time::Instant::now() < deadline, "{address}: never {kind}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until the store knows of it, which must be within the bound.
    async fn in_the_store(&self, what: &str, line: &Value, is_known: impl Fn(&Value) -> bool) {
        let said: Timestamp = line["@timestamp"].as_str().unwrap().parse().unwrap();
        loop {
            let book = self.place.book().await;
            let after = Timestamp::now().duration_since(said);
            assert!(
                after.unsigned_abs() <= BOUND,
                "{what}: said at {said} and not in the store {after:?} later: {book}"
            );
            if is_known(&book) {
                println!("{what}: in the store at most {after:?} after Terraform said so");
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// A resource that was made: with its state (Terraform), or with the id by which it is imported (OpenTofu).
    async fn is_kept(&self, id: &str) {
        let address = id.split(':').skip(2).collect::<Vec<_>>().join(".");
        let line = self.said("apply_complete", &address).await;
        let made = line["hook"]["id_value"].as_str().unwrap().to_owned();
        self.in_the_store(id, &line, |book| {
            let attributes = &book["resources"][id]["entry"]["instances"][0]["attributes"];
            attributes["id"] == made || book["in_flight"][id]["id"] == made
        })
        .await;
    }
}

const FIRST: &str = "terraform:builtin:terraform_data:first";
const SLOW: &str = "hashicorp:local:local_file:slow";
const SECOND: &str = "terraform:builtin:terraform_data:second";
const STUCK: &str = "hashicorp:local:local_file:stuck";

/// A chain of resources, two of which take as long as the test likes; up to where the last of them is in flight.
async fn under_way<'a>(place: &'a Place, log: &Path) -> Watched<'a> {
    for pipe in ["slow", "stuck"] {
        interruption::pipe(&place.path(pipe));
    }
    place.want(&[
        Place::data("first", json!("a"), &[]),
        place.local("local_file", "slow", "b", &[FIRST]),
        Place::data("second", json!("c"), &[SLOW]),
        place.local("local_file", "stuck", "d", &[SECOND]),
        place.local("local_sensitive_file", "secret", sensitive::SECRET, &[]),
    ]);
    let watched = Watched {
        place,
        log: log.to_owned(),
        run: place.run("apply").arg("--yes").start(),
    };
    watched.is_kept(FIRST).await;
    interruption::read_pipe(place.path("slow")).await;
    watched.is_kept(SLOW).await;
    watched.is_kept(SECOND).await;
    let line = watched.said("apply_start", "local_file.stuck").await;
    watched
        .in_the_store("what is in flight", &line, |book| {
            let flight = &book["in_flight"][STUCK];
            flight["action"] == "create" && flight["planned"].is_null()
        })
        .await;
    watched
}

fn remove_pipes(place: &Place) {
    for pipe in ["slow", "stuck"] {
        std::fs::remove_file(place.path(pipe)).unwrap();
    }
}

/// The ids at the provider that `terraform_data` got, which nothing but the first run can have given.
async fn ids(place: &Place) -> [Value; 2] {
    let book = place.book().await;
    [FIRST, SECOND].map(|id| book["resources"][id]["entry"]["instances"][0]["attributes"]["id"].clone())
}

fn made(log: &Path) -> [Value; 2] {
    let text = std::fs::read_to_string(log).unwrap();
    ["terraform_data.first", "terraform_data.second"].map(|address| {
        let mut lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|l| l["type"] == "apply_complete" && l["hook"]["resource"]["addr"] == address);
        line.unwrap()["hook"]["id_value"].clone()
    })
}

/// The next run makes nothing twice, and leaves nothing to do.
async fn converges(place: &Place, log: &Path) {
    let made = made(log);
    place.run("apply").arg("--yes").run().expect(0);
    assert_eq!(ids(place).await, made, "they are the objects of the first run");
    assert_eq!(place.preview()["summary"]["unchanged"], 5);
}

pub async fn of_a_killed_run(binary: PathBuf) {
    let folder = tempfile::TempDir::new().unwrap();
    let (wrapper, log) = overheard(&binary, folder.path());
    let place = Place::new(&wrapper);
    let watched = under_way(&place, &log).await;
    watched.run.signal(Signal::SIGKILL);
    assert_eq!(watched.run.wait().code, None);
    cli_fixture::end_left_over(place.temporary.path());
    leaks::files_are_clean(&place);
    remove_pipes(&place);

    let plan = place.preview();
    let stuck = plan["resources"]
        .as_array()
        .unwrap()
        .iter()
        .find(|resource| resource["id"] == STUCK)
        .unwrap();
    let notes = stuck["notes"].to_string();
    assert!(notes.contains("terraform import local_file.stuck ID"), "{notes}");
    converges(&place, &log).await;
}

pub async fn of_an_interrupted_run(binary: PathBuf) {
    let folder = tempfile::TempDir::new().unwrap();
    let (wrapper, log) = overheard(&binary, folder.path());
    let place = Place::new(&wrapper);
    let watched = under_way(&place, &log).await;
    watched.run.signal(Signal::SIGINT);
    // What is in flight is not torn: it ends when it can, and is kept.
    interruption::read_pipe(place.path("stuck")).await;
    watched.run.wait().expect(130);
    let book = place.book().await;
    for id in [FIRST, SLOW, SECOND, STUCK] {
        assert!(book["resources"][id].is_object(), "{id}: {book}");
    }
    assert_eq!(book.get("in_flight"), None);
    remove_pipes(&place);
    converges(&place, &log).await;
}
