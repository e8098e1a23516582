//! docs/guides/migrate.md, done command for command: a repository of Konfig's old layout with Kusion's state, whose
//! `stack.yaml` files name a kubeconfig, on a cluster where all of it runs already.

use std::path::Path;

use object_store::{ObjectStoreExt, PutPayload, path::Path as ObjectPath};
use serde_json::{Value, json};

use crate::{
    meta::docs::{blocks, root},
    support::{
        cluster::Cluster,
        git::Repository,
        minio::Minio,
        process::{Konverge, Outcome},
    },
};

/// The lines of the page's shell blocks.
fn commands(page: &str) -> Vec<String> {
    let lines = blocks(page, "sh").join("\n");
    lines.lines().map(str::to_owned).collect()
}

/// What Kusion 0.7 recorded of a stack whose Spec this is.
fn recorded(stack: &str, spec: &Value) -> String {
    json!({
        "id": 1, "project": "storefront", "stack": stack, "version": 1, "kusionVersion": "v0.7.4", "serial": 3,
        "operator": "somebody", "resources": spec["resources"],
    })
    .to_string()
}

fn summary(outcome: &Outcome) -> Value {
    let plan: Value = serde_json::from_str(&outcome.stdout)
        .unwrap_or_else(|_| panic!("{}{}", outcome.stdout, outcome.stderr));
    assert!(plan["stacks"][0]["error"].is_null(), "{plan:#}");
    plan["stacks"][0]["summary"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_repository_is_taken_over_without_making_anything_again() {
    let cluster = Cluster::start();
    cluster.start_controllers();
    let kubeconfig = cluster.kubeconfig();
    let minio = Minio::shared();
    let bucket = minio.bucket("old");

    let monorepo = Repository::konfig_example();
    // Kusion 0.7 wants both settings files of every stack; the newest project here has neither.
    monorepo
        .remove("appops/billing")
        .remove(".github")
        .remove("konverge.yaml");
    for stack in ["dev", "prod"] {
        let text = format!("name: {stack}\nkubeConfig: {}\n", kubeconfig.display());
        monorepo.write(&format!("appops/storefront/{stack}/stack.yaml"), text);
    }
    monorepo.commit("As Konfig left it");
    let page = std::fs::read_to_string(root().join("docs/guides/migrate.md")).unwrap();
    let config = &blocks(&page, "yaml")[0];
    assert!(config.contains("settings: v0.7"), "{config}");
    monorepo.write("konverge.yaml", config);

    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let typed = |line: &str, state: &Path| {
        Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("XDG_STATE_HOME", state)
            .env("AWS_ACCESS_KEY_ID", Minio::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", Minio::SECRET_KEY)
            .env("AWS_REGION", Minio::REGION)
            .run()
    };
    let spec = |stack: &str| {
        let line = format!("konverge build storefront/{stack} --output json");
        typed(&line, before.path()).expect(0).json()
    };
    // Everything runs; who made it knows nothing of what comes.
    typed("konverge apply storefront/dev --yes", before.path()).expect(0);
    let (dev, prod) = (spec("dev"), spec("prod"));
    let count = dev["resources"].as_array().unwrap().len();
    let preview = "konverge preview storefront/dev --live required --output json";
    let unknown = summary(&typed(preview, after.path()).expect(0));
    assert_eq!(
        unknown["adopt"], count,
        "without a state all of it is taken over: {unknown}"
    );
    assert_eq!(unknown["create"], 0, "{unknown}");

    // Where Kusion had left its states.
    monorepo.write("appops/storefront/dev/kusion_state.json", recorded("dev", &dev));
    let object = ObjectPath::from("storefront/prod/kusion_state.json");
    let payload = PutPayload::from(recorded("prod", &prod));
    minio.client(&bucket).put(&object, payload).await.unwrap();

    let mut last = String::new();
    for line in commands(&page) {
        // The core is a part of the tests; what it takes to fetch it is tried in `scripts/quick-start`.
        if line == "konverge kcl install" {
            continue;
        }
        let at_minio = format!("kusion_state.json?endpoint={}&allow_http=true", minio.endpoint());
        let line = match line.contains("s3://old-bucket/") {
            true => line
                .replace("s3://old-bucket/", &format!("'s3://{bucket}/"))
                .replace("kusion_state.json", &format!("{at_minio}'")),
            false => line,
        };
        let outcome = typed(&line, after.path());
        assert_eq!(
            outcome.code,
            Some(0),
            "{line}: {}{}",
            outcome.stdout,
            outcome.stderr
        );
        last = outcome.stdout;
    }
    assert!(
        last.contains("storefront/dev") || last.contains("unchanged"),
        "{last}"
    );
    let known = summary(&typed(preview, after.path()).expect(0));
    assert_eq!(known["unchanged"], count, "{known}");
    assert_eq!(known["adopt"], 0, "{known}");
    let imported = typed("konverge state show storefront/prod --output json", after.path()).expect(0);
    let resources = prod["resources"].as_array().unwrap().len();
    assert_eq!(
        imported.json()["state"]["resources"].as_array().unwrap().len(),
        resources
    );
}
