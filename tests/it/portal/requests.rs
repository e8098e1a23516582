//! What the overview asks of a store, on an S3 server, and the site in a bucket.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use konverge_base::model::apply_result::StackResult;
use konverge_portal_site::{FolderSite, StackSources, build, read_overview};
use konverge_run::StateBackend;
use konverge_secrets::{HashKey, Secrets};
use konverge_state::{
    DocumentWriter, RepositoryId, StateStore,
    store::{Created, Key, Store, StoreError},
};
use serde_json::json;

use super::recorded::{ID, RecordedStacks, config_map};
use crate::support::s3::S3;

/// Passes everything on, and counts reads below a folder.
struct Counting {
    inner: Arc<dyn Store>,
    lists: AtomicUsize,
    gets: AtomicUsize,
    freezes: AtomicUsize,
}

#[async_trait]
impl Store for Counting {
    fn url(&self) -> &str {
        self.inner.url()
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        match prefix.as_str() {
            "freeze" => &self.freezes,
            _ => &self.lists,
        }
        .fetch_add(1, Ordering::SeqCst);
        self.inner.list(prefix).await
    }

    async fn create(&self, key: &Key, _: Bytes) -> Result<Created, StoreError> {
        panic!("a portal writes nothing: {key}");
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        panic!("a portal deletes nothing: {key}");
    }
}

impl Counting {
    fn new(recorded: &RecordedStacks) -> Arc<Self> {
        Arc::new(Self {
            inner: Arc::clone(&recorded.store),
            lists: AtomicUsize::new(0),
            gets: AtomicUsize::new(0),
            freezes: AtomicUsize::new(0),
        })
    }

    /// The states of the store.
    fn backend(self: &Arc<Self>) -> StateBackend {
        let writer = DocumentWriter {
            run: "portal".to_owned(),
            actor: "portal".to_owned(),
        };
        let store = Arc::clone(self) as Arc<dyn Store>;
        StateBackend {
            states: StateStore::open(store, RepositoryId::new(ID), writer),
            secrets: Secrets::new(HashKey::random()),
            is_shared: true,
            is_encrypted: false,
            age_recipients: Vec::new(),
        }
    }

    /// Lists, gets, and lists of the freeze.
    fn counts(&self) -> [usize; 3] {
        [&self.lists, &self.gets, &self.freezes].map(|count| count.load(Ordering::SeqCst))
    }
}

async fn on_s3(name: &str) -> RecordedStacks {
    let server = S3::shared();
    let url = format!(
        "s3://{}/states?endpoint={}&allow_http=true&path_style=true",
        server.bucket(name),
        server.endpoint()
    );
    let env = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
        ("AWS_REGION", S3::REGION),
    ];
    let env = env
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
    RecordedStacks::at(tempfile::tempdir().unwrap(), &url, env).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_overview_is_one_list_and_one_get_and_the_freeze_one_list() {
    let recorded = on_s3("overview").await;
    for stack in ["a/dev", "b/dev", "c/dev", "d/dev"] {
        recorded
            .apply(stack, vec![config_map("web", &json!({}))], StackResult::Applied)
            .await;
    }
    recorded.settle().await;
    let counting = Counting::new(&recorded);
    let backend = counting.backend();
    let sources = StackSources {
        backend: &backend,
        head: None,
        forge: None,
    };
    let index = read_overview(sources).await.unwrap();
    assert_eq!(index.overview.stacks.len(), 4);
    assert_eq!(index.search.search("configmap web").hits[0].stacks.len(), 4);
    assert_eq!(
        counting.counts(),
        [1, 1, 1],
        "lists and gets of the index, lists of the freeze"
    );
}

/// The pages of a stack are one LIST and a GET for each of the newest serials, however many are kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_is_one_list_and_as_many_gets_as_serials_are_shown() {
    let recorded = RecordedStacks::new().await;
    for level in 1..=13 {
        let resources = vec![config_map("web", &json!({"level": level.to_string()}))];
        recorded.apply("a/dev", resources, StackResult::Applied).await;
    }
    recorded.settle().await;
    let counting = Counting::new(&recorded);
    let backend = counting.backend();
    let sources = StackSources {
        backend: &backend,
        head: None,
        forge: None,
    };
    let folder = tempfile::tempdir().unwrap();
    let site = FolderSite::open(folder.path()).unwrap();
    build(sources, None, &site).await.unwrap();
    assert_eq!(
        counting.counts(),
        [4, 12, 1],
        "one of each is the index, two lists are the drift history and the rollouts"
    );
    let stack = folder.path().join("stacks/a@dev");
    let page = std::fs::read_to_string(stack.join("index.html")).unwrap();
    for words in [
        "History (13 serials)",
        "The 2 older are not on this page: <code>konverge state history a/dev</code>",
        "id=\"serial-13\"",
        "id=\"serial-3\"",
        "href=\"3-4.html\"",
        "href=\"12-13.html\"",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(
        !page.contains("id=\"serial-2\"") && !page.contains("2-3.html"),
        "{page}"
    );
    assert!(stack.join("3-4.html").exists() && !stack.join("2-3.html").exists());
    // Nothing changed: the overview alone is read.
    build(sources, None, &site).await.unwrap();
    assert_eq!(counting.counts(), [7, 13, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_only_reads_is_enough() {
    let recorded = on_s3("reader").await;
    recorded
        .apply("a/dev", vec![config_map("web", &json!({}))], StackResult::Applied)
        .await;
    let policy = json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]},
    ]});
    let reader = S3::shared().credentials(&policy).await;
    let out = recorded.folder.path().join("site");
    let run = recorded.konverge(&["portal", "build", "--out", out.to_str().unwrap()]);
    let run = reader.iter().fold(run, |run, (name, value)| run.env(name, value));
    let outcome = run.run().expect(0);
    assert!(outcome.stdout.contains("1 stack: 1 read"), "{}", outcome.stdout);
    assert!(out.join("stacks/a@dev/index.html").exists());
}
