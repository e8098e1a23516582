//! One stack, described in every way that Kusion and KCL ever had, end to end on the real core: the Spec is the same.

use serde_json::{Value, json};

use crate::support::{git::Repository, process::Konverge};

const BASE: &str = "schema Server:\n    image: str\n    replicas: int\n\n_server: Server {\n    image = \"web:\" + option(\"tag\")\n}\n";
const MAIN: &str = "_server: Server {\n    replicas = option(\"replicas\")\n}\n";
const APP: &str = "schema App:\n    replicas: int\n\napp: App {\n    replicas = 7\n}\n_server: Server {\n    replicas = app.replicas\n}\n";
const RENDER: &str = "_object = {\n    apiVersion = \"v1\"\n    kind = \"ConfigMap\"\n    metadata = {name = option(\"app\"), namespace = \"shop\"}\n    \
                      data = {image = _server.image, replicas = str(_server.replicas), text = \"a\\nb\\n\", one = \"1\"}\n}\n\
                      _terraform = {\n    size = _server.replicas\n    share = 1.0\n    big = 9223372036854775807\n    on = True\n}\n\
                      _resources = [\n    {id = \"v1:ConfigMap:shop:web\", $type = \"Kubernetes\", attributes = _object}\n    \
                      {id = \"x:y:z:w\", $type = \"Terraform\", attributes = _terraform, dependsOn = [\"v1:ConfigMap:shop:web\"]}\n]\n";
/// As `resources:`, which Kusion v0.9.0 and v0.9.1 wrote.
const SPEC: &str = "resources = _resources\n";
/// As a stream, in which nothing else is printed.
const STREAM: &str = "import manifests\nmanifests.yaml_stream([_resources])\n";
const OPTIONS: &str =
    "kcl_options:\n- {key: tag, value: \"1\"}\n- {key: replicas, value: 2}\n- {key: app, value: web}\n";
const FILES: &str = "kcl_cli_configs:\n  files: [../base/base.k, main.k, ../base/render.k]\n";
const MODULE: &str = "[package]\nname = \"m\"\n";

/// The resources of a stack that is described by these files.
fn built(order: &str, files: &[(&str, String)], printed: &str) -> Value {
    let repository = Repository::init();
    repository
        .write("konverge.yaml", format!("kcl: {{settings: {order}}}\n"))
        .write("kcl.mod", MODULE)
        .write("shop/project.yaml", "name: shop\n")
        .write("shop/dev/stack.yaml", "name: dev\n")
        .write("shop/dev/main.k", MAIN)
        .write("shop/base/base.k", BASE)
        .write("shop/base/render.k", format!("{RENDER}{printed}"));
    for (path, text) in files {
        repository.write(path, text);
    }
    repository.commit("a stack");
    let built = Konverge::new(["build", "shop/dev", "--output=json"])
        .dir(repository.path())
        .with_kcl();
    built.run().expect(0).json()["resources"].take()
}

fn wanted() -> Value {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"},
        "data": {"image": "web:1", "replicas": "2", "text": "a\nb\n", "one": "1"}});
    json!([
        {"id": "v1:ConfigMap:shop:web", "type": "Kubernetes", "attributes": object},
        {"id": "x:y:z:w", "type": "Terraform", "attributes": {"size": 2, "share": 1.0, "big": 9_223_372_036_854_775_807_i64, "on": true},
         "dependsOn": ["v1:ConfigMap:shop:web"]},
    ])
}

/// Text for text: a float stays one, and keys keep their order.
fn same(built: &Value, how: &str) {
    assert_eq!(built.to_string(), wanted().to_string(), "{how}");
}

