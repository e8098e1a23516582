//! The stage of a delivered stack: the test plays Flux and Argo CD. It pulls the artifact from a real registry, applies
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
    cache,
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    installed,
    objects::{Objects, path},
    process::Outcome,
    service::eventually,
    shop_monorepo::{Shop, resource},
    stores::Registry,
    terraform,
};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(super) const LIMIT: Duration = Duration::from_secs(120);

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
    let file = cache().join("operator-crds/argo-cd/application-crd.yaml");
    let text = fs::read_to_string(installed("operator-crds", file)).unwrap();
    for definition in yaml::documents(&text).unwrap() {
        objects.create_definition(&definition).await;
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Tool {
    Flux,
    Argocd,
}

impl Tool {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Flux => "flux",
            Self::Argocd => "argocd",
        }
    }

    async fn define(self, objects: &Objects) {
        match self {
            Self::Flux => define_flux(objects).await,
            Self::Argocd => define_argocd(objects).await,
        }
    }

    pub(super) fn manager(self) -> &'static str {
        match self {
            Self::Flux => "kustomize-controller",
            Self::Argocd => "argocd-controller",
        }
    }
}

/// The stack `shop/dev` of a repository, its registry and the namespace of its controller.
pub(super) struct Stage {
    tool: Tool,
    pub(super) objects: Objects,
    registry: Registry,
    pub(super) shop: Shop,
    pub(super) ns: String,
    controller_ns: String,
}

impl Stage {
    pub(super) async fn new(tool: Tool) -> Self {
        let cluster = cluster();
        let objects = Objects::of(cluster).await;
        tool.define(&objects).await;
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

    /// Another controller delivers from here on.
    pub(super) async fn hand_to(&mut self, tool: Tool) {
        tool.define(&self.objects).await;
        self.tool = tool;
        self.configure(Some(tool.word()));
    }

    /// Stops the process of the registry, or lets it go on. A stopped one takes connections and never answers.
    pub(super) fn signal_registry(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.registry.pid().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Returns true if somebody is connected to the registry.
    pub(super) fn registry_is_asked(&self) -> bool {
        let host = self.registry.host();
        let port: u16 = host.rsplit_once(':').unwrap().1.parse().unwrap();
        let (to, established) = (format!("0100007F:{port:04X}"), "01");
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(2);
            words.next() == Some(&to) && words.next() == Some(established)
        })
    }

    /// Commits `konverge.yaml`.
    pub(super) fn configure(&self, deliver: Option<&str>) {
        self.configure_with(deliver, "90s");
    }

    /// The same, with how long an apply waits for the controller.
    pub(super) fn configure_with(&self, deliver: Option<&str>, ready_timeout: &str) {
        let rule = deliver.map(|tool| json!({"match": "apps/shop/*", "deliver": tool}));
        let config = json!({
            "version": 1,
            "clusters": {"test": {}},
            "state": {"lease": {"term": "5s", "wait": "60s"}},
            "apply": {"ready_timeout": ready_timeout},
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

    pub(super) fn config_map(&self, name: &str, data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": self.ns}, "data": data})
    }

    pub(super) fn wants(&self, objects: &[Value]) {
        let resources: Vec<_> = objects.iter().map(resource).collect();
        self.shop.wants("dev", &resources);
    }

    pub(super) fn apply(&self) -> Outcome {
        self.shop.run(&["apply", "shop/dev", "--yes"])
    }

    pub(super) fn artifact(&self) -> String {
        format!("oci://{}/acme/shop-dev", self.registry.host())
    }

    /// Somebody else pushes other content to the tag. The Spec is the one of `objects` again.
    pub(super) fn push_other_content(&self, objects: &[Value]) {
        let other = format!("{}:live", self.artifact());
        self.wants(&[self.config_map("other", json!({}))]);
        self.shop
            .run(&["export", "flux", "shop/dev", "--rev", "HEAD", "--to", &other])
            .expect(0);
        self.wants(objects);
    }

    fn reference(&self) -> Reference {
        format!("{}/acme/shop-dev:live", self.registry.host())
            .parse()
            .unwrap()
    }

    /// Applies, and is killed at its first write in the cluster, which the server does not get.
    pub(super) async fn killed_at_first_write(&self) {
        let proxy = Proxy::start(cluster(), Faults::none()).await;
        proxy.kill_at_write(1);
        let apply = self.shop.konverge(&["apply", "shop/dev", "--yes"]);
        let run = apply.env("KUBECONFIG", proxy.kubeconfig()).start();
        tokio::time::timeout(LIMIT, proxy.killed())
            .await
            .expect("it writes");
        run.signal(nix::sys::signal::Signal::SIGKILL);
        tokio::task::spawn_blocking(|| run.wait()).await.unwrap();
    }

    /// The documents of the controller, as `konverge export` writes them.
    pub(super) fn delivery(&self) -> Vec<Value> {
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
        for document in &documents {
            assert_eq!(document["metadata"]["namespace"], self.controller_ns.as_str());
        }
        documents
    }

    /// The path of an object of the controller. The plural of an OCIRepository is a regular one.
    fn path(document: &Value) -> String {
        path(document, true)
    }

    pub(super) async fn install(&self, documents: &[Value]) {
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

    pub(super) async fn digest(&self) -> Option<String> {
        Some(self.pull().await?.0)
    }

    /// Plays the controller until it has delivered another artifact than `but`.
    pub(super) async fn deliver(
        &self,
        documents: &[Value],
        but: Option<&str>,
        inventory: &mut BTreeMap<String, Value>,
    ) {
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

    /// Writes the status of a delivery that went wrong after it was well: its health is Degraded.
    pub(super) async fn report_degraded(&self, documents: &[Value]) {
        for document in documents {
            match document["kind"].as_str().unwrap() {
                "Kustomization" => {
                    let live = self.objects.get(document).await.unwrap();
                    let mut status = live["status"].clone();
                    status["conditions"][0]["status"] = json!("False");
                    status["conditions"][0]["message"] = json!("health is Degraded");
                    self.objects.report(&Self::path(document), &status).await;
                }
                "Application" => {
                    let status = json!({"status": {"sync": {"status": "OutOfSync"}, "health": {"status": "Degraded"}}});
                    self.objects.merge(document, "argocd-controller", &status).await;
                }
                _ => {}
            }
        }
    }

    /// Writes the status of a delivery that is well.
    pub(super) async fn report(&self, documents: &[Value], digest: &str) {
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

    pub(super) async fn live(&self, name: &str) -> Option<Value> {
        self.objects.get(&self.config_map(name, json!({}))).await
    }

    pub(super) async fn uid(&self, name: &str) -> Value {
        self.live(name).await.unwrap()["metadata"]["uid"].clone()
    }

    /// Who applies fields of an object.
    pub(super) async fn managers(&self, name: &str) -> BTreeSet<String> {
        let live = self.live(name).await.unwrap();
        let entries = live["metadata"]["managedFields"].as_array().unwrap();
        let applies = entries.iter().filter(|entry| entry["operation"] == "Apply");
        applies
            .map(|entry| entry["manager"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Applies while the controller delivers.
    pub(super) async fn apply_and_deliver(
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
pub(super) fn said(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn registry_client() -> Client {
    Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    })
}

pub(super) fn only(manager: &str) -> BTreeSet<String> {
    BTreeSet::from([manager.to_owned()])
}
