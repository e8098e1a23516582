//! `konverge state rollback` on the real API server: the recorded commit, compiled by the recorded core, applied as a
//! plan of its own; and what keeps it from that.

use crate::support::{
    cluster::Cluster,
    git::Repository,
    kcl::interpreter,
    objects::Objects,
    process::{Konverge, Outcome},
};
use konverge_base::checkout::Checkout;
use konverge_kcl::{DEFAULT_VERSION, Toolchain};
use serde_json::{Value, json};
use std::path::PathBuf;

const STACK: &str = "shop/dev";

/// A monorepo with one stack of one ConfigMap, its state in a folder.
struct Shop {
    repository: Repository,
    cluster: &'static Cluster,
    namespace: String,
    /// The interpreter that `KONVERGE_KCL` names.
    interpreter: Option<PathBuf>,
}

impl Shop {
    async fn new(subject: &str) -> Self {
        let repository = Repository::init();
        repository.write("kcl.mod", "[package]\nname = \"it\"\nversion = \"0.1.0\"\n");
        repository.write("apps/shop/project.yaml", "name: shop\n");
        repository.write("apps/shop/dev/stack.yaml", "name: dev\n");
        repository.write(
            "apps/shop/dev/kcl.yaml",
            "kcl_cli_configs:\n  files: [main.k]\n  disable_none: true\n",
        );
        let cluster = Cluster::shared();
        Self {
            namespace: cluster.namespace(subject).await,
            repository,
            cluster,
            interpreter: Some(interpreter()),
        }
    }

    fn git_folder(&self, name: &str) -> PathBuf {
        self.repository.path().join(".git").join(name)
    }

    /// A commit in which the ConfigMap says `word`, compiled by a core.
    fn commit(&self, word: &str, core: &str) -> String {
        let url = self.git_folder("states");
        let config = format!(
            "version: 1\nstate: {{id: rollback, url: 'file://{}'}}\nkcl: {{version: {core}}}\n",
            url.display()
        );
        let id = format!("v1:ConfigMap:{}:settings", self.namespace);
        let program = format!(
            "resources = [{{\n    id = \"{id}\"\n    type = \"Kubernetes\"\n    attributes = {{\n        apiVersion = \"v1\"\n        kind = \"ConfigMap\"\n        metadata = {{name = \"settings\", namespace = \"{}\"}}\n        data = {{word = \"{word}\"}}\n    }}\n}}]\n",
            self.namespace
        );
        self.repository.write("konverge.yaml", config);
        self.repository.write("apps/shop/dev/main.k", program);
        self.repository.commit(word)
    }

    fn konverge(&self, arguments: &[&str]) -> Konverge {
        let run = Konverge::new(arguments)
            .dir(self.repository.path())
            .env("XDG_CACHE_HOME", self.git_folder("caches"))
            .env("XDG_DATA_HOME", self.git_folder("data"));
        match &self.interpreter {
            Some(interpreter) => run.env("KONVERGE_KCL", interpreter),
            None => run,
        }
    }

    fn on_cluster(&self, arguments: &[&str]) -> Konverge {
        self.konverge(arguments)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig())
    }

    fn apply(&self) {
        let outcome = self.on_cluster(&["apply", STACK, "--rev", "HEAD", "--yes"]).run();
        outcome.expect(0);
    }

    fn rollback(&self, more: &[&str]) -> Outcome {
        // Nothing that was compiled before may answer for a core that is not there.
        let _ = std::fs::remove_dir_all(self.git_folder("caches"));
        let arguments = [&["state", "rollback", STACK], more].concat();
        self.on_cluster(&arguments).run()
    }

    async fn word(&self) -> Value {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": self.namespace}});
        let there = Objects::of(self.cluster).await.get(&object).await.unwrap();
        there["data"]["word"].clone()
    }

    fn history(&self) -> Vec<Value> {
        let outcome = self
            .konverge(&["state", "history", STACK, "--output", "json"])
            .run();
        outcome.expect(0).json()["serials"].as_array().unwrap().clone()
    }

    /// The installed core under another version's name: what is picked, not what it does.
    async fn install_as(&self, version: &str) {
        let core = Toolchain::from_interpreter(&interpreter(), DEFAULT_VERSION, &Checkout::default())
            .await
            .unwrap();
        let named = Toolchain {
            version: version.to_owned(),
            ..core
        };
        let folder = self.git_folder("data/konverge/kcl").join(version);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("core.json"), serde_json::to_string(&named).unwrap()).unwrap();
    }

    /// Writes the newest serial again with something else in it.
    fn edited(&self, edit: impl FnOnce(&mut Value)) {
        let mut pulled = self.konverge(&["state", "pull", STACK]).run().expect(0).json();
        edit(&mut pulled["state"]);
        let file = self.git_folder("edited.json");
        std::fs::write(&file, pulled.to_string()).unwrap();
        let push = ["state", "push", STACK, file.to_str().unwrap()];
        self.konverge(&push).run().expect(0);
    }
}

