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
        konfigs,
        process::{Konverge, Outcome},
        s3::S3,
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
    let server = S3::shared();
    let bucket = server.bucket("old");

    let monorepo = Repository::konfig_example();
    // Kusion 0.7 wants both settings files of every stack; the newest projects here have neither.
    monorepo
        .remove("appops/billing")
        .remove("appops/search")
        .remove("appops/photos")
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
    // The example's orders refer to a secret, which a repository of Kusion 0.7 did not.
    let store = "{kind: env, allow: [{stacks: 'appops/orders/*', paths: 'ORDERS_*'}]}";
    monorepo.write(
        "konverge.yaml",
        format!("{config}\nsecrets: {{stores: {{job: {store}}}}}\n"),
    );

    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let typed = |line: &str, state: &Path| {
        Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(monorepo.path())
            .with_kcl()
            .env("PATH", &path)
            .env("XDG_STATE_HOME", state)
            .env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY)
            .env("AWS_REGION", S3::REGION)
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
    server.client(&bucket).put(&object, payload).await.unwrap();

    let mut last = String::new();
    for line in commands(&page) {
        // The core is a part of the tests; what it takes to fetch it is tried in `scripts/quick-start`.
        if line == "konverge kcl install" {
            continue;
        }
        let at_server = format!("kusion_state.json?endpoint={}&allow_http=true", server.endpoint());
        let line = if line.contains("s3://old-bucket/") {
            line.replace("s3://old-bucket/", &format!("'s3://{bucket}/"))
                .replace("kusion_state.json", &format!("{at_server}'"))
        } else {
            line
        };
        let outcome = typed(&line, after.path()).expect(0);
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

/// A published Konfig: its repository, the folder of its applications, and whether it is of Kusion 0.7.
struct Published {
    repository: Repository,
    apps: &'static str,
    is_old: bool,
}

/// Types every line of the page in a published Konfig, its stacks in the place of the page's.
async fn the_guide_is_typed_whole(konfig: Published) {
    let Published {
        repository,
        apps,
        is_old,
    } = konfig;
    let server = S3::shared();
    let bucket = server.bucket("konfig");
    let page = std::fs::read_to_string(root().join("docs/guides/migrate.md")).unwrap();
    if is_old {
        repository.write("konverge.yaml", &blocks(&page, "yaml")[0]);
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let home = tempfile::tempdir().unwrap();
    let typed = |line: &str| {
        Konverge::of(Path::new("/bin/sh"), ["-c", line])
            .dir(repository.path())
            .with_kcl()
            .env("PATH", &path)
            .env("XDG_STATE_HOME", home.path())
            .env("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY)
            .env("AWS_REGION", S3::REGION)
            .run()
            .expect(0)
    };
    let state = |stack: &str| {
        let spec = typed(&format!("konverge build {apps}/guestbook/{stack} --output json")).json();
        recorded(stack, &spec).replace("storefront", "guestbook")
    };
    let dev = state("dev");
    repository.write(&format!("{apps}/guestbook/dev/kusion_state.json"), dev);
    let object = ObjectPath::from("guestbook/prod/kusion_state.json");
    let prod = PutPayload::from(state("prod"));
    server.client(&bucket).put(&object, prod).await.unwrap();
    let at_server = format!(
        "kusion_state.json?endpoint={}&allow_http=true'",
        server.endpoint()
    );

    let mut count = 0;
    for line in commands(&page) {
        if line == "konverge kcl install" {
            continue;
        }
        let line = line
            .replace("appops/storefront", &format!("{apps}/guestbook"))
            .replace("storefront", "guestbook");
        let line = if line.contains("s3://old-bucket/") {
            line.replace("s3://old-bucket/", &format!("'s3://{bucket}/"))
                .replace("kusion_state.json", &at_server)
        } else {
            line
        };
        let outcome = typed(&line);
        if line.contains("state import") {
            assert!(
                outcome.stderr.contains("hint: `konverge preview guestbook/"),
                "{}",
                outcome.stderr
            );
            assert!(outcome.stderr.contains("set `state.url`"), "{}", outcome.stderr);
        }
        count += 1;
    }
    assert!(count >= 6, "{count} lines");
    let stacks = typed("konverge state list --output json").json();
    let stacks: Vec<_> = stacks["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| {
            (
                stack["stack"].as_str().unwrap(),
                stack["folder"].as_str().unwrap(),
            )
        })
        .collect();
    let folder = |stack: &str| format!("{apps}/guestbook/{stack}");
    assert_eq!(
        stacks,
        [
            ("guestbook/dev", folder("dev").as_str()),
            ("guestbook/prod", folder("prod").as_str())
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_is_typed_whole_in_kusionstacks_konfig() {
    the_guide_is_typed_whole(Published {
        repository: konfigs::konfig_2022(),
        apps: "appops",
        is_old: true,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_is_typed_whole_in_kcl_langs_konfig() {
    the_guide_is_typed_whole(Published {
        repository: konfigs::kcl_lang(konfigs::RootPath::Upwards),
        apps: "examples/appops",
        is_old: false,
    })
    .await;
}
