//! Secrets of AppConfigurations: external and generated ones.

use serde_json::{Value, json};

use crate::support::{
    apps::{QUICKSTART, write_stack},
    cluster::Cluster,
    git::Repository,
    objects::Objects,
    process::Konverge,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_external_secret_comes_from_the_configured_store() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let repository = Repository::init();
    let folder = "example/quickstart-external/default";
    let program = QUICKSTART.replace("import network as n", "import network as n\nimport service.secret as sec").replace(
        "        containers: {",
        "        secrets: {db: sec.Secret {type: \"external\", data: {password: \"ref://SHOP_DB\"}}}\n        containers: {",
    );
    write_stack(&repository, folder, ("0.2.1", "0.3.0"), &program);
    repository.write(
        "konverge.yaml",
        "version: 1\nclusters: {test: {}}\nsecrets: {default: job, stores: {job: {kind: env, allow: [{stacks: '**', paths: 'SHOP_*'}]}}}\n",
    );
    repository.commit("An external secret");
    let home = tempfile::tempdir().unwrap();
    Konverge::new(["apply", folder, "--yes", "--no-wait"])
        .dir(repository.path())
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("XDG_STATE_HOME", home.path())
        .env("SHOP_DB", "hunter2hunter2")
        .with_kcl()
        .run()
        .expect(0);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "quickstart-external"}});
    let live = objects.get(&secret).await.expect("the apply made it");
    assert_eq!(live["data"]["password"], "aHVudGVyMmh1bnRlcjI=");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generated_secret_keeps_its_value() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let repository = Repository::init();
    let folder = "example/quickstart-generated/default";
    let program = QUICKSTART.replace("import network as n", "import network as n\nimport service.secret as sec").replace(
        "        containers: {",
        "        secrets: {login: sec.Secret {type: \"basic\"}, api: sec.Secret {type: \"token\"}}\n        containers: {",
    );
    write_stack(&repository, folder, ("0.2.1", "0.3.0"), &program);
    repository.write("konverge.yaml", "version: 1\nclusters: {test: {}}\n");
    repository.commit("Generated secrets");
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Konverge::new(arguments)
            .dir(repository.path())
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("XDG_STATE_HOME", home.path())
            .with_kcl()
            .run()
    };
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "quickstart-generated"}});
    let data = async |name: &str| objects.get(&secret(name)).await.map(|live| live["data"].clone());
    // Kusion made one of them, and the stack moves here.
    objects
        .create(
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "quickstart-generated"}}),
        )
        .await;
    let mut kusions = secret("api");
    kusions["data"] = json!({"token": "a3VzaW9uc2VjcmV0MTIz"});
    kusions["type"] = json!("Opaque");
    objects.create_as(&kusions, "kusion").await;

    let planned = run(&["preview", folder]).expect(0);
    assert!(
        planned.stdout.contains("generated:quickstart/login#/password"),
        "{}",
        planned.stdout
    );
    run(&["apply", folder, "--yes", "--no-wait"]).expect(0);
    let login = data("login").await.expect("the apply made it");
    for key in ["username", "password"] {
        let value = decode(&login[key]);
        assert!(value.len() == 54 && !value.contains("ref+"), "{key}: {value}");
    }
    assert_eq!(data("api").await.unwrap()["token"], "a3VzaW9uc2VjcmV0MTIz");
    // Nothing is in the states in clear, and nothing changes.
    let after = run(&["preview", folder, "--output=json"]).expect(0);
    assert_eq!(
        after.json()["stacks"][0]["summary"]["unchanged"],
        5,
        "{}",
        after.stdout
    );
    run(&["apply", folder, "--yes", "--no-wait"]).expect(0);
    assert_eq!(data("login").await.unwrap(), login);
    let states = crate::support::ci_stage::everything_in(home.path());
    for value in [decode(&login["password"]), "kusionsecret123".to_owned()] {
        assert!(!states.contains(&value) && !after.stdout.contains(&value));
    }
    // One that is gone is made again.
    objects.delete(&secret("login")).await;
    run(&["apply", folder, "--yes", "--no-wait"]).expect(0);
    let new = data("login").await.expect("it is made again");
    assert_ne!(new["password"], login["password"]);
}

fn decode(value: &Value) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
}
