//! A Secret's value that is the name of something in the same Spec: names stay readable, texts do not show it.

use serde_json::Value;

use crate::support::{
    git::Repository,
    process::{Konverge, Outcome},
    tiny_monorepo,
};

/// The name of a Service, which a Secret holds as an address.
const HOST: &str = "wordpress-database-host";

/// As the official modules write it: the address of a database in a Secret, the Service of this name, and a workload.
const PROGRAM: &str = r#"_host = "wordpress-database-host"
_labels = {"app" = _host}

resources = [
    {
        "apiVersion" = "v1"
        "kind" = "Secret"
        "metadata" = {"name" = "wordpress-mysql", "namespace" = "shop"}
        "stringData" = {"hostAddress" = _host, "password" = "Kusion-9f8e7d6c5b4a"}
    }
    {
        "apiVersion" = "v1"
        "kind" = "Service"
        "metadata" = {"name" = _host, "namespace" = "shop", "labels" = _labels}
        "spec" = {"selector" = _labels, "ports" = [{"port" = 3306, "name" = "mysql"}]}
    }
    {
        "apiVersion" = "apps/v1"
        "kind" = "Deployment"
        "metadata" = {"name" = "wordpress", "namespace" = "shop", "annotations" = {"host" = _host}}
        "spec" = {
            "selector" = {"matchLabels" = {"app" = "wordpress"}}
            "template" = {
                "metadata" = {"labels" = {"app" = "wordpress"}}
                "spec" = {
                    "containers" = [{
                        "name" = "wordpress"
                        "image" = "wordpress:6"
                        "env" = [{"name" = "DB_HOST", "value" = _host}]
                        "args" = ["--database", "mysql://" + _host + ":3306"]
                    }]
                }
            }
        }
    }
]
"#;

fn wordpress() -> Repository {
    let repository = tiny_monorepo::monorepo();
    repository.commit("No stack yet");
    tiny_monorepo::write_program(&repository, "wordpress/dev", PROGRAM);
    repository.commit("WordPress");
    repository
}

fn konverge(repository: &Repository, arguments: &[&str], state: &std::path::Path) -> Outcome {
    Konverge::new(arguments)
        .dir(repository.path())
        .env("XDG_STATE_HOME", state)
        .with_kcl()
        .run()
        .expect(0)
}

#[test]
fn manifests_keep_their_names_and_hide_the_value_in_texts() {
    let repository = wordpress();
    let state = tempfile::tempdir().unwrap();
    let build = || {
        konverge(
            &repository,
            &["build", "wordpress/dev", "--output", "manifests"],
            state.path(),
        )
        .stdout
    };
    let manifests = build();
    let objects = konverge_base::yaml::documents(&manifests).unwrap();
    let [secret, service, deployment] = objects.as_slice() else {
        panic!("{manifests}")
    };
    assert_eq!(service["metadata"]["name"], HOST);
    assert_eq!(service["metadata"]["labels"]["app"], HOST);
    assert_eq!(service["spec"]["selector"]["app"], HOST);
    let is_marker = |value: &Value| value.get("$secret").is_some();
    assert!(is_marker(&secret["stringData"]["hostAddress"]), "{manifests}");
    assert!(
        is_marker(&deployment["metadata"]["annotations"]["host"]),
        "{manifests}"
    );
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert!(is_marker(&container["env"][0]["value"]), "{manifests}");
    assert_eq!(container["args"][1], "mysql://***:3306");
    // The same secret has the same marker, in this run and in the next one.
    assert_eq!(secret["stringData"]["hostAddress"], container["env"][0]["value"]);
    assert_eq!(build(), manifests);
}

#[test]
fn a_preview_shows_the_name_and_nobody_has_to_look_it_up() {
    let repository = wordpress();
    let state = tempfile::tempdir().unwrap();
    let arguments = ["preview", "--base", "HEAD~1", "--live", "never"];
    let shown = konverge(&repository, &arguments, state.path()).stdout;
    assert!(shown.contains(&format!("name: {HOST}")), "{shown}");
    assert!(!shown.contains("name: (secret"), "{shown}");
    assert!(!shown.contains("Kusion-9f8e7d6c5b4a"), "{shown}");
    assert!(
        !shown.contains("/metadata/name contains the value of a Secret"),
        "{shown}"
    );
    assert_eq!(konverge(&repository, &arguments, state.path()).stdout, shown);
}
