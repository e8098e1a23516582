//! A store with recorded stacks, and a repository whose `konverge.yaml` names it.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use jiff::Timestamp;
use konverge_base::model::{
    Digest, RepoPath, StackId,
    apply_record::ApplyRecord,
    apply_result::StackResult,
    authorization::{Authorization, ReviewedPull},
    spec::{RuntimeKind, Sharing},
    state::{JournalEntry, Recorded, RuntimeRecord, StackState},
    week_activity::Week,
};
use konverge_state::{
    DocumentWriter, DriftCheck, DriftHistory, DriftWeek, LeaseOptions, RepositoryId, StateStore, WriteReason,
    store::{self, Store, StoreOptions},
};
use serde_json::{Value, json};

use crate::support::{git::Repository, process::Konverge};

pub const ID: &str = "acme/infra";

/// A repository and its store.
pub struct RecordedStacks {
    pub repository: Repository,
    pub folder: tempfile::TempDir,
    pub store: Arc<dyn Store>,
    env: Vec<(String, String)>,
}

impl RecordedStacks {
    /// In a folder.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().join("states").display());
        Self::at(folder, &url, Vec::new()).await
    }

    /// In the store of an address.
    pub async fn at(folder: tempfile::TempDir, url: &str, env: Vec<(String, String)>) -> Self {
        let options = StoreOptions {
            environment: env.iter().cloned().collect(),
            ..StoreOptions::default()
        };
        let store = store::open(url, &options).await.unwrap();
        let repository = Repository::init();
        repository.write(
            "konverge.yaml",
            format!("version: 1\nstate: {{url: '{url}', id: {ID}}}\n"),
        );
        repository.commit("configuration");
        Self {
            repository,
            folder,
            store,
            env,
        }
    }

    pub fn states(&self) -> StateStore {
        self.states_of("https://ci.example/runs/7")
    }

    /// The states, as a run with this address writes them.
    pub fn states_of(&self, run: &str) -> StateStore {
        let writer = DocumentWriter {
            run: run.to_owned(),
            actor: "ada".to_owned(),
        };
        StateStore::open(Arc::clone(&self.store), RepositoryId::new(ID), writer)
    }

    /// Records an apply of these resources.
    pub async fn apply(&self, stack: &str, resources: Vec<Recorded>, result: StackResult) {
        self.apply_by(self.states(), None, stack, resources, result).await;
    }

    /// Records an apply of a commit of that time, by a run with these states.
    pub async fn apply_by(
        &self,
        states: StateStore,
        merged: Option<Timestamp>,
        stack: &str,
        resources: Vec<Recorded>,
        result: StackResult,
    ) {
        let id: StackId = stack.parse().unwrap();
        let lease = states.acquire(&id, LeaseOptions::default()).await.unwrap();
        let prior = lease.prior().map(|prior| prior.state.clone());
        let folder = RepoPath::normalize(&format!("apps/{stack}")).unwrap();
        let mut state = prior.unwrap_or_else(|| StackState::empty(id.clone(), folder));
        state.resources = Vec::new();
        resources.into_iter().for_each(|resource| state.put(resource));
        state.input_digest = (result == StackResult::Applied).then(|| Digest::of_bytes(b"inputs"));
        if let Some(recorded) = state.resources.first().cloned() {
            lease
                .journal(vec![JournalEntry::Done { recorded }])
                .await
                .unwrap();
        }
        let record = ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: Some("b".repeat(40).parse().unwrap()),
            merged,
            result,
            grounds: Authorization {
                pull_requests: vec![ReviewedPull {
                    number: 7,
                    head: "a".repeat(40).parse().unwrap(),
                    reviewers: Some(vec!["grace".to_owned()]),
                }],
                ..Authorization::default()
            },
        };
        lease
            .conclude(WriteReason::Apply, state, &[7], record, None)
            .await
            .unwrap();
        states.save_index().await.unwrap();
    }

    /// Records what a drift check saw of some stacks.
    pub async fn look(&self, checks: Vec<(&str, DriftCheck)>, weeks: BTreeMap<Week, DriftWeek>) {
        let checks = checks.into_iter();
        let history = DriftHistory {
            stacks: checks
                .map(|(stack, check)| (stack.parse().unwrap(), check))
                .collect(),
            good: None,
            weeks,
        };
        let states = self.states();
        states.save_drift_history(history, |_| true).await.unwrap();
        states.save_index().await.unwrap();
    }

    /// Names the repository at its forge, as a clone does.
    pub fn at_github(&self) {
        let origin = "https://github.com/acme/infra.git";
        self.repository.git(["remote", "add", "origin", origin]);
    }

    /// Merges the index into one document.
    pub async fn settle(&self) {
        let states = self.states();
        let rebuilt = states.rebuild_index().await.unwrap();
        states.maintain_index(&rebuilt).await.unwrap();
    }

    /// A command in the repository.
    pub fn konverge(&self, arguments: &[&str]) -> Konverge {
        let run = Konverge::new(arguments).dir(self.repository.path());
        self.env
            .iter()
            .fold(run, |run, (name, value)| run.env(name, value))
    }

    /// Builds the site and gives what was said.
    pub fn build(&self, out: &Path) -> String {
        let outcome = self
            .konverge(&["portal", "build", "--out", out.to_str().unwrap()])
            .run()
            .expect(0);
        format!("{}{}", outcome.stdout, outcome.stderr)
    }
}

/// A ConfigMap that was applied.
pub fn config_map(name: &str, data: &Value) -> Recorded {
    resource(&format!("v1:ConfigMap:shop:{name}"), &json!({"data": data}), &[])
}

/// A Deployment that was applied, with the image of its container.
pub fn deployment(name: &str, image: &str) -> Recorded {
    let pod = json!({"spec": {"containers": [{"name": "web", "image": image}]}});
    let attributes = json!({"spec": {"replicas": 2, "template": pod}});
    resource(
        &format!("apps/v1:Deployment:shop:{name}"),
        &attributes,
        &[&format!("v1:ConfigMap:shop:{name}")],
    )
}

fn resource(id: &str, attributes: &Value, depends_on: &[&str]) -> Recorded {
    Recorded {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: Some("main".parse().unwrap()),
        attributes: Arc::new(attributes.as_object().unwrap().clone()),
        depends_on: depends_on.iter().map(|id| id.parse().unwrap()).collect(),
        extensions: serde_json::Map::new(),
        sharing: Sharing::default(),
        object_hash: None,
        private: RuntimeRecord::encode(&json!({"secret-of-the-runtime": "hidden-record"})),
    }
}
