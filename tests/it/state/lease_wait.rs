//! A stack whose lease another run holds: GitHub's word that that run is over, its word that it is not, and its
//! silence.

use crate::support::{
    ci_stage::{Stage, storefront},
    github::{Act, FakeGithub, World},
    s3::S3,
    spec_runs::SpecRuns,
};
use konverge_base::model::{RepoPath, StackId, state::StackState};
use konverge_state::{
    DocumentWriter, Lease, LeaseOptions, RepositoryId, StateError, StateStore, WriteReason,
    store::{StoreOptions, open},
};
use serde_json::{Value, json};
use std::time::Duration;

const HOLDER: &str = "https://github.com/acme/konfig/actions/runs/4242/attempts/1";

/// A long term, renewed as by a run that lives: nobody gets it by waiting.
async fn held(states: &StateStore, stack: &str) -> Lease {
    let options = LeaseOptions {
        term: Duration::from_secs(300),
        ..LeaseOptions::default()
    };
    let stack: StackId = stack.parse().unwrap();
    states.acquire(&stack, options).await.unwrap()
}

async fn is_lost(lease: &Lease, stack: &str) -> bool {
    let state = StackState::empty(stack.parse().unwrap(), RepoPath::root());
    matches!(lease.commit(state, &[]).await, Err(StateError::Lost { .. }))
}

async fn github(run: Value) -> FakeGithub {
    let mut world = World::new();
    world.runs.insert(4242, run);
    FakeGithub::start(world).await
}

async fn runs(subject: &str, github_api: &str) -> SpecRuns {
    let mut runs = SpecRuns::on_s3(subject, "  lease: {wait: 2s}\n").await;
    runs.env.extend([
        ("GITHUB_TOKEN", "ghs_token".to_owned()),
        ("GITHUB_API_URL", github_api.to_owned()),
    ]);
    runs.spec("spec.json", &["one"]);
    runs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_github_says_is_over_is_taken_over_at_once() {
    let github = github(json!({"id": 4242, "status": "completed", "run_attempt": 1})).await;
    let runs = runs("over", &github.api_url()).await;
    let lease = held(&runs.states(HOLDER).await, "shop/prod").await;
    let outcome = runs.apply("spec.json", "shop/prod").run().expect(0);
    for word in ["waiting for", HOLDER, "is over: taking over lease", lease.id()] {
        assert!(outcome.stderr.contains(word), "{word}: {}", outcome.stderr);
    }
    assert_eq!(runs.made("shop/prod").await, ["one".to_owned()].into());
    // The old holder is fenced: whatever it writes next collides.
    assert!(is_lost(&lease, "shop/prod").await);
    let states = runs.states("the test").await;
    let history = states.history(&"shop/prod".parse().unwrap()).await.unwrap();
    let reasons: Vec<_> = history
        .iter()
        .map(|line| line.document.as_ref().unwrap().reason)
        .collect();
    assert_eq!(reasons, [WriteReason::Apply, WriteReason::Takeover]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_progress_is_waited_for_until_a_later_attempt_begins() {
    let github = github(json!({"id": 4242, "status": "in_progress", "run_attempt": 1})).await;
    let runs = runs("in-progress", &github.api_url()).await;
    let lease = held(&runs.states(HOLDER).await, "shop/prod").await;
    let outcome = runs.apply("spec.json", "shop/prod").run().expect(4);
    assert!(
        outcome.stderr.contains("waiting for") && !outcome.stderr.contains("is over"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.elapsed >= Duration::from_secs(2), "{:?}", outcome.elapsed);
    assert!(runs.made("shop/prod").await.is_empty());
    lease.check().unwrap();
    let asked = github.requests();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0].path, "/repos/acme/konfig/actions/runs/4242");
    // The job was run again, perhaps by hand: the attempt that held the lease is over, whatever the run does now.
    github.world(|world| {
        world
            .runs
            .insert(4242, json!({"status": "queued", "run_attempt": 2}))
    });
    runs.apply("spec.json", "shop/prod").run().expect(0);
    assert!(is_lost(&lease, "shop/prod").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_answer_of_github_it_waits_and_says_so() {
    let github = github(json!({"status": "completed", "run_attempt": 1})).await;
    let mut runs = runs("silence", "http://127.0.0.1:9").await;
    let lease = held(&runs.states(HOLDER).await, "shop/prod").await;
    let unreachable = runs.apply("spec.json", "shop/prod").run().expect(4);
    for word in ["GitHub does not say", "no answer", "expires 300 s after"] {
        assert!(
            unreachable.stderr.contains(word),
            "{word}: {}",
            unreachable.stderr
        );
    }
    runs.env.retain(|(name, _)| *name != "GITHUB_API_URL");
    runs.env.push(("GITHUB_API_URL", github.api_url()));
    github.next("GET", "/actions/runs/4242", Act::Answer(502, vec![], json!({})));
    let broken = runs.apply("spec.json", "shop/prod").run().expect(4);
    assert!(broken.stderr.contains("GitHub answered 502"), "{}", broken.stderr);
    github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.remove("actions");
    });
    let denied = runs.apply("spec.json", "shop/prod").run().expect(4);
    assert!(
        denied.stderr.contains("`permissions: actions: read`"),
        "{}",
        denied.stderr
    );
    // Without a token nothing is asked.
    runs.env.retain(|(name, _)| *name != "GITHUB_TOKEN");
    let asked = github.requests().len();
    let mute = runs.apply("spec.json", "shop/prod").run().expect(4);
    assert!(!mute.stderr.contains("GitHub"), "{}", mute.stderr);
    assert_eq!(github.requests().len(), asked);
    lease.check().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_merge_job_takes_over_from_a_job_that_was_cancelled() {
    let mut stage = Stage::set_up("").await;
    stage.propose("add-storefront", storefront);
    stage.pull_request(7, "add-storefront", "opened").outcome.check(0);
    stage.github.world(|world| {
        world.runs.insert(
            4242,
            json!({"status": "completed", "conclusion": "cancelled", "run_attempt": 1}),
        )
    });
    let options = StoreOptions {
        environment: [
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
            ("AWS_REGION", S3::REGION),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into(),
        ..StoreOptions::default()
    };
    let endpoint = S3::shared().endpoint();
    let url = format!(
        "s3://{}/konverge?endpoint={endpoint}&allow_http=true",
        stage.bucket
    );
    let writer = DocumentWriter {
        run: HOLDER.to_owned(),
        actor: "somebody".to_owned(),
    };
    let store = open(&url, &options).await.unwrap();
    let states = StateStore::open(store, RepositoryId::new("main-job"), writer);
    let lease = held(&states, "storefront/dev").await;
    let merged = stage.merge(7, "add-storefront");
    merged.outcome.check(0);
    assert!(
        merged.outcome.stderr.contains("is over: taking over lease"),
        "{}",
        merged.outcome.stderr
    );
    assert!(stage.deployment().await.is_some());
    assert!(is_lost(&lease, "storefront/dev").await);
}
