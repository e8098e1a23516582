//! What a stack is made of beside its code: the cluster that it goes to.

use serde_json::Value;

use crate::support::{git::Repository, process::Konverge, tiny};

/// A stack without resources of its own.
fn monorepo() -> Repository {
    let monorepo = tiny::monorepo();
    tiny::write_program(&monorepo, "web/dev", "resources = []\n");
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
