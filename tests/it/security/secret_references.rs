//! References to secrets: the value comes from a store just before it is written, and is found nowhere else; a
//! reference that its stack may not use gets nothing.

use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    process::{Konverge, Outcome},
    shop_monorepo::{Shop, resource},
    spec_runs::walk,
};

/// In every value of a store.
pub(super) const CANARY: &str = "c4nary-Vd8x!Qz";

/// The beginning of the base64 of a value that starts with the canary.
const ENCODED: &str = "YzRuYXJ5LVZkOHghUX";

/// A stack on the real API server whose stores are the job's environment and the Secrets of a namespace.
pub(super) struct Refers {
    pub shop: Shop,
    pub cluster: &'static Cluster,
    pub namespace: String,
    /// The folder for temporary files of the runs.
    scratch: tempfile::TempDir,
}

impl Refers {
    async fn new(subject: &str, more: &str) -> Self {
        Self::of_job_store(subject, more, "").await
    }

    /// `of_job`: more keys of the store `job`.
    pub async fn of_job_store(subject: &str, more: &str, of_job: &str) -> Self {
        let cluster = Cluster::shared();
        let namespace = cluster.namespace(subject).await;
        let config = format!(
            "clusters: {{test: {{}}}}\nsecrets:\n{more}  stores:\n    job: {{kind: env, {of_job}allow: [{{stacks: 'apps/shop/*', paths: 'PAY_*'}}]}}\n    \
             vaulted: {{kind: kubernetes, allow: [{{stacks: 'apps/shop/*', paths: '{namespace}/source'}}]}}\n"
        );
        Self {
            shop: Shop::new(&config, &[("KUBECONFIG", cluster.kubeconfig().as_path())]),
            cluster,
            namespace,
            scratch: tempfile::tempdir().unwrap(),
        }
    }

    pub fn object(&self, kind: &str, name: &str, more: Value) -> Value {
        let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": self.namespace}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        object
    }

    pub fn konverge(&self, arguments: &[&str]) -> Konverge {
        let run = self.shop.konverge(arguments);
        run.env("TMPDIR", self.scratch.path())
            .env("KONVERGE_LOG", "trace")
            .env("RUST_LOG", "trace")
    }

    pub fn apply(&self, password: Option<&str>) -> Outcome {
        let run = self.konverge(&["apply", "--all", "--yes", "--no-wait", "--output", "json"]);
        match password {
            Some(password) => run.env("PAY_PASSWORD", password),
            None => run,
        }
        .run()
    }

    pub fn preview(&self) -> Outcome {
        self.konverge(&["preview", "--all", "--live", "required", "--output", "json"])
            .run()
    }

    async fn live(&self, name: &str) -> Option<Value> {
        Objects::of(self.cluster)
            .await
            .get(&self.object("Secret", name, json!({})))
            .await
    }

    /// The decoded value of a key of a Secret.
    async fn value(&self, name: &str, key: &str) -> Option<String> {
        use base64::Engine as _;
        let live = self.live(name).await?;
        let encoded = live["data"][key].as_str()?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
        Some(String::from_utf8(bytes).unwrap())
    }

    /// Looks for the canary in what a command printed and in every file that the runs left.
    pub fn holds_no_value(&self, outcome: &Outcome, what: &str) {
        self.holds_none_of(&[CANARY, ENCODED], outcome, what);
    }

    pub fn holds_none_of(&self, words: &[&str], outcome: &Outcome, what: &str) {
        let mut texts = vec![outcome.stdout.clone(), outcome.stderr.clone()];
        let state = self.shop.monorepo.path().join(".git/test-state");
        // A preview alone leaves none.
        texts.extend(state.is_dir().then(|| walk(&state)));
        texts.push(walk(self.scratch.path()));
        for text in texts {
            for word in words {
                assert!(!text.contains(word), "{what} leaves {word}:\n{text}");
            }
        }
    }
}