fn says(outcome: &Outcome, words: &[&str]) {
    for word in words {
        assert!(
            outcome.stderr.contains(word),
            "`{word}` is not said:\n{}",
            outcome.stderr
        );
    }
}

async fn there_and_back(shop: &Shop, older: &str) {
    let first = shop.commit("first", older);
    // KONVERGE_KCL names the newer core: that both say something else is an error, not a choice.
    let apply = ["apply", STACK, "--rev", "HEAD", "--yes"];
    let refused = shop.on_cluster(&apply).run().expect(1);
    let told = format!("{}{}", refused.stdout, refused.stderr);
    for word in ["KONVERGE_KCL", older, "kcl.version"] {
        assert!(told.contains(word), "{told}");
    }
    let installed = shop.on_cluster(&apply).env("KONVERGE_KCL", "");
    installed.run().expect(0);
    let second = shop.commit("second", DEFAULT_VERSION);
    shop.apply();
    assert_eq!(shop.word().await, "second");

    // Shown, and nothing is done.
    let shown = shop.rollback(&["--to", "1"]).expect(64);
    says(
        &shown,
        &[
            "second",
            "first",
            "confirmation required but stdin is not a terminal",
            "--yes",
        ],
    );
    assert_eq!(shown.stdout, "");
    assert_eq!(shop.word().await, "second");
    assert_eq!(shop.history().len(), 2);

    let done = shop
        .rollback(&["--to", "1", "--yes", "--output", "json"])
        .expect(0);
    assert_eq!(done.json()["stacks"][0]["result"], "applied");
    assert_eq!(shop.word().await, "first");
    // A serial of its own, with the commit and the core that it went back to; forward works the same way.
    let history = shop.history();
    let newest = &history[0];
    assert_eq!((history.len(), &newest["commit"]), (3, &json!(first)));
    assert_eq!(newest["note"], "rolled back to serial 1");
    let state = shop.konverge(&["state", "show", STACK, "--output", "json"]).run();
    assert_eq!(state.json()["state"]["core"], older);
    shop.rollback(&["--to", "2", "--yes"]).expect(0);
    assert_eq!(shop.word().await, "second");
    assert_eq!(shop.history()[0]["commit"], second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_picks_the_core_that_compiled_it_then() {
    let shop = Shop::new("rollback").await;
    shop.install_as("0.13.1").await;
    there_and_back(&shop, "0.13.1").await;
    // Without it nothing is done, and what to type is said.
    std::fs::remove_dir_all(shop.git_folder("data")).unwrap();
    let refused = shop.rollback(&["--to", "1", "--yes"]).expect(1);
    says(&refused, &["0.13.1", "konverge kcl install 0.13.1"]);
    let without = Shop {
        interpreter: None,
        ..shop
    };
    let refused = without.rollback(&["--to", "1", "--yes"]).expect(1);
    says(
        &refused,
        &["core 0.13.1 is not installed", "konverge kcl install 0.13.1"],
    );
    assert_eq!(without.word().await, "second");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "fetches an older core from the package index: make test-all"]
async fn a_rollback_with_a_core_that_really_is_older() {
    let shop = Shop::new("rollback-older").await;
    let install = shop.konverge(&["kcl", "install", "0.12.5"]).run();
    install.expect(0);
    there_and_back(&shop, "0.12.5").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_not_be_made_again_is_not_rolled_back() {
    let shop = Shop::new("rollback-refused").await;
    let first = shop.commit("first", DEFAULT_VERSION);
    shop.apply();
    shop.edited(|state| state["specDigest"] = "0".repeat(64).into());
    shop.edited(|state| state["commit"] = "d".repeat(40).into());
    shop.edited(|state| {
        state.as_object_mut().unwrap().remove("commit");
    });
    let serials = shop.history().len();
    says(
        &shop.rollback(&["--to", "2", "--yes"]).expect(1),
        &["compiles to another Spec", &first[..7], "nothing is rolled back"],
    );
    says(
        &shop.rollback(&["--to", "3", "--yes"]).expect(1),
        &["dddddddd", "is not in this clone", "git fetch"],
    );
    says(
        &shop.rollback(&["--to", "4", "--yes"]).expect(1),
        &["was not a complete apply of one commit", "state history"],
    );
    says(
        &shop.rollback(&["--to", "99", "--yes"]).expect(1),
        &["no serial 99", "state history"],
    );
    // The stack's files at that commit, not those of today, decide; and where they are gone, it says so.
    shop.repository.remove("apps/shop/dev/stack.yaml");
    let gone = shop.repository.commit("No stack any more");
    shop.edited(|state| state["commit"] = gone.clone().into());
    says(
        &shop.rollback(&["--to", "5", "--yes"]).expect(1),
        &["does not exist at commit", &gone[..7]],
    );
    // Where nothing is to change there is nothing to ask, as in an apply: the serial says that it was rolled back.
    assert_eq!(shop.rollback(&["--to", "1"]).code, Some(0));
    assert_eq!(
        (shop.history().len(), shop.word().await),
        (serials + 2, json!("first"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_a_shallow_clone_lacks_is_fetched() {
    let shop = Shop::new("rollback-shallow").await;
    shop.commit("first", DEFAULT_VERSION);
    shop.apply();
    shop.commit("second", DEFAULT_VERSION);
    shop.apply();
    let clone = Shop {
        repository: shop.repository.clone_with(&["--depth=1"]),
        cluster: shop.cluster,
        namespace: shop.namespace.clone(),
        interpreter: Some(interpreter()),
    };
    clone.rollback(&["--to", "1", "--yes"]).expect(0);
    assert_eq!(shop.word().await, "first");
}

/// The preview of a rollback that replaces shows what forces the replacement, and nothing that somebody else did.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_replaces_shows_the_field_that_forces_it() {
    let shop = Shop::new("rollback-replaces").await;
    for word in ["first", "second"] {
        shop.commit(word, DEFAULT_VERSION);
        shop.repository.replace(
            "apps/shop/dev/main.k",
            " data = {word",
            " immutable = True\n        data = {word",
        );
        shop.repository.commit(word);
        shop.apply();
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": shop.namespace}});
    let objects = Objects::of(shop.cluster).await;
    let by_hand = json!({"metadata": {"labels": {"by": "hand"}}});
    objects.merge(&object, "kubectl-edit", &by_hand).await;
    let uid = objects.get(&object).await.unwrap()["metadata"]["uid"].clone();

    let shown = shop.rollback(&["--to", "1"]).expect(64).stderr;
    for line in [
        "1 to replace",
        "must be replaced: data changed",
        "-  word: second",
        "+  word: first  # forces replacement",
        "add `--yes`",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // The label that was added by hand goes with the old object: it is no change of the Spec, and nothing else is.
    let changed = shown.lines().map(str::trim_start);
    let changed = changed.filter(|line| line.starts_with("+ ") || line.starts_with("- "));
    assert_eq!(changed.count(), 2, "{shown}");
    assert_eq!(objects.get(&object).await.unwrap()["metadata"]["uid"], uid);
    shop.rollback(&["--to", "1", "--yes"]).expect(0);
    assert_eq!(shop.word().await, "first");
    assert_ne!(objects.get(&object).await.unwrap()["metadata"]["uid"], uid);
}

/// A rollback neither runs nor passes a migration that is not marked as reversible, and runs one that is.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_runs_a_migration_only_if_it_is_reversible() {
    let cluster = Cluster::with_controllers();
    let shop = Shop {
        cluster,
        namespace: cluster.namespace("rollback-hooks").await,
        ..Shop::new("rollback-hooks-unused").await
    };
    let ns = &shop.namespace;
    let migrate = |reversible: &str| {
        let pod =
            json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "example.com/job:1"}]});
        json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "migrate", "namespace": ns,
                "annotations": {"konverge/hook": "pre", "konverge/hook-reversible": reversible}},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}}})
    };
    let web = |image: &str| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}}}})
    };
    let objects = Objects::of(cluster).await;
    let mut serials = Vec::new();
    for (image, reversible) in [
        ("web:1", "false"),
        ("web:2", "false"),
        ("web:3", "true"),
        ("web:4", "true"),
    ] {
        shop.commit(image, DEFAULT_VERSION);
        let config = shop.repository.read("konverge.yaml");
        let accounts = "apply: {hooks: {service_accounts: [default]}}\n";
        shop.repository.write("konverge.yaml", config + accounts);
        let both = json!([web(image), migrate(reversible)]);
        let program = format!("import json\n\nresources = json.decode(r'''{both}''')\n");
        shop.repository.write("apps/shop/dev/main.k", program);
        shop.repository.commit(image);
        shop.apply();
        serials.push(shop.history()[0]["serial"].to_string());
        if image == "web:2" {
            let ran = objects.get(&migrate("")).await.unwrap()["metadata"]["uid"].clone();
            let count = shop.history().len();
            let refused = shop.rollback(&["--to", &serials[0], "--yes"]).expect(3);
            says(
                &refused,
                &[
                    "would run the `pre` hook",
                    "is not marked as reversible",
                    "konverge/hook-reversible",
                ],
            );
            let live = objects.get(&web("")).await.unwrap();
            let container = &live["spec"]["template"]["spec"]["containers"][0];
            assert_eq!(container["image"], "web:2");
            assert_eq!(objects.get(&migrate("")).await.unwrap()["metadata"]["uid"], ran);
            assert_eq!(shop.history().len(), count, "nothing was written");
        }
    }
    let ran = objects.get(&migrate("")).await.unwrap()["metadata"]["uid"].clone();
    shop.rollback(&["--to", &serials[2], "--yes"]).expect(0);
    let live = objects.get(&web("")).await.unwrap();
    let container = &live["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "web:3");
    assert_ne!(
        objects.get(&migrate("")).await.unwrap()["metadata"]["uid"],
        ran,
        "the migration ran for the older version"
    );
}

