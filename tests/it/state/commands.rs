//! `konverge state`, as typed: on a folder in the home of the run.

use crate::support::{
    process::{Konverge, Outcome},
    spec_runs::walk,
};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateStore,
    store::{StoreOptions, open},
};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const KUSION: &str = r#"{"id":1,"project":"http-echo","stack":"dev","version":1,"kusionVersion":"v0.9.0","serial":7,"operator":"me","resources":[
  {"id":"v1:Namespace:http-echo","type":"Kubernetes","attributes":{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"http-echo"}}},
  {"id":"v1:Secret:http-echo:db","type":"Kubernetes","attributes":{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db"},"stringData":{"password":"hunter222"}}},
  {"id":"hashicorp:random:random_password:db","type":"Terraform","attributes":{"length":16,"result":"hunter333"}}]}"#;

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        Konverge::new(["state"].iter().chain(arguments))
            .dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("states"))
            .run()
    }

    fn folder(&self) -> PathBuf {
        self.path().join("states/konverge/no-repository")
    }

    fn imported() -> Self {
        let home = Self::new();
        std::fs::write(home.path().join("kusion_state.json"), KUSION).unwrap();
        home.run(&["import", "kusion_state.json", "--folder", "apps/http-echo/dev"])
            .expect(0);
        home
    }

    async fn states(&self) -> StateStore {
        let store = open(self.folder().to_str().unwrap(), &StoreOptions::default())
            .await
            .unwrap();
        let writer = DocumentWriter {
            run: "https://ci.example/77".to_owned(),
            actor: "someone".to_owned(),
        };
        StateStore::open(store, RepositoryId::new("no-repository"), writer)
    }
}

#[test]
fn kusions_state_is_taken_over_without_its_secrets() {
    let home = Home::imported();
    let list = home.run(&["list", "--output", "json"]).expect(0).json();
    assert_eq!(list["stacks"][0]["stack"], "http-echo/dev");
    assert_eq!(list["stacks"][0]["resources"], 2);
    let show = home.run(&["show", "apps/http-echo/dev"]).expect(0);
    assert!(
        show.stdout.contains("import by") && show.stdout.contains("$secret"),
        "{}",
        show.stdout
    );
    let everything = walk(&home.folder());
    assert!(everything.contains("v1:Secret:http-echo:db"));
    assert!(!everything.contains("hunter222") && !everything.contains("hunter333"));
    let again = home.run(&["import", "kusion_state.json"]).expect(1);
    assert!(
        again.stderr.contains("already has a state") && again.stderr.contains("state forget"),
        "{}",
        again.stderr
    );
    home.run(&["doctor"]).expect(0);
}

#[test]
fn what_is_pulled_can_be_edited_and_pushed_once() {
    let home = Home::imported();
    let mut pulled = home.run(&["pull", "http-echo/dev"]).expect(0).json();
    pulled["state"]["resources"].as_array_mut().unwrap().remove(0);
    let file = home.path().join("edited.json");
    std::fs::write(&file, pulled.to_string()).unwrap();
    home.run(&["push", "http-echo/dev", "edited.json"]).expect(0);
    let stale = home.run(&["push", "http-echo/dev", "edited.json"]).expect(1);
    assert!(
        stale.stderr.contains("pulled at serial 1, and serial 2"),
        "{}",
        stale.stderr
    );
    let other = home.run(&["push", "http-echo/prod", "edited.json"]).expect(1);
    assert!(
        other.stderr.contains("the state of `http-echo/dev`"),
        "{}",
        other.stderr
    );
    pulled["repository"] = "another".into();
    std::fs::write(&file, pulled.to_string()).unwrap();
    let foreign = home.run(&["push", "http-echo/dev", "edited.json"]).expect(1);
    assert!(
        foreign.stderr.contains("belongs to repository `another`"),
        "{}",
        foreign.stderr
    );
    let diff = home.run(&["diff", "http-echo/dev", "1", "2"]).expect(0);
    assert!(
        diff.stdout
            .lines()
            .any(|line| line.starts_with('-') && line.contains("id: v1:Namespace:http-echo")),
        "{}",
        diff.stdout
    );
    let history = home
        .run(&["history", "http-echo/dev", "--output", "json"])
        .expect(0)
        .json();
    assert_eq!(history["serials"][0]["reason"], "push");
}

