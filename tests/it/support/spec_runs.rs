//! Specs of ConfigMaps applied by `konverge apply --spec` to the real API server, with the state in a store of choice.

use super::{cluster::Cluster, git::Repository, objects::Objects, process::Konverge, s3::S3};
use konverge_base::model::StackId;
use konverge_state::{
    DocumentWriter, RepositoryId, StateStore,
    store::{StoreOptions, open},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

/// A repository that holds nothing but `konverge.yaml`, a namespace for what is applied, and a store.
pub struct SpecRuns {
    pub repository: Repository,
    pub cluster: &'static Cluster,
    pub namespace: String,
    /// `state.url`, options included.
    pub url: String,
    /// What every run's environment has besides.
    pub env: Vec<(&'static str, String)>,
}

impl SpecRuns {
    /// With the state in a bucket of the shared S3 server. `more` goes below `state:`, indented by two.
    pub async fn on_s3(subject: &str, more: &str) -> Self {
        let server = S3::shared();
        let bucket = server.bucket(subject);
        let url = format!("s3://{bucket}/p?endpoint={}&allow_http=true", server.endpoint());
        Self::at(subject, &url, more).await
    }

    /// With the state at a URL.
    pub async fn at(subject: &str, url: &str, more: &str) -> Self {
        let repository = Repository::init();
        let cluster = Cluster::shared();
        repository.write(
            "konverge.yaml",
            format!("version: 1\nstate:\n  id: spec-runs\n  url: '{url}'\n{more}"),
        );
        repository.commit("Nothing but a store");
        let mut env = vec![
            ("AWS_ACCESS_KEY_ID", S3::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", S3::SECRET_KEY.to_owned()),
            ("AWS_REGION", S3::REGION.to_owned()),
        ];
        env.push(("USER", "tester".to_owned()));
        Self {
            repository,
            cluster,
            namespace: cluster.namespace(subject).await,
            url: url.to_owned(),
            env,
        }
    }

    /// Writes a Spec of ConfigMaps with these names.
    pub fn spec(&self, file: &str, names: &[&str]) {
        let resource = |name: &&str| {
            json!({
                "id": format!("v1:ConfigMap:{}:{name}", self.namespace),
                "type": "Kubernetes",
                "attributes": {
                    "apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": name, "namespace": self.namespace}, "data": {"made-for": file},
                },
            })
        };
        let resources: Vec<_> = names.iter().map(resource).collect();
        std::fs::write(
            self.repository.path().join(file),
            json!({ "resources": resources }).to_string(),
        )
        .unwrap();
    }

    /// A run of `konverge` in the repository.
    pub fn konverge(&self, arguments: &[&str]) -> Konverge {
        self.in_surroundings(Konverge::new(arguments))
    }

    /// The same, started by another program that is given its command line.
    pub fn through(&self, program: &[&str], arguments: &[&str]) -> Konverge {
        let (first, more) = program.split_first().expect("a program");
        let konverge = [env!("CARGO_BIN_EXE_konverge")];
        let all = [more, &konverge[..], arguments].concat();
        self.in_surroundings(Konverge::of(Path::new(first), all))
    }

    fn in_surroundings(&self, run: Konverge) -> Konverge {
        let run = run
            .dir(self.repository.path())
            .env("XDG_CACHE_HOME", self.repository.path().join(".git/caches"));
        self.env.iter().fold(run, |run, (key, value)| run.env(key, value))
    }

    /// `konverge apply --spec FILE --stack STACK`.
    pub fn apply(&self, file: &str, stack: &str) -> Konverge {
        self.on_cluster(&["apply", "--yes", "--spec", file, "--stack", stack])
    }

    /// A command that reaches the cluster.
    pub fn on_cluster(&self, arguments: &[&str]) -> Konverge {
        self.konverge(arguments)
            .arg("--kubeconfig")
            .arg(self.cluster.kubeconfig())
    }

    /// The states, as another run sees them.
    pub async fn states(&self, run: &str) -> StateStore {
        let environment = self
            .env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        let options = StoreOptions {
            environment: environment.collect(),
            ..StoreOptions::default()
        };
        let writer = DocumentWriter {
            run: run.to_owned(),
            actor: "somebody".to_owned(),
        };
        let store = open(&self.url, &options).await.unwrap();
        StateStore::open(store, RepositoryId::new("spec-runs"), writer)
    }

    /// The ConfigMaps that stand in the cluster for a stack, by name.
    pub async fn made(&self, stack: &str) -> BTreeSet<String> {
        let owned = |object: &Value| object["metadata"]["annotations"]["konverge/stack"] == stack;
        self.config_maps(owned).await
    }

    /// Every ConfigMap of the namespace, by name, but for those of its controllers.
    pub async fn made_by_anybody(&self) -> BTreeSet<String> {
        self.config_maps(|object| object["metadata"]["name"] != "kube-root-ca.crt")
            .await
    }

    async fn config_maps(&self, wanted: impl Fn(&Value) -> bool) -> BTreeSet<String> {
        let objects = Objects::of(self.cluster).await;
        let collection = format!("/api/v1/namespaces/{}/configmaps", self.namespace);
        objects
            .list(&collection)
            .await
            .iter()
            .filter(|object| wanted(object))
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// What the state of a stack holds, by name.
    pub async fn recorded(&self, stack: &str) -> BTreeSet<String> {
        let states = self.states("the test").await;
        let loaded = states.load(&stack.parse::<StackId>().unwrap()).await.unwrap();
        let resources = loaded.map(|loaded| loaded.state.resources).unwrap_or_default();
        let name = |id: &str| id.rsplit(':').next().unwrap().to_owned();
        resources.iter().map(|r| name(r.id.as_str())).collect()
    }
}

/// Everything in a folder as one text.
pub fn walk(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        text += &if path.is_dir() {
            walk(&path)
        } else {
            String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
        };
    }
    text
}
