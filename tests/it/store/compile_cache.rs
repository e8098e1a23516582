//! What was compiled is used again: by two processes on one folder, and by the jobs of a repository through its store.

use std::path::{Path, PathBuf};

use konverge_state::Sealer;
use object_store::{ObjectStoreExt as _, path::Path as Key};
use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage, storefront},
    git::Repository,
    process::Konverge,
    s3::S3,
};

fn build(repository: &Repository, cache: &Path) -> Konverge {
    Konverge::new(["build", "--all", "--show-secrets", "--output=json"])
        .dir(repository.path())
        .env("XDG_CACHE_HOME", cache)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(entries(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn two_processes_on_one_cache_write_it_whole_and_mend_it() {
    let repository = Repository::konfig_example();
    let cache = tempfile::tempdir().unwrap();
    let both = || [0, 1].map(|_| build(&repository, cache.path()).with_kcl().start());
    let [one, other] = both().map(|running| running.wait().expect(0).stdout);
    assert_eq!(one, other);
    let kept = entries(&cache.path().join("konverge/compile"));
    let stacks = serde_json::from_str::<serde_json::Value>(&one).unwrap()["stacks"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(kept.len(), stacks);
    // All of it serves: there is no core to compile with.
    let without_core = || build(&repository, cache.path()).run().expect(0).stdout;
    assert_eq!(without_core(), one);
    // Cut off, emptied, altered, and another stack's: recreated by two processes at once.
    let whole = std::fs::read(&kept[0]).unwrap();
    std::fs::write(&kept[0], &whole[..whole.len() / 2]).unwrap();
    std::fs::write(&kept[1], "").unwrap();
    let altered = String::from_utf8(std::fs::read(&kept[2]).unwrap()).unwrap();
    std::fs::write(&kept[2], altered.replace("apiVersion", "apiVersioN")).unwrap();
    std::fs::write(&kept[3], std::fs::read(&kept[4]).unwrap()).unwrap();
    assert_ne!(altered, std::fs::read_to_string(&kept[2]).unwrap());
    for running in both() {
        assert_eq!(running.wait().expect(0).stdout, one);
    }
    assert_eq!(std::fs::read(&kept[0]).unwrap(), whole);
    assert_eq!(without_core(), one);
}

/// It would run outside of every wall.
#[test]
fn a_core_in_the_checkout_is_not_started() {
    let repository = Repository::konfig_example();
    let cache = tempfile::tempdir().unwrap();
    let planted = repository.path().join("data/konverge/kcl/0.13.2/bin");
    std::fs::create_dir_all(&planted).unwrap();
    let refused = build(&repository, cache.path())
        .env("XDG_DATA_HOME", repository.path().join("data"))
        .run()
        .expect(1);
    let told = refused.stderr + &refused.stdout;
    assert!(
        told.contains("the folder of the KCL core (XDG_DATA_HOME) is `"),
        "{told}"
    );
    assert!(told.contains("move the file outside of the checkout"), "{told}");
}

/// What the page of a run says about its Specs.
fn compiled(run: &Ran) -> String {
    let page = std::fs::read_to_string(run.output("summary-path")).unwrap();
    let facts = page.split("</p>").find(|text| text.ends_with("from the cache"));
    let counts = facts.and_then(|facts| facts.rsplit(" · ").next());
    counts.expect("the facts of the run").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_share_what_they_compiled_and_a_fork_adds_nothing() {
    let mut stage = Stage::set_up("").await;
    let identity = Sealer::generate().identity().unwrap();
    stage.env = vec![("KONVERGE_AGE_IDENTITY", identity)];
    stage.propose("add-storefront", storefront);
    let first = stage.pull_request(7, "add-storefront", "opened");
    first.outcome.check(0);
    assert_eq!(compiled(&first), "Specs: 1 compiled, 0 from the cache");
    let cached = |keys: Vec<String>| -> Vec<String> {
        keys.into_iter()
            .filter(|key| key.starts_with("konverge/cache/"))
            .collect()
    };
    let keys = cached(stage.keys().await);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let store = S3::shared().client(&stage.bucket);
    let entry = Key::from(keys[0].as_str());
    let bytes = store.get(&entry).await.unwrap().bytes().await.unwrap();
    assert!(bytes.starts_with(b"age-encryption.org/"), "it is sealed");

    // Another machine: its own folder is empty, the store is not.
    let again = stage.pull_request(7, "add-storefront", "synchronize");
    again.outcome.check(0);
    assert_eq!(compiled(&again), "Specs: 0 compiled, 1 from the cache");

    // Somebody spoils it: said, recreated, and put back.
    store
        .put(&entry, b"age-encryption.org/v1\nspoilt".to_vec().into())
        .await
        .unwrap();
    let spoilt = stage.pull_request(7, "add-storefront", "synchronize");
    spoilt.outcome.check(0);
    assert_eq!(compiled(&spoilt), "Specs: 1 compiled, 0 from the cache");
    assert_ne!(
        store.get(&entry).await.unwrap().bytes().await.unwrap(),
        "age-encryption.org/v1\nspoilt"
    );

    // A fork's pull request in the job that may write: a Spec of its own is compiled, and stays out of the store.
    let head = stage.propose("evil", |monorepo| {
        storefront(monorepo);
        monorepo.replace(
            "appops/storefront/dev/main.k",
            "LOG_LEVEL = \"debug\"",
            "LOG_LEVEL = \"evil\"",
        );
    });
    stage.opened(9, "evil", "opened", "evil/konfig");
    let main = stage.monorepo.rev("main");
    let payload = json!({"workflow_run": {"id": 1, "event": "pull_request", "conclusion": "success", "head_sha": head, "head_branch": "evil",
        "head_repository": {"full_name": "evil/konfig"}}, "repository": {"full_name": "acme/konfig", "default_branch": "main"}});
    let fork = stage.ci("workflow_run", &payload, &main, "refs/heads/main");
    fork.outcome.check(0);
    assert_eq!(compiled(&fork), "Specs: 1 compiled, 0 from the cache");
    assert_eq!(cached(stage.keys().await), keys);
    assert!(!fork.folder.join("caches/konverge/compile").exists());
}

#[test]
fn a_cache_in_the_checkout_is_neither_believed_nor_written() {
    let repository = Repository::konfig_example();
    let stack = |cache: &Path| {
        Konverge::new(["build", "appops/orders/dev", "--show-secrets", "--output=json"])
            .dir(repository.path())
            .env("XDG_CACHE_HOME", cache)
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let honest = stack(elsewhere.path()).with_kcl().run().expect(0);
    assert!(!honest.stderr.contains("XDG_CACHE_HOME"), "{}", honest.stderr);

    // The branch brings a cache with a Spec that its code does not give, under the digest that it has.
    let planted = repository.path().join(".cache");
    let kept = entries(&elsewhere.path().join("konverge/compile"));
    let [entry] = kept.as_slice() else {
        panic!("{kept:?}");
    };
    let place = planted.join(entry.strip_prefix(elsewhere.path()).unwrap());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(entry, &place).unwrap();
    // It would serve: without a core there is no other source.
    stack(elsewhere.path()).run().expect(0);
    assert_ne!(stack(&planted).run().code, Some(0));
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(repository.path(), &link).unwrap();
    assert_ne!(stack(&link.join(".cache")).run().code, Some(0));

    let before = entries(&planted);
    let built = stack(&planted).with_kcl().run().expect(0);
    assert_eq!(built.stdout, honest.stdout);
    assert_eq!(entries(&planted), before, "nothing is put there either");
    let said = built.stderr.matches("is in the repository").count();
    assert_eq!(said, 1, "{}", built.stderr);
}
