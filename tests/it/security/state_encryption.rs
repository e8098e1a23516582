//! States encrypted by AWS KMS (moto), by the transit engine of a Vault, and to an age identity: each of them opens
//! them alone, one that is away stops a run before anything is touched, and `state rekey` changes who can.

use age::secrecy::ExposeSecret as _;
use serde_json::json;

use crate::support::{
    moto::{Moto, REGION},
    process::Outcome,
    spec_runs::{SpecRuns, walk},
    vault::FakeVault,
};

const STACK: &str = "shop/prod";

struct Sealed {
    runs: SpecRuns,
    folder: tempfile::TempDir,
    moto: Moto,
    vault: FakeVault,
    kms: String,
    age: age::x25519::Identity,
}

impl Sealed {
    async fn new(subject: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (moto, vault) = (Moto::start(), FakeVault::start().await);
        let key = moto.call("kms", "TrentService.CreateKey", json!({})).await;
        let url = format!("file://{}/states", folder.path().display());
        let mut runs = SpecRuns::at(subject, &url, "").await;
        vault.allow("state", &["transit/"]);
        runs.env.retain(|(name, _)| *name != "AWS_REGION");
        runs.env.extend([
            // The region of the ARN counts.
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_KMS", moto.endpoint().to_owned()),
            ("VAULT_TOKEN", vault.token("state")),
        ]);
        runs.spec("spec.json", &["telltale"]);
        let kms = key["KeyMetadata"]["Arn"].as_str().unwrap();
        assert!(kms.contains(REGION), "{kms}");
        Self {
            runs,
            folder,
            kms: format!("awskms:{kms}"),
            moto,
            vault,
            age: age::x25519::Identity::generate(),
        }
    }

    /// Encrypts to these from now on.
    fn encrypt_to(&self, recipients: &[&str]) {
        self.encrypt_until(recipients, "");
    }

    /// The same, with more keys of `state`.
    fn encrypt_until(&self, recipients: &[&str], more: &str) {
        let config = format!(
            "version: 1\nstate: {{id: spec-runs, url: '{}', encrypt_to: {}{more}}}\nsecrets: {{stores: {{db: {{kind: vault, address: '{}'}}}}}}\n",
            self.runs.url,
            json!(recipients),
            self.vault.address(),
        );
        self.runs
            .repository
            .write("konverge.yaml", config)
            .commit("config");
    }

    fn konverge(&self, arguments: &[&str]) -> Outcome {
        self.runs.konverge(arguments).run()
    }

    fn apply(&self) -> Outcome {
        self.runs.apply("spec.json", STACK).run()
    }

    fn shows(&self) -> Outcome {
        self.konverge(&["state", "show", STACK])
    }

    fn is_sealed(&self) {
        let kept = walk(self.folder.path());
        assert!(
            !kept.contains("telltale")
                && !kept.contains(&self.runs.namespace)
                && !kept.contains("AGE-SECRET"),
            "it can be read"
        );
    }

    /// Takes KMS away, or gives it back.
    fn kms_is_on(&mut self, is_on: bool) {
        let endpoint = if is_on {
            self.moto.endpoint().to_owned()
        } else {
            // Nobody listens there.
            "http://127.0.0.1:1".to_owned()
        };
        self.runs.env.retain(|(name, _)| *name != "AWS_ENDPOINT_URL_KMS");
        self.runs.env.push(("AWS_ENDPOINT_URL_KMS", endpoint));
    }

    /// With the age identity in the environment, or without.
    fn identity(&mut self, identity: Option<&age::x25519::Identity>) {
        self.runs.env.retain(|(name, _)| *name != "KONVERGE_AGE_IDENTITY");
        let identity = identity.map(|identity| identity.to_string().expose_secret().to_owned());
        self.runs
            .env
            .extend(identity.map(|text| ("KONVERGE_AGE_IDENTITY", text)));
    }
}

const TRANSIT: &str = "vault-transit:db/transit/state";