#[test]
fn stacks_move_and_are_forgotten() {
    let home = Home::imported();
    home.run(&["move", "http-echo/dev", "echo/dev"]).expect(0);
    let list = home.run(&["list", "--output", "json"]).expect(0).json();
    assert_eq!(list["stacks"].as_array().unwrap().len(), 1);
    assert_eq!(list["stacks"][0]["stack"], "echo/dev");
    home.run(&["forget", "echo/dev", "v1:Secret:http-echo:db"])
        .expect(0);
    assert_eq!(
        home.run(&["list", "--output", "json"]).expect(0).json()["stacks"][0]["resources"],
        1
    );
    home.run(&["forget", "echo/dev"]).expect(64);
    home.run(&["forget", "echo/dev", "--yes"]).expect(0);
    assert_eq!(
        home.run(&["list", "--output", "json"]).expect(0).json()["stacks"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    // Forgotten is not lost.
    let back = home.run(&["show", "echo/dev", "--serial", "1"]).expect(0);
    assert!(back.stdout.contains("v1:Namespace:http-echo"), "{}", back.stdout);
    for command in ["show", "history"] {
        let unknown = home.run(&[command, "no/such"]).expect(64);
        assert!(
            unknown.stderr.contains("nothing is recorded"),
            "{}",
            unknown.stderr
        );
    }
}

#[tokio::test]
async fn a_damaged_document_is_refused_with_the_way_back() {
    let home = Home::imported();
    home.run(&["forget", "http-echo/dev", "v1:Secret:http-echo:db"])
        .expect(0);
    let newest = home.folder().join("stacks/http-echo%2Fdev/state/0000000002");
    let text = std::fs::read_to_string(&newest).unwrap();
    std::fs::write(&newest, text.replace("http-echo", "http-ecko")).unwrap();
    let refused = home.run(&["show", "http-echo/dev"]).expect(1);
    assert!(
        refused.stderr.contains("checksum does not match") && refused.stderr.contains("--over-damaged"),
        "{}",
        refused.stderr
    );
    let listed = home.run(&["list"]).expect(0).stdout;
    assert!(
        listed.contains("http-echo/dev") && listed.contains("damaged: "),
        "{listed}"
    );
    let listed = home.run(&["list", "--output", "json"]).expect(0).json();
    assert!(listed["stacks"][0]["damaged"].is_string(), "{listed}");
    home.run(&["doctor"]).expect(1);
    // The serials before it can be read: that is the way back.
    home.run(&["pull", "http-echo/dev", "--serial", "1"]).expect(0);
    std::fs::write(
        home.folder().join("stacks/http-echo%2Fdev/state/0000000003"),
        text.replace("{\"konverge\":1", "{\"konverge\":9"),
    )
    .unwrap();
    let future = home.run(&["show", "http-echo/dev"]).expect(1);
    assert!(
        future.stderr.contains("format version 9") && future.stderr.contains("update konverge"),
        "{}",
        future.stderr
    );
}

#[tokio::test]
async fn somebody_elses_lease_is_named_and_can_be_ended() {
    let home = Home::imported();
    let states = home.states().await;
    let stack = "http-echo/dev".parse().unwrap();
    let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
    let held = home
        .run(&["forget", "http-echo/dev", "v1:Secret:http-echo:db"])
        .expect(4);
    assert!(
        held.stderr.contains("https://ci.example/77")
            && held.stderr.contains(lease.id())
            && held.stderr.contains("no renewal for "),
        "{}",
        held.stderr
    );
    home.run(&[
        "unlock",
        "http-echo/dev",
        "--lease",
        "1-nonsense",
        "--reason",
        "x",
    ])
    .expect(1);
    home.run(&["unlock", "http-echo/dev", "--lease", lease.id()])
        .expect(64);
    home.run(&[
        "unlock",
        "http-echo/dev",
        "--lease",
        lease.id(),
        "--reason",
        "its runner is gone",
    ])
    .expect(0);
    assert!(states.holder(&stack).await.unwrap().is_none());
}