pub(super) fn changes(outcome: &Outcome) -> Vec<Value> {
    let document = outcome.json();
    let stack = &document["stacks"][0];
    assert!(stack["error"].is_null(), "{stack}");
    let resources = stack["resources"].as_array().unwrap().iter();
    resources
        .flat_map(|resource| resource["changes"].as_array().unwrap().clone())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_written_and_found_nowhere_else() {
    let refers = Refers::new("references", "").await;
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {
            "password": "ref+env://PAY_PASSWORD",
            "url": "postgres://app:ref+job://PAY_PASSWORD+@db/pay",
        }}),
    );
    refers.shop.wants("prod", &[resource(&pay)]);

    // A preview needs no value, and shows the reference.
    let previewed = refers.preview().expect(0);
    let made = changes(&previewed);
    let data = &made[0]["to"]["data"];
    assert_eq!(data["password"], json!({"$secret": {"ref": "job:PAY_PASSWORD"}}));
    assert_eq!(data["url"]["$secret"]["ref"], "job:PAY_PASSWORD");
    assert!(data["url"]["$secret"]["text"].is_string(), "{data}");
    assert_eq!(
        previewed.json()["stacks"][0]["resources"][0]["validated"],
        "server"
    );

    let first = format!("{CANARY}-1");
    let applied = refers.apply(Some(&first)).expect(0);
    refers.holds_no_value(&applied, "an apply");
    assert_eq!(refers.value("pay", "password").await, Some(first.clone()));
    assert_eq!(
        refers.value("pay", "url").await,
        Some(format!("postgres://app:{first}@db/pay"))
    );

    // Equal by keyed hash: neither a preview without the value nor an apply with it finds a change.
    assert_eq!(changes(&refers.preview().expect(0)), [] as [Value; 0]);
    let again = refers.apply(Some(&first)).expect(0);
    assert_eq!(
        again.json()["stacks"][0]["result"],
        "unchanged",
        "{}",
        again.stdout
    );

    // Another value of the variable is another version.
    let second = format!("{CANARY}-2");
    let rotated = refers.apply(Some(&second)).expect(0);
    refers.holds_no_value(&rotated, "a rotation");
    assert_eq!(refers.value("pay", "password").await, Some(second.clone()));

    // Somebody else's value is drift, and is restored.
    let theirs = json!({"stringData": {"password": "theirs-1234"}});
    Objects::of(refers.cluster)
        .await
        .merge(&pay, "somebody", &theirs)
        .await;
    let drifted = changes(&refers.preview().expect(0));
    assert_eq!(
        (drifted.len(), &drifted[0]["path"]),
        (1, &json!("/data/password")),
        "{drifted:?}"
    );
    assert_eq!(drifted[0]["origin"], "drift", "{drifted:?}");
    assert_eq!(drifted[0]["to"], json!({"$secret": {"ref": "job:PAY_PASSWORD"}}));
    refers.apply(Some(&second)).expect(0);
    assert_eq!(refers.value("pay", "password").await, Some(second));

    let destroyed = refers
        .konverge(&["destroy", "shop/prod", "--yes", "--output", "json"])
        .run()
        .expect(0);
    refers.holds_no_value(&destroyed, "a destroy");
    assert_eq!(refers.live("pay").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_cannot_be_had_stops_the_stack_untouched() {
    let refers = Refers::new("missing-values", "").await;
    let first = refers.object("ConfigMap", "first", json!({"data": {"a": "b"}}));
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {"a": "ref+vaulted://NS/source#/gone"}}),
    );
    let pay: Value =
        serde_json::from_str(&pay.to_string().replace("NS/", &format!("{}/", refers.namespace))).unwrap();
    for (case, password, why) in [
        (
            "ref+env://PAY_PASSWORD",
            None,
            "`PAY_PASSWORD` is not set in this job",
        ),
        ("ref+env://PAY_PASSWORD", Some(""), "`PAY_PASSWORD` is empty"),
        (
            "ref+env://PAY_PASSWORD#/x",
            Some("no-json-at-all"),
            "is not a JSON document",
        ),
    ] {
        let secret = refers.object("Secret", "pay", json!({"stringData": {"a": case}}));
        refers.shop.wants("prod", &[resource(&first), resource(&secret)]);
        let outcome = refers.apply(password).expect(1);
        let error = outcome.json()["stacks"][0]["error"].take();
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(why) && message.contains("secret store `job`"),
            "{message}"
        );
        assert_eq!(error["kind"], "secret");
        assert!(!error["hints"].as_array().unwrap().is_empty(), "{error}");
    }
    refers.shop.wants("prod", &[resource(&first), resource(&pay)]);
    for why in ["is not there", "has no key `gone`"] {
        let outcome = refers.apply(None).expect(1);
        assert!(outcome.stdout.contains(why), "{}", outcome.stdout);
        let source = refers.object("Secret", "source", json!({"stringData": {"there": CANARY}}));
        if refers.live("source").await.is_none() {
            Objects::of(refers.cluster).await.create(&source).await;
        }
    }
    let objects = Objects::of(refers.cluster).await;
    assert_eq!(
        objects.get(&first).await,
        None,
        "nothing of the stack was touched"
    );
    assert_eq!(refers.live("pay").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_cluster_is_followed_and_types_with_rules_are_planned() {
    let refers = Refers::new("cluster-secrets", "").await;
    let docker = json!({"auths": {"r.example": {"auth": CANARY}}}).to_string();
    let source = |password: &str| {
        refers.object(
            "Secret",
            "source",
            json!({"stringData": {"password": password, "docker": docker, "crt": CANARY}}),
        )
    };
    let objects = Objects::of(refers.cluster).await;
    objects.create(&source(CANARY)).await;
    let reference = |key: &str| format!("ref+k8s://{}/source/{key}", refers.namespace);
    let pull = json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": reference("docker")}});
    let tls = json!({"type": "kubernetes.io/tls", "stringData": {"tls.crt": reference("crt"), "tls.key": reference("crt")}});
    let wanted = [
        refers.object("Secret", "pull", pull),
        refers.object("Secret", "tls", tls),
        refers.object(
            "Secret",
            "pay",
            json!({"stringData": {"password": reference("password")}}),
        ),
    ];
    refers.shop.wants("prod", &wanted.each_ref().map(resource));
    let previewed = refers.preview().expect(0);
    for change in changes(&previewed) {
        let data = change["to"]["data"].as_object().unwrap();
        for value in data.values() {
            let shown = value["$secret"]["ref"].as_str().unwrap();
            assert!(
                shown.starts_with(&format!("vaulted:{}/source#/", refers.namespace)),
                "{shown}"
            );
            assert!(value["$secret"]["text"].is_null(), "{value}");
        }
    }
    refers.holds_no_value(&previewed, "a preview");
    refers.holds_no_value(&refers.apply(None).expect(0), "an apply");
    assert_eq!(
        refers.value("pull", ".dockerconfigjson").await,
        Some(docker.clone())
    );
    assert_eq!(refers.value("tls", "tls.key").await, Some(CANARY.to_owned()));

    let rotated = format!("{CANARY}-rotated");
    objects
        .merge(
            &source(&rotated),
            "somebody",
            &json!({"stringData": {"password": rotated}}),
        )
        .await;
    refers.apply(None).expect(0);
    assert_eq!(refers.value("pay", "password").await, Some(rotated));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_only_notified_is_not_written() {
    let refers = Refers::new("left", "  rotation: leave\n").await;
    let pay = |label: &str| {
        let mut pay = refers.object(
            "Secret",
            "pay",
            json!({"stringData": {"password": "ref+env://PAY_PASSWORD"}}),
        );
        pay["metadata"]["labels"] = json!({"app": label});
        resource(&pay)
    };
    let (first, second) = (format!("{CANARY}-1"), format!("{CANARY}-2"));
    refers.shop.wants("prod", &[pay("one")]);
    refers.apply(Some(&first)).expect(0);
    let outcome = refers.apply(Some(&second)).expect(0);
    assert_eq!(
        outcome.json()["stacks"][0]["result"],
        "unchanged",
        "{}",
        outcome.stdout
    );
    // Another change of the object keeps the value as well.
    refers.shop.wants("prod", &[pay("two")]);
    refers.apply(Some(&second)).expect(0);
    assert_eq!(refers.value("pay", "password").await, Some(first));
    let live = refers.live("pay").await.unwrap();
    assert_eq!(live["metadata"]["labels"]["app"], "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_reference_gets_nothing() {
    let refers = Refers::new("hostile-references", "").await;
    let objects = Objects::of(refers.cluster).await;
    let other = refers.object("Secret", "other", json!({"stringData": {"k": CANARY}}));
    objects.create(&other).await;
    let other_path = format!("ref+k8s://{}/other/k", refers.namespace);
    let dots = format!("ref+k8s://{}/source/../other#/k", refers.namespace);
    let secret = |text: &str| refers.object("Secret", "pay", json!({"stringData": {"a": text}}));
    let plain = |text: &str| refers.object("ConfigMap", "pay", json!({"data": {"a": text}}));
    let annotated = |text: &str| {
        let mut object = refers.object("Secret", "pay", json!({}));
        object["metadata"]["annotations"] = json!({"a": text});
        object
    };
    for (object, key) in [
        (secret("ref+env://HOME"), "secrets.stores.job.allow"),
        (secret(&other_path), "secrets.stores.vaulted.allow"),
        (secret(&dots), "ref+STORE"),
        (
            secret("ref+env://PAY_PASSWORD?address=http://evil.example"),
            "secrets.stores.job.address",
        ),
        (
            secret("ref+vault://pay?address=http://evil.example#/x"),
            "secrets.stores.vault",
        ),
        (
            secret("ref+env://PAY_PASSWORD?role_arn=arn:aws:iam::1:role/root"),
            "secrets.stores.job.auth",
        ),
        (
            secret("ref+env://PAY_PASSWORD?token_file=~token"),
            "secrets.stores.job.auth",
        ),
        (secret("ref+exec://id"), "no kind of store runs a command"),
        (secret("ref+file:///etc/passwd"), "reads a file"),
        (
            secret("ref+envsubst://PAY_PASSWORD"),
            "no kind of store runs a command",
        ),
        (secret("ref://PAY_PASSWORD"), "secrets.default"),
        (plain("ref+env://PAY_PASSWORD"), "stringData"),
        (plain("postgres://app:ref+env://PAY_PASSWORD+@db"), "stringData"),
        (annotated("ref+env://PAY_PASSWORD"), "stringData"),
        (
            refers.object(
                "ConfigMap",
                "pay",
                json!({"data": {"stringData": "ref+env://PAY_PASSWORD"}}),
            ),
            "`stringData` of a Secret",
        ),
    ] {
        refers.shop.wants("prod", &[resource(&object)]);
        for outcome in [refers.preview(), refers.apply(Some(CANARY))] {
            let error = outcome.json()["stacks"][0]["error"].take();
            assert_eq!(error["kind"], "secret", "{object}: {}", outcome.stdout);
            let hints = error["hints"].to_string();
            assert!(hints.contains(key), "{object}: {error}");
            refers.holds_no_value(&outcome, "a refused reference");
        }
        assert_eq!(objects.get(&object).await, None, "{object}");
    }
}

/// Kusion's Spec chooses the server that gets the job's token.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_store_of_the_spec_is_refused_with_the_key_to_write() {
    let refers = Refers::new("own-secret-store", "  default: job\n").await;
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {"password": "ref://PAY_PASSWORD"}}),
    );
    refers.shop.wants("prod", &[resource(&pay)]);
    let with_store = |store: Value| {
        let text = format!("resources = {}\nsecretStore = {store}\n", json!([resource(&pay)]));
        refers
            .shop
            .monorepo
            .write("apps/shop/prod/main.k", text)
            .commit("store");
    };
    for store in [
        json!({"provider": {"vault": {"server": "http://evil.example:8200", "version": "v2"}}}),
        json!({"provider": {"fake": {"data": [{"key": "PAY_PASSWORD", "value": "theirs"}]}}}),
    ] {
        with_store(store);
        for outcome in [refers.preview(), refers.apply(Some(CANARY))] {
            let error = outcome.json()["stacks"][0]["error"].take();
            assert_eq!(error["kind"], "secret", "{}", outcome.stdout);
            let hints = error["hints"].to_string();
            assert!(
                hints.contains("remove `secretStore` from the Spec") && hints.contains("konverge.yaml"),
                "{error}"
            );
            refers.holds_no_value(&outcome, "a refused store");
        }
        assert_eq!(refers.live("pay").await, None);
    }
    with_store(json!({"provider": {}}));
    refers.apply(Some(CANARY)).expect(0);
    assert_eq!(refers.value("pay", "password").await, Some(CANARY.to_owned()));
}

