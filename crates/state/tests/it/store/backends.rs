//! Every store keeps the four primitives, and says what is wrong when it cannot. Those that need a server which is
//! slow to start or to install are ignored but by `make test-all`.

use crate::support::{
    clouds::Clouds,
    file_server::{FileServer, Manners},
    gcs::Gcs,
    minio::Minio,
    moto::Moto,
    s3::S3,
    stores::{Azurite, Sql},
};
use bytes::Bytes;
use futures::future::join_all;
use konverge_base::error::chain;
use konverge_base::model::{RepoPath, StackId, state::StackState};
use konverge_state::{
    DocumentWriter, LeaseOptions, RepositoryId, StateStore,
    store::{Created, Key, Store, StoreError, StoreOptions, open, probe},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn options(environment: &[(&str, &str)]) -> StoreOptions {
    StoreOptions {
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect::<BTreeMap<_, _>>(),
        ..StoreOptions::default()
    }
}

fn s3(secret: &str) -> StoreOptions {
    options(&[
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", secret),
        ("AWS_REGION", S3::REGION),
    ])
}

fn text(text: &str) -> Bytes {
    Bytes::from(text.to_owned())
}

/// Everything that `crates/state/src/` rests on. `racing` is off for stand-ins that are known not to keep promises
/// under races.
async fn keeps_the_primitives(store: Arc<dyn Store>, racing: bool) {
    let store = &*store;
    probe(store).await.unwrap();
    let odd = Key::from_components(&["stacks", "acmé/shop/pröd %2F+=@", "state", "0000000001"]);
    assert_eq!(store.get(&odd).await.unwrap(), None);
    assert_eq!(store.create(&odd, text("one")).await.unwrap(), Created::Created);
    assert_eq!(store.create(&odd, text("two")).await.unwrap(), Created::Exists);
    assert_eq!(store.get(&odd).await.unwrap(), Some(text("one")));
    // A folder's listing stops at the component, goes all the way down, and is in order.
    let keys: Vec<_> = ["b/2", "b/10", "a/1", "ab/1"]
        .iter()
        .map(|place| Key::from_components(&[&["list"], &place.split('/').collect::<Vec<_>>()[..]].concat()))
        .collect();
    for key in &keys {
        store.create(key, text("x")).await.unwrap();
    }
    let listed = store.list(&Key::from_components(&["list", "a"])).await.unwrap();
    assert_eq!(listed, [Key::from_components(&["list", "a", "1"])]);
    let mut sorted = keys.clone();
    sorted.sort();
    assert_eq!(
        store.list(&Key::from_components(&["list"])).await.unwrap(),
        sorted
    );
    assert_eq!(
        store.list(&Key::from_components(&["stacks"])).await.unwrap(),
        std::slice::from_ref(&odd)
    );
    assert!(
        store
            .list(&Key::from_components(&["nothing", "here"]))
            .await
            .unwrap()
            .is_empty()
    );
    store.delete(&odd).await.unwrap();
    store.delete(&odd).await.unwrap();
    assert_eq!(store.get(&odd).await.unwrap(), None);
    let large = Bytes::from(vec![7; 3 << 20]);
    let key = Key::from_components(&["large"]);
    store.create(&key, large.clone()).await.unwrap();
    assert_eq!(store.get(&key).await.unwrap(), Some(large));
    if racing {
        for round in 0..10 {
            let key = Key::from_components(&["race", &round.to_string()]);
            let writers = (0..16).map(|writer| {
                let key = key.clone();
                async move { store.create(&key, text(&writer.to_string())).await.unwrap() }
            });
            let answers = join_all(writers.collect::<Vec<_>>()).await;
            let winners = answers
                .iter()
                .filter(|answer| **answer == Created::Created)
                .count();
            assert_eq!(winners, 1, "round {round}");
            let winner = answers
                .iter()
                .position(|answer| *answer == Created::Created)
                .unwrap();
            assert_eq!(store.get(&key).await.unwrap(), Some(text(&winner.to_string())));
        }
    }
}

/// One apply's worth of documents.
async fn keeps_a_state(store: Arc<dyn Store>) {
    let writer = DocumentWriter {
        run: "https://ci.example/1".to_owned(),
        actor: "someone".to_owned(),
    };
    let states = StateStore::open(store, RepositoryId::new("acme/infra"), writer);
    let stack: StackId = "shop/prod".parse().unwrap();
    for serial in 1..=3 {
        let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
        let state = StackState::empty(stack.clone(), RepoPath::root());
        assert_eq!(lease.commit(state, &[]).await.unwrap(), serial);
    }
    states.save_index().await.unwrap();
    assert_eq!(states.load(&stack).await.unwrap().unwrap().serial, 3);
    assert_eq!(states.history(&stack).await.unwrap().len(), 3);
}

async fn refused(store: &dyn Store) -> StoreError {
    probe(store).await.expect_err("the store should not work")
}

#[tokio::test]
async fn a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/state", folder.path().display());
    let store = open(&url, &options(&[])).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
}

