//! Which stacks and which change a command line means: the same words in every command.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    git::Repository,
    konfigs,
    objects::Objects,
    process::{Konverge, Outcome},
    shop_monorepo::{Shop, resource},
};

fn konverge(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .dir(repository.path())
        .with_kcl()
        .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
        .run()
}

fn ids(document: &Value) -> Vec<String> {
    let stacks = document["stacks"].as_array().unwrap();
    let mut ids: Vec<_> = stacks
        .iter()
        .map(|stack| stack["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

#[test]
fn every_command_takes_projects_and_globs() {
    let repository = Repository::konfig_example();
    let three = ["storefront/dev", "storefront/prod", "storefront/staging"];
    for command in [
        &["list"][..],
        &["ls"],
        &["build"],
        &["preview", "--live", "never"],
        &["plan", "--live", "never"],
        &["status", "--live", "never"],
    ] {
        for word in [
            "storefront",
            "storefront/*",
            "appops/storefront",
            "appops/storefront/*",
            "st*front/{dev,prod,staging}",
        ] {
            let arguments = [command, &["--output", "json", word]].concat();
            let told = konverge(&repository, &arguments).expect(0).json();
            assert_eq!(ids(&told), three, "{arguments:?}");
        }
    }
    let checked = konverge(&repository, &["check", "storefront/*"]).expect(0);
    assert!(checked.stdout.contains("3 stacks"), "{}", checked.stdout);

    // From a folder of it, and where a name means nothing.
    let here = Konverge::new(["list", "--output", "folders", "storefront/*"])
        .dir(repository.path().join("appops"))
        .run()
        .expect(0);
    assert_eq!(
        here.stdout,
        "appops/storefront/dev\nappops/storefront/prod\nappops/storefront/staging\n"
    );
    let slip = konverge(&repository, &["list", "storefrnt"]).expect(64).stderr;
    assert!(slip.contains("did you mean `storefront`?"), "{slip}");
    let nothing = konverge(&repository, &["preview", "nowhere/**/x"])
        .expect(64)
        .stderr;
    assert!(nothing.contains("`konverge list` shows every stack"), "{nothing}");
    let glob = konverge(&repository, &["status", "storefront/["])
        .expect(64)
        .stderr;
    assert!(glob.contains("the glob cannot be read"), "{glob}");
}

#[test]
fn the_list_says_identity_folder_and_where_the_identity_comes_from() {
    let repository = konfigs::konfig_2023();
    let all = konverge(&repository, &["list", "--output", "json"])
        .expect(0)
        .json();
    assert_eq!(all["version"], 1);
    assert_eq!(all["stacks"].as_array().unwrap().len(), 28);
    let text = konverge(&repository, &["list", "guestbook"]).expect(0).stdout;
    assert_eq!(
        text,
        "guestbook/dev   appops/guestbook/dev\nguestbook/prod  appops/guestbook/prod\nguestbook/test  appops/guestbook/test\n"
    );
    // Ten projects of one name are meant by it; none of their stacks has their names as identity.
    let ten = konverge(&repository, &["list", konfigs::SHARED_NAME, "--output", "json"])
        .expect(0)
        .json();
    let ten = ten["stacks"].as_array().unwrap();
    assert_eq!(ten.len(), 10);
    assert_eq!(
        ten[0],
        json!({
            "stack": "base/examples/server/app_config_map/prod", "id": "base/examples/server/app_config_map/prod",
            "project": konfigs::SHARED_NAME, "name": "prod", "namedBy": "folder",
        })
    );
    let one = konverge(&repository, &["preview", "sampleapp/prod"])
        .expect(1)
        .stderr;
    assert!(
        one.contains("10 stacks have the names `sampleapp/prod`")
            && one.contains("name one stack by its folder"),
        "{one}"
    );
    // Of a revision, and without any.
    repository.remove("appops").commit("Fewer");
    let before = konverge(
        &repository,
        &["list", "guestbook", "--head", "HEAD~1", "--output", "folders"],
    );
    assert_eq!(before.expect(0).stdout.lines().count(), 3);
    let empty = Repository::init();
    empty
        .write("kcl.mod", "[package]\nname = \"a\"\n")
        .commit("No stack");
    let told = konverge(&empty, &["list"]).expect(0);
    assert!(told.stderr.contains("there is no stack"), "{}", told.stderr);
}

#[test]
fn a_change_is_named_in_the_same_words_by_every_command() {
    let repository = Repository::konfig_example();
    repository.replace("appops/storefront/dev/main.k", "rc.1", "rc.2");
    let first = repository.commit("One");
    let orders = repository.read("appops/orders/dev/main.k");
    repository.write("appops/orders/dev/main.k", orders + "\n# Nothing else.\n");
    repository.commit("Two");
    repository.replace("appops/storefront/prod/main.k", "2.3.1", "2.4.0");
    let commands = [&["affected"][..], &["build"], &["preview", "--live", "never"]];
    for command in commands {
        let of = |change: &[&str]| {
            let arguments = [command, &["--output", "json"], change].concat();
            let told = konverge(&repository, &arguments).expect(0).json();
            match told.get("stacks") {
                Some(_) => ids(&told),
                // A single Spec is printed without its stack.
                None => vec![format!(
                    "{} resources",
                    told["resources"].as_array().unwrap().len()
                )],
            }
        };
        let committed = of(&["--base", "HEAD~2", "--head", &first]);
        assert_eq!(
            of(&["--base", "HEAD~2", "--rev", &first]),
            committed,
            "{command:?}"
        );
        assert_eq!(committed.len(), 1, "{command:?}: {committed:?}");
        let now = of(&["--base", "HEAD", "--worktree"]);
        assert_eq!(now.len(), 1, "{command:?}: {now:?}");
        let all = of(&["--base", "HEAD~2", "--worktree"]);
        assert!(all.len() >= 2, "{command:?}: {all:?}");
    }
    for command in ["affected", "build", "preview", "check", "apply"] {
        let help = konverge(&repository, &[command, "--help"]).expect(0).stdout;
        for word in ["--base <REV>", "--head <REV>", "--rev", "--worktree"] {
            assert!(help.contains(word), "{command}: {word}: {help}");
        }
        let both = konverge(&repository, &[command, "--head", "HEAD", "--worktree"])
            .expect(64)
            .stderr;
        assert!(both.contains("cannot be used with"), "{command}: {both}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_applied_is_looked_at_by_project_and_glob_too() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("selected").await, Objects::of(cluster).await);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"a": "1"}});
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        &[("KUBECONFIG", &cluster.kubeconfig())],
    );
    for stack in ["dev", "prod"] {
        shop.wants(stack, &[resource(&map(stack))]);
    }
    assert_eq!(shop.ends(&["up", "shop/*"], 0).len(), 2);
    objects.delete(&map("dev")).await;
    for word in ["shop", "shop/*", "apps/**"] {
        let drift = shop.run(&["drift", word, "--output", "json"]).expect(0).json();
        assert_eq!(ids(&drift), ["shop/dev", "shop/prod"], "{word}");
    }
    // What only the state knows: `status` and `destroy` find it, `apply` does not take it for a removal.
    shop.monorepo.remove("apps/shop/prod").commit("Gone");
    let status = shop
        .run(&["status", "shop/*", "--output", "json"])
        .expect(0)
        .json();
    assert_eq!(ids(&status), ["shop/dev", "shop/prod"]);
    assert_eq!(
        shop.ends(&["apply", "shop/*"], 0),
        [("shop/dev".to_owned(), "applied".to_owned())]
    );
    assert!(objects.get(&map("prod")).await.is_some());
    assert_eq!(shop.ends(&["destroy", "shop"], 0).len(), 2);
    assert!(objects.get(&map("prod")).await.is_none());
}
