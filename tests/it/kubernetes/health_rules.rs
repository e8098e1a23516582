//! The user's own rules decide when an apply is over: a custom resource whose Lua script says so, on a real API server.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Stage, storefront},
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::{Konverge, Running},
    service::eventually,
    stack::id,
};

const RULE: &str = r#"
if obj.status == nil or obj.status.phase == nil then
  return {status = "Progressing", message = "waiting for its phase"}
end
if obj.status.phase == "Broken" then
  return {status = "Degraded", message = "its disk is full"}
end
return {status = "Healthy", message = "phase " .. obj.status.phase}
"#;

/// The same in KCL.
const ASSERTIONS: &str = r#"
assert res.status?.phase, "waiting for its phase"
status = "Degraded" if res.status.phase == "Broken" else "Healthy"
message = "its disk is full" if res.status.phase == "Broken" else "phase " + res.status.phase
"#;

fn definition(group: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": format!("tables.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": "Table", "plural": "tables", "singular": "table"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// A repository with the rule in it, and a Spec with one table.
fn repository(group: &str, table: &Value) -> Repository {
    let repository = Repository::init();
    let resource = |object: &Value| json!({"id": id(object), "type": "Kubernetes", "attributes": object});
    let spec = json!({"resources": [resource(&definition(group)), resource(table)]});
    repository
        .write("konverge.yaml", "version: 1\napply: {health_rules: ops/health}\n")
        .write(&format!("ops/health/{group}/Table/health.lua"), RULE)
        .write("spec.json", spec.to_string())
        .commit("A table and its rule");
    repository
}

fn apply(repository: &Repository, cluster: &Cluster) -> Running {
    Konverge::new(["apply", "--spec", "spec.json", "--yes", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .with_kcl()
        .dir(repository.path())
        .start()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_decides_when_a_custom_resource_is_ready() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    // Its condition says the contrary each time: by the conventions the one would never end, and the other end well.
    let cases = [
        (
            "good",
            json!({"phase": "Done", "conditions": [{"type": "Ready", "status": "False"}]}),
            0,
        ),
        (
            "bad",
            json!({"phase": "Broken", "conditions": [{"type": "Ready", "status": "True"}]}),
            1,
        ),
    ];
    let rules = [("health.lua", RULE), ("health.k", ASSERTIONS)];
    for ((name, status, code), (file, rule)) in cases.iter().flat_map(|case| rules.map(|rule| (case, rule))) {
        let ns = cluster.namespace("health-rules").await;
        let group = format!("{name}.{}.example.com", file.replace("health.", ""));
        let table = json!({"apiVersion": format!("{group}/v1"), "kind": "Table", "metadata": {"name": "orders", "namespace": ns}});
        let repository = repository(&group, &table);
        let folder = format!("ops/health/{group}/Table");
        repository
            .remove(&format!("{folder}/health.lua"))
            .write(&format!("{folder}/{file}"), rule)
            .commit("The rule");
        let running = apply(&repository, cluster);
        let path = format!("/apis/{group}/v1/namespaces/{ns}/tables");
        eventually("the table is there", Duration::from_secs(60), || async {
            let there = objects.get(&table).await;
            there.map(drop)
        })
        .await;
        objects.report(&format!("{path}/orders"), status).await;
        let outcome = running.wait();
        assert_eq!(
            outcome.code,
            Some(*code),
            "{}\n{}",
            outcome.stdout,
            outcome.stderr
        );
        let said = outcome.stdout + &outcome.stderr;
        assert_eq!(said.contains("its disk is full"), *code == 1, "{file}: {said}");
    }
}

#[test]
fn rules_that_are_not_there_or_malformed_stop_an_apply() {
    let cluster = Cluster::shared();
    let group = "none.rules.example.com";
    let table = json!({"apiVersion": format!("{group}/v1"), "kind": "Table", "metadata": {"name": "t", "namespace": "default"}});
    let monorepo = repository(group, &table);
    let folder = format!("ops/health/{group}/Table");
    monorepo
        .remove(&format!("{folder}/health.lua"))
        .write(&format!("{folder}/health.cel.yaml"), "current: 'a +'\n");
    let malformed = apply(&monorepo, cluster).wait().expect(1);
    assert!(
        malformed.stderr.contains(&format!("{folder}/health.cel.yaml:1")),
        "{}",
        malformed.stderr
    );
    std::fs::remove_dir_all(monorepo.path().join("ops")).unwrap();
    let missing = apply(&monorepo, cluster).wait().expect(1);
    assert!(
        missing.stderr.contains("there is no rule in `ops/health`"),
        "{}",
        missing.stderr
    );
    monorepo.write(
        "konverge.yaml",
        "version: 1\napply: {health_rules: ../elsewhere}\n",
    );
    let outside = apply(&monorepo, cluster).wait().expect(1);
    assert!(
        outside.stderr.contains("is not a folder of the repository"),
        "{}",
        outside.stderr
    );
}

/// The readiness rules of the default branch decide.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_requests_rules_are_shown_not_obeyed() {
    let mut stage = Stage::set_up("apply: {health_rules: ops/health}\n").await;
    let rule = "ops/health/apps/Deployment/health";
    stage
        .monorepo
        .checkout("main")
        .write(&format!("{rule}.lua"), "return nil\n")
        .commit("A rule without an opinion");
    stage.propose("break-the-rule", |monorepo| {
        storefront(monorepo);
        monorepo
            .remove(&format!("{rule}.lua"))
            .write(&format!("{rule}.cel.yaml"), "current: 'a +'\n");
    });
    let preview = stage.pull_request(7, "break-the-rule", "opened");
    preview.outcome.check(0);
    assert!(
        preview
            .outcome
            .stderr
            .contains("readiness rules differ from the default branch's"),
        "{}",
        preview.outcome.stderr
    );
}
