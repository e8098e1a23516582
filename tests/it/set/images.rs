//! `--image`: the attribute behind an image of the Spec.

use serde_json::json;

use super::set;
use crate::support::git::Repository;

const PROD: &str = "appops/orders/prod/main.k";

#[test]
fn the_attribute_is_found_by_the_image_of_the_spec() {
    let repository = Repository::konfig_example();
    let proxy = "ghcr.io/example/database-proxy=ghcr.io/example/database-proxy:3.2.0";
    let before = repository.read(PROD);
    let done = set(
        &repository,
        &["orders/prod", "--image", proxy, "--output", "json"],
    )
    .expect(0)
    .json();
    assert_eq!(done["edits"][0]["path"], "server.containers.proxy.image");
    assert_eq!(
        repository.read(PROD),
        before.replace("database-proxy:3.1.0", "database-proxy:3.2.0")
    );
    let again = set(&repository, &["orders/prod", "--image", proxy]).expect(0);
    assert!(again.stderr.contains("already"), "{}", again.stderr);
    // Only the base sets it, in an application of Kusion's form too.
    let valkey = "docker.io/valkey/valkey=docker.io/valkey/valkey:8.2.0";
    let done = set(
        &repository,
        &[
            "appops/sessions/*",
            "--image",
            valkey,
            "--in",
            "base",
            "--output",
            "json",
        ],
    );
    let done = done.expect(0).json();
    // The second stack has it by the edit for the first.
    let edits = done["edits"].as_array().unwrap();
    let results: Vec<_> = edits.iter().map(|edit| &edit["result"]).collect();
    assert_eq!(results, ["replaced", "unchanged"]);
    let base = "appops/sessions/base/base.k";
    assert!(
        edits
            .iter()
            .all(|edit| edit["file"] == base && edit["line"] == edits[0]["line"]),
        "{edits:?}"
    );
    assert_eq!(done["files"], json!([base]));
    assert_eq!(done["stacks"].as_array().unwrap().len(), 2);
}

#[test]
fn an_image_that_only_the_base_sets_is_added_to_the_stack() {
    let repository = Repository::konfig_example();
    let dev = "appops/sessions/dev/main.k";
    let before = repository.read(dev);
    let valkey = "docker.io/valkey/valkey=docker.io/valkey/valkey:8.2.0";
    let run = || {
        set(
            &repository,
            &["appops/sessions/dev", "--image", valkey, "--output", "json"],
        )
        .expect(0)
        .json()
    };
    let done = run();
    assert_eq!(done["edits"][0]["result"], "added");
    assert_eq!(done["files"], json!([dev]));
    let memory = "    resources.memory = \"64Mi\"\n";
    let image = "    image = \"docker.io/valkey/valkey:8.2.0\"\n";
    assert_eq!(
        repository.read(dev),
        before.replace(memory, &format!("{memory}{image}"))
    );
    assert_eq!(done["stacks"].as_array().unwrap().len(), 1);
    // Once more: the stack's file has it now.
    let again = run();
    assert_eq!(
        (&again["edits"][0]["result"], &again["edits"][0]["file"]),
        (&json!("unchanged"), &json!(dev))
    );
    assert_eq!(again["files"], json!([]));
}

#[test]
fn what_is_not_one_image_of_one_attribute_is_refused() {
    let repository = Repository::konfig_example();
    let refuse = |arguments: &[&str], words: &[&str]| {
        let ended = set(&repository, arguments);
        assert_ne!(ended.code, Some(0));
        for word in words {
            assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
        }
        assert_eq!(repository.git(["status", "--porcelain"]), "");
    };
    refuse(
        &["orders/prod", "--image", "nginx=nginx:1"],
        &[
            "no container of orders/prod has the image `nginx`",
            "`ghcr.io/example/orders`",
        ],
    );
    // Two jobs share one image, whose attribute is computed.
    let reports = "ghcr.io/example/reports=ghcr.io/example/reports:0.9.0";
    refuse(
        &["reports/dev", "--image", reports],
        &["2 containers of reports/dev", "PATH=VALUE"],
    );
    // The same text is an image and something else: only the image changes.
    repository.write(
        PROD,
        repository.read(PROD).replace(
            "    replicas = 3\n",
            "    replicas = 3\n    config.env.BEFORE = \"ghcr.io/example/orders:1.8.2\"\n",
        ),
    );
    repository.commit("The same text twice");
    let done = set(
        &repository,
        &[
            "orders/prod",
            "--image",
            "ghcr.io/example/orders=ghcr.io/example/orders:1.9.0",
            "--output",
            "json",
        ],
    );
    assert_eq!(done.expect(0).json()["edits"][0]["path"], "server.image");
    repository.git(["checkout", "--quiet", "."]);
    // One attribute makes the image and another field.
    repository.write(
        PROD,
        repository
            .read(PROD)
            .replace(
                "    image = \"ghcr.io/example/orders:1.8.2\"\n",
                "    image = _image\n",
            )
            .replace(
                "server: frontend",
                "_image = \"ghcr.io/example/orders:1.8.2\"\n\nserver: frontend",
            )
            .replace(
                "config.env.BEFORE = \"ghcr.io/example/orders:1.8.2\"",
                "config.env.BEFORE = _image",
            ),
    );
    repository.commit("One attribute for two fields");
    refuse(
        &[
            "orders/prod",
            "--image",
            "ghcr.io/example/orders=ghcr.io/example/orders:1.9.0",
        ],
        &["no attribute of orders/prod changes", "tried: `_image`"],
    );
}