/// `konverge apply STACK --recorded`: what was applied last, whatever the head and the working tree say.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_applied_last_is_restored_by_hand() {
    let shop = Shop::new("recorded").await;
    let recorded = ["apply", STACK, "--recorded"];
    let first = shop.commit("first", DEFAULT_VERSION);
    let never = shop.on_cluster(&recorded).arg("--yes").run().expect(1);
    let said = never.stdout;
    assert!(
        said.contains("was never applied: there is nothing to restore"),
        "{said}"
    );
    shop.apply();
    // The head is for a core that is not here, and the working tree has something else.
    shop.commit("second", "0.13.1");
    shop.repository.replace("apps/shop/dev/main.k", "second", "third");
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": shop.namespace}});
    let by_hand = json!({"data": {"word": "by hand"}});
    let objects = Objects::of(shop.cluster).await;
    objects.merge(&object, "kubectl-edit", &by_hand).await;

    let serials = shop.history().len();
    let unconfirmed = shop.on_cluster(&recorded).run().expect(64);
    says(&unconfirmed, &["confirmation required", "by hand", "first"]);
    for (more, why) in [
        (
            vec!["apply", "--recorded", "--yes"],
            "`--recorded` needs the names of the stacks to restore",
        ),
        (
            vec!["apply", STACK, "--recorded", "--rev", "HEAD"],
            "cannot be used with",
        ),
    ] {
        says(&shop.on_cluster(&more).run().expect(64), &[why]);
    }
    assert_eq!(shop.word().await, "by hand");
    let done = shop
        .on_cluster(&recorded)
        .arg_all(["--yes", "--output", "json"])
        .run();
    assert_eq!(done.expect(0).json()["stacks"][0]["result"], "applied");
    assert_eq!(shop.word().await, "first");
    let history = shop.history();
    assert_eq!(
        (history.len(), &history[0]["commit"]),
        (serials + 1, &json!(first))
    );
    assert_eq!(history[0]["note"], "restored what was applied last");
    let state = shop.konverge(&["state", "show", STACK, "--output", "json"]).run();
    assert_eq!(state.json()["state"]["core"], DEFAULT_VERSION);

    // A clone without the commit, and a state that no apply wrote, restore nothing and say why.
    let clone = Shop {
        repository: shop.repository.clone_with(&["--depth=1"]),
        cluster: shop.cluster,
        namespace: shop.namespace.clone(),
        interpreter: Some(interpreter()),
    };
    clone.repository.git(["remote", "remove", "origin"]);
    objects.merge(&object, "kubectl-edit", &by_hand).await;
    for (shop, why) in [
        (&clone, "which was applied last, cannot be read in this clone"),
        (&shop, "its state records no complete apply"),
    ] {
        let refused = shop.on_cluster(&recorded).arg("--yes").run().expect(1);
        assert!(refused.stdout.contains(why), "{why}: {}", refused.stdout);
        assert_eq!(shop.word().await, "by hand");
        shop.edited(|_| ());
    }
}