#[tokio::test]
async fn a_folder_that_can_not_be_one() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "x").unwrap();
    let below_a_file = folder.path().join("file/state");
    let error = open(below_a_file.to_str().unwrap(), &options(&[]))
        .await
        .err()
        .unwrap();
    assert!(matches!(error, StoreError::Config { .. }), "{error}");
}

/// Everything of S3's protocol that the store uses, on a bucket.
async fn keeps_everything_in_a_bucket(endpoint: &str, bucket: &str) {
    let url = format!("s3://{bucket}/some/prefix?endpoint={endpoint}&allow_http=true");
    let store = open(&url, &s3(S3::SECRET_KEY)).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(Arc::clone(&store)).await;
    // More than one page of a listing.
    let folder = Key::from_components(&["pages"]);
    let writes = (0..1100).map(|n| {
        let (store, key) = (Arc::clone(&store), folder.child(&format!("{n:05}")));
        async move { store.create(&key, text("x")).await }
    });
    let written: Vec<_> =
        futures::StreamExt::collect(futures::StreamExt::buffered(futures::stream::iter(writes), 32)).await;
    assert!(written.iter().all(Result::is_ok));
    assert_eq!(store.list(&folder).await.unwrap().len(), 1100);
}

#[tokio::test]
async fn a_bucket() {
    let server = S3::shared();
    keeps_everything_in_a_bucket(server.endpoint(), &server.bucket("store")).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn minio() {
    let server = Minio::start();
    keeps_everything_in_a_bucket(server.endpoint(), &server.bucket("store")).await;
}

#[tokio::test]
async fn a_bucket_refuses_and_the_refusal_says_why() {
    let server = S3::shared();
    let bucket = server.bucket("refuse");
    let endpoint = format!("endpoint={}&allow_http=true", server.endpoint());
    let wrong_secret = open(&format!("s3://{bucket}?{endpoint}"), &s3("wrong-secret"))
        .await
        .unwrap();
    let error = refused(&*wrong_secret).await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert!(!chain(&error).contains("wrong-secret"));
    let mut quick = s3(S3::SECRET_KEY);
    quick.retry.attempts = 2;
    quick.retry.first = Duration::from_millis(5);
    let no_bucket = open(&format!("s3://no-such-bucket-here?{endpoint}"), &quick)
        .await
        .unwrap();
    let error = refused(&*no_bucket).await;
    assert!(chain(&error).contains("NoSuchBucket"), "{error}");
    let nobody = open(
        &format!("s3://{bucket}?endpoint=http://127.0.0.1:9&allow_http=true"),
        &quick,
    )
    .await
    .unwrap();
    let error = refused(&*nobody).await;
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}

/// Another make of S3, for the protocol; it does not claim to be right under races.
#[tokio::test]
async fn moto() {
    let moto = Moto::shared();
    let bucket = moto.bucket("store").await;
    let url = format!("s3://{bucket}/p?endpoint={}&allow_http=true", moto.endpoint());
    let store = open(&url, &s3("any")).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), false).await;
    keeps_a_state(store).await;
}

/// The token of the job is traded where the published clients need a file.
#[tokio::test]
async fn a_store_is_reached_by_the_identity_of_the_job() {
    let clouds = Clouds::start("the-token-of-the-store", 3600).await;
    let job = clouds.job();
    let job = [(job[0].0, job[0].1.as_str()), (job[1].0, job[1].1.as_str())];
    let moto = Moto::shared();
    let bucket = moto.bucket("by-job").await;
    let variables = [
        ("AWS_ROLE_ARN", "arn:aws:iam::111122223333:role/konverge-apply"),
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ENDPOINT_URL_STS", moto.endpoint()),
    ];
    let url = format!("s3://{bucket}?endpoint={}&allow_http=true", moto.endpoint());
    let store = open(&url, &options(&[&variables[..], &job].concat()))
        .await
        .unwrap();
    keeps_a_state(store).await;
    assert_eq!(clouds.granted(), ["job"], "once for all requests");

    // The others are asked for a key, and want the token.
    let blobs = BearerOnly::start("the-token-of-the-store").await;
    let azure = clouds.azure();
    let mut variables: Vec<_> = azure
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    variables.push(("AZURE_STORAGE_ACCOUNT_NAME", "account"));
    variables.extend(job);
    let url = format!("az://container?endpoint={}&allow_http=true", blobs.url);
    blobs
        .is_asked(&*open(&url, &options(&variables)).await.unwrap())
        .await;
    assert_eq!(
        clouds.granted(),
        ["job", "entra https://storage.azure.com/.default"]
    );
    let (name, file) = clouds.google_federation();
    let url = format!("gs://bucket?endpoint={}&allow_http=true", blobs.url);
    let store = open(&url, &options(&[(name, &file)])).await.unwrap();
    blobs.is_asked(&*store).await;
    let scope = "account https://www.googleapis.com/auth/devstorage.read_write";
    assert_eq!(clouds.granted(), ["job", "trade", scope]);

    let nobody = options(&[
        (name, &file),
        ("GOOGLE_WORKLOAD_IDENTITY_PROVIDER", "x"),
        job[0],
        (job[1].0, "other"),
    ]);
    let error = refused(&*open(&url, &nobody).await.unwrap()).await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert!(
        chain(&error).contains("the job's own token could not be obtained: 401"),
        "{error}"
    );
}

