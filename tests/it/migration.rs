//! docs/guides/migrate.md, done: a repository of Konfig's old layout with Kusion's state, on a cluster where all of it
//! runs already.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    git::Repository,
    process::{Konverge, Outcome},
};

fn summary(outcome: &Outcome) -> Value {
    let plan: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|_| panic!("{}{}", outcome.stdout, outcome.stderr));
    assert!(plan["stacks"][0]["error"].is_null(), "{plan:#}");
    plan["stacks"][0]["summary"].clone()
}

#[test]
fn an_old_repository_is_taken_over_without_making_anything_again() {
    let cluster = Cluster::start();
    cluster.start_controllers();
    let monorepo = Repository::konfig_example();
    // Kusion 0.7 wants both settings files of every stack; the newest project here has neither.
    monorepo
        .remove("appops/billing")
        .remove(".github")
        .remove("konverge.yaml");
    monorepo.commit("As Konfig left it");
    let page = include_str!("../../docs/guides/migrate.md");
    let (_, block) = page.split_once("```yaml\n").unwrap();
    let config = block.split("```").next().unwrap();
    assert!(config.contains("settings: v0.7"), "{config}");
    monorepo.write("konverge.yaml", config);

    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let run = |arguments: &[&str], state: &std::path::Path| {
        Konverge::new(arguments)
            .dir(monorepo.path())
            .with_kcl()
            .env("XDG_STATE_HOME", state)
            .run()
    };
    let kubeconfig = cluster.kubeconfig();
    let live = ["--kubeconfig", kubeconfig.to_str().unwrap()];
    let with = |arguments: &[&str]| [arguments, &live].concat().join("\n");
    let on_cluster = |arguments: &[&str], state: &std::path::Path| {
        let arguments = with(arguments);
        run(&arguments.split('\n').collect::<Vec<_>>(), state)
    };

    run(&["check", "--all", "--skip", "schema"], before.path()).expect(0);
    let spec: Value = serde_json::from_str(
        &run(&["build", "storefront/dev", "--output", "json"], before.path())
            .expect(0)
            .stdout,
    )
    .unwrap();
    let count = spec["resources"].as_array().unwrap().len();
    // Everything runs; who made it knows nothing of what comes.
    on_cluster(&["apply", "storefront/dev", "--yes"], before.path()).expect(0);

    let preview = [
        "preview",
        "storefront/dev",
        "--live",
        "required",
        "--output",
        "json",
    ];
    let unknown = summary(&on_cluster(&preview, after.path()).expect(0));
    assert_eq!(
        unknown["adopt"], count,
        "without a state all of it is taken over: {unknown}"
    );
    assert_eq!(unknown["create"], 0, "{unknown}");

    let kusion = json!({
        "id": 1, "project": "storefront", "stack": "dev", "version": 1, "kusionVersion": "v0.7.4", "serial": 3,
        "operator": "somebody", "resources": spec["resources"],
    });
    monorepo.write("appops/storefront/dev/kusion_state.json", kusion.to_string());
    let folder = "appops/storefront/dev";
    let file = format!("{folder}/kusion_state.json");
    run(
        &[
            "state",
            "import",
            &file,
            "--stack",
            "storefront/dev",
            "--folder",
            folder,
        ],
        after.path(),
    )
    .expect(0);
    let known = summary(&on_cluster(&preview, after.path()).expect(0));
    assert_eq!(known["unchanged"], count, "{known}");
    assert_eq!(known["adopt"], 0, "{known}");
}
