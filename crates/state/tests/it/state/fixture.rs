//! A stack, its resources and its states, for the tests of documents, leases and reviews.

use std::{sync::Arc, time::Duration};

use konverge_base::model::{
    Digest, RepoPath, ResourceId, StackId,
    plan::Action,
    spec::RuntimeKind,
    state::{JournalEntry, Recorded, StackState},
};
use konverge_state::{DocumentWriter, LeaseOptions, RepositoryId, StateStore, store::Store};

pub(super) fn states(store: Arc<dyn Store>, run: &str) -> StateStore {
    let writer = DocumentWriter {
        run: format!("https://ci.example/{run}"),
        actor: "someone".to_owned(),
    };
    StateStore::open(store, RepositoryId::new("acme/infra"), writer)
}

pub(super) fn stack() -> StackId {
    "shop/prod".parse().unwrap()
}

pub(super) fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:shop:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: serde_json::json!({"kind": "ConfigMap", "name": name})
            .as_object()
            .unwrap()
            .clone()
            .into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: konverge_base::model::state::RuntimeRecord::encode(&serde_json::json!({"uid": name})),
        sharing: konverge_base::model::spec::Sharing::default(),
    }
}

pub(super) fn id(name: &str) -> ResourceId {
    recorded(name).id
}

pub(super) fn intent(name: &str) -> JournalEntry {
    JournalEntry::Intent {
        recorded: recorded(name),
        action: Action::Create,
    }
}

pub(super) fn with(names: &[&str], digest: &str) -> StackState {
    let mut state = StackState::empty(stack(), RepoPath::normalize("apps/shop/prod").unwrap());
    names.iter().for_each(|name| state.put(recorded(name)));
    state.input_digest = Some(Digest::of_bytes(digest.as_bytes()));
    state
}

pub(super) fn short() -> LeaseOptions {
    LeaseOptions {
        term: Duration::from_secs(30),
        wait: Duration::from_secs(300),
        ..LeaseOptions::default()
    }
}
