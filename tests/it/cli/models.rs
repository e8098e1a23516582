//! `konverge models`: what it writes, records and refuses, and how a stale model is found.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::Path};

use serde_json::{Value, json};

use crate::support::{
    cluster::{Cluster, User},
    git::Repository,
    process::{Konverge, Outcome},
    tiny_monorepo,
};

pub fn crd(kind: &str, properties: Value) -> String {
    let plural = format!("{}s", kind.to_lowercase());
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.shop.example.com")},
        "spec": {"group": "shop.example.com", "names": {"kind": kind, "plural": plural}, "scope": "Namespaced", "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "required": ["size"], "properties": properties}}}}}]}})
    .to_string()
}

fn cart() -> Value {
    json!({"size": {"type": "integer", "minimum": 1}, "owner": {"type": "string"}})
}

/// A monorepo with two CRDs, and a stack that uses a model of one of them.
fn monorepo() -> Repository {
    let repository = tiny_monorepo::monorepo();
    repository
        .write("crds/cart.json", crd("Cart", cart()))
        .write(
            "crds/basket.json",
            crd("Basket", json!({"size": {"type": "string"}})),
        )
        .write("konverge.yaml", "# ours\nversion: 1\n");
    repository.commit("CRDs");
    repository
}

fn models<'a>(repository: &Repository, arguments: impl IntoIterator<Item = &'a str>) -> Outcome {
    let run = Konverge::new(["models"]).arg_all(arguments);
    run.dir(repository.path()).with_kcl().run()
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut queue = vec![folder.to_owned()];
    while let Some(place) = queue.pop() {
        for entry in fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                queue.push(path)
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                all.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    all
}

const IMPORT: [&str; 4] = ["import", "crds", "--into", "base/pkg/shop"];

#[test]
fn an_import_is_recorded_and_its_models_are_used_by_a_stack() {
    let repository = monorepo();
    let outcome = models(&repository, IMPORT).expect(0);
    assert_eq!(outcome.stdout, "base/pkg/shop: 3 files\n");
    let pkg = repository.path().join("base/pkg");
    let written = files(&pkg);
    let names: Vec<&str> = written.keys().map(String::as_str).collect();
    let folder = "shop/shop_example_com/v1";
    assert_eq!(
        names,
        ["basket.k", "cart.k", "common.k"].map(|file| format!("{folder}/{file}"))
    );
    let config = repository.read("konverge.yaml");
    assert!(config.starts_with("# ours\nversion: 1\nmodels:\n"), "{config}");
    // The same source gives the same bytes, and replaces what is there.
    models(&repository, IMPORT).expect(0);
    assert_eq!(files(&pkg), written);
    assert_eq!(repository.read("konverge.yaml"), config);
    let upto = models(&repository, ["check"]).expect(0);
    assert!(
        upto.stderr.contains("1 model folder up to date"),
        "{}",
        upto.stderr
    );

    let program = |size: &str| {
        format!(
            "import base.pkg.shop.shop_example_com.v1 as shop\n\nresources = [\n    shop.Cart {{\n        metadata = {{name = \"a\", namespace = \"shop\"}}\n        spec = {{size = {size}}}\n    }}\n]\n"
        )
    };
    tiny_monorepo::write_program(&repository, "shop/dev", &program("2"));
    let build = |code| {
        Konverge::new(["build", "shop/dev"])
            .dir(repository.path())
            .with_kcl()
            .run()
            .expect(code)
    };
    assert!(build(0).stdout.contains("shop.example.com/v1:Cart:shop:a"));
    tiny_monorepo::write_program(&repository, "shop/dev", &program("0"));
    assert!(build(1).stderr.contains("size must be at least 1"));

    models(
        &repository,
        ["import", "crds", "--only", "Cart", "--into", "base/pkg/shop"],
    )
    .expect(0);
    assert_eq!(files(&pkg).len(), 1, "what is not asked for any more is gone");
    assert_eq!(repository.read("konverge.yaml").matches("into:").count(), 1);
}

/// By the end of its name a schema would be a protocol, which has no checks, or a mixin, which no type can name.
#[test]
fn a_property_with_a_name_that_kcl_gives_a_meaning_is_imported_and_not_stale() {
    let named = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string", "minLength": 2}, "port": {"type": "integer"}}});
    let mixin = json!({"type": "object", "properties": {"level": {"type": "string", "maxLength": 9}}});
    let repository = monorepo();
    repository
        .write(
            "crds/cart.json",
            crd(
                "Cart",
                json!({"size": {"type": "integer"}, "dialProtocol": named, "appMixin": mixin, "none": {"type": "object",
                    "properties": {"a": {"type": "string", "minLength": 2}}}}),
            ),
        )
        .commit("Protocols");
    models(&repository, IMPORT).expect(0);
    repository.commit("Models");
    let upto = models(&repository, ["check"]).expect(0);
    assert!(
        upto.stderr.contains("1 model folder up to date"),
        "{}",
        upto.stderr
    );
    let cart = repository.read("base/pkg/shop/shop_example_com/v1/cart.k");
    assert!(
        cart.contains("schema CartSpecDialProtocol_:") && cart.contains("appMixin?: CartSpecAppMixin_"),
        "{cart}"
    );
    let program = |name: &str| {
        format!(
            "import base.pkg.shop.shop_example_com.v1 as shop\n\nresources = [\n    shop.Cart {{\n        metadata = {{name = \"a\", namespace = \"shop\"}}\n        spec = {{size = 1, dialProtocol = {{name = \"{name}\"}}, appMixin.level = \"a\"}}\n    }}\n]\n"
        )
    };
    let build = |name: &str, code| {
        tiny_monorepo::write_program(&repository, "shop/dev", &program(name));
        let run = Konverge::new(["build", "shop/dev"]).dir(repository.path());
        run.with_kcl().run().expect(code)
    };
    assert!(build("tcp", 0).stdout.contains("dialProtocol"));
    assert!(
        build("t", 1)
            .stderr
            .contains("name must have at least 2 characters")
    );
}

#[test]
fn a_stale_model_is_a_finding_with_the_property_that_differs() {
    let repository = monorepo();
    tiny_monorepo::write_stack(&repository, "shop/dev", "shop", "info");
    models(&repository, IMPORT).expect(0);
    repository.commit("Models");
    let check = |arguments: &[&str], code| {
        let run = Konverge::new(["check", "--output=json"]).arg_all(arguments);
        let document = run.dir(repository.path()).with_kcl().run().expect(code).json();
        let remarks = document["remarks"].as_array().unwrap().clone();
        remarks
            .iter()
            .filter(|found| found["rule"] == "models")
            .map(|found| {
                format!(
                    "{} {}",
                    found["file"].as_str().unwrap(),
                    found["message"].as_str().unwrap()
                )
            })
            .collect::<Vec<_>>()
    };
    assert!(check(&["--all"], 0).is_empty());
    repository.write(
        "crds/cart.json",
        crd(
            "Cart",
            json!({"size": {"type": "string"}, "color": {"type": "string"}}),
        ),
    );
    let file = "base/pkg/shop/shop_example_com/v1/cart.k";
    let differences = [
        "the check `CartSpec: size must be at least 1` is not in the source",
        "`CartSpec.color` is missing",
        "`CartSpec.owner` is not in the source",
        "`CartSpec.size` is `str` in the source, not `int`",
    ];
    let mut found = check(&["--all"], 1);
    found.sort();
    let mut expected = differences
        .map(|difference| format!("{file} stale model: {difference}"))
        .to_vec();
    expected.sort();
    assert_eq!(found, expected);
    // The change alone is enough.
    assert_eq!(check(&[], 1).len(), 4);
    assert!(check(&["--all", "--skip=models"], 0).is_empty());
    let outcome = models(&repository, ["check"]).expect(1);
    for difference in differences {
        assert!(
            outcome.stdout.contains(&format!("{file}: {difference}\n")),
            "{}",
            outcome.stdout
        );
    }
    repository.remove(file);
    assert!(check(&["--all"], 1).contains(&format!("{file} stale model: the file is missing")));
    models(&repository, IMPORT).expect(0);
    models(&repository, ["check"]).expect(0);
}

#[test]
fn what_cannot_be_imported_leaves_everything_as_it_was() {
    let repository = monorepo();
    repository
        .write("base/pkg/own/model.k", "schema Own:\n    a?: str\n")
        .write("empty/readme.yaml", "a: 1\n")
        .write("broken/crd.yaml", "a: [1\n")
        .write("chart/crd.yaml", "{{- if .Values.crds }}\na: 1\n{{- end }}\n");
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), repository.path().join("base/linked")).unwrap();
    let before = files(repository.path().join("base/pkg").as_path());
    for (arguments, code, said) in [
        (&["import"] as &[&str], 64, "SOURCE"),
        (&["import", "none"], 64, "there is no YAML or JSON file at `none`"),
        (&["import", "/none/at/all"], 64, "cannot be read"),
        (
            &["import", "https://user:pass@example.com/crds.yaml"],
            64,
            "download the document into the repository",
        ),
        (&["import", "kubernetes@latest"], 64, "give major and minor"),
        (&["import", "cluster:nowhere"], 1, "there is no cluster `nowhere`"),
        (
            &["import", "empty"],
            1,
            "the document has no CRD, OpenAPI document or provider schema",
        ),
        (&["import", "broken"], 1, "broken/crd.yaml"),
        (&["import", "chart"], 1, "helm template"),
        (
            &["import", "crds", "--only", "cart"],
            1,
            "kinds with such a name: Cart",
        ),
        (
            &["import", "crds", "--into", "regex"],
            64,
            "KCL cannot import the folder",
        ),
        (
            &["import", "crds", "--into", "../out"],
            64,
            "KCL cannot import the folder",
        ),
        (
            &["import", "crds", "--into", "base/my-models"],
            64,
            "KCL cannot import the folder",
        ),
        (
            &["import", "crds", "--into", "base/pkg/own"],
            64,
            "no import wrote this file",
        ),
        (
            &["import", "crds", "--into", "base/linked"],
            64,
            "this is a link or a special file",
        ),
        (
            &["import", "crds", "--into", "base/linked/models"],
            1,
            "does not write through links",
        ),
        (&["check"], 1, "konverge.yaml records no models"),
    ] {
        let outcome = models(&repository, arguments.iter().copied()).expect(code);
        assert!(outcome.stderr.contains(said), "{arguments:?}: {}", outcome.stderr);
        assert!(
            outcome.stderr.contains("hint") || code == 64,
            "{arguments:?}: {}",
            outcome.stderr
        );
        assert!(!outcome.stderr.contains("pass@"), "{}", outcome.stderr);
    }
    assert_eq!(files(repository.path().join("base/pkg").as_path()), before);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert_eq!(repository.read("konverge.yaml"), "# ours\nversion: 1\n");
    let leftovers = fs::read_dir(repository.path().join("base")).unwrap();
    assert!(
        leftovers
            .map(|entry| entry.unwrap().file_name())
            .all(|name| !name.to_string_lossy().starts_with('.'))
    );
}

