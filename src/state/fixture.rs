//! For tests: a stack, its states in memory, and a clock that is set by hand.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;

use super::{Clock, DocumentWriter, RepositoryId, StateStore};
use crate::{
    model::{
        Digest, RepoPath, StackId,
        plan::Action,
        spec::{RuntimeKind, Sharing},
        state::{JournalEntry, Recorded, RuntimeRecord, StackState},
    },
    store::Store,
};

/// The states of one run in a store.
pub(super) fn states(store: &Arc<dyn Store>, clock: &Arc<HandClock>) -> StateStore {
    let writer = DocumentWriter {
        run: "https://ci.example/1".to_owned(),
        actor: "someone".to_owned(),
    };
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    StateStore::open(Arc::clone(store), RepositoryId::new("acme/infra"), writer).with_clock(clock)
}

pub(super) fn stack(name: &str) -> StackId {
    name.parse().unwrap()
}

pub(super) fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:shop:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: serde_json::Map::new().into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: RuntimeRecord::encode(&serde_json::json!({"uid": name})),
        sharing: Sharing::default(),
    }
}

/// What the journal says of a resource that was created.
pub(super) fn created(name: &str) -> Vec<JournalEntry> {
    let recorded = recorded(name);
    let intent = JournalEntry::Intent {
        recorded: recorded.clone(),
        action: Action::Create,
    };
    vec![intent, JournalEntry::Done { recorded }]
}

/// The state of a stack with these resources, applied well.
pub(super) fn state(stack: &StackId, names: &[&str]) -> StackState {
    let mut state = StackState::empty(stack.clone(), RepoPath::normalize("apps/shop").unwrap());
    names.iter().for_each(|name| state.put(recorded(name)));
    state.input_digest = Some(Digest::of_bytes(b"one"));
    state
}

/// A clock that stands still until it is set.
#[derive(Default)]
pub(super) struct HandClock(watch::Sender<Duration>);

impl HandClock {
    pub(super) fn set(&self, now: Duration) {
        self.0.send_replace(now);
    }
}

#[async_trait]
impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        *self.0.borrow()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    async fn sleep(&self, time: Duration) {
        let until = self.monotonic() + time;
        self.0.subscribe().wait_for(|now| *now >= until).await.unwrap();
    }
}
