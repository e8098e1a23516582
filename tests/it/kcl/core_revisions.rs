//! Two revisions that need different cores, settings or workspaces: each is compiled by its own, whatever else the run
//! compiles, and no cache answers for the other.

use std::path::{Path, PathBuf};

use konverge_kcl::DEFAULT_VERSION;
use tempfile::TempDir;

use crate::support::{
    apps::{QUICKSTART, workspace, write_stack},
    cores,
    git::Repository,
    kcl::OLDER_VERSION,
    process::{Konverge, Outcome},
    random::{Random, setting},
};

/// A repository with both cores and a cache.
struct Shop {
    repository: Repository,
    machine: TempDir,
}

impl Shop {
    /// One stack whose text the cores read differently.
    async fn new() -> Self {
        let repository = Repository::init();
        repository
            .write("kcl.mod", "[package]\nname = \"it\"\nversion = \"0.1.0\"\n")
            .write("plain/shop/project.yaml", "name: plain\n")
            .write("plain/shop/dev/stack.yaml", "name: dev\n")
            .write(
                "plain/shop/dev/kcl.yaml",
                "kcl_cli_configs:\n  files: [main.k]\nkcl_options:\n- {key: tier, value: own}\n",
            )
            .write(
                "plain/shop/dev/ci-test/settings.yaml",
                "kcl_options:\n- {key: tier, value: test}\n",
            )
            .write(
                "plain/shop/dev/main.k",
                "resources = [{\n    id = \"v1:ConfigMap:shop:text\"\n    type = \"Kubernetes\"\n    attributes = {\n        apiVersion = \"v1\"\n        kind = \"ConfigMap\"\n        metadata = {name = \"text\", namespace = \"shop\"}\n        data = {text = \"\"\"\nline\"\"\", tier = option(\"tier\")}\n    }\n}]\n",
            );
        let machine = tempfile::tempdir().unwrap();
        cores::install_both(&machine.path().join("data")).await;
        Self { repository, machine }
    }

    fn data(&self) -> PathBuf {
        self.machine.path().join("data")
    }

    fn konverge(&self, arguments: &[&str], cache: &Path) -> Outcome {
        Konverge::new(arguments)
            .dir(self.repository.path())
            .env("XDG_DATA_HOME", self.data())
            .env("XDG_CACHE_HOME", cache)
            .run()
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        self.konverge(arguments, &self.machine.path().join("cache"))
    }

    /// All Specs of what is checked out, with the cache that the commands before left.
    fn specs(&self) -> (Option<i32>, String) {
        let built = self.run(&["build", "--all"]);
        (built.code, built.stdout)
    }

    /// The same with an empty cache.
    fn fresh_specs(&self) -> (Option<i32>, String) {
        let cache = tempfile::tempdir().unwrap();
        let built = self.konverge(&["build", "--all"], cache.path());
        (built.code, built.stdout)
    }

    fn configure(&self, core: &str, settings: &str) {
        self.repository.write(
            "konverge.yaml",
            format!("version: 1\nkcl: {{version: {core}, settings: {settings}}}\n"),
        );
    }
}

