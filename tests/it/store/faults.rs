//! Stores that refuse, lie, fill up or die: what is said, and that live objects were not changed before it was known.

use crate::support::{
    file_server::{FileServer, Manners},
    process::Outcome,
    s3::S3,
    spec_runs::{SpecRuns, walk},
};
use axum::{Router, http::StatusCode};
use konverge_base::error::{UserError, chain};
use konverge_state::store::{Store, StoreError, StoreOptions, open, probe};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

const STACK: &str = "shop/prod";

/// Everything that was printed; a stack's own error stands in the outcome on stdout.
fn said(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn says(outcome: &Outcome, words: &[&str]) {
    let said = said(outcome);
    for word in words {
        assert!(said.contains(word), "`{word}` is not said:\n{said}");
    }
}

/// The apply fails with these words, and nothing stands in the cluster.
async fn touches_nothing(runs: &SpecRuns, words: &[&str]) {
    let outcome = runs.apply("spec.json", STACK).run().expect(1);
    says(&outcome, words);
    assert!(!said(&outcome).contains("-secret"), "{}", said(&outcome));
    assert!(runs.made(STACK).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_not_there() {
    let endpoint = S3::shared().endpoint();
    let url = format!("s3://no-such-bucket-here/p?endpoint={endpoint}&allow_http=true");
    let runs = SpecRuns::at("no-bucket", &url, "").await;
    runs.spec("spec.json", &["one"]);
    touches_nothing(
        &runs,
        &["s3://no-such-bucket-here/p", "NoSuchBucket", "state.url"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_that_are_wrong_or_may_only_read() {
    let mut runs = SpecRuns::on_s3("denied", "").await;
    runs.spec("spec.json", &["one"]);
    let right = runs.env.clone();
    runs.env.retain(|(name, _)| *name != "AWS_SECRET_ACCESS_KEY");
    runs.env
        .push(("AWS_SECRET_ACCESS_KEY", "another-secret".to_owned()));
    touches_nothing(&runs, &["access denied", "need get, list, create and delete"]).await;

    let policy = json!({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]},
    ]});
    runs.env = right.clone();
    runs.env
        .retain(|(name, _)| *name != "AWS_SECRET_ACCESS_KEY" && *name != "AWS_ACCESS_KEY_ID");
    runs.env.extend(S3::shared().credentials(&policy).await);
    touches_nothing(&runs, &["access denied to `probe/"]).await;
    // Looking needs no more than that.
    let preview = ["preview", "--spec", "spec.json", "--stack", STACK];
    let preview = runs.on_cluster(&preview).run().expect(0);
    assert!(preview.stdout.contains("ConfigMap"), "{}", preview.stdout);
    runs.konverge(&["state", "list"]).run().expect(0);
    runs.env = right;
    runs.apply("spec.json", STACK).run().expect(0);
}

/// As AWS answers them: <https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html>.
#[tokio::test]
async fn credentials_that_have_expired_are_not_tried_again_and_again() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let router = Router::new().fallback(move || async move {
        *count.lock().unwrap() += 1;
        let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>";
        (StatusCode::BAD_REQUEST, [("content-type", "application/xml")], body)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let store = s3(&format!("s3://bucket?endpoint={endpoint}&allow_http=true")).await;
    let error = probe(&*store).await.unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert!(
        chain(&error).contains("The provided token has expired"),
        "{error}"
    );
    assert!(
        *asked.lock().unwrap() <= 2,
        "asked {} times",
        asked.lock().unwrap()
    );
}

async fn s3(url: &str) -> Arc<dyn Store> {
    try_s3(url).await.unwrap()
}

async fn try_s3(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let environment = [
        ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY),
        ("AWS_REGION", S3::REGION),
    ];
    let mut options = StoreOptions {
        environment: environment
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..StoreOptions::default()
    };
    options.retry.first = Duration::from_millis(5);
    open(url, &options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_of_ones_own_has_to_be_named() {
    let (server, authority) = S3::start_with_tls();
    let bucket = server.bucket("tls");
    let url = format!("s3://{bucket}?endpoint={}", server.endpoint());
    let failure = UserError::from(probe(&*s3(&url).await).await.unwrap_err());
    assert!(failure.message.contains("certificate"), "{failure:?}");
    assert!(
        failure
            .hints
            .iter()
            .any(|hint| hint.contains("state.options.ca_file")),
        "{failure:?}"
    );
    let with = format!("{url}&ca_file={}", authority.display());
    probe(&*s3(&with).await).await.unwrap();
    // The client of plain HTTP stores takes the same file: what is refused now is the request, not the certificate.
    let files = format!("{}/{bucket}?ca_file={}", server.endpoint(), authority.display());
    let error = probe(&*s3(&files).await).await.unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    let not_there = format!("{url}&ca_file=/nonexistent");
    let error = try_s3(&not_there).await.err().unwrap();
    assert!(
        chain(&error).contains("certificates of `/nonexistent`"),
        "{error}"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), "no certificate").unwrap();
    let error = try_s3(&format!("{url}&ca_file={}/ca.pem", folder.path().display())).await;
    // A file without any certificate trusts nobody more than before.
    match error {
        Err(error) => assert!(matches!(error, StoreError::Config { .. }), "{error}"),
        Ok(store) => assert!(probe(&*store).await.is_err()),
    }
}

async fn in_folder(subject: &str, more: &str) -> (SpecRuns, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file://{}/states", folder.path().display());
    (SpecRuns::at(subject, &url, more).await, folder)
}

/// A quota in the place of a full disk: a file that grows beyond it is cut off in the middle of the write.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_is_full_leaves_nothing_half_written() {
    let (runs, folder) = in_folder("full", "  lease: {term: 2s}\n").await;
    let names: Vec<_> = (0..60).map(|n| format!("map-{n:02}")).collect();
    runs.spec("spec.json", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let limit = ["bash", "-c", "trap '' XFSZ; ulimit -f 4; exec \"$@\"", "bash"];
    let kubeconfig = runs.cluster.kubeconfig().display().to_string();
    let apply = [
        "apply",
        "--yes",
        "--spec",
        "spec.json",
        "--stack",
        STACK,
        "--kubeconfig",
        &kubeconfig,
    ];
    let full = runs.through(&limit, &apply).run().expect(1);
    says(&full, &["File too large"]);
    assert!(
        runs.made(STACK).await.is_empty(),
        "made before it was written down"
    );
    runs.konverge(&["state", "doctor"]).run().expect(0);
    // With room again it continues, after the lease of the run that could not even give it back.
    runs.apply("spec.json", STACK).run().expect(0);
    assert_eq!(runs.made(STACK).await, names.into_iter().collect::<BTreeSet<_>>());
    runs.konverge(&["state", "doctor"]).run().expect(0);
    assert!(walk(folder.path()).contains("map-59"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_may_only_be_read() {
    let (runs, folder) = in_folder("read-only", "").await;
    runs.spec("spec.json", &["one"]);
    runs.apply("spec.json", STACK).run().expect(0);
    runs.spec("spec.json", &["two"]);
    let kubeconfig = runs.cluster.kubeconfig().display().to_string();
    let may = |writable: bool| {
        let mode = if writable { "u+w" } else { "a-w" };
        let path = folder.path().join("states");
        let done = std::process::Command::new("chmod")
            .arg("-R")
            .arg(mode)
            .arg(path)
            .status();
        assert!(done.unwrap().success());
    };
    may(false);
    // Root may write whatever the rights say, unless it gives that power away.
    let wrapper: &[&str] = if nix::unistd::Uid::effective().is_root() {
        &[
            "setpriv",
            "--bounding-set=-dac_override,-dac_read_search,-fowner",
            "--",
        ]
    } else {
        &["env"]
    };
    let apply = [
        "apply",
        "--yes",
        "--spec",
        "spec.json",
        "--stack",
        STACK,
        "--kubeconfig",
        &kubeconfig,
    ];
    let refused = runs.through(wrapper, &apply).run();
    let preview = [
        "preview",
        "--spec",
        "spec.json",
        "--stack",
        STACK,
        "--kubeconfig",
        &kubeconfig,
    ];
    let preview = runs.through(wrapper, &preview).run();
    may(true);
    says(&refused.expect(1), &["access denied", "Permission denied"]);
    assert!(preview.expect(0).stdout.contains("two"));
    assert_eq!(runs.made(STACK).await, ["one".to_owned()].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_the_place_of_any_document() {
    let (runs, folder) = in_folder("garbage", "").await;
    runs.spec("spec.json", &["one"]);
    runs.apply("spec.json", STACK).run().expect(0);
    runs.spec("spec.json", &["two"]);
    let root = folder.path().join("states");
    let stack = root.join("stacks/shop%2Fprod");
    let places = [
        ("keys/review", root.join("keys/review")),
        ("state/0000000001", stack.join("state/0000000001")),
        (
            "lease/0000000002/0000000000",
            stack.join("lease/0000000002/0000000000"),
        ),
        (
            "journal/0000000002/0000000000",
            stack.join("journal/0000000002/0000000000"),
        ),
    ];
    for (name, place) in places {
        let before = std::fs::read(&place).ok();
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::write(&place, "{\"no\": \"document of ours\"}\n").unwrap();
        let outcome = runs.apply("spec.json", STACK).run().expect(1);
        says(&outcome, &["is damaged", name]);
        assert_eq!(runs.made(STACK).await, ["one".to_owned()].into(), "{name}");
        let doctor = runs.konverge(&["state", "doctor"]).run().expect(1);
        says(&doctor, &[name]);
        match before {
            Some(before) => std::fs::write(&place, before).unwrap(),
            None => std::fs::remove_file(&place).unwrap(),
        }
    }
    // The index is never the truth: whatever stands there, it is made again.
    for name in ["index/compaction/0000000001", "index/delta/0000000000-x"] {
        std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        std::fs::write(root.join(name), "garbage").unwrap();
        let list = runs
            .konverge(&["state", "list", "--output", "json"])
            .run()
            .expect(0);
        assert_eq!(list.json()["stacks"][0]["stack"], STACK, "{name}");
    }
    runs.apply("spec.json", STACK).run().expect(0);
    assert_eq!(runs.made(STACK).await, ["two".to_owned()].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_dies_in_the_middle() {
    let mut server = S3::start();
    let bucket = server.bucket("dies");
    let url = format!("s3://{bucket}?endpoint={}&allow_http=true", server.endpoint());
    let runs = SpecRuns::at("dies", &url, "  lease: {term: 5s}\n").await;
    let names: Vec<_> = (0..200).map(|n| format!("map-{n:03}")).collect();
    runs.spec("spec.json", &names.iter().map(String::as_str).collect::<Vec<_>>());
    let running = runs.apply("spec.json", STACK).start();
    let started = Instant::now();
    while runs.made(STACK).await.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(120), "nothing is made");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    server.kill();
    let outcome = running.wait().expect(1);
    says(&outcome, &[&format!("s3://{bucket}")]);
    let made = runs.made(STACK).await;
    assert!(!made.is_empty());
    server.start_again();
    // Whatever exists was written down before it was made.
    let recorded = runs.recorded(STACK).await;
    assert!(
        made.is_subset(&recorded),
        "forgot {:?}",
        made.difference(&recorded)
    );
    runs.apply("spec.json", STACK).run().expect(0);
    let all: BTreeSet<_> = names.into_iter().collect();
    assert_eq!(
        (runs.made(STACK).await, runs.recorded(STACK).await),
        (all.clone(), all)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_recipient_alone_may_read() {
    use age::secrecy::ExposeSecret as _;
    let key = age::x25519::Identity::generate();
    let more = format!("  encrypt_to: ['{}']\n", key.to_public());
    let (mut runs, folder) = in_folder("sealed", &more).await;
    runs.spec("spec.json", &["telltale"]);
    let secret = |runs: &mut SpecRuns, text: &str| {
        runs.env.retain(|(name, _)| *name != "KONVERGE_AGE_IDENTITY");
        runs.env.push(("KONVERGE_AGE_IDENTITY", text.to_owned()));
    };
    secret(&mut runs, key.to_string().expose_secret());
    runs.apply("spec.json", STACK).run().expect(0);
    let kept = walk(folder.path());
    assert!(
        !kept.contains("telltale") && !kept.contains(&runs.namespace),
        "it can be read"
    );
    let shown = runs.konverge(&["state", "show", STACK]).run().expect(0);
    assert!(shown.stdout.contains("telltale"), "{}", shown.stdout);
    let other = age::x25519::Identity::generate().to_string();
    secret(&mut runs, other.expose_secret());
    says(
        &runs.konverge(&["state", "show", STACK]).run().expect(1),
        &["No matching keys", "KONVERGE_AGE_IDENTITY"],
    );
    runs.env.retain(|(name, _)| *name != "KONVERGE_AGE_IDENTITY");
    says(
        &runs.konverge(&["state", "show", STACK]).run().expect(1),
        &["is encrypted", "KONVERGE_AGE_IDENTITY"],
    );
    says(
        &runs.apply("spec.json", STACK).run().expect(1),
        &["KONVERGE_AGE_IDENTITY"],
    );
}

/// The requests of whole runs, as the server counts them.
#[tokio::test(flavor = "multi_thread")]
async fn runs_ask_no_more_of_the_store_than_was_promised() {
    let server = FileServer::start(Manners::Careful).await;
    let url = format!("{}/p?allow_http=true", server.url);
    let mut runs = SpecRuns::at("counted", &url, "").await;
    runs.env
        .push(("KONVERGE_HTTP_TOKEN", FileServer::TOKEN.to_owned()));
    let count = |asked: &[String]| {
        let mut count = BTreeMap::<String, usize>::new();
        for line in asked.iter().filter(|line| !line.contains("/p/probe")) {
            let word = match line.split_once(' ').unwrap() {
                ("GET", uri) if uri.ends_with("?list") => "LIST",
                (method, _) => method,
            };
            *count.entry(word.to_owned()).or_default() += 1;
        }
        count
    };
    // Twelve other stacks, each applied by hand: none of them costs the others anything.
    runs.spec("other.json", &[]);
    for n in 0..12 {
        let name = format!("other{n}");
        runs.spec("other.json", &[&name]);
        runs.apply("other.json", &format!("{name}/prod")).run().expect(0);
    }
    for resources in [1, 30] {
        let stack = format!("app{resources}/prod");
        let names: Vec<_> = (0..resources).map(|n| format!("r{resources}-{n}")).collect();
        runs.spec("spec.json", &names.iter().map(String::as_str).collect::<Vec<_>>());
        let look = |runs: &SpecRuns| {
            server.asked();
            let preview = ["preview", "--spec", "spec.json", "--stack", &stack];
            runs.on_cluster(&preview).run().expect(0);
            let (deltas, asked): (Vec<_>, Vec<_>) = server
                .asked()
                .into_iter()
                .partition(|line| line.contains("/index/delta/"));
            let of = |word: &str| count(&asked).get(word).copied().unwrap_or(0);
            // Nothing is written, and nothing of another stack is read.
            let others = asked.iter().filter(|line| line.contains("/stacks/"));
            let rows = format!("/app{resources}%252Fprod");
            assert!(others.clone().all(|line| line.contains(&rows)), "{asked:?}");
            (of("LIST"), of("GET"), deltas.len(), asked)
        };
        // A new stack: its rows and the index are listed; the key of the hashes and one compaction are read, and the
        // few deltas since. The index proves that the stack lost no documents, and says who owns an object.
        let (lists, gets, deltas, asked) = look(&runs);
        assert!(
            lists == 2 && gets <= 2 && deltas <= 9,
            "{deltas} deltas, {asked:?}"
        );
        server.asked();
        runs.apply("spec.json", &stack).run().expect(0);
        let asked = server.asked();
        let renewals = asked.iter().filter(|line| is_renewal(line)).count();
        let written = count(&asked)["PUT"] - renewals;
        // Lease, journal, index, state; and at its end a first apply tells the index that the stack has a state: as
        // long as it is not told, each preview of another stack asks twice for this one.
        assert!(
            written <= 5 + resources / 20,
            "{resources} resources, {written} objects: {asked:?}"
        );
        let lists = asked.iter().filter(|line| line.ends_with("/index?list"));
        assert!(lists.count() <= 1, "the index is read once: {asked:?}");
        // One that is applied: its rows, its state, the key. The index is not asked.
        let (lists, gets, deltas, asked) = look(&runs);
        assert!(lists == 1 && gets <= 2 && deltas == 0, "{asked:?}");
    }
}

/// `…/lease/<epoch>/<n>`, n above 0.
fn is_renewal(line: &str) -> bool {
    let path = Path::new(line.split_once(' ').unwrap().1);
    let number = path.file_name().unwrap().to_string_lossy();
    line.starts_with("PUT") && line.contains("/lease/") && number.parse() != Ok(0)
}