/// The recorded schemas of the example's clouds and their models: an edit of either is found.
#[test]
fn the_models_of_the_example_are_compared_with_its_recorded_schemas() {
    let repository = Repository::konfig_example();
    let upto = models(&repository, ["check"]).expect(0);
    assert!(
        upto.stderr.contains("1 model folder up to date"),
        "{}",
        upto.stderr
    );
    let file = "base/pkg/providers/aws/aws_prometheus_workspace.k";
    repository.replace(file, "    alias?: str | float | bool", "    alias?: int");
    let outcome = models(&repository, ["check"]).expect(1);
    assert!(
        outcome
            .stdout
            .contains(&format!("{file}: `PrometheusWorkspace.alias` is ")),
        "{}",
        outcome.stdout
    );
}

/// The document of 50 MB is imported; one that is larger than all that is read is refused by its size.
#[test]
fn a_document_of_50_mb_is_imported_and_a_larger_one_is_refused() {
    let repository = monorepo();
    let elsewhere = tempfile::tempdir().unwrap();
    let (large, larger) = (
        elsewhere.path().join("large.json"),
        elsewhere.path().join("larger.json"),
    );
    let mut document: Value = serde_json::from_str(&crd("Cart", cart())).unwrap();
    document["metadata"]["annotations"] = json!({"notes": "x".repeat(50 << 20)});
    fs::write(&large, document.to_string()).unwrap();
    models(&repository, ["import", large.to_str().unwrap()]).expect(0);
    assert!(repository.read("base/pkg/large/shop_example_com/v1/cart.k").len() < 4_000);
    fs::File::create(&larger).unwrap().set_len(65 << 20).unwrap();
    let outcome = models(&repository, ["import", larger.to_str().unwrap()]).expect(1);
    for said in ["the file has 65 MiB, and at most 64 are read", "split the file"] {
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    assert!(!repository.path().join("base/pkg/larger").exists());
}

/// Someone who does not log in may not read the documents of the server.
#[test]
fn a_cluster_that_denies_its_documents_leaves_the_earlier_models() {
    let repository = monorepo();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = fs::read_to_string(Cluster::shared().kubeconfig_of(User::Nobody)).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"] = json!({});
    fs::write(&kubeconfig, config.to_string()).unwrap();
    repository.write("konverge.yaml", "clusters:\n  test: {kubeconfig_env: TEST}\n");
    models(&repository, ["import", "crds", "--into", "base/pkg/test"]).expect(0);
    let base = repository.path().join("base");
    let (before, record) = (files(&base), repository.read("konverge.yaml"));
    let run = Konverge::new(["models", "import", "cluster:test"]).dir(repository.path());
    let outcome = run.with_kcl().env("TEST", &kubeconfig).run().expect(1);
    for said in [
        "reading the OpenAPI documents of the cluster",
        "bind it to the ClusterRole `system:discovery`",
    ] {
        assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    }
    assert_eq!(files(&base), before);
    assert_eq!(repository.read("konverge.yaml"), record);
}

#[test]
fn a_source_outside_the_repository_is_imported_and_not_recorded() {
    let repository = monorepo();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("shop.json");
    fs::write(&file, crd("Cart", cart())).unwrap();
    let outcome = models(&repository, ["import", file.to_str().unwrap()]).expect(0);
    assert_eq!(outcome.stdout, "base/pkg/shop: 1 file\n");
    assert!(
        outcome.stderr.contains("is not in the repository"),
        "{}",
        outcome.stderr
    );
    assert_eq!(repository.read("konverge.yaml"), "# ours\nversion: 1\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn kinds_of_a_cluster_and_of_a_release_are_imported_with_what_they_use() {
    let repository = monorepo();
    let cluster = Cluster::shared();
    repository.write("konverge.yaml", "clusters:\n  test: {kubeconfig_env: TEST}\n");
    let import = |source: &str, variables: &[(&str, &str)]| {
        let run = Konverge::new(["models", "import", source, "--only", "Deployment"])
            .dir(repository.path())
            .with_kcl();
        let run = variables
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value));
        run.run().expect(0)
    };
    import(
        "cluster:test",
        &[("TEST", cluster.kubeconfig().to_str().unwrap())],
    );
    let written = files(&repository.path().join("base/pkg/test"));
    assert!(written["apps/v1/deployment.k"].contains("import base.pkg.test.core.v1 as core_v1"));
    assert!(written["core/v1/common.k"].contains("schema PodSpec:"));
    let config = repository.read("konverge.yaml");
    assert!(config.contains("version: v1.34"), "{config}");

    let swagger = json!({"swagger": "2.0", "definitions": {"io.k8s.api.apps.v1.Deployment": {
        "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1", "kind": "Deployment"}],
        "properties": {"spec": {"$ref": "#/definitions/io.k8s.api.apps.v1.DeploymentSpec"}}},
        "io.k8s.api.apps.v1.DeploymentSpec": {"required": ["replicas"], "properties": {"replicas": {"type": "integer"}}}}});
    let served = axum::Router::new().route(
        "/release-1.34/api/openapi-spec/swagger.json",
        axum::routing::get(move || async move { crate::support::json_answer::Json(swagger) }),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let mirror = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, served).await.unwrap() });
    import("kubernetes@1.34", &[("KONVERGE_KUBERNETES_SCHEMAS", &mirror)]);
    let written = files(&repository.path().join("base/pkg/kubernetes"));
    assert!(
        written["apps/v1/deployment.k"].contains("    replicas?: int\n"),
        "{written:?}"
    );
    let missing = Konverge::new(["models", "import", "kubernetes@1.99"])
        .dir(repository.path())
        .with_kcl();
    let outcome = missing
        .env("KONVERGE_KUBERNETES_SCHEMAS", &mirror)
        .run()
        .expect(1);
    assert!(
        outcome
            .stderr
            .contains("Kubernetes 1.99 cannot be downloaded: the server says 404"),
        "{}",
        outcome.stderr
    );
}