/// `main` with the older core, and a branch with the newer one.
async fn two_cores() -> Shop {
    let shop = Shop::new().await;
    shop.configure(OLDER_VERSION, "v0.9.0");
    shop.repository.commit("The older core");
    shop.repository.branch("newer");
    shop.configure(DEFAULT_VERSION, "v0.9.0");
    shop.repository.commit("The newer core");
    shop
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_with_another_core_is_compiled_by_that_core() {
    let shop = two_cores().await;
    let shown = shop.run(&["affected", "--base", "main", "--diff"]).expect(0);
    // The older core keeps the line break at the beginning.
    assert!(shown.stdout.contains("1 to update"), "{}", shown.stdout);
    let exact = shop.run(&["affected", "--base", "main", "--exact", "--output=json"]);
    assert_eq!(exact.expect(0).json()["stacks"][0]["spec"], "changed");
    shop.repository.checkout("main");
    let cached = shop.specs();
    assert_eq!(cached, shop.fresh_specs());
    let kept = "text: |-\n        \n        line";
    assert!(cached.1.contains(kept), "{}", cached.1);
}

/// The preview shows what the merge would write, by hand and as the guide for GitLab types it.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_shows_what_another_core_changes() {
    let shop = two_cores().await;
    let base = shop.repository.rev("main");
    let head = shop.repository.rev("newer");
    let by_hand = ["preview", "--base", "main", "--live", "never"];
    let guide = [
        "preview", "--base", &base, "--rev", &head, "--live", "never", "--output", "markdown",
    ];
    for arguments in [&by_hand[..], &guide] {
        let shown = shop.run(arguments).expect(0).stdout;
        assert!(shown.contains("plain/dev"), "{arguments:?}: {shown}");
        assert!(!shown.contains("no stack is affected"), "{arguments:?}: {shown}");
        assert!(shown.contains("line"), "{arguments:?}: {shown}");
    }
    let plan = shop
        .run(&[&by_hand[..], &["--output=json"]].concat())
        .expect(0)
        .json();
    assert_eq!(plan["stacks"][0]["summary"]["update"], 1, "{plan}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_shows_what_another_reading_of_settings_changes() {
    let shop = Shop::new().await;
    shop.configure(DEFAULT_VERSION, "v0.9.0");
    shop.repository.commit("As Kusion 0.9.0");
    shop.repository.branch("newer");
    // It reads no ci-test/settings.yaml.
    shop.configure(DEFAULT_VERSION, "v0.9.1");
    shop.repository.commit("As Kusion 0.9.1");
    let preview = ["preview", "--base", "main", "--live", "never", "--output=json"];
    let plan = shop.run(&preview).expect(0).json();
    let change = &plan["stacks"][0]["resources"][0]["changes"][0];
    assert_eq!(change["path"], "/data/tier", "{plan}");
    assert_eq!(change["to"], "own", "{plan}");
}

/// By hand, too, the change that adds `konverge.yaml` compiles every stack.
#[tokio::test(flavor = "multi_thread")]
async fn the_preview_that_adds_the_configuration_compiles_every_stack() {
    let shop = Shop::new().await;
    shop.repository.commit("No configuration yet");
    shop.repository.branch("begin");
    shop.configure(DEFAULT_VERSION, "v0.9.0");
    shop.repository.commit("Begin");
    let preview = ["preview", "--base", "main", "--live", "never", "--output"];
    let shown = shop.run(&[&preview[..], &["markdown"]].concat()).expect(0).stdout;
    for part in ["1 of 1 stack compiles", "This change adds `konverge.yaml`"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Those that another core refuses are failures, whatever the base does.
    shop.repository.write("plain/shop/dev/main.k", "resources = [\n");
    shop.repository.commit("A program that no core takes");
    let failed = shop.run(&[&preview[..], &["json"]].concat()).expect(1).json();
    assert!(failed["stacks"][0]["error"].is_object(), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_core_of_the_base_its_spec_is_not_made_up() {
    let shop = two_cores().await;
    cores::remove(&shop.data(), OLDER_VERSION);
    let install = format!("konverge kcl install {OLDER_VERSION}");
    let shown = shop.run(&["affected", "--base", "main", "--diff"]);
    let said = format!("{}{}", shown.stdout, shown.stderr);
    assert!(said.contains(&install), "{said}");
    assert_ne!(shown.code, Some(0));
    shop.repository.checkout("main");
    let built = shop.run(&["build", "--all"]).expect(1);
    assert!(built.stderr.contains(&install), "{}", built.stderr);
    assert!(!built.stdout.contains("line"), "{}", built.stdout);
}

/// Any sequence of commands on two branches leaves a cache that gives the Specs of an empty one. `KONVERGE_SEED`
/// repeats a run, `KONVERGE_ROUNDS` makes it longer.
#[tokio::test(flavor = "multi_thread")]
async fn no_sequence_of_commands_leaves_another_spec_in_the_cache() {
    let (seed, rounds) = (
        setting("KONVERGE_SEED", 20_260_057),
        setting("KONVERGE_ROUNDS", 3),
    );
    println!("KONVERGE_SEED={seed} KONVERGE_ROUNDS={rounds}");
    let mut random = Random::of(seed);
    let shop = Shop::new().await;
    for stack in ["apps/blog/dev", "apps/blog/prod"] {
        write_stack(&shop.repository, stack, ("0.2.1", "0.3.0"), QUICKSTART);
    }
    shop.repository.commit("The stacks");
    shop.repository.branch("other");
    let configure = |random: &mut Random| {
        let core = *random.pick(&[OLDER_VERSION, DEFAULT_VERSION]);
        let settings = *random.pick(&["v0.7", "v0.9.0", "v0.9.1"]);
        let replicas = 1 + random.below(3);
        shop.configure(core, settings);
        shop.repository.write(
            "workspaces/default.yaml",
            workspace("0.2.1", &format!("      default: {{replicas: {replicas}}}\n")),
        );
        let named = format!("{core}, {settings}, {replicas} replicas");
        shop.repository
            .write("README.md", format!("{named}, {}\n", random.next()));
        shop.repository.commit(&named);
        named
    };
    for round in 0..rounds {
        let mut told = format!("seed {seed}, round {round}:");
        for branch in ["main", "other"] {
            shop.repository.checkout(branch);
            told += &format!(" {branch} with {};", configure(&mut random));
        }
        for _ in 0..3 {
            let (here, there) = *random.pick(&[("main", "other"), ("other", "main")]);
            shop.repository.checkout(here);
            let commands: [&[&str]; 6] = [
                &["affected", "--base", there, "--diff"],
                &["affected", "--base", there, "--exact"],
                &["preview", "--base", there, "--live", "never"],
                &["build", "--all", "--rev", there],
                &["build", "--all"],
                &["check", "--all"],
            ];
            let command = *random.pick(&commands);
            told += &format!(" on {here} {};", command.join(" "));
            shop.run(command);
        }
        for branch in ["main", "other"] {
            shop.repository.checkout(branch);
            assert_eq!(shop.specs(), shop.fresh_specs(), "{told} {branch}");
        }
    }
}
