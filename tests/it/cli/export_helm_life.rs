//! Charts of `konverge export` from their first install to the uninstall, by real Helm.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    export::{config, document, export, resource, spec_file},
    export_targets::{charts, helm, values},
};
use crate::support::{cluster::Cluster, objects::Objects};

/// The charts of a Spec, definitions first, installed or upgraded with the values that they need.
fn upgrade(part: &str, folder: &Path, kubeconfig: &Path, resources: &[Value]) -> Vec<String> {
    spec_file(folder, "life", resources);
    export(folder, &["helm", "--spec", "life.json", "--to", "out"])
        .run()
        .expect(0);
    let stack = folder.join("out/spec-life");
    let values = values(&document(&stack), resources);
    fs::write(folder.join("values.json"), values.to_string()).unwrap();
    let charts = charts(&stack);
    let releases = charts.iter().map(|chart| {
        let release = chart.file_name().unwrap().to_str().unwrap().to_owned();
        let mut arguments = vec![
            "upgrade",
            "--install",
            &release,
            chart.to_str().unwrap(),
            "--wait",
        ];
        arguments.extend(["--values", "values.json", "--namespace", "default"]);
        arguments.extend(["--kubeconfig", kubeconfig.to_str().unwrap()]);
        helm(part, folder, &arguments);
        release
    });
    releases.collect()
}

/// Helm upgrades the chart of definitions, which it never does with `crds/`, and an uninstall keeps them. A release
/// near the limit, with a Secret that does not compress, is stored.
async fn check_life(part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start();
    let objects = Objects::of(&cluster).await;
    let definition = |properties: Value| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.x.example.io"},
            "spec": {"group": "x.example.io", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": properties}}}}}]}})
    };
    let thing = json!({"apiVersion": "x.example.io/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": "default"}, "spec": {"a": "1"}});
    let mut state = 7_u64;
    let bytes: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(365_000)
    .collect();
    let mut secret = config("large", json!({"x": STANDARD.encode(bytes)}));
    secret["kind"] = json!("Secret");
    let wanted = |properties: Value| {
        [
            resource("crd", definition(properties), &[]),
            resource("thing", thing.clone(), &["crd"]),
            resource("v1:Secret:default:large", secret.clone(), &[]),
        ]
    };
    let text = json!({"type": "string"});
    let kubeconfig = cluster.kubeconfig();
    upgrade(part, folder.path(), &kubeconfig, &wanted(json!({"a": text})));
    let second = json!({"a": text, "b": text});
    let releases = upgrade(part, folder.path(), &kubeconfig, &wanted(second.clone()));
    assert_eq!(releases, ["spec-life-crds", "spec-life"]);
    let definition = definition(second.clone());
    let live = objects.get(&definition).await.unwrap();
    let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    assert_eq!(live.pointer(path), Some(&second));
    assert_eq!(objects.get(&secret).await.unwrap()["data"], secret["data"]);
    for release in releases.iter().rev() {
        let arguments = ["uninstall", release, "--namespace", "default", "--kubeconfig"];
        let arguments = [&arguments[..], &[kubeconfig.to_str().unwrap()]].concat();
        helm(part, folder.path(), &arguments);
    }
    assert!(objects.get(&thing).await.is_none() && objects.get(&secret).await.is_none());
    assert!(objects.get(&definition).await.is_some());
}

#[tokio::test]
#[ignore = "needs the part `helm`: make test-all"]
async fn helm_4_upgrades_the_definitions_and_an_uninstall_keeps_them() {
    check_life("helm").await;
}

#[tokio::test]
#[ignore = "needs the part `helm3`: make test-all"]
async fn helm_3_upgrades_the_definitions_and_an_uninstall_keeps_them() {
    check_life("helm3").await;
}
