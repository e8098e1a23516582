//! Stacks that a controller delivers. The test plays Flux and Argo CD: it pulls the artifact from a real registry, applies
//! it on a real API server with the controller's field manager, deletes what left it, and writes the status.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use konverge_base::yaml;
use konverge_state::{IDENTITY_VARIABLE, Sealer};
use oci_client::{
    Client, Reference,
    client::{ClientConfig, ClientProtocol},
    secrets::RegistryAuth,
};
use serde_json::{Value, json};

use super::export::files;
use crate::support::{
    cluster::Cluster,
    objects::{Objects, path},
    process::Outcome,
    service::eventually,
    shop_monorepo::{Shop, resource},
    stores::Registry,
    terraform,
};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster of its own: the definitions are not those of other tests.
fn cluster() -> &'static Cluster {
    static SHARED: OnceLock<Cluster> = OnceLock::new();
    SHARED.get_or_init(Cluster::start)
}

/// The published definitions of Flux, with a status of any form, which the test writes.
async fn define_flux(objects: &Objects) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export");
    for name in ["kustomization", "ocirepository"] {
        let text = fs::read(fixtures.join(format!("{name}.json"))).unwrap();
        let mut definition: Value = serde_json::from_slice(&text).unwrap();
        for version in definition["spec"]["versions"].as_array_mut().unwrap() {
            version["subresources"] = json!({"status": {}});
            version["schema"]["openAPIV3Schema"]["properties"]["status"] =
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        }
        objects.create_definition(&definition).await;
    }
}

/// The published definition of Argo CD's Application.
async fn define_argocd(objects: &Objects) {
    let file = crate::support::cache().join("operator-crds/argo-cd/application-crd.yaml");
    let text = fs::read_to_string(file).unwrap();
    for definition in yaml::documents(&text).unwrap() {
        objects.create_definition(&definition).await;
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Tool {
    Flux,
    Argocd,
}

impl Tool {
    fn word(self) -> &'static str {
        match self {
            Self::Flux => "flux",
            Self::Argocd => "argocd",
        }
    }

    fn manager(self) -> &'static str {
        match self {
            Self::Flux => "kustomize-controller",
            Self::Argocd => "argocd-controller",
        }
    }
}

/// The stack `shop/dev` of a repository, its registry and the namespace of its controller.
struct Stage {
    tool: Tool,
    objects: Objects,
    registry: Registry,
    shop: Shop,
    ns: String,
    controller_ns: String,
}

impl Stage {
    async fn new(tool: Tool) -> Self {
        let cluster = cluster();
        let objects = Objects::of(cluster).await;
        match tool {
            Tool::Flux => define_flux(&objects).await,
            Tool::Argocd => define_argocd(&objects).await,
        }
        let stage = Self {
            tool,
            ns: cluster.namespace("delivered").await,
            controller_ns: cluster.namespace("controller").await,
            registry: Registry::start(),
            shop: Shop::new(
                "",
                &[
                    ("KUBECONFIG", &cluster.kubeconfig()),
                    (
                        IDENTITY_VARIABLE,
                        Path::new(&Sealer::generate().identity().unwrap()),
                    ),
                ],
            ),
            objects,
        };
        stage.configure(None);
        stage
    }

    /// Commits `konverge.yaml`.
    fn configure(&self, deliver: Option<&str>) {
        let rule = deliver.map(|tool| json!({"match": "apps/shop/*", "deliver": tool}));
        let config = json!({
            "version": 1,
            "clusters": {"test": {}},
            "state": {"lease": {"term": "5s", "wait": "60s"}},
            "apply": {"ready_timeout": "90s"},
            "delivery": {"registry": format!("oci://{}/acme", self.registry.host()), "namespace": self.controller_ns},
            "terraform": {
                "binary": terraform::binary(),
                "mirror": terraform::mirror(),
                "providers": [{"source": "hashicorp/local", "version": terraform::LOCAL_PROVIDER}],
            },
            "stacks": rule.into_iter().collect::<Vec<_>>(),
        });
        self.shop
            .monorepo
            .write("konverge.yaml", config.to_string())
            .commit("Configuration");
    }