/// What it is called, whose reading the repository follows, and the files with their texts.
type Description = (&'static str, &'static str, Vec<(&'static str, String)>);

#[test]
fn every_description_gives_the_same_spec() {
    let (kcl, settings) = ("shop/dev/kcl.yaml", "shop/dev/ci-test/settings.yaml");
    let module = |entries: &str| {
        format!(
            "{MODULE}[profile]\nentries = [{entries}]\narguments = [\"tag=\\\"1\\\"\", \"replicas=2\", \"app=web\"]\n"
        )
    };
    let described: [Description; 11] = [
        ("v0.7: both files", "v0.7", vec![(kcl, FILES.into()), (settings, OPTIONS.into())]),
        ("v0.9.0: both files", "v0.9.0", vec![(kcl, FILES.into()), (settings, OPTIONS.into())]),
        ("v0.9.0: kcl.yaml alone", "v0.9.0", vec![(kcl, format!("{FILES}{OPTIONS}"))]),
        ("v0.9.1: kcl.yaml alone", "v0.9.1", vec![(kcl, format!("{FILES}{OPTIONS}"))]),
        (
            "v0.9.1: ci-test/settings.yaml says nothing",
            "v0.9.1",
            vec![(kcl, format!("{FILES}{OPTIONS}")), (settings, "kcl_options: [{key: tag, value: wrong}]\n".into())],
        ),
        (
            "`file` with variables",
            "v0.9.0",
            vec![
                (kcl, "kcl_cli_configs:\n  file: ['${KCL_MOD}/shop/base/base.k', '${PWD}/main.k', '${KCL_MOD}/shop/base/render.k']\n".into()),
                (settings, OPTIONS.into()),
            ],
        ),
        (
            "ci-test/settings.yaml alone, relative to itself",
            "v0.9.0",
            vec![(settings, format!("kcl_cli_configs:\n  files: [../../base/base.k, ../main.k, ../../base/render.k]\n{OPTIONS}"))],
        ),
        (
            "files from both, joined in the order of v0.7",
            "v0.7",
            vec![
                (settings, format!("kcl_cli_configs:\n  files: [../../base/base.k]\n{OPTIONS}")),
                (kcl, "kcl_cli_configs:\n  files: [main.k, ../base/render.k]\n".into()),
            ],
        ),
        (
            "an override in place of a line",
            "v0.9.0",
            vec![
                // The core changes every entry, so there is one; `app` is printed beside `resources`, so it prints a
                // stream.
                (kcl, "kcl_cli_configs:\n  files: [main.k]\n  overrides: ['app.replicas=2']\n".into()),
                (settings, OPTIONS.into()),
                ("shop/dev/main.k", format!("{BASE}{APP}{RENDER}{STREAM}")),
            ],
        ),
        (
            "kcl.mod of the stack, [profile]",
            "v0.9.0",
            vec![("shop/dev/kcl.mod", module("\"../base/base.k\", \"main.k\", \"../base/render.k\""))],
        ),
        (
            "kcl.mod of the stack, and old settings that no longer count",
            "v0.9.1",
            vec![
                ("shop/dev/kcl.mod", module("\"../base/base.k\", \"main.k\", \"../base/render.k\"")),
                (kcl, "kcl_cli_configs:\n  files: [nothing.k]\n".into()),
            ],
        ),
    ];
    for (how, order, files) in described {
        same(&built(order, &files, SPEC), how);
    }
}

#[test]
fn every_shape_of_a_spec_gives_the_same_spec() {
    let files = [
        ("shop/dev/kcl.yaml", FILES.to_owned()),
        ("shop/dev/ci-test/settings.yaml", OPTIONS.to_owned()),
    ];
    let stream = |what: &str| format!("import manifests\nmanifests.yaml_stream({what})\n");
    for printed in [
        SPEC.to_owned(),
        STREAM.to_owned(),
        stream("_resources"),
        stream("[{resources = _resources}]"),
        "resources = _resources\nsecretStore = {provider = {fake = {data = []}}}\ncontext = {a = \"b\"}\n"
            .to_owned(),
        // A bare object names itself.
        stream("[_object, _resources[1]]"),
    ] {
        same(&built("v0.9.0", &files, &printed), &printed);
    }
}
