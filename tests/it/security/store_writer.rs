//! Somebody who may write to the store and holds no key: with `state.encrypt_to` nothing that they put there is read,
//! and a newest serial that they take away is missed.

use std::path::{Path, PathBuf};

use age::secrecy::ExposeSecret as _;
use serde_json::json;

use crate::support::{
    process::Outcome,
    spec_runs::{SpecRuns, walk},
};

const STACKS: [&str; 2] = ["shop/prod", "shop/dev"];

/// A repository with its states in a folder.
struct Bench {
    runs: SpecRuns,
    folder: tempfile::TempDir,
    identity: age::x25519::Identity,
}

impl Bench {
    async fn new(subject: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}/states", folder.path().display());
        let mut runs = SpecRuns::at(subject, &url, "").await;
        let identity = age::x25519::Identity::generate();
        let secret = identity.to_string().expose_secret().to_owned();
        runs.env.push(("KONVERGE_AGE_IDENTITY", secret));
        Self {
            runs,
            folder,
            identity,
        }
    }

    fn public(&self) -> String {
        self.identity.to_public().to_string()
    }

    fn configure(&self, encrypt_to: &[String], more: &str) {
        let config = format!(
            "version: 1\nstate: {{id: spec-runs, url: '{}', encrypt_to: {}{more}}}\n",
            self.runs.url,
            json!(encrypt_to)
        );
        self.runs
            .repository
            .write("konverge.yaml", config)
            .commit("config");
    }

    /// Both stacks, each with an object of that name.
    fn apply(&self, name: &str) {
        for stack in STACKS {
            let object = format!("{name}-{}", stack.replace('/', "-"));
            self.runs.spec("spec.json", &[&object]);
            self.runs.apply("spec.json", stack).run().expect(0);
        }
    }

    fn show(&self, stack: &str) -> Outcome {
        self.runs.konverge(&["state", "show", stack]).run()
    }

    fn serial(&self, stack: &str, serial: u64) -> PathBuf {
        let states = self.folder.path().join("states");
        let name = format!("{serial:010}");
        let found = files(&states).into_iter().find(|path| {
            let text = path.display().to_string();
            text.contains(&format!("/state/{name}")) && text.contains(stack.split('/').nth(1).unwrap())
        });
        found.unwrap_or_else(|| panic!("{stack} {serial}: {:?}", files(&states)))
    }

    fn key_of_hashes(&self) -> PathBuf {
        self.folder.path().join("states/keys/review")
    }

    /// A command on a stack is refused for this reason, and changes nothing.
    fn is_refused(&self, stack: &str, why: &[&str]) {
        let before = walk(&self.folder.path().join("states/stacks"));
        self.runs.spec("spec.json", &["forged"]);
        for refused in [self.show(stack), self.runs.apply("spec.json", stack).run()] {
            let refused = refused.expect(1);
            let told = format!("{}{}", refused.stdout, refused.stderr);
            for part in why {
                assert!(told.contains(part), "{stack}: `{part}`: {told}");
            }
        }
        assert_eq!(walk(&self.folder.path().join("states/stacks")), before, "{stack}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}

/// A document as a version that knew no marks wrote it.
fn without_marks(path: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(path).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let mut first: serde_json::Value = serde_json::from_str(first).unwrap();
    first
        .as_object_mut()
        .unwrap()
        .remove("marks")
        .expect("it has marks");
    format!("{first}\n{rest}").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_without_a_key_writes_is_not_read() {
    let (ours, theirs) = (Bench::new("store-ours").await, Bench::new("store-theirs").await);
    ours.configure(&[ours.public()], "");
    ours.apply("own");
    // They know the id of the repository and our recipient, and use Konverge itself.
    let both = [ours.public(), theirs.public()];
    for (row, encrypt_to) in [("plain", vec![]), ("encrypted to us", both.to_vec())] {
        let _ = std::fs::remove_dir_all(theirs.folder.path().join("states"));
        theirs.configure(&encrypt_to, "");
        theirs.apply("one");
        theirs.apply("two");
        for (stack, other) in [(STACKS[0], STACKS[1]), (STACKS[1], STACKS[0])] {
            let mut forged = vec![std::fs::read(theirs.serial(stack, 2)).unwrap()];
            if !encrypt_to.is_empty() {
                forged.push(without_marks(&theirs.serial(stack, 2)));
            }
            // Ours, of another stack.
            forged.push(std::fs::read(ours.serial(other, 1)).unwrap());
            let place = ours.serial(stack, 1).with_file_name(format!("{:010}", 2));
            for forged in forged {
                std::fs::write(&place, forged).unwrap();
                ours.is_refused(stack, &["/state/0000000002` is damaged", "holds no key"]);
                assert!(ours.show(other).expect(0).stdout.contains("own-"), "{row}");
                std::fs::remove_file(&place).unwrap();
            }
            assert!(ours.show(stack).expect(0).stdout.contains("own-"), "{row}");
        }
        // The key of the hashes: who knows it can try values.
        let genuine = std::fs::read(ours.key_of_hashes()).unwrap();
        std::fs::copy(theirs.key_of_hashes(), ours.key_of_hashes()).unwrap();
        ours.is_refused(STACKS[0], &["`keys/review` is damaged", "holds no key"]);
        let doctor = ours.runs.konverge(&["state", "doctor"]).run().expect(1);
        assert!(doctor.stdout.contains("holds no key"), "{row}: {}", doctor.stdout);
        std::fs::write(ours.key_of_hashes(), genuine).unwrap();
    }
    ours.runs.konverge(&["state", "doctor"]).run().expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newest_serial_that_is_taken_away_is_missed() {
    let ours = Bench::new("store-cut").await;
    ours.configure(&[ours.public()], "");
    for name in ["one", "two", "three"] {
        ours.apply(name);
    }
    let stack = STACKS[0];
    std::fs::remove_file(ours.serial(stack, 3)).unwrap();
    ours.is_refused(stack, &["serial 3 was written, and the newest in the store is 2"]);
    ours.show(STACKS[1]).expect(0);
    // What the message says.
    let pulled = ours
        .runs
        .konverge(&["state", "pull", stack, "--serial", "2"])
        .run()
        .expect(0);
    std::fs::write(ours.runs.repository.path().join("good.json"), pulled.stdout).unwrap();
    ours.runs
        .konverge(&["state", "push", stack, "good.json"])
        .run()
        .expect(0);
    assert!(ours.show(stack).expect(0).stdout.contains("two-"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_state_is_encrypted_while_the_configuration_says_so() {
    let ours = Bench::new("store-plain").await;
    ours.configure(&[], "");
    ours.apply("telltale-one");
    ours.apply("telltale-two");
    let encrypted = [ours.public()];
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    let until = |days: i64| {
        let day = today.checked_add(jiff::Span::new().days(days)).unwrap();
        ours.configure(&encrypted, &format!(", accept_unmarked_until: {day}"));
    };
    let rekey = || ours.runs.konverge(&["state", "rekey"]).run();
    ours.configure(&encrypted, "");
    let refused = "it is not encrypted; it was written before Konverge marked documents (see `state.accept_unmarked_until`)";
    ours.is_refused(STACKS[0], &[refused]);
    rekey().expect(1);
    until(-1);
    ours.is_refused(STACKS[1], &[refused]);
    until(40);
    ours.is_refused(STACKS[1], &["is more than 31 days ahead"]);
    until(1);
    let rekeyed = rekey().expect(0);
    assert!(
        rekeyed.stderr.contains("`state.accept_unmarked_until`"),
        "{}",
        rekeyed.stderr
    );
    ours.configure(&encrypted, "");
    for stack in STACKS {
        assert!(ours.show(stack).expect(0).stdout.contains("telltale-two"));
        let first = ours
            .runs
            .konverge(&["state", "show", stack, "--serial", "1"])
            .run()
            .expect(0);
        assert!(first.stdout.contains("telltale-one"), "{}", first.stdout);
    }
    let kept = walk(&ours.folder.path().join("states/stacks"));
    assert!(!kept.contains("telltale"), "it can be read");
    ours.runs.konverge(&["state", "doctor"]).run().expect(0);
}

/// A rotation of the age identity, with jobs that have the old one, both, and the new one: each of them works.
#[tokio::test(flavor = "multi_thread")]
async fn an_age_identity_is_rotated_while_jobs_run() {
    let mut ours = Bench::new("rotated-age").await;
    let (old, new) = (ours.identity.clone(), age::x25519::Identity::generate());
    let secret = |key: &age::x25519::Identity| key.to_string().expose_secret().to_owned();
    let (first, second) = (
        secret(&old),
        format!("# of today\n{}\n# until Friday\n{}\n", secret(&new), secret(&old)),
    );
    let third = secret(&new);
    let recipients = |keys: &[&age::x25519::Identity]| -> Vec<String> {
        keys.iter().map(|key| key.to_public().to_string()).collect()
    };
    let as_job = |ours: &mut Bench, identity: &str, name: &str| {
        ours.runs.env.retain(|(name, _)| *name != "KONVERGE_AGE_IDENTITY");
        ours.runs.env.push(("KONVERGE_AGE_IDENTITY", identity.to_owned()));
        ours.apply(name);
        ours.show(STACKS[0]).expect(0);
    };
    ours.configure(&recipients(&[&old]), "");
    as_job(&mut ours, &first, "one");
    // The secret gets a second line; some jobs have it already, some not yet.
    as_job(&mut ours, &second, "two");
    as_job(&mut ours, &first, "three");
    ours.configure(&recipients(&[&old, &new]), "");
    as_job(&mut ours, &second, "four");
    ours.runs.konverge(&["state", "rekey"]).run().expect(0);
    as_job(&mut ours, &first, "five");
    as_job(&mut ours, &third, "six");
    ours.configure(&recipients(&[&new]), "");
    ours.runs.env.retain(|(name, _)| *name != "KONVERGE_AGE_IDENTITY");
    ours.runs.env.push(("KONVERGE_AGE_IDENTITY", second));
    ours.runs.konverge(&["state", "rekey"]).run().expect(0);
    as_job(&mut ours, &third, "seven");
    ours.runs.konverge(&["state", "doctor"]).run().expect(0);
}
