//! Somebody who may write to the store and holds no key, against the jobs of a repository on GitHub: what they wrote
//! grants nothing. `state::forgery` of the state's crate edits every field of every document.

use std::path::{Path, PathBuf};

use age::secrecy::ExposeSecret as _;

use crate::support::{ci_stage::Stage, forgery::DocumentLines};

const PROD_IS_GUARDED: &str =
    "policy: {approvals: 0}\nstacks:\n- {match: '**/prod', policy: {approvals: 2}}\n";

/// Whether states are encrypted, and documents marked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    None,
    Every,
}

async fn stage(more: &str, marks: Marks) -> Stage {
    let mut stage = Stage::small(more).await;
    stage.github.world(|world| {
        world.collaborators.insert("dev".into(), "write");
    });
    if marks == Marks::Every {
        let identity = age::x25519::Identity::generate();
        let path = stage.monorepo.path().join("konverge.yaml");
        let config = std::fs::read_to_string(path).unwrap();
        let encrypted = format!("state: {{encrypt_to: [{}], ", identity.to_public());
        stage
            .monorepo
            .write("konverge.yaml", config.replace("state: {", &encrypted))
            .commit("Encrypt");
        let secret = identity.to_string().expose_secret().to_owned();
        stage.env.push(("KONVERGE_AGE_IDENTITY", secret));
    }
    stage
}

fn documents(stage: &Stage, folder: &str) -> Vec<PathBuf> {
    fn below(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found)
            } else {
                found.push(path)
            }
        }
    }
    let mut found = Vec::new();
    below(&stage.scratch.path().join("store").join(folder), &mut found);
    found.sort();
    found
}

/// Writes every document of a folder again, edited and without a mark. The checksum fits.
fn forge(stage: &Stage, folder: &str, edit: impl Fn(&mut serde_json::Value)) -> usize {
    let documents = documents(stage, folder);
    for path in &documents {
        let mut lines = DocumentLines::parse(&std::fs::read(path).unwrap()).unmarked();
        edit(&mut lines.body);
        std::fs::write(path, lines.bytes()).unwrap();
    }
    documents.len()
}

/// A removal is judged by the folder that the state has, whatever the index says.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_folder_removes_no_stack() {
    for (marks, project) in [(Marks::None, "plain"), (Marks::Every, "marked")] {
        let mut stage = stage(PROD_IS_GUARDED, marks).await;
        let (stack, map) = (format!("forged-{project}/prod"), format!("forged-{project}"));
        let (head, _) = stage.reviewed(7, "make", |stage| stage.stack(&stack, &[(&map, "one")]));
        for login in ["ada", "grace", "linus"] {
            stage.approved_by(7, login, &head);
        }
        stage.merge(7, "make").outcome.check(0);
        stage.reviewed(8, "remove", |stage| {
            stage
                .monorepo
                .git(["rm", "-rq", &format!("appops/forged-{project}")]);
        });
        let edited = forge(&stage, "index", |body| {
            let entry = &mut body["entries"][&stack];
            if let Some(epoch) = entry["epoch"].as_u64() {
                entry["folder"] = format!("appops/forged-{project}/dev").into();
                // It is newer than every other entry.
                entry["epoch"] = (epoch + 5).into();
                entry["open"] = false.into();
            }
        });
        assert!(edited > 0);
        let merged = stage.merge(8, "remove");
        merged.outcome.check(3);
        let said = &merged.outcome.stdout;
        assert!(
            said.contains("policy.approvals: 0 of 2 required approvals"),
            "{said}"
        );
        assert_eq!(stage.value(&map).await.as_deref(), Some("one"));
        let is_named = merged
            .outcome
            .stderr
            .contains("` is not used: it is not marked by its writer");
        assert_eq!(is_named, marks == Marks::Every, "{}", merged.outcome.stderr);
    }
}

/// A record of a preview without a mark covers nothing, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_review_covers_nothing() {
    let mut stage = stage("", Marks::Every).await;
    stage.reviewed(7, "make", |stage| {
        stage.stack("forged-review/dev", &[("forged-review", "one")]);
    });
    assert!(forge(&stage, "reviews", |_| ()) > 0);
    let merged = stage.merge(7, "make");
    merged.outcome.check(3);
    let said = &merged.outcome.stderr;
    assert!(said.contains("warning: `reviews/7/"), "{said}");
    assert!(said.contains("the last head of #7 was never previewed"), "{said}");
    assert_eq!(stage.value("forged-review").await, None);
}

/// What ends a freeze has a mark.
#[tokio::test(flavor = "multi_thread")]
async fn a_forged_end_of_a_freeze_ends_nothing() {
    let mut stage = stage("", Marks::Every).await;
    stage.reviewed(7, "make", |stage| {
        stage.stack("forged-freeze/dev", &[("forged-freeze", "one")]);
    });
    let env = stage.env.clone();
    let freeze = stage.konverge(["freeze", "--reason", "the sale"]);
    let freeze = env.iter().fold(freeze, |run, (name, value)| run.env(name, value));
    freeze.run().expect(0);
    let [genuine] = &documents(&stage, "freeze")[..] else {
        panic!("one document")
    };
    let mut lines = DocumentLines::parse(&std::fs::read(genuine).unwrap()).unmarked();
    lines.body["frozen"] = false.into();
    std::fs::write(genuine.with_file_name("0000000002"), lines.bytes()).unwrap();
    let merged = stage.merge(7, "make");
    merged.outcome.check(3);
    assert!(
        merged.outcome.stdout.contains("the sale"),
        "{}",
        merged.outcome.stdout
    );
    assert_eq!(stage.value("forged-freeze").await, None);
}

/// A preview job that holds no key says that it reviews nothing, and the digest of the plan is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_without_a_key_is_no_review() {
    let mut stage = stage("", Marks::Every).await;
    let key = stage.env.pop().unwrap();
    let (_, previewed) = stage.reviewed(7, "make", |stage| {
        stage.stack("forged-keyless/dev", &[("forged-keyless", "one")]);
    });
    let said = &previewed.outcome.stderr;
    assert!(
        said.contains("this job holds no key of `state.encrypt_to`"),
        "{said}"
    );
    assert!(
        previewed
            .summary
            .contains("this preview was not recorded as reviewed"),
        "{}",
        previewed.summary
    );
    assert_eq!(documents(&stage, "reviews"), Vec::<PathBuf>::new());
    stage.env.push(key);
    let merged = stage.merge(7, "make");
    merged.outcome.check(3);
    assert_eq!(stage.value("forged-keyless").await, None);
    let digest = merged.digest();
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value("forged-keyless").await.as_deref(), Some("one"));
}