/// A server without objects, for anyone who has the token.
struct BearerOnly {
    url: String,
}

impl BearerOnly {
    async fn start(token: &'static str) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(move |headers: axum::http::HeaderMap| async move {
            let bearer = format!("Bearer {token}");
            if headers.get("authorization").is_some_and(|given| *given == bearer) {
                axum::http::StatusCode::NOT_FOUND
            } else {
                axum::http::StatusCode::FORBIDDEN
            }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url }
    }

    async fn is_asked(&self, store: &dyn Store) {
        let key = Key::from_components(&["a-key"]);
        assert_eq!(store.get(&key).await.unwrap(), None);
    }
}

fn on_this_machine(environment: &[(&str, &str)]) -> StoreOptions {
    let mut options = options(environment);
    options.allow_http = true;
    options
}

#[tokio::test]
async fn files_over_http() {
    let server = FileServer::start(Manners::Careful).await;
    let url = format!("{}/some/prefix", server.url);
    let with_token = on_this_machine(&[("KONVERGE_HTTP_TOKEN", FileServer::TOKEN)]);
    let store = open(&url, &with_token).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
    let error = refused(&*open(&url, &on_this_machine(&[])).await.unwrap()).await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let error = open(&url, &options(&[])).await.err().unwrap();
    assert!(chain(&error).contains("not https"), "{error}");
}

#[tokio::test]
async fn a_server_that_ignores_the_condition_is_not_safe() {
    let server = FileServer::start(Manners::Careless).await;
    let with_token = on_this_machine(&[("KONVERGE_HTTP_TOKEN", FileServer::TOKEN)]);
    let error = refused(&*open(&server.url, &with_token).await.unwrap()).await;
    assert!(matches!(error, StoreError::Unsafe { .. }), "{error}");
}

/// Against a server of ours that does what OSS's documentation says; the real service was not run.
#[tokio::test]
async fn oss() {
    let server = FileServer::start(Manners::Oss).await;
    let url = format!(
        "oss://{}/some/prefix?region=cn-hangzhou&endpoint={}",
        FileServer::BUCKET,
        server.url
    );
    let with = |secret| {
        on_this_machine(&[
            ("OSS_ACCESS_KEY_ID", FileServer::KEY_ID),
            ("OSS_ACCESS_KEY_SECRET", secret),
        ])
    };
    let store = open(&url, &with(FileServer::KEY_SECRET)).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
    let error = refused(&*open(&url, &with("wrong")).await.unwrap()).await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let error = open(&url, &on_this_machine(&[])).await.err().unwrap();
    assert!(chain(&error).contains("OSS_ACCESS_KEY_ID is missing"), "{error}");
}

#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn azure() {
    let azurite = Azurite::start();
    let container = azurite.container("store").await;
    let with = |key| {
        on_this_machine(&[
            ("AZURE_STORAGE_ACCOUNT_NAME", Azurite::ACCOUNT),
            ("AZURE_STORAGE_ACCOUNT_KEY", key),
        ])
    };
    let url = format!("az://{container}/some/prefix?endpoint={}", azurite.endpoint());
    let store = open(&url, &with(Azurite::KEY)).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
    let error = refused(&*open(&url, &with("d3Jvbmc=")).await.unwrap()).await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
}

#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn google() {
    let server = Gcs::start();
    let bucket = server.bucket("store").await;
    let account = server.service_account();
    let with = on_this_machine(&[("GOOGLE_SERVICE_ACCOUNT_KEY", account.as_str())]);
    let url = format!("gs://{bucket}/some/prefix?endpoint={}", server.endpoint());
    let store = open(&url, &with).await.unwrap();
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
}

async fn sql(server: &Sql) {
    let url = format!("{}/some/prefix", server.url());
    let store = open(&url, &options(&[])).await.unwrap();
    // Reading makes no table.
    assert_eq!(store.get(&Key::from_components(&["x"])).await.unwrap(), None);
    assert!(
        store
            .list(&Key::from_components(&["x"]))
            .await
            .unwrap()
            .is_empty()
    );
    keeps_the_primitives(Arc::clone(&store), true).await;
    keeps_a_state(store).await;
    // Another prefix is another store.
    let other = open(&format!("{}/some/prefix2", server.url()), &options(&[]))
        .await
        .unwrap();
    assert!(other.list(&Key::from_components(&[])).await.unwrap().is_empty());
}

#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn postgres() {
    sql(&Sql::postgres()).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install all`; `make test-all` runs it"]
async fn mariadb() {
    sql(&Sql::mariadb()).await;
}
