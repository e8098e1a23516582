//! `konverge portal build`: what it writes, what it leaves, what it says of a store that is not as it should be.

use std::{collections::BTreeMap, fs, path::Path};

use konverge_base::model::apply_result::StackResult;
use konverge_state::store::Key;
use serde_json::json;

use super::recorded::{ID, RecordedStacks, config_map, deployment};
use crate::support::{git::Repository, process::Konverge};

/// Every file below a folder, with its content.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// The names of the files that differ.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let differs = names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name));
    differs.cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_site_shows_what_stands_and_one_change_rewrites_only_its_pages() {
    let recorded = RecordedStacks::new().await;
    let out = recorded.folder.path().join("site");
    for value in ["1", "2"] {
        let resources = || {
            vec![
                deployment("web", &format!("nginx:{value}")),
                config_map("web", &json!({"level": value})),
            ]
        };
        recorded
            .apply("shop/prod", resources(), StackResult::Applied)
            .await;
    }
    recorded
        .apply(
            "shop/dev",
            vec![config_map("web", &json!({"level": "1"}))],
            StackResult::Failed,
        )
        .await;
    recorded.states().begin_freeze("the fair").await.unwrap();

    let said = recorded.build(&out);
    assert!(said.contains("2 stacks: 2 read"), "{said}");
    let site = files(&out);
    let overview = &site["index.html"];
    let (failed, fine) = (
        overview.find("shop/dev").unwrap(),
        overview.find("shop/prod").unwrap(),
    );
    assert!(failed < fine, "the worst is first");
    for words in [
        "the fair",
        "last apply failed",
        "apps/shop/prod",
        "by ada",
        "not compared with the repository",
    ] {
        assert!(overview.contains(words), "{words}: {overview}");
    }
    let stack = &site["stacks/shop@prod/index.html"];
    for words in [
        "apps/v1:Deployment:shop:web",
        "on main",
        "approved by grace",
        "https://ci.example/runs/7",
        "Nobody holds the lease",
        "href=\"1-2.html\"",
        "Dependencies (1)",
    ] {
        assert!(stack.contains(words), "{words}: {stack}");
    }
    assert!(
        !stack.contains("hidden-record"),
        "what only a runtime reads is not shown"
    );
    let difference = &site["stacks/shop@prod/1-2.html"];
    assert!(
        difference.contains("nginx:1") && difference.contains("nginx:2"),
        "{difference}"
    );
    assert!(site["kinds/images.html"].contains("nginx:2") && !site["kinds/images.html"].contains("nginx:1"));
    assert!(site["search.js"].contains("nginx:2"));

    // Nothing changed: nothing is written, not even the same again.
    let said = recorded.build(&out);
    assert!(
        said.contains("2 stacks: 0 read") && said.contains(" 0 written, 0 deleted"),
        "{said}"
    );
    assert_eq!(files(&out), site);

    recorded
        .apply(
            "shop/dev",
            vec![config_map("api", &json!({}))],
            StackResult::Applied,
        )
        .await;
    let said = recorded.build(&out);
    assert!(said.contains("2 stacks: 1 read"), "{said}");
    let after = files(&out);
    assert_eq!(
        changed(&site, &after),
        [
            "by-applied.html",
            "by-drift.html",
            "by-environment.html",
            "by-project.html",
            "index.html",
            "kinds/v1=3AConfigMap.html",
            "portal.json",
            "search.html",
            "search.js",
            "stacks/shop@dev/1-2.html",
            "stacks/shop@dev/index.html",
            "trends.html",
        ]
    );
    // A page that is no longer made goes, and a file of somebody else stays.
    fs::write(out.join("notes.txt"), "mine").unwrap();
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({"level": "3"}))],
            StackResult::Applied,
        )
        .await;
    recorded.build(&out);
    let last = files(&out);
    assert!(!last.contains_key("kinds/images.html") && last["notes.txt"] == "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_says_what_is_pending_and_never_applied() {
    let recorded = RecordedStacks::new().await;
    recorded
        .repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("apps/shop/project.yaml", "name: shop\n");
    for stack in ["prod", "new"] {
        let folder = format!("apps/shop/{stack}");
        recorded
            .repository
            .write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"))
            .write(&format!("{folder}/main.k"), "x = 1\n");
    }
    recorded.repository.commit("stacks");
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({}))],
            StackResult::Applied,
        )
        .await;
    recorded
        .states()
        .note_stopped_apply(&"shop/prod".parse().unwrap(), StackResult::HeldBack);
    let states = recorded.states();
    states.note_stopped_apply(&"shop/prod".parse().unwrap(), StackResult::Stopped);
    states.save_index().await.unwrap();
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let site = files(&out);
    let overview = &site["index.html"];
    assert!(overview.contains("compared with commit"), "{overview}");
    assert!(
        overview.contains("data-conditions=\"stopped pending\""),
        "{overview}"
    );
    assert!(
        overview.contains("data-conditions=\"never-applied\""),
        "{overview}"
    );
    assert!(site["stacks/shop@new/index.html"].contains("no state"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_state_is_told_and_the_rest_stands() {
    let recorded = RecordedStacks::new().await;
    for stack in ["shop/prod", "shop/dev"] {
        for level in ["1", "2"] {
            recorded
                .apply(
                    stack,
                    vec![config_map("web", &json!({"level": level}))],
                    StackResult::Applied,
                )
                .await;
        }
    }
    let key = Key::from_components(&["stacks", "shop/prod", "state", "0000000002"]);
    recorded.store.delete(&key).await.unwrap();
    recorded
        .store
        .create(&key, bytes::Bytes::from_static(b"{<b>}"))
        .await
        .unwrap();
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let site = files(&out);
    let broken = &site["stacks/shop@prod/index.html"];
    assert!(
        broken.contains("state unreadable") && broken.contains("The state cannot be read"),
        "{broken}"
    );
    assert!(
        broken.contains("Serial 1") && broken.contains("This serial cannot be read"),
        "{broken}"
    );
    assert!(site["stacks/shop@dev/index.html"].contains("v1:ConfigMap:shop:web"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_older_or_of_an_earlier_version_is_told() {
    let recorded = RecordedStacks::new().await;
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({}))],
            StackResult::Applied,
        )
        .await;
    recorded.settle().await;
    // A later state whose entry was lost.
    let index = recorded
        .store
        .list(&Key::from_components(&["index"]))
        .await
        .unwrap();
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({"later": "1"}))],
            StackResult::Applied,
        )
        .await;
    for key in recorded
        .store
        .list(&Key::from_components(&["index"]))
        .await
        .unwrap()
    {
        if !index.contains(&key) {
            recorded.store.delete(&key).await.unwrap();
        }
    }
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let page = fs::read_to_string(out.join("stacks/shop@prod/index.html")).unwrap();
    assert!(
        page.contains("The index is older than the state: it knows serial 1, and serial 2 is stored"),
        "{page}"
    );

    // Rows without a summary, as an earlier version wrote them.
    let states = recorded.states();
    for key in recorded
        .store
        .list(&Key::from_components(&["index"]))
        .await
        .unwrap()
    {
        recorded.store.delete(&key).await.unwrap();
    }
    let mut old = states.rebuild_index().await.unwrap().into_inner();
    old.drift = None;
    for entry in old.entries.values_mut() {
        entry.summary = None;
    }
    states.maintain_index(&old).await.unwrap();
    let said = recorded.build(&out);
    assert!(said.contains("The index has no row of 1 stack"), "{said}");
    let overview = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(
        overview.contains("serial 2") && overview.contains("konverge state doctor --repair"),
        "{overview}"
    );
    recorded
        .konverge(&["state", "doctor", "--repair"])
        .run()
        .expect(0);
    assert!(!recorded.build(&out).contains("The index has no row"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_store_and_a_store_of_another_repository() {
    let recorded = RecordedStacks::new().await;
    let out = recorded.folder.path().join("site");
    let said = recorded.build(&out);
    assert!(said.contains("0 stacks"), "{said}");
    assert!(
        fs::read_to_string(out.join("index.html"))
            .unwrap()
            .contains("No stack is recorded")
    );

    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({}))],
            StackResult::Applied,
        )
        .await;
    recorded.settle().await;
    let config = recorded
        .repository
        .read("konverge.yaml")
        .replace(ID, "acme/other");
    recorded.repository.write("konverge.yaml", config);
    let other = recorded.folder.path().join("other");
    let outcome = recorded
        .konverge(&["portal", "build", "--out", other.to_str().unwrap()])
        .run()
        .expect(1);
    assert!(
        outcome.stderr.contains(ID) && outcome.stderr.contains("acme/other"),
        "{}",
        outcome.stderr
    );
    assert!(!other.join("index.html").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_other_files_or_of_another_repository_is_left_alone() {
    let recorded = RecordedStacks::new().await;
    let folder = recorded.folder.path().join("mine");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("index.html"), "mine").unwrap();
    let build = |out: &Path| {
        recorded
            .konverge(&["portal", "build", "--out", out.to_str().unwrap()])
            .run()
    };
    let refused = build(&folder).expect(64);
    assert!(refused.stderr.contains("not the portal's"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(folder.join("index.html")).unwrap(), "mine");

    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let manifest = fs::read_to_string(out.join("portal.json")).unwrap();
    fs::write(out.join("portal.json"), manifest.replace(ID, "acme/other")).unwrap();
    let refused = build(&out).expect(64);
    assert!(refused.stderr.contains("acme/other"), "{}", refused.stderr);

    // A manifest that names files outside deletes none of them, and a link is not written through.
    let outside = recorded.folder.path().join("outside");
    fs::write(&outside, "precious").unwrap();
    let hostile = json!({
        "version": 1, "repository": ID, "stacks": {}, "files": {}, "leftover": ["../outside", "/etc/hostname"],
    });
    fs::write(out.join("portal.json"), hostile.to_string()).unwrap();
    recorded.build(&out);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "precious");
    fs::remove_file(out.join("index.html")).unwrap();
    std::os::unix::fs::symlink(&outside, out.join("index.html")).unwrap();
    fs::write(out.join("portal.json"), hostile.to_string()).unwrap();
    build(&out).expect(64);
    assert_eq!(fs::read_to_string(&outside).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_with_ten_thousand_resources_is_complete() {
    let recorded = RecordedStacks::new().await;
    let many: Vec<_> = (0..10_000)
        .map(|n| config_map(&format!("c{n:05}"), &json!({"n": n.to_string()})))
        .collect();
    recorded.apply("shop/prod", many, StackResult::Applied).await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let page = fs::read_to_string(out.join("stacks/shop@prod/index.html")).unwrap();
    assert_eq!(
        page.matches("v1:ConfigMap:shop:c").count(),
        10_000,
        "every resource is named once"
    );
    assert!(page.contains("The attributes of the first"));
    let search = fs::read_to_string(out.join("search.html")).unwrap();
    assert!(
        search.contains("8000 resource"),
        "what the search does not have is said: {search}"
    );
}

#[test]
fn without_an_argument_it_says_what_to_do() {
    let repository = Repository::init();
    let run = |arguments: &[&str]| Konverge::new(arguments).dir(repository.path()).run();
    assert!(run(&["portal"]).expect(64).stderr.contains("build"));
    assert!(run(&["portal", "build"]).expect(64).stderr.contains("--out"));
    let remote = run(&["serve", "--listen", "0.0.0.0:8080"]).expect(64);
    assert!(remote.stderr.contains("there is no login"), "{}", remote.stderr);
}
