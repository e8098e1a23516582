use super::{super::fixture, *};
use crate::store::MemoryStore;
use konverge_base::error::chain;

/// A folder of releases in memory.
struct Bench {
    store: Arc<MemoryStore>,
    releases: Releases,
}

impl Bench {
    fn new() -> Self {
        let store = Arc::<MemoryStore>::default();
        let releases = Releases::new(Arc::clone(&store) as Arc<dyn Store>, "shop", "dev");
        Self { store, releases }
    }

    /// With a release of Kusion's that ended.
    async fn with_one() -> Self {
        let bench = Self::new();
        bench.put(
            RELEASES,
            "latestRevision: 1\nreleaseMetaDatas:\n- revision: 1\n  stack: dev\n  phase: succeeded\n",
        );
        bench.put("1.yaml", &release_text(1, "succeeded"));
        assert!(bench.newest().await.is_some());
        bench
    }

    fn put(&self, name: &str, text: &str) {
        let key = Key::from_listing(format!("releases/shop/dev/{name}"));
        self.store.overwrite(&key, Bytes::from(text.to_owned()));
    }

    async fn newest(&self) -> Option<NewestRelease> {
        self.releases.newest().await.unwrap()
    }

    async fn text(&self, name: &str) -> String {
        self.releases.text(name).await.unwrap().unwrap()
    }

    async fn begin(
        &self,
        revision: u64,
        newest: Option<&NewestRelease>,
        left: Option<&str>,
    ) -> Result<BegunRelease, ReleaseError> {
        self.releases
            .begin(&release(revision), "applying", newest, left)
            .await
    }
}

fn release_text(revision: u64, phase: &str) -> String {
    format!(
        "project: shop\nworkspace: dev\nrevision: {revision}\nstack: dev\nphase: {phase}\nspec:\n  resources: []\n  context: {{a: b}}\nstate:\n  resources:\n  - id: v1:Namespace:shop\n    attributes: {{kind: Namespace}}\n"
    )
}

fn release(revision: u64) -> KusionRelease {
    KusionRelease {
        project: "shop".to_owned(),
        workspace: "dev".to_owned(),
        stack: "dev".to_owned(),
        revision,
        mark: Some(format!("m{revision}")),
    }
}

fn is_begun<T>(result: &Result<T, ReleaseError>) -> bool {
    matches!(result, Err(ReleaseError::Begun { .. }))
}

#[tokio::test]
async fn the_newest_release_is_the_one_that_the_metadata_names() {
    let bench = Bench::new();
    assert_eq!(bench.releases.place(), "memory:/releases/shop/dev");
    assert!(bench.newest().await.is_none());
    let bench = Bench::with_one().await;
    let newest = bench.newest().await.unwrap();
    assert_eq!((newest.release.revision, newest.release.resources.len()), (1, 1));
    assert_eq!(newest.value()["spec"]["context"], json!({"a": "b"}));
    assert!(!newest.is_marked("m1"));
}

#[tokio::test]
async fn what_cannot_be_read_is_said_with_its_place() {
    for (metadata, release, why) in [
        ("latestRevision: 2\n", "", "names `2.yaml`, which does not exist"),
        ("latestRevision: 0\n", "", "no `latestRevision`"),
        (
            "latestRevision: 1\n",
            "[]",
            "`1.yaml`: not a state or release of Kusion",
        ),
    ] {
        let bench = Bench::new();
        bench.put(RELEASES, metadata);
        bench.put("1.yaml", release);
        let error = chain(&bench.releases.newest().await.err().unwrap());
        assert!(
            error.starts_with("memory:/releases/shop/dev: ") && error.contains(why),
            "{error}"
        );
    }
    let bench = Bench::new();
    let key = Key::from_listing(format!("releases/shop/dev/{RELEASES}"));
    bench.store.overwrite(&key, Bytes::from_static(&[0xff]));
    let error = chain(&bench.releases.newest().await.err().unwrap());
    assert!(error.contains("is not text"), "{error}");
}

#[tokio::test]
async fn a_first_release_begins_without_a_state_and_ends_with_its_own() {
    let bench = Bench::new();
    let begun = bench.begin(1, None, None).await.unwrap();
    let metadata: Value = yaml::from_str(&bench.text(RELEASES).await).unwrap();
    let entry = json!({"revision": 1, "stack": "dev", "phase": "applying"});
    assert_eq!(
        metadata,
        json!({"latestRevision": 1, "releaseMetaDatas": [entry]})
    );
    let newest = bench.newest().await.unwrap();
    assert!(newest.is_marked("m1") && !newest.is_marked("m2"));
    assert_eq!(newest.value()["state"], json!({"resources": []}));
    assert_eq!(newest.release.under_way.as_deref(), Some("applying"));
    let state = [fixture::recorded("a")];
    bench.releases.end(begun, "succeeded", &[], &state).await.unwrap();
    let newest = bench.newest().await.unwrap();
    assert!(newest.is_marked("m1"));
    assert_eq!(
        (newest.release.under_way, newest.release.resources.len()),
        (None, 1)
    );
    assert_eq!(newest.release.resources[0].id, state[0].id);
}