    fn config_map(&self, name: &str, data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.ns}, "data": data})
    }

    fn wants(&self, objects: &[Value]) {
        let resources: Vec<_> = objects.iter().map(resource).collect();
        self.shop.wants("dev", &resources);
    }

    fn apply(&self) -> Outcome {
        self.shop.run(&["apply", "shop/dev", "--yes"])
    }

    fn artifact(&self) -> String {
        format!("oci://{}/acme/shop-dev", self.registry.host())
    }

    fn reference(&self) -> Reference {
        format!("{}/acme/shop-dev:live", self.registry.host())
            .parse()
            .unwrap()
    }

    /// The documents of the controller, as `konverge export` writes them.
    fn delivery(&self) -> Vec<Value> {
        let to = tempfile::tempdir().unwrap();
        let folder = to.path().display().to_string();
        let (tool, artifact) = (self.tool.word(), self.artifact());
        let command = [
            "export",
            tool,
            "shop/dev",
            "--to",
            &folder,
            "--source",
            &artifact,
            "--source-revision",
            "live",
        ];
        self.shop.run(&command).expect(0);
        let mut documents = Vec::new();
        for entry in fs::read_dir(to.path().join("shop-dev/delivery")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            documents.extend(yaml::documents(&text).unwrap());
        }
        for document in &mut documents {
            document["metadata"]["namespace"] = json!(self.controller_ns);
        }
        documents
    }

    /// The path of an object of the controller. The plural of an OCIRepository is a regular one.
    fn path(document: &Value) -> String {
        path(document, true)
    }

    async fn install(&self, documents: &[Value]) {
        for document in documents {
            self.objects.create(document).await;
        }
    }

    /// The objects of the artifact, by namespace and name, and its digest; `None` while the tag is missing.
    async fn pull(&self) -> Option<(String, BTreeMap<String, Value>)> {
        let client = registry_client();
        let pulled = client
            .pull(&self.reference(), &RegistryAuth::Anonymous, vec![LAYER])
            .await
            .ok()?;
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer.tgz");
        fs::write(&layer, &pulled.layers[0].data).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xzf")
            .arg(&layer)
            .arg("-C")
            .arg(folder.path())
            .status();
        assert!(unpacked.unwrap().success());
        let mut objects = BTreeMap::new();
        for (path, content) in files(&folder.path().join("manifests")) {
            let text = String::from_utf8(content).unwrap();
            let object = yaml::documents(&text).unwrap().remove(0);
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            assert!(objects.insert(name, object).is_none(), "{path}");
        }
        Some((pulled.digest.unwrap(), objects))
    }

    async fn digest(&self) -> Option<String> {
        Some(self.pull().await?.0)
    }

    /// Plays the controller until it has delivered another artifact than `but`.
    async fn deliver(&self, documents: &[Value], but: Option<&str>, inventory: &mut BTreeMap<String, Value>) {
        let (digest, wanted) = eventually("an artifact is there", LIMIT, || async {
            self.pull()
                .await
                .filter(|(digest, _)| Some(digest.as_str()) != but)
        })
        .await;
        for object in wanted.values() {
            self.objects.apply_as(object, self.tool.manager()).await;
        }
        for (name, object) in inventory.iter() {
            if !wanted.contains_key(name) {
                self.objects.delete(object).await;
            }
        }
        *inventory = wanted;
        self.report(documents, &digest).await;
    }

    /// Writes the status of a delivery that is well.
    async fn report(&self, documents: &[Value], digest: &str) {
        for document in documents {
            match document["kind"].as_str().unwrap() {
                "Kustomization" => {
                    let live = self.objects.get(document).await.unwrap();
                    let generation = &live["metadata"]["generation"];
                    let revision = format!("live@{digest}");
                    let status = json!({
                        "observedGeneration": generation, "lastAppliedRevision": revision, "lastAttemptedRevision": revision,
                        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": generation, "message": "Applied"}],
                    });
                    self.objects.report(&Self::path(document), &status).await;
                }
                "Application" => {
                    let status = json!({"status": {
                        "sync": {"status": "Synced", "revision": digest, "comparedTo": {"source": document["spec"]["source"], "destination": document["spec"]["destination"]}},
                        "health": {"status": "Healthy"},
                    }});
                    self.objects.merge(document, "argocd-controller", &status).await;
                }
                _ => {}
            }
        }
    }

    async fn live(&self, name: &str) -> Option<Value> {
        self.objects.get(&self.config_map(name, json!({}))).await
    }

    async fn uid(&self, name: &str) -> Value {
        self.live(name).await.unwrap()["metadata"]["uid"].clone()
    }

    /// Who applies fields of an object.
    async fn managers(&self, name: &str) -> BTreeSet<String> {
        let live = self.live(name).await.unwrap();
        let entries = live["metadata"]["managedFields"].as_array().unwrap();
        let applies = entries.iter().filter(|entry| entry["operation"] == "Apply");
        applies
            .map(|entry| entry["manager"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Applies while the controller delivers.
    async fn apply_and_deliver(
        &self,
        documents: &[Value],
        inventory: &mut BTreeMap<String, Value>,
    ) -> Outcome {
        let before = self.digest().await;
        let run = self.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
        let mut end = tokio::task::spawn_blocking(|| run.wait());
        let delivered = self.deliver(documents, before.as_deref(), inventory);
        tokio::pin!(delivered);
        tokio::select! {
            biased;
            () = &mut delivered => end.await.unwrap(),
            outcome = &mut end => {
                let outcome = outcome.unwrap().expect(0);
                delivered.await;
                outcome
            }
        }
    }
}

/// What a run said.
fn said(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn registry_client() -> Client {
    Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    })
}

fn only(manager: &str) -> BTreeSet<String> {
    BTreeSet::from([manager.to_owned()])
}

async fn check_life(tool: Tool) {
    let stage = Stage::new(tool).await;
    let a = stage.config_map("a", json!({"x": "1", "gone": "y"}));
    let b = stage.config_map(
        "b",
        json!({"of": format!("$kusion_path.v1:ConfigMap:{}:a.data.x", stage.ns)}),
    );
    let old = stage.config_map("old", json!({}));
    stage.wants(&[a, b.clone(), old]);
    stage.apply().expect(0);
    assert_eq!(stage.managers("a").await, only("konverge"));
    let uid = stage.uid("a").await;

    // From here on the controller delivers. As long as it is not there, nothing is pushed.
    stage.configure(Some(tool.word()));
    let preview = stage.shop.run(&["preview", "shop/dev"]).expect(0);
    assert!(
        said(&preview).contains("an apply of shop/dev would stop"),
        "{}",
        said(&preview)
    );
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("is missing") && said(&refused).contains("konverge export"),
        "{}",
        said(&refused)
    );
    let documents = stage.delivery();
    let mut wrong = documents.clone();
    for document in &mut wrong {
        match document["kind"].as_str().unwrap() {
            "OCIRepository" => document["spec"]["url"] = json!("oci://example.com/other"),
            "Application" => document["spec"]["source"]["repoURL"] = json!("https://example.com/other"),
            _ => {}
        }
    }
    stage.install(&wrong).await;
    let refused = stage.apply().expect(3);
    assert!(
        said(&refused).contains("example.com/other") && said(&refused).contains(&stage.artifact()),
        "{}",
        said(&refused)
    );
    assert_eq!(stage.digest().await, None);
    for document in &wrong {
        stage.objects.delete(document).await;
    }
    stage.install(&documents).await;

    // The objects change their owner, and none is deleted.
    let mut inventory = BTreeMap::new();
    let applied = stage
        .apply_and_deliver(&documents, &mut inventory)
        .await
        .expect(0);
    assert!(!applied.stdout.is_empty());
    for name in ["a", "b", "old"] {
        assert_eq!(stage.managers(name).await, only(tool.manager()), "{name}");
    }
    assert_eq!(stage.uid("a").await, uid);
    let first = stage.digest().await.unwrap();
    let unchanged = stage.shop.ends(&["apply", "shop/dev"], 0);
    assert_eq!(unchanged, [("shop/dev".to_owned(), "unchanged".to_owned())]);
    assert_eq!(stage.digest().await.unwrap(), first);

    // A preview shows what the controller will do, also the removal of a field that it alone owns.
    let a = stage.config_map("a", json!({"x": "2"}));
    stage.wants(&[a, b, stage.config_map("new", json!({"k": "v"}))]);
    let preview = stage
        .shop
        .run(&["preview", "shop/dev", "--output", "json"])
        .expect(0)
        .stdout;
    for words in ["/data/gone", "/data/of", ":new\"", ":old\""] {
        assert!(preview.contains(words), "{words}: {preview}");
    }

    // It is killed between the push and the wait. The next run goes on.
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    eventually("the tag has moved", LIMIT, || async {
        stage.digest().await.filter(|digest| *digest != first)
    })
    .await;
    run.signal(nix::sys::signal::Signal::SIGKILL);
    run.wait();
    assert_eq!(stage.live("a").await.unwrap()["data"]["x"], "1");
    let second = stage.digest().await.unwrap();
    let run = stage.shop.konverge(&["apply", "shop/dev", "--yes"]).start();
    stage.deliver(&documents, Some(&first), &mut inventory).await;
    tokio::task::spawn_blocking(|| run.wait())
        .await
        .unwrap()
        .expect(0);
    assert_eq!(stage.digest().await.unwrap(), second);
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"x": "2"}));
    assert_eq!(stage.live("b").await.unwrap()["data"]["of"], "2");
    assert!(stage.live("old").await.is_none() && stage.live("new").await.is_some());
    assert_eq!(
        stage.shop.ends(&["apply", "shop/dev"], 0),
        [("shop/dev".to_owned(), "unchanged".to_owned())]
    );

    // While the controller's object is there, Konverge does not apply. Then it takes the objects back.
    stage.configure(None);
    let refused = stage.apply().expect(3);
    assert!(
        said(&refused).contains("is delivered by") && said(&refused).contains("without its objects")
            || said(&refused).contains("Orphan"),
        "{}",
        said(&refused)
    );
    for document in &documents {
        stage.objects.delete(document).await;
    }
    stage.wants(&[stage.config_map("a", json!({"y": "3"}))]);
    stage.apply().expect(0);
    assert_eq!(stage.managers("a").await, only("konverge"));
    assert_eq!(stage.uid("a").await, uid);
    assert_eq!(stage.live("a").await.unwrap()["data"], json!({"y": "3"}));
    assert!(stage.live("b").await.is_none() && stage.live("new").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn flux_takes_a_stack_over_delivers_it_and_gives_it_back() {
    check_life(Tool::Flux).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_takes_a_stack_over_delivers_it_and_gives_it_back() {
    check_life(Tool::Argocd).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_be_delivered_is_refused_before_the_push() {
    let stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    let a = stage.config_map("a", json!({"x": "1"}));
    stage.wants(std::slice::from_ref(&a));
    let documents = stage.delivery();
    stage.install(&documents).await;

    // An artifact never carries data of a Secret.
    let mut secret = stage.config_map("s", json!({}));
    secret["kind"] = json!("Secret");
    secret["data"] = json!({"p": "aHVudGVyMmh1bnRlcjI="});
    stage.wants(&[a.clone(), secret]);
    for command in ["preview", "apply"] {
        let arguments: &[&str] = match command {
            "apply" => &["apply", "shop/dev", "--yes"],
            _ => &["preview", "shop/dev"],
        };
        let refused = stage.shop.run(arguments);
        assert_ne!(refused.code, Some(0));
        assert!(
            said(&refused).contains("holds data of a Secret at `/data/p`"),
            "{}",
            said(&refused)
        );
    }

    // A level that no Kustomization reads would never be applied.
    let mut deeper = resource(&stage.config_map("b", json!({})));
    deeper["dependsOn"] = json!([format!("v1:ConfigMap:{}:a", stage.ns)]);
    stage.shop.wants("dev", &[resource(&a), deeper]);
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("reads `manifests/001/configmap-"),
        "{}",
        said(&refused)
    );
    assert_eq!(stage.digest().await, None);

    // Somebody else has pushed to the tag.
    let other = format!("{}:live", stage.artifact());
    stage.wants(&[stage.config_map("other", json!({}))]);
    stage
        .shop
        .run(&["export", "flux", "shop/dev", "--rev", "HEAD", "--to", &other])
        .expect(0);
    stage.wants(std::slice::from_ref(&a));
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("which no apply of this stack pushed"),
        "{}",
        said(&refused)
    );
    assert!(stage.live("a").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn terraform_goes_first_and_only_what_is_no_secret_goes_into_the_artifact() {
    let stage = Stage::new(Tool::Flux).await;
    stage.configure(Some("flux"));
    let outside = tempfile::tempdir().unwrap();
    let local = |kind: &str, name: &str, content: &str| {
        json!({
            "id": format!("hashicorp:local:{kind}:{name}"), "type": "Terraform",
            "attributes": {"filename": outside.path().join(name), "content": content},
            "extensions": {"provider": format!("registry.terraform.io/hashicorp/local/{}", terraform::LOCAL_PROVIDER)},
        })
    };
    let beside = resource(&stage.config_map("beside", json!({})));
    stage.shop.wants("dev", std::slice::from_ref(&beside));
    let documents = stage.delivery();
    stage.install(&documents).await;
    let reads = |from: &str| {
        let value = format!("$kusion_path.hashicorp:local:{from}");
        resource(&stage.config_map("reads", json!({ "v": value })))
    };

    // A value that Terraform calls sensitive does not leave. Terraform's part is done and recorded.
    let password = "the-password-that-no-artifact-holds";
    let hidden = local("local_sensitive_file", "hidden", password);
    stage.shop.wants(
        "dev",
        &[
            hidden,
            reads("local_sensitive_file:hidden.content"),
            beside.clone(),
        ],
    );
    let refused = stage.apply();
    assert_ne!(refused.code, Some(0));
    assert!(
        said(&refused).contains("would carry a secret value into the artifact at `/data/v`"),
        "{}",
        said(&refused)
    );
    assert!(!said(&refused).contains(password));
    assert_eq!(stage.digest().await, None);
    assert!(outside.path().join("hidden").exists());

    // What Terraform made is known at the push. Both objects are in one artifact, although one needs nothing of it.
    let file = local("local_file", "shown", "words");
    stage.shop.wants(
        "dev",
        &[file.clone(), reads("local_file:shown.id"), beside.clone()],
    );
    let mut inventory = BTreeMap::new();
    stage
        .apply_and_deliver(&documents, &mut inventory)
        .await
        .expect(0);
    let id = stage.live("reads").await.unwrap()["data"]["v"].clone();
    assert_eq!(id.as_str().map(str::len), Some(40), "{id}");
    assert_eq!(inventory.len(), 2);

    // It does not come after an object.
    let mut later = file;
    later["dependsOn"] = json!([beside["id"]]);
    stage.shop.wants("dev", &[later, beside]);
    let refused = stage.shop.run(&["preview", "shop/dev"]);
    assert!(
        said(&refused).contains("which a controller delivers after Terraform"),
        "{}",
        said(&refused)
    );
}