/// The ways by which a value could leave its Secret: through a reference between resources, and through a text that
/// becomes a reference only when another object is read.
#[tokio::test(flavor = "multi_thread")]
async fn no_other_object_gets_a_value() {
    let refers = Refers::new("plain-readers", "").await;
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {"password": "ref+env://PAY_PASSWORD"}}),
    );
    let id = |kind: &str, name: &str| format!("v1:{kind}:{}:{name}", refers.namespace);
    let map = |name: &str, text: String| refers.object("ConfigMap", name, json!({"data": {"x": text}}));
    let reads_value = map("b", format!("$kusion_path.{}.data.password", id("Secret", "pay")));
    let store = map("a", "env://PAY_PASSWORD".to_owned());
    let becomes = map("b", format!("ref+$kusion_path.{}.data.x", id("ConfigMap", "a")));
    for (objects, why) in [
        (vec![&pay, &reads_value], "copies the value of a secret reference"),
        (vec![&pay, &store, &becomes], "refers to a secret"),
    ] {
        let wanted: Vec<_> = objects.into_iter().map(resource).collect();
        refers.shop.wants("prod", &wanted);
        let outcome = refers.apply(Some(CANARY));
        assert!(outcome.stdout.contains(why), "{}", outcome.stdout);
        refers.holds_no_value(&outcome, "a refused reader");
        let live = Objects::of(refers.cluster).await.get(&reads_value).await;
        assert_eq!(live, None, "nothing else holds the value");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_needs_a_review_is_not_written_by_hand_without_a_person() {
    let refers = Refers::new("stopped-rotation", "  rotation: stop\n").await;
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {"password": "ref+env://PAY_PASSWORD"}}),
    );
    refers.shop.wants("prod", &[resource(&pay)]);
    let (first, second) = (format!("{CANARY}-1"), format!("{CANARY}-2"));
    refers.apply(Some(&first)).expect(0);
    let stopped = refers.apply(Some(&second)).expect(3);
    assert!(
        stopped.stdout.contains("`secrets.rotation` is `stop`"),
        "{}",
        stopped.stdout
    );
    refers.holds_no_value(&stopped, "a stopped rotation");
    assert_eq!(refers.value("pay", "password").await, Some(first));
}