#[tokio::test]
async fn the_next_release_begins_with_the_state_and_ends_with_the_context_of_the_one_before() {
    let bench = Bench::with_one().await;
    let before = bench.newest().await;
    let begun = bench.begin(2, before.as_ref(), None).await.unwrap();
    let metadata: Value = yaml::from_str(&bench.text(RELEASES).await).unwrap();
    let entry = |revision: u64, phase: &str| json!({"revision": revision, "stack": "dev", "phase": phase});
    let entries = [entry(1, "succeeded"), entry(2, "applying")];
    assert_eq!(
        metadata,
        json!({"latestRevision": 2, "releaseMetaDatas": entries})
    );
    let newest = bench.newest().await.unwrap();
    assert_eq!(newest.value()["state"], before.unwrap().value()["state"]);
    bench.releases.end(begun, "failed", &[], &[]).await.unwrap();
    let newest = bench.newest().await.unwrap();
    assert_eq!(newest.value()["spec"]["context"], json!({"a": "b"}));
    assert_eq!(newest.value()["phase"], "failed");
}

#[tokio::test]
async fn a_release_that_somebody_else_began_is_left_alone() {
    // Its file is there, without a mark of ours.
    let bench = Bench::with_one().await;
    let before = bench.newest().await;
    let theirs = release_text(2, "applying");
    bench.put("2.yaml", &theirs);
    assert!(is_begun(&bench.begin(2, before.as_ref(), None).await));
    assert!(is_begun(&bench.begin(2, before.as_ref(), Some("left")).await));
    assert_eq!(bench.text("2.yaml").await, theirs);
    // Another release was begun since ours was planned.
    let bench = Bench::with_one().await;
    let before = bench.newest().await;
    let other = bench.begin(2, before.as_ref(), None).await;
    assert!(other.is_ok());
    let metadata = bench.text(RELEASES).await;
    assert!(is_begun(&bench.begin(3, before.as_ref(), None).await));
    assert_eq!(bench.text(RELEASES).await, metadata);
    assert!(
        is_begun(&bench.begin(4, None, None).await),
        "there was none, and now there is one"
    );
}

#[tokio::test]
async fn what_an_earlier_run_left_of_the_same_release_is_begun_again() {
    let bench = Bench::with_one().await;
    let before = bench.newest().await;
    // It left the file alone, or the metadata as well.
    for left in ["m2", "left"] {
        bench.put(
            "2.yaml",
            &format!("# konverge {left}\n{}", release_text(2, "applying")),
        );
        assert!(
            bench.begin(2, before.as_ref(), Some("left")).await.is_ok(),
            "{left}"
        );
        let newest = bench.newest().await.unwrap();
        assert!(newest.is_marked("m2"));
    }
    let left = bench.newest().await;
    assert!(bench.begin(2, left.as_ref(), Some("m2")).await.is_ok());
    let metadata: Value = yaml::from_str(&bench.text(RELEASES).await).unwrap();
    assert_eq!(
        metadata["releaseMetaDatas"].as_array().map(Vec::len),
        Some(2),
        "it is named once"
    );
}

#[tokio::test]
async fn a_release_that_somebody_changed_is_not_ended() {
    for text in [None, Some("other: text\n")] {
        let bench = Bench::new();
        let begun = bench.begin(1, None, None).await.unwrap();
        let key = begun.key.clone();
        match text {
            Some(text) => bench.put("1.yaml", text),
            None => bench.store.delete(&key).await.unwrap(),
        }
        let ended = bench.releases.end(begun, "succeeded", &[], &[]).await;
        assert!(matches!(ended, Err(ReleaseError::Changed { revision: 1, .. })));
        assert_eq!(bench.releases.text("1.yaml").await.unwrap().as_deref(), text);
    }
}

#[test]
fn each_error_says_what_to_do() {
    let place = || "memory:/releases/shop/dev".to_owned();
    let begun = ReleaseError::Begun {
        place: place(),
        revision: 2,
    };
    let changed = ReleaseError::Changed {
        place: place(),
        revision: 2,
    };
    for (error, hint) in [
        (begun, "nothing was changed"),
        (changed, "import the newest release"),
    ] {
        let error = UserError::from(error);
        assert_eq!((error.kind, error.hints.len()), (ErrorKind::State, 1));
        assert!(error.hints[0].contains(hint), "{error:?}");
    }
}
