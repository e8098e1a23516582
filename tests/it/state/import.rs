//! `konverge state import` from each place where Kusion kept states: files, object stores, HTTP, MySQL.

use crate::support::{
    cluster::Cluster,
    file_server::{FileServer, Manners},
    gcs::Gcs,
    konfigs,
    objects::Objects,
    process::{Konverge, Outcome},
    s3::S3,
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
    stores::Sql,
};
use axum::{Router, extract::State, http::Uri, response::IntoResponse};
use bytes::Bytes;
use konverge_state::store::{Key, StoreOptions, open};
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

/// A state of v0.9 as each backend keeps it.
fn state(serial: u64) -> Value {
    json!({
        "id": 1, "tenant": "main", "project": "shop", "stack": "prod", "cluster": "eu", "version": 1,
        "kusionVersion": "v0.9.0", "serial": serial, "operator": "me", "resources": resources(),
        "createTime": "2023-01-01T00:00:00Z", "modifiedTime": "2023-01-01T00:00:00Z",
    })
}

fn resources() -> Value {
    json!([
        {"id": "v1:Namespace:shop", "type": "Kubernetes",
         "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}},
        {"id": "v1:Secret:shop:db", "type": "Kubernetes", "dependsOn": ["v1:Namespace:shop"],
         "attributes": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop"},
                        "stringData": {"password": "hunter222"}}},
    ])
}

/// A release of later versions, one per project and workspace.
fn release(revision: u64) -> String {
    let release = json!({
        "project": "shop", "workspace": "production", "revision": revision, "stack": "prod", "phase": "succeeded",
        "spec": {"resources": []}, "state": {"resources": resources()},
    });
    konverge_base::yaml::to_string(&release)
}

const METADATA: &str =
    "latestRevision: 12\nreleaseMetaDatas:\n- revision: 9\n  stack: prod\n- revision: 12\n  stack: prod\n";