/// A field that is left to others says nothing about what was written, also when it is compared again.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_was_ignored_counts_as_not_written() {
    let refers = Refers::new("ignored-values", "").await;
    let pay = refers.object(
        "Secret",
        "pay",
        json!({"stringData": {"password": "ref+job://PAY_PASSWORD"}}),
    );
    let objects = Objects::of(refers.cluster).await;
    let password = async |object: &Value| {
        let live = objects.get(object).await.unwrap();
        live["data"]["password"].as_str().unwrap().to_owned()
    };
    refers.shop.wants("prod", &[resource(&pay)]);
    refers.apply(Some(CANARY)).expect(0);
    let ours = password(&pay).await;

    let config = refers.shop.monorepo.read("konverge.yaml");
    let ignoring = format!("{config}stacks:\n- match: 'apps/shop/*'\n  ignore: [/data/password]\n");
    refers
        .shop
        .monorepo
        .write("konverge.yaml", ignoring)
        .commit("ignore");
    let theirs = json!({"data": {"password": "dGhlaXJz"}});
    objects.merge(&pay, "somebody", &theirs).await;
    // Something else changes, so that the object is written and recorded.
    let mut labelled = pay.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    refers.shop.wants("prod", &[resource(&labelled)]);
    refers.apply(Some(CANARY)).expect(0);
    assert_eq!(password(&pay).await, "dGhlaXJz", "it is left to others");

    refers
        .shop
        .monorepo
        .write("konverge.yaml", config)
        .commit("compare again");
    let shown = changes(&refers.preview().expect(0));
    assert_eq!(shown[0]["path"], "/data/password", "{shown:?}");
    refers.apply(Some(CANARY)).expect(0);
    assert_eq!(password(&pay).await, ours);
}
