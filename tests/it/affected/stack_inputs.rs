//! What a stack is made of beside its code: the cluster that it goes to, CustomResourceDefinitions behind links.

use serde_json::Value;

use crate::support::{git::Repository, process::Konverge, tiny_monorepo};

/// A stack without resources of its own.
fn monorepo() -> Repository {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_program(&monorepo, "web/dev", "resources = []\n");
    monorepo
}

fn affected(monorepo: &Repository) -> Vec<Value> {
    let told = Konverge::new(["affected", "--base=HEAD~1", "--output=json"])
        .dir(monorepo.path())
        .run()
        .expect(0);
    let told: Value = serde_json::from_str(&told.stdout).unwrap();
    told["stacks"].as_array().unwrap().clone()
}

#[test]
fn another_cluster_for_a_stack_affects_it() {
    let monorepo = monorepo();
    let clusters = |text: &str| {
        monorepo.write("konverge.yaml", format!("version: 1\n{text}"));
        monorepo.commit(text);
    };
    clusters("clusters: {staging: {}}\n");
    let by_config = || {
        let stacks = affected(&monorepo);
        let [stack] = stacks.as_slice() else {
            return false;
        };
        stack["id"] == "web/dev" && stack["why"][0]["kind"] == "config"
    };
    clusters("clusters: {prod: {}}\n");
    assert!(by_config(), "the only one is another");
    clusters("clusters: {prod: {}, staging: {}}\n");
    assert!(by_config(), "none is the only one");
    clusters("clusters: {prod: {}, staging: {}}\nstacks:\n- {match: '**', cluster: prod}\n");
    assert!(by_config(), "a rule picks one");
    clusters("clusters: {prod: {}}\n");
    assert_eq!(affected(&monorepo), [] as [Value; 0], "it goes where it went");
}

#[test]
fn a_moved_stack_names_the_shared_file_that_changed_too() {
    let monorepo = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&monorepo, "web/dev", "web", "low");
    monorepo.commit("a stack");
    monorepo.rename("appops/web/dev", "appops/web/test");
    monorepo
        .write("base/app.k", "color = \"red\"\n")
        .commit("it moves");
    let stacks = affected(&monorepo);
    let why = stacks[0]["why"].as_array().unwrap();
    let reasons: Vec<_> = why
        .iter()
        .map(|reason| (&reason["path"], &reason["kind"]))
        .collect();
    assert_eq!(stacks.len(), 1, "{stacks:?}");
    assert!(
        why.iter().any(|reason| reason["path"] == "base/app.k"),
        "{reasons:?}"
    );
    assert!(
        !why.iter().any(|reason| reason["path"] == "appops/web/dev/main.k"),
        "{reasons:?}"
    );
}

fn definition(name: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {name}}}\n"
    )
}

#[test]
fn definitions_behind_links_are_read_and_their_changes_seen() {
    let monorepo = monorepo();
    let crd = monorepo.path().join("appops/web/crd");
    let link = |target: &str, name: &str| {
        std::fs::create_dir_all(&crd).unwrap();
        std::os::unix::fs::symlink(target, crd.join(name)).unwrap();
    };
    monorepo
        .write("shared/one.yaml", definition("one.x"))
        .write("shared/v1/two.yaml", definition("two.x"))
        .write("appops/web/crd/v2/three.yaml", definition("three.x"));
    link("../../../shared/one.yaml", "one.yaml");
    link("../../../shared/v1", "v1");
    link("v2", "latest");
    link(".", "circle");
    monorepo.commit("Links");
    let build = || {
        Konverge::new(["build", "web/dev"])
            .with_kcl()
            .dir(monorepo.path())
            .run()
    };
    let built = build().expect(0).stdout;
    for name in ["one.x", "two.x", "three.x"] {
        assert!(
            built.contains(&format!("CustomResourceDefinition:{name}")),
            "{name}: {built}"
        );
    }

    for file in ["shared/one.yaml", "shared/v1/two.yaml"] {
        monorepo.write(file, monorepo.read(file) + "spec: {group: x}\n");
        monorepo.commit(file);
        let stacks = affected(&monorepo);
        assert_eq!(stacks.len(), 1, "{file}");
        assert_eq!(stacks[0]["why"][0]["kind"], "crd", "{stacks:?}");
        assert_eq!(stacks[0]["why"][0]["path"], file, "{stacks:?}");
    }

    for target in ["nothing.yaml", "../../../../outside.yaml"] {
        link(target, "lost.yaml");
        let refused = build();
        assert_ne!(refused.code, Some(0), "{target}: {}", refused.stdout);
        assert!(
            refused.stderr.contains("appops/web/crd/lost.yaml"),
            "{}",
            refused.stderr
        );
        std::fs::remove_file(crd.join("lost.yaml")).unwrap();
    }
}