#[tokio::test(flavor = "multi_thread")]
async fn each_recipient_opens_a_state_alone() {
    let mut sealed = Sealed::new("sealed-by-kms").await;
    let (kms, age) = (sealed.kms.clone(), sealed.age.to_public().to_string());
    sealed.encrypt_to(&[&kms, TRANSIT, &age]);
    sealed.apply().expect(0);
    sealed.is_sealed();
    let asked = sealed.vault.requests();
    let wraps = asked.iter().filter(|(_, path)| path.contains("encrypt")).count();
    assert_eq!(
        (wraps, asked.len()),
        (1, 1),
        "the first run wraps one key: {asked:?}"
    );
    assert!(sealed.shows().expect(0).stdout.contains("telltale"), "by KMS");
    assert_eq!(sealed.vault.requests(), [], "one service is enough");

    // KMS goes: the Vault opens it, with one request a run.
    sealed.kms_is_on(false);
    assert!(
        sealed.shows().expect(0).stdout.contains("telltale"),
        "by the Vault"
    );
    assert_eq!(
        sealed.vault.requests(),
        [("state".to_owned(), "transit/decrypt/state".to_owned())]
    );
    sealed.runs.spec("spec.json", &["telltale", "second"]);
    sealed.apply().expect(0);
    sealed.is_sealed();

    // The holder of the age identity has the data key once, so as to know later what it marks.
    sealed.kms_is_on(true);
    let identity = sealed.age.clone();
    sealed.identity(Some(&identity));
    sealed.konverge(&["state", "rekey"]).expect(0);
    sealed.identity(None);
    sealed.kms_is_on(false);

    // Both go: nothing is touched, and the message names both.
    sealed.vault.be_away(true);
    sealed.runs.spec("spec.json", &["telltale", "second", "third"]);
    let before = walk(sealed.folder.path());
    let refused = sealed.apply().expect(1);
    for word in [
        "`keys/data/0000000002` cannot be unwrapped",
        &kms,
        "does not answer",
        TRANSIT,
        "Service Unavailable",
        "nothing was changed",
    ] {
        assert!(refused.stderr.contains(word), "`{word}`: {}", refused.stderr);
    }
    assert_eq!(walk(sealed.folder.path()), before);
    assert!(!sealed.runs.made(STACK).await.contains("third"));

    // The age identity opens it, and what it writes is opened by itself.
    sealed.identity(Some(&identity));
    let applied = sealed.apply().expect(0);
    assert!(
        applied
            .stderr
            .contains("the identity in KONVERGE_AGE_IDENTITY is used"),
        "{}",
        applied.stderr
    );
    sealed.is_sealed();
    let doctor = sealed.konverge(&["state", "doctor"]).expect(1);
    assert!(doctor.stdout.contains("does not answer"), "{}", doctor.stdout);

    // The services are back: the document of the emergency is for age alone, and doctor says so.
    sealed.kms_is_on(true);
    sealed.vault.be_away(false);
    let doctor = sealed.konverge(&["state", "doctor"]).expect(1).stdout;
    for word in [
        format!("`{kms}` unwraps the data key"),
        format!("1 state document: can be decrypted by {age}; `konverge state rekey`"),
        format!("{kms}, {TRANSIT} (keys/data/0000000002)"),
    ] {
        assert!(doctor.contains(&word), "`{word}`: {doctor}");
    }
    sealed.konverge(&["state", "rekey"]).expect(0);
    sealed.identity(None);
    assert!(sealed.shows().expect(0).stdout.contains("third"));
    sealed.konverge(&["state", "doctor"]).expect(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rekey_changes_who_can_open_what_was_written_before() {
    let mut sealed = Sealed::new("rekeyed").await;
    let (kms, age) = (sealed.kms.clone(), sealed.age.to_public().to_string());
    let identity = sealed.age.clone();
    // From an age key of somebody's drawer …
    sealed.encrypt_to(&[&age]);
    sealed.identity(Some(&identity));
    for names in [
        vec!["telltale"],
        vec!["telltale", "two"],
        vec!["telltale", "two", "three"],
    ] {
        sealed.runs.spec("spec.json", &names);
        sealed.apply().expect(0);
    }
    let refused = sealed.konverge(&["state", "rekey", "--new-key"]).expect(64);
    assert!(refused.stderr.contains("no key service"), "{}", refused.stderr);
    // … to KMS and to the Vault.
    sealed.encrypt_to(&[&kms, TRANSIT]);
    let rekeyed = sealed.konverge(&["state", "rekey"]).expect(0);
    assert!(rekeyed.stdout.contains("shop/prod: "), "{}", rekeyed.stdout);
    sealed.is_sealed();
    sealed.identity(None);
    let history = sealed.konverge(&["state", "history", STACK]).expect(0).stdout;
    assert!(
        !history.contains("cannot be read") && history.contains("rekey"),
        "{history}"
    );
    assert!(
        sealed
            .konverge(&["state", "show", STACK, "--serial", "1"])
            .expect(0)
            .stdout
            .contains("telltale")
    );
    // The hashes of secrets stay the same: nothing is asked for a review again.
    let again = sealed.apply().expect(0);
    assert!(
        again.stdout.contains("0 applied, 1 unchanged"),
        "{}",
        again.stdout
    );

    // Someone who found the age key can open nothing any more.
    let by_age = |path: &std::path::Path| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let body = text
            .lines()
            .nth(2)
            .and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let cipher = body.and_then(|body| Some(body["age"].as_str()?.to_owned()))?;
        use base64::Engine as _;
        let cipher = base64::engine::general_purpose::STANDARD.decode(cipher).unwrap();
        Some(age::decrypt(&identity, &cipher).is_ok())
    };
    let mut opened = Vec::new();
    let mut folders = vec![sealed.folder.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else if path.display().to_string().contains("/journal/") {
            } else {
                opened.extend(by_age(&path))
            }
        }
    }
    assert!(opened.len() > 3 && !opened.contains(&true), "{opened:?}");

    // A key is rotated, and one that is new in the list needs a rekey before the other may go.
    sealed.konverge(&["state", "rekey", "--new-key"]).expect(0);
    let again = sealed.konverge(&["state", "rekey"]).expect(0);
    assert!(again.stderr.contains("already"), "{}", again.stderr);
    sealed.encrypt_to(&["vault-transit:db/transit/other"]);
    let refused = sealed.shows().expect(1);
    assert!(
        refused
            .stderr
            .contains("`vault-transit:db/transit/other` does not wrap the data key"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("`konverge state rekey`"),
        "{}",
        refused.stderr
    );
    sealed.encrypt_to(&[&kms, "vault-transit:db/transit/other"]);
    sealed.konverge(&["state", "rekey"]).expect(0);
    sealed.encrypt_to(&["vault-transit:db/transit/other"]);
    // The key that left the list still wraps the data key: each run says so, and the doctor does not call it well.
    let former = format!("`{kms}` can unwrap the data key and is not in `state.encrypt_to`");
    let doctor = sealed.konverge(&["state", "doctor"]).expect(1);
    assert!(doctor.stdout.contains(&former), "{}", doctor.stdout);
    sealed.kms_is_on(false);
    let shown = sealed.shows().expect(0);
    assert!(shown.stdout.contains("three"), "{}", shown.stdout);
    assert!(shown.stderr.contains(&former), "{}", shown.stderr);
    sealed.konverge(&["state", "rekey"]).expect(0);
    let shown = sealed.shows().expect(0);
    assert!(!shown.stderr.contains("can unwrap"), "{}", shown.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_may_point_to_another_key() {
    let sealed = Sealed::new("alias").await;
    let key = sealed.kms.strip_prefix("awskms:").unwrap();
    let (account, _) = key.rsplit_once(':').unwrap();
    let alias = "alias/state";
    let point_to = |action: &'static str, key: String| {
        let request = json!({"AliasName": alias, "TargetKeyId": key});
        async { sealed.moto.call("kms", action, request).await }
    };
    point_to("TrentService.CreateAlias", key.to_owned()).await;
    sealed.encrypt_to(&[&format!("awskms:{account}:{alias}")]);
    sealed.apply().expect(0);
    sealed.is_sealed();

    // The documented way to rotate a key by hand.
    let new = sealed.moto.call("kms", "TrentService.CreateKey", json!({})).await;
    let new = new["KeyMetadata"]["Arn"].as_str().unwrap().to_owned();
    point_to("TrentService.UpdateAlias", new).await;
    assert!(sealed.shows().expect(0).stdout.contains("telltale"));
    sealed.konverge(&["state", "rekey", "--new-key"]).expect(0);
    assert!(sealed.shows().expect(0).stdout.contains("telltale"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_key_is_replaced_with_the_identity_of_an_age_recipient() {
    let mut sealed = Sealed::new("lost-key").await;
    let (kms, age) = (sealed.kms.clone(), sealed.age.to_public().to_string());
    sealed.encrypt_to(&[&kms, &age]);
    sealed.apply().expect(0);
    // The key is gone for good, and another one takes its place.
    sealed.kms_is_on(false);
    // What needs no key is seen all the same: who can decrypt what, and who does not answer.
    let seen = sealed.konverge(&["state", "doctor"]).expect(1).stdout;
    for says in [
        format!("{kms} (keys/data/0000000001)"),
        "1 state document: can be decrypted by".to_owned(),
        format!("`{kms}`: does not answer"),
        "store test passed (create, refuse, read, list, delete)".to_owned(),
    ] {
        assert!(seen.contains(&says), "{says}: {seen}");
    }
    sealed.encrypt_to(&[TRANSIT, &age]);
    let refused = sealed.konverge(&["state", "rekey"]).expect(1);
    assert!(
        refused.stderr.contains("does not wrap the data key"),
        "{}",
        refused.stderr
    );
    sealed.identity(Some(&age::x25519::Identity::generate()));
    sealed.konverge(&["state", "rekey"]).expect(1);
    sealed.identity(Some(&sealed.age.clone()));
    // The identity never had the lost key: what it marked is read for the days of the migration alone.
    let refused = sealed.konverge(&["state", "rekey"]).expect(1);
    let told = format!("{}{}", refused.stdout, refused.stderr);
    assert!(told.contains("`state.accept_unmarked_until`"), "{told}");
    let today = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
    sealed.encrypt_until(&[TRANSIT, &age], &format!(", accept_unmarked_until: {today}"));
    let rekeyed = sealed.konverge(&["state", "rekey"]).expect(0);
    assert!(
        rekeyed.stderr.contains("a new data key is created")
            || rekeyed.stderr.contains("`state.accept_unmarked_until`"),
        "{}",
        rekeyed.stderr
    );
    sealed.is_sealed();
    sealed.encrypt_to(&[TRANSIT, &age]);
    sealed.identity(None);
    let shown = sealed.shows().expect(0);
    assert!(shown.stdout.contains("telltale"), "{}", shown.stdout);
    assert!(!shown.stderr.contains("note:"), "{}", shown.stderr);
    let again = sealed.apply().expect(0);
    assert!(again.stdout.contains("1 unchanged"), "{}", again.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recipient_that_is_not_understood_is_refused_with_what_to_write() {
    let sealed = Sealed::new("recipients").await;
    for (recipient, words) in [
        ("awskms:alias/state", "awskms:arn:aws:kms:REGION:ACCOUNT:key/ID"),
        (
            "vault-transit:none/transit/state",
            "names `none`, which is not a Vault under secrets.stores",
        ),
        (
            "pgp:ABCD",
            "write `age1…`, `awskms:ARN`, `gcpkms:NAME`, `azurekv:ADDRESS`, `alikms:ARN` or `vault-transit:STORE/MOUNT/KEY`",
        ),
    ] {
        sealed.encrypt_to(&[recipient]);
        let refused = sealed.shows().expect(1);
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_unwraps_with_its_own_role_of_the_vault() {
    let mut sealed = Sealed::new("preview-role").await;
    let config = |role: &str| {
        let auth = format!("{{method: jwt, role: {role}, preview_role: state}}");
        format!(
            "version: 1\nstate: {{id: spec-runs, url: '{}', encrypt_to: ['{TRANSIT}']}}\nsecrets: {{stores: {{db: {{kind: vault, address: '{}', auth: {auth}}}}}}}\n",
            sealed.runs.url,
            sealed.vault.address(),
        )
    };
    let (ours, foreign) = (config("apply"), config("another"));
    sealed.vault.allow("apply", &["transit/"]);
    let job = sealed.vault.job();
    sealed.runs.env.retain(|(name, _)| *name != "VAULT_TOKEN");
    sealed.runs.env.extend(job);
    sealed
        .runs
        .repository
        .write("konverge.yaml", ours)
        .commit("config");
    sealed.apply().expect(0);
    let asked = sealed.vault.requests();
    assert!(asked.iter().all(|(role, _)| role == "apply"), "{asked:?}");
    // The role of applies does not take the job in, as in a pull request.
    sealed
        .runs
        .repository
        .write("konverge.yaml", foreign)
        .commit("config");
    assert!(sealed.shows().expect(0).stdout.contains("telltale"));
    let asked = sealed.vault.requests();
    assert!(
        !asked.is_empty() && asked.iter().all(|(role, _)| role == "state"),
        "{asked:?}"
    );
}

/// Google, Azure and Alibaba: each opens the states alone, and another repository's key opens nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_three_more_clouds_open_a_state_alone() {
    use crate::support::key_clouds::{ALIBABA_KEY, AZURE_KEY, GOOGLE_KEY, KeyClouds};
    let clouds = KeyClouds::start().await;
    let mut sealed = Sealed::new("sealed-by-clouds").await;
    sealed.runs.env.extend(clouds.job());
    let keys = [
        format!("gcpkms:{GOOGLE_KEY}"),
        format!("azurekv:{}/keys/{AZURE_KEY}", clouds.address()),
        format!("alikms:{ALIBABA_KEY}"),
    ];
    let age = sealed.age.to_public().to_string();
    sealed.encrypt_to(&[&age]);
    let identity = sealed.age.clone();
    sealed.identity(Some(&identity));
    sealed.apply().expect(0);
    let mut last = age;
    for key in &keys {
        sealed.encrypt_to(&[&last, key]);
        sealed.konverge(&["state", "rekey"]).expect(0);
        sealed.encrypt_to(&[key]);
        sealed.konverge(&["state", "rekey"]).expect(0);
        last.clone_from(key);
        clouds.requests();
        sealed.identity(None);
        let shown = sealed.shows().expect(0);
        assert!(shown.stdout.contains("telltale"), "{key}");
        assert_eq!(clouds.requests().len(), 1, "{key}: one request a run");
        sealed.is_sealed();
        let doctor = sealed.konverge(&["state", "doctor"]).expect(0).stdout;
        assert!(
            doctor.contains(&format!("`{key}` unwraps the data key")),
            "{doctor}"
        );
        // A newer version of the key opens what an older one wrapped.
        clouds.world().rotations += 1;
        sealed
            .runs
            .spec("spec.json", &["telltale", key.split(':').next().unwrap()]);
        sealed.apply().expect(0);

        clouds.world().is_away = true;
        let before = walk(sealed.folder.path());
        let refused = sealed.apply().expect(1);
        assert!(
            refused.stderr.contains(key.as_str()) && refused.stderr.contains("nothing was changed"),
            "{key}: {}",
            refused.stderr
        );
        assert_eq!(walk(sealed.folder.path()), before);
        clouds.world().is_away = false;
    }
}
