//! An edit of a stack never changes the Spec of another one, unless `--in base` allows it.

use serde_json::Value;

use super::set;
use crate::support::{git::Repository, process::Konverge, random::Random};

/// The Specs of all stacks, compiled anew.
fn specs(repository: &Repository) -> Vec<(String, Value)> {
    let built = Konverge::new(["build", "--all", "--output", "json", "--show-secrets"])
        .dir(repository.path())
        .env("KONVERGE_CACHE", "off")
        .env("TF_VAR_none", "")
        .with_kcl()
        .run()
        .expect(0)
        .json();
    let stacks = built["stacks"].as_array().unwrap().iter();
    stacks
        .map(|stack| {
            (
                stack["id"].as_str().unwrap().to_owned(),
                stack["resources"].clone(),
            )
        })
        .collect()
}

fn changed(before: &[(String, Value)], after: &[(String, Value)]) -> Vec<String> {
    let pairs = before.iter().zip(after).filter(|(old, new)| old != new);
    pairs.map(|(old, _)| old.0.clone()).collect()
}

#[test]
fn random_edits_change_the_named_stack_alone() {
    const EDITS: [(&str, &str); 8] = [
        ("storefront/dev", "server.image=\"a:1\""),
        ("storefront/prod", "server.autoscaling.max=20"),
        ("storefront/staging", "server.liveness.delay=30"),
        ("orders/dev", "server.config.env.LOG_LEVEL=\"error\""),
        ("orders/prod", "server.replicas=5"),
        ("platform/sessions/prod", "server.volumes.data.size=\"9Gi\""),
        ("alerts/dev", "rules.interval=\"7m\""),
        ("billing/prod", "server.replicas=4"),
    ];
    let repository = Repository::konfig_example();
    let before = specs(&repository);
    let mut random = Random::of(41);
    for _ in 0..4 {
        let (stack, edit) = *random.pick(&EDITS);
        set(&repository, &[stack, edit]).expect(0);
        assert_eq!(changed(&before, &specs(&repository)), [stack], "{edit}");
        repository.git(["checkout", "--quiet", "."]);
    }
    set(
        &repository,
        &["storefront/dev", "server.liveness.delay=30", "--in", "base"],
    )
    .expect(0);
    let all = ["storefront/dev", "storefront/prod", "storefront/staging"];
    let mut found = changed(&before, &specs(&repository));
    found.sort();
    assert_eq!(found, all);
}

/// A file of one stack that another stack is made of, too.
#[test]
fn a_file_that_another_stack_reads_is_not_edited_for_one() {
    let repository = Repository::konfig_example();
    let kcl = "appops/storefront/staging/kcl.yaml";
    repository.replace(kcl, "    - main.k\n", "    - ../dev/main.k\n    - main.k\n");
    repository.commit("Staging is made of dev");
    let level = "server.env.LOG_LEVEL=\"info\"";
    let refused = set(&repository, &["storefront/dev", level]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .stderr
            .contains("would change other stacks: storefront/staging"),
        "{}",
        refused.stderr
    );
    assert_eq!(repository.git(["status", "--porcelain"]), "");
    // Whoever names both means both.
    repository.write(
        "edits.yaml",
        "- {stacks: [storefront/dev], set: {server.env.LOG_LEVEL: info}}\n- {stacks: [storefront/staging], images: {ghcr.io/example/storefront: 'ghcr.io/example/storefront:9'}}\n",
    );
    set(&repository, &["--from", "edits.yaml"]).expect(0);
}