struct Home(TempDir, Vec<(&'static str, String)>);

impl Home {
    fn new(environment: &[(&'static str, &str)]) -> Self {
        let environment = environment
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Self(tempfile::tempdir().unwrap(), environment.collect())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str]) -> Outcome {
        let run = Konverge::new(["state"].iter().chain(arguments))
            .dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("states"));
        let env = |run: Konverge, (name, value): &(&str, String)| run.env(name, value);
        self.1.iter().fold(run, env).run()
    }

    /// Imports, and looks at what stands there then.
    fn takes_over(&self, arguments: &[&str], identity: &str, note: &str) {
        self.run(&[&["import"], arguments].concat()).expect(0);
        let line = self
            .run(&["history", identity, "--output", "json"])
            .expect(0)
            .json();
        let document = &line["serials"][0];
        assert_eq!(document["reason"], "import");
        let said = document["note"].as_str().unwrap();
        assert!(said.starts_with(note), "{said}");
        let shown = self.run(&["show", identity, "--output", "json"]).expect(0).json();
        let ids: Vec<_> = shown["state"]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["v1:Namespace:shop", "v1:Secret:shop:db"]);
        let kept = walk(&self.path().join("states"));
        assert!(!kept.contains("hunter222"), "a secret was written");
    }
}

/// Puts files where Kusion had put them, through the store that is then read from.
async fn put(url: &str, environment: &[(&str, &str)], files: &[(&str, String)]) {
    let options = StoreOptions {
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..StoreOptions::default()
    };
    let store = open(url, &options).await.unwrap();
    for (name, text) in files {
        let key = Key::from_listing(*name);
        store.create(&key, Bytes::from(text.clone())).await.unwrap();
    }
}

/// The layouts of every object store: a state at `[tenant/]project/stack`, releases below a prefix.
async fn from_objects(scheme: &str, bucket: &str, query: &str, environment: &[(&'static str, &str)]) {
    let files = [
        ("main/shop/prod/kusion_state.json", state(7).to_string()),
        (
            "kusion/releases/shop/production/.metadata.yml",
            METADATA.to_owned(),
        ),
        ("kusion/releases/shop/production/9.yaml", release(9)),
        ("kusion/releases/shop/production/12.yaml", release(12)),
    ];
    put(&format!("{scheme}://{bucket}{query}"), environment, &files).await;
    let home = Home::new(environment);
    let url = format!("{scheme}://{bucket}/main/shop/prod/kusion_state.json{query}");
    home.takes_over(&[&url], "main/shop/prod", "Kusion state serial 7, from ");
    let newest = format!("{scheme}://{bucket}/kusion/releases/shop/production/{query}");
    home.takes_over(
        &[&newest],
        "shop/prod",
        "Kusion release 12 of workspace production",
    );
    let older = format!("{scheme}://{bucket}/kusion/releases/shop/production/9.yaml{query}");
    home.takes_over(
        &[&older, "--stack", "old/prod"],
        "old/prod",
        "Kusion release 9 of",
    );
    let missing = format!("{scheme}://{bucket}/main/shop/dev/kusion_state.json{query}");
    let missing = home.run(&["import", &missing]).expect(1);
    assert!(missing.stderr.contains("there is no state"), "{}", missing.stderr);
}

#[test]
fn a_folder_of_releases() {
    let home = Home::new(&[]);
    let folder = home.path().join("releases/shop/production");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in [
        (".metadata.yml", METADATA.to_owned()),
        ("9.yaml", release(9)),
        ("12.yaml", release(12)),
    ] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    // A release that is not ended is Kusion's lock.
    let applying = release(12).replace("succeeded", "applying");
    std::fs::write(folder.join("12.yaml"), applying).unwrap();
    let locked = home.run(&["import", "releases/shop/production"]).expect(1);
    for says in ["release 12 is in the phase `applying`", "kusion release unlock"] {
        assert!(locked.stderr.contains(says), "{}", locked.stderr);
    }
    std::fs::write(folder.join("12.yaml"), release(12)).unwrap();
    home.takes_over(&["releases/shop/production"], "shop/prod", "Kusion release 12");
    std::fs::write(folder.join(".metadata.yml"), "latestRevision: ../../x\n").unwrap();
    let garbage = home.run(&["import", "releases/shop/production"]).expect(1);
    assert!(garbage.stderr.contains("latestRevision"), "{}", garbage.stderr);
    let nothing = home.run(&["import", "releases/none"]).expect(1);
    assert!(nothing.stderr.contains("there is no state"), "{}", nothing.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn from_s3() {
    let server = S3::shared();
    let bucket = server.bucket("kusion");
    let query = format!("?endpoint={}&allow_http=true", server.endpoint());
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
        ("AWS_REGION", S3::REGION),
    ];
    from_objects("s3", &bucket, &query, &environment).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn from_oss() {
    let server = FileServer::start(Manners::Oss).await;
    let query = format!("?region=cn-hangzhou&endpoint={}&allow_http=true", server.url);
    let environment = [
        ("OSS_ACCESS_KEY_ID", FileServer::KEY_ID),
        ("OSS_ACCESS_KEY_SECRET", FileServer::KEY_SECRET),
    ];
    from_objects("oss", FileServer::BUCKET, &query, &environment).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn from_google() {
    let server = Gcs::start();
    let bucket = server.bucket("kusion").await;
    let account = server.service_account();
    let query = format!("?endpoint={}&allow_http=true", server.endpoint());
    from_objects("gs", &bucket, &query, &[("GOOGLE_SERVICE_ACCOUNT_KEY", &account)]).await;
}

/// What was asked for, and with which credentials.
type Asked = Arc<Mutex<Vec<String>>>;

#[tokio::test(flavor = "multi_thread")]
async fn over_kusions_url_format() {
    let asked = Asked::default();
    let answer = |State(asked): State<Asked>, uri: Uri, headers: axum::http::HeaderMap| async move {
        asked
            .lock()
            .unwrap()
            .push(format!("{uri} {:?}", headers.get("authorization")));
        match uri.path() {
            "/apis/tenants/main/projects/shop/stacks/prod/clusters/eu/states/" => {
                state(9).to_string().into_response()
            }
            "/broken" => axum::http::StatusCode::NO_CONTENT.into_response(),
            _ => axum::http::StatusCode::NOT_FOUND.into_response(),
        }
    };
    let router = Router::new().fallback(answer).with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let home = Home::new(&[("KONVERGE_HTTP_TOKEN", "of-another-server")]);
    let format = format!("{server}/apis/tenants/%s/projects/%s/stacks/%s/clusters/%s/states/");
    home.takes_over(
        &[&format, "--stack", "main/shop/prod", "--cluster", "eu"],
        "main/shop/prod",
        "Kusion state serial 9",
    );
    // Our own store's credentials are no business of Kusion's server.
    let seen = asked.lock().unwrap().clone();
    assert!(seen.iter().all(|line| line.ends_with("None")), "{seen:?}");
    let says = |arguments: &[&str], code: i32, word: &str| {
        let outcome = home.run(&[&["import"], arguments].concat()).expect(code);
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    };
    says(&[&format, "--stack", "shop/prod"], 1, "there is no state");
    says(&[&format], 64, "--stack [TENANT/]PROJECT/STACK");
    says(
        &[&format!("{server}/%s/%s"), "--stack", "shop/prod"],
        64,
        "four times",
    );
    // Only 200 is a state, as Kusion has it.
    says(&[&format!("{server}/broken")], 1, "204");
    says(&["http://states.example/x"], 1, "not https");
}

#[test]
fn a_database_that_is_not_there_or_says_nothing_is_told_soon() {
    // It accepts, by its backlog, and never greets.
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = listener.local_addr().unwrap().port();
    let home = Home::new(&[]);
    for (port, told) in [(9, "Connection refused"), (silent, "no answer within 10 s")] {
        let url = format!("mysql://me@127.0.0.1:{port}/kusion");
        let outcome = home.run(&["import", &url, "--stack", "shop/prod"]).expect(1);
        assert!(outcome.stderr.contains(told), "{told}: {}", outcome.stderr);
        assert!(
            outcome.elapsed < std::time::Duration::from_secs(40),
            "{told}: {:?}",
            outcome.elapsed
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn from_mysql() {
    let server = Sql::mariadb();
    let pool = sqlx::MySqlPool::connect(server.url()).await.unwrap();
    // The columns that Kusion inserts into; it never made the table itself.
    let table = "CREATE TABLE state (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, tenant VARCHAR(100), project VARCHAR(100),
        stack VARCHAR(100), cluster VARCHAR(100), version INT, kusion_version VARCHAR(50), serial BIGINT UNSIGNED,
        operator VARCHAR(100), resources LONGTEXT, gmt_create DATETIME DEFAULT NOW(), gmt_modified DATETIME DEFAULT NOW())";
    sqlx::query(table).execute(&pool).await.unwrap();
    let insert = async |tenant: &str, cluster: &str, serial: u64, resources: &str| {
        sqlx::query("INSERT INTO state (tenant, project, stack, cluster, version, serial, resources) VALUES (?, 'shop', 'prod', ?, 1, ?, ?)")
            .bind(tenant)
            .bind(cluster)
            .bind(serial)
            .bind(resources)
            .execute(&pool)
            .await
            .unwrap();
    };
    // It only ever adds; the highest serial counts.
    insert("main", "eu", 1, "[]").await;
    insert("main", "eu", 3, &resources().to_string()).await;
    insert("main", "eu", 2, "[]").await;
    let home = Home::new(&[]);
    home.takes_over(
        &[server.url(), "--stack", "main/shop/prod"],
        "main/shop/prod",
        "Kusion state serial 3",
    );
    insert("main", "us", 8, "[]").await;
    insert("main", "ap", 5, "not json").await;
    let says = |arguments: &[&str], code: i32, word: &str| {
        let outcome = home
            .run(&[&["import", server.url()], arguments].concat())
            .expect(code);
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    };
    says(&["--stack", "shop/prod"], 1, "several clusters");
    says(
        &["--stack", "shop/prod", "--cluster", "ap"],
        1,
        "serial 5: its resources are not valid JSON",
    );
    home.takes_over(
        &[server.url(), "--stack", "shop/prod", "--cluster", "eu"],
        "shop/prod",
        "Kusion state serial 3",
    );
    says(&["--stack", "shop/dev"], 1, "there is no state");
    says(&[], 64, "--stack");
}

#[test]
fn a_file_is_read_as_json_or_yaml_however_long_it_is() {
    let home = Home::new(&[]);
    let text = konverge_base::yaml::to_string(&state(7));
    std::fs::write(home.path().join("kusion_state.yaml"), text).unwrap();
    home.takes_over(
        &["kusion_state.yaml"],
        "main/shop/prod",
        "Kusion state serial 7, from ",
    );

    // More parts than a document of ours may have, and a key that is too long for YAML.
    let data: serde_json::Map<String, Value> = (0..100)
        .map(|n| (format!("key-{n}"), json!("v")))
        .chain([("k".repeat(2000), json!("v"))])
        .collect();
    let map = |n: usize| {
        json!({"id": format!("v1:ConfigMap:shop:m{n}"), "type": "Kubernetes",
               "attributes": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n}"), "namespace": "shop"},
                              "data": data}})
    };
    let mut long = state(8);
    long["stack"] = json!("long");
    long["resources"] = (0..1300).map(map).collect();
    std::fs::write(home.path().join("long.json"), long.to_string()).unwrap();
    let told = home.run(&["import", "long.json"]).expect(0);
    assert!(told.stderr.contains("1300 resources"), "{}", told.stderr);
    for resource in long["resources"].as_array_mut().unwrap() {
        let data = resource["attributes"]["data"].as_object_mut().unwrap();
        data.retain(|key, _| key.len() < 1000);
    }
    long["stack"] = json!("longer");
    std::fs::write(
        home.path().join("long.yaml"),
        konverge_base::yaml::to_string(&long),
    )
    .unwrap();
    home.run(&["import", "long.yaml"]).expect(0);
}

/// A mark is kept as it is, so that a value in the form of one would stay in clear.
#[test]
fn what_looks_like_a_mark_in_a_release_is_masked_as_a_value() {
    let home = Home::new(&[]);
    let mut marked = state(7);
    marked["resources"][1]["attributes"]["stringData"] = json!({"password": {"$secret": "hunter333"}});
    std::fs::write(home.path().join("marked.json"), marked.to_string()).unwrap();
    home.run(&["import", "marked.json"]).expect(0);
    let shown = home.run(&["show", "main/shop/prod"]).expect(0).stdout;
    assert!(shown.contains("$$secret"), "{shown}");
    assert!(!shown.contains("hunter333"), "{shown}");
}

#[test]
fn a_state_goes_to_the_stack_that_it_is_of_and_says_what_to_do_next() {
    let repository = konfigs::konfig_2023();
    let run = |arguments: &[&str]| {
        Konverge::new(["state"].iter().chain(arguments))
            .dir(repository.path())
            .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
            .run()
    };
    let write = |path: &str, project: &str, stack: &str| {
        let mut state = state(3);
        state["project"] = json!(project);
        state["stack"] = json!(stack);
        repository.write(path, state.to_string());
    };
    let entry = |id: &str| {
        let list = run(&["list", "--output", "json"]).expect(0).json();
        let stacks = list["stacks"].as_array().unwrap();
        let found = stacks.iter().find(|stack| stack["stack"] == id);
        found.map(|stack| stack["folder"].as_str().unwrap().to_owned())
    };
    // The tenant is not in `project.yaml`: the stack is known all the same.
    write("old/state.json", "guestbook", "dev");
    let told = run(&["import", "old/state.json"]).expect(0).stderr;
    assert!(told.contains("guestbook/dev: 2 resources, serial 1"), "{told}");
    assert!(told.contains("hint: `konverge preview guestbook/dev`"), "{told}");
    assert!(told.contains("set `state.url`"), "{told}");
    assert_eq!(entry("guestbook/dev").as_deref(), Some("appops/guestbook/dev"));

    // Ten stacks have these names: the folder says which one is meant.
    write("old/state.json", "sampleapp", "prod");
    let ambiguous = run(&["import", "old/state.json"]).expect(1).stderr;
    assert!(
        ambiguous.contains("10 stacks have these names") && ambiguous.contains("--folder DIR"),
        "{ambiguous}"
    );
    let folder = "base/examples/server/app_secret/prod";
    run(&["import", "old/state.json", "--folder", folder]).expect(0);
    assert_eq!(entry(folder).as_deref(), Some(folder));
    let folder = "base/examples/server/app_service/prod";
    write(&format!("{folder}/kusion_state.json"), "sampleapp", "prod");
    run(&["import", folder]).expect(0);
    assert_eq!(entry(folder).as_deref(), Some(folder));

    // Of a stack that the repository does not have.
    write("old/state.json", "elsewhere", "dev");
    let told = run(&["import", "old/state.json"]).expect(0).stderr;
    assert!(
        told.contains("the repository has no stack `main/elsewhere/dev`")
            && told.contains("konverge state move"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_preview_says_of_each_adopted_object_why() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("adopted").await, Objects::of(cluster).await);
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"a": "1"}});
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        &[("KUBECONFIG", &cluster.kubeconfig())],
    );
    let (known, unknown) = (map("known"), map("unknown"));
    shop.wants("prod", &[resource(&known), resource(&unknown)]);
    for object in [&known, &unknown] {
        objects.create_as(object, "kusion").await;
    }
    let notes = || {
        let plan = shop
            .run(&["preview", "shop/prod", "--output", "json"])
            .expect(0)
            .json();
        let adopted = plan["stacks"][0]["summary"]["adopt"].as_u64().unwrap();
        (adopted, plan.to_string())
    };
    let text = shop.run(&["preview", "shop/prod"]).expect(0).stdout;
    let sentence = "1 stack is taken over as it runs: only the owner annotation is added, to 2 objects.";
    assert!(text.contains(sentence), "{text}");
    let (adopted, text) = notes();
    assert_eq!(adopted, 2);
    let why = "it exists and the state of `shop/prod` is empty: the first apply takes it over";
    assert_eq!(text.matches(why).count(), 2, "{text}");

    let mut state = state(7);
    state["resources"] = json!([resource(&known)]);
    shop.monorepo.write("state.json", state.to_string());
    let imported = shop.run(&["state", "import", "state.json"]).expect(0).stderr;
    assert!(
        imported.contains("adopted objects were not in this state"),
        "{imported}"
    );
    let (adopted, text) = notes();
    assert_eq!(adopted, 1, "{text}");
    let why = "it exists and is not in the state that was imported (Kusion state serial 7, from state.json)";
    assert_eq!(text.matches(why).count(), 1, "{text}");
}

/// A package that grew a version of a kind since Kusion wrote the state: one object, whatever the record calls it.
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_object_in_an_older_version_is_the_same_object() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("imported-version").await,
        Objects::of(cluster).await,
    );
    let scaler = |version: &str| {
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": ns},
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}})
    };
    let shop = Shop::new(
        "version: 1\nclusters: {test: {}}\n",
        &[("KUBECONFIG", &cluster.kubeconfig())],
    );
    objects.create_as(&scaler("v1"), "kusion").await;
    let uid = |object: Option<Value>| object.unwrap()["metadata"]["uid"].clone();
    let before = uid(objects.get(&scaler("v1")).await);
    let mut state = state(7);
    state["resources"] = json!([resource(&scaler("v1"))]);
    shop.monorepo.write("state.json", state.to_string());
    shop.wants("prod", &[resource(&scaler("v2"))]);
    shop.run(&["state", "import", "state.json"]).expect(0);

    // Another stack that wants it is told whose it is, before the owner was applied.
    shop.wants("dev", &[resource(&scaler("v2"))]);
    let told = shop.run(&["preview", "shop/dev"]).expect(1);
    assert!(told.stdout.contains("shop/prod"), "{}", told.stdout);

    let plan = shop
        .run(&["preview", "shop/prod", "--output", "json"])
        .expect(0)
        .json();
    let deleted = &plan["stacks"][0]["summary"]["delete"];
    assert!(deleted.is_null() || deleted == 0, "{plan}");
    for _ in 0..2 {
        shop.run(&["apply", "shop/prod", "--yes", "--no-wait"]).expect(0);
        assert_eq!(uid(objects.get(&scaler("v2")).await), before);
    }
}
