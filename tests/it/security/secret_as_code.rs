//! The example of Konfig whose Deployment has references to Vault in its annotations: the same layout and the same
//! references, with models of our own.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::{Konverge, Outcome},
    vault::FakeVault,
};

const CANARY: &str = "c4nary-Sac!Xw";
const FOLDER: &str = "base/examples/secret-as-code";

const SERVER: &str = "schema Server:\n    image: str\n    annotations?: {str:str}\n";

const RENDER: &str = r#"import base.pkg.kusion_models.kube.frontend
import manifests

_name = "secret-as-code" + option("env")
_labels = {"app.kubernetes.io/name" = "secret-as-code", "app.kubernetes.io/env" = option("env")}
_objects = [{
    apiVersion = "apps/v1"
    kind = "Deployment"
    metadata = {name = _name, namespace = "NAMESPACE", annotations = server.annotations}
    spec = {
        replicas = 1
        selector.matchLabels = _labels
        template = {
            metadata.labels = _labels
            spec.containers = [{name = "main", image = server.image, ports = [{containerPort = 80, protocol = "TCP"}]}]
        }
    }
} for server in frontend.Server.instances()] + [{
    apiVersion = "v1"
    kind = "Namespace"
    metadata.name = "NAMESPACE"
}]
manifests.yaml_stream(_objects)
"#;

fn monorepo(namespace: &str, config: &str) -> Repository {
    let repository = Repository::init();
    let import = "import base.pkg.kusion_models.kube.frontend\n\nappConfiguration: frontend.Server";
    let annotations = "\"secret-store\" = \"vault\", \"foo\" = \"ref+vault://secret/foo#/foo\", \"bar\" = \"ref+vault://secret/bar#/bar\"";
    repository
        .write("konverge.yaml", config)
        .write("kcl.mod", "[package]\nname = \"konfig\"\n")
        .write("base/pkg/kusion_models/kube/frontend/server.k", SERVER)
        .write(
            "base/pkg/kusion_models/kube/render/render.k",
            RENDER.replace("NAMESPACE", namespace),
        )
        .write(&format!("{FOLDER}/project.yaml"), "name: secret-as-code\n")
        .write(
            &format!("{FOLDER}/base/base.k"),
            format!("{import} {{\n    image = \"nginx:1.7.8\"\n}}\n"),
        )
        .write(&format!("{FOLDER}/dev/stack.yaml"), "name: dev\n")
        .write(
            &format!("{FOLDER}/dev/main.k"),
            format!("{import} {{\n    annotations = {{{annotations}}}\n}}\n"),
        )
        .write(
            &format!("{FOLDER}/dev/kcl.yaml"),
            "kcl_cli_configs:\n  file:\n    - ../base/base.k\n    - main.k\n    - \
             ${KCL_MOD}/base/pkg/kusion_models/kube/render/render.k\nkcl_options:\n  - key: env\n    value: dev\n",
        );
    repository.commit("The example");
    repository
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_konfig_is_applied_with_its_references() {
    let (cluster, vault) = (Cluster::shared(), FakeVault::start().await);
    let namespace = format!("secret-as-code-{}", uuid::Uuid::new_v4().simple());
    vault.allow("job", &["secret/"]);
    vault.put("foo", json!({"foo": format!("{CANARY}-foo")}));
    vault.put("bar", json!({"bar": format!("{CANARY}-bar")}));
    let config = |into: &str| {
        format!(
            "version: 1\nclusters: {{test: {{}}}}\nsecrets: {{stores: {{vault: {{kind: vault, address: '{}'{into}, allow: [{{stacks: '{FOLDER}/*', paths: 'secret/*'}}]}}}}}}\n",
            vault.address()
        )
    };
    let repository = monorepo(&namespace, &config(""));
    let token = vault.token("job");
    let run = |arguments: &[&str]| -> Outcome {
        let run = Konverge::new(arguments).arg_all(["--all", "--output", "json"]);
        let outcome = run
            .with_kcl()
            .dir(repository.path())
            .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("VAULT_TOKEN", &token)
            .env("KONVERGE_LOG", "trace")
            .run();
        assert!(
            !outcome.stdout.contains(CANARY) && !outcome.stderr.contains(CANARY),
            "{} {}",
            outcome.stdout,
            outcome.stderr
        );
        outcome
    };
    let apply = ["apply", "--yes", "--no-wait"];
    // Annotations are no place for secrets, unless the default branch says so.
    let refused = run(&apply).expect(1);
    assert!(
        refused.stdout.contains("secrets.stores.vault.into: any"),
        "{}",
        refused.stdout
    );
    repository.write("konverge.yaml", config(", into: any"));
    repository.commit("Values may stand anywhere");

    let previewed = run(&["preview", "--live", "required"]).expect(0);
    for reference in ["vault:secret/foo#/foo", "vault:secret/bar#/bar"] {
        assert!(previewed.stdout.contains(reference), "{}", previewed.stdout);
    }
    run(&apply).expect(0);
    let metadata = json!({"name": "secret-as-codedev", "namespace": namespace});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata});
    let live: Value = Objects::of(cluster).await.get(&deployment).await.unwrap();
    let annotations = &live["metadata"]["annotations"];
    assert_eq!(annotations["secret-store"], "vault");
    assert_eq!(annotations["foo"], format!("{CANARY}-foo"));
    assert_eq!(annotations["bar"], format!("{CANARY}-bar"));
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx:1.7.8"
    );
    let again = run(&["preview", "--live", "required"]).expect(0).json();
    assert_eq!(again["stacks"][0]["resources"], json!([]), "{again}");
}
