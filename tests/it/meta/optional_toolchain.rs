//! The parts that only `make test-all` installs are the real thing too.

use crate::support::gcs::Gcs;
use crate::support::process::Konverge;
use crate::support::stores::{Azurite, Registry, Sql};
use crate::support::{browser, terraform};
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, path::Path};
use serde_json::json;
use sqlx::{Connection, MySqlConnection, PgConnection};

/// The second creation of a key is refused, and the first one's bytes stay.
async fn creates_once(store: &dyn ObjectStore) {
    let key = Path::from("state/1");
    let create = |text: &'static str| store.put_opts(&key, text.into(), PutOptions::from(PutMode::Create));
    create("first").await.unwrap();
    let again = create("second").await;
    assert!(
        matches!(again, Err(object_store::Error::AlreadyExists { .. })),
        "{again:?}"
    );
    let stored = store
        .get_opts(&key, Default::default())
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    assert_eq!(stored, "first");
    let prefix = Path::from("state");
    let listed: Vec<_> = store
        .list(Some(&prefix))
        .map_ok(|object| object.location)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(listed, std::slice::from_ref(&key));
    store.delete(&key).await.unwrap();
    assert!(matches!(
        store.get(&key).await,
        Err(object_store::Error::NotFound { .. })
    ));
}

#[tokio::test]
#[ignore = "make test-all"]
async fn azurite_creates_once() {
    let azurite = Azurite::start();
    let container = azurite.container("parts").await;
    creates_once(&azurite.client(&container)).await;
}

#[tokio::test]
#[ignore = "make test-all"]
async fn gcs_creates_once() {
    let gcs = Gcs::start();
    let bucket = gcs.bucket("parts").await;
    creates_once(&gcs.client(&bucket)).await;
}

#[tokio::test]
#[ignore = "make test-all"]
async fn postgres_inserts_once() {
    let server = Sql::postgres();
    let mut connection = PgConnection::connect(server.url()).await.unwrap();
    sqlx::query("CREATE TABLE keys (key TEXT PRIMARY KEY)")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("INSERT INTO keys VALUES ('1')")
        .execute(&mut connection)
        .await
        .unwrap();
    let again = sqlx::query("INSERT INTO keys VALUES ('1')")
        .execute(&mut connection)
        .await
        .unwrap_err();
    assert!(again.as_database_error().unwrap().is_unique_violation());
}

#[tokio::test]
#[ignore = "make test-all"]
async fn mariadb_inserts_once() {
    let server = Sql::mariadb();
    let mut connection = MySqlConnection::connect(server.url()).await.unwrap();
    sqlx::query("CREATE TABLE entries (name VARCHAR(64) PRIMARY KEY)")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("INSERT INTO entries VALUES ('1')")
        .execute(&mut connection)
        .await
        .unwrap();
    let again = sqlx::query("INSERT INTO entries VALUES ('1')")
        .execute(&mut connection)
        .await
        .unwrap_err();
    assert!(again.as_database_error().unwrap().is_unique_violation());
}

#[tokio::test]
#[ignore = "make test-all"]
async fn registry_refuses_bytes_of_another_digest() {
    let registry = Registry::start();
    let client = reqwest::Client::new();
    let uploads = format!("http://{}/v2/parts/blobs/uploads/", registry.host());
    let location = async || {
        let begun = client
            .post(&uploads)
            .header("content-length", "0")
            .send()
            .await
            .unwrap();
        begun.headers()["location"].to_str().unwrap().to_owned()
    };
    // Of `hello`.
    let digest = "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let put = async |text: &'static str| {
        let url = format!("{}&digest={digest}", location().await);
        client
            .put(url)
            .header("content-type", "application/octet-stream")
            .body(text)
            .send()
            .await
            .unwrap()
            .status()
    };
    assert_eq!(put("other").await, 400);
    assert_eq!(put("hello").await, 201);
}

#[test]
#[ignore = "make test-all"]
fn browser_runs_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(
        &page,
        "<p id=a></p><script>document.getElementById('a').textContent = 6 * 7</script>",
    )
    .unwrap();
    assert!(browser::dom(&page).contains("<p id=\"a\">42</p>"));
}

#[test]
#[ignore = "make test-all"]
fn opentofu_applies_a_local_file_without_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let written = folder.path().join("written");
    let configuration = json!({
        "terraform": {"required_providers": {"local": {"source": "hashicorp/local", "version": terraform::LOCAL_PROVIDER}}},
        "resource": {"local_file": {"one": {"filename": written, "content": "by tofu"}}},
    });
    std::fs::write(folder.path().join("main.tf.json"), configuration.to_string()).unwrap();
    let config = terraform::cli_config(folder.path());
    let run = |arguments: &[&str]| {
        Konverge::of(&terraform::tofu(), arguments)
            .dir(folder.path())
            .env("TF_CLI_CONFIG_FILE", &config)
            .run()
    };
    run(&["init", "-input=false", "-no-color"]).expect(0);
    run(&["apply", "-input=false", "-no-color", "-auto-approve"]).expect(0);
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "by tofu");
}
