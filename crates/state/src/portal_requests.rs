//! The audit log of the portal. Each request is one document, and the result of a write is a second document
//! beside it. Both are only created, never changed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    StateError, StateStore,
    document_format::{CreateResult, Header},
    state_store::in_flight,
};
use crate::store::Key;
use konverge_base::error::chain;

/// The kind of a request's document.
const REQUEST: &str = "portal-request";
const OUTCOME: &str = "portal-outcome";
/// The suffix of an outcome's key, after the id.
const OUTCOME_END: &str = ".outcome";

/// A recorded request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest<T> {
    /// The id of the request, which begins with its time.
    pub id: String,
    /// The time of the request, by the writer's clock.
    pub time: Timestamp,
    /// The request itself.
    pub request: T,
    /// The result of the portal's own write; `None` if there was no write.
    pub outcome: Option<RecordedOutcome>,
}

/// The recorded end of a request: it succeeded, or failed with an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedOutcome {
    /// The error, if the write failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl StateStore {
    /// Records a request before it is carried out. Returns its id.
    ///
    /// # Errors
    /// The store fails. The request must then not be carried out.
    pub async fn record_request<T: Serialize + Sync>(&self, request: &T) -> Result<String, StateError> {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let nonce = nonce.get(..12).unwrap_or_default();
        let time = self.clock.wall_clock().strftime("%Y%m%dT%H%M%S%3fZ");
        let id = format!("{time}-{nonce}");
        self.create_beside(REQUEST, &id, request).await?;
        Ok(id)
    }

    /// Records the result of a request's write.
    ///
    /// # Errors
    /// The store fails, or a result was already recorded.
    pub async fn record_outcome(&self, id: &str, outcome: &RecordedOutcome) -> Result<(), StateError> {
        self.create_beside(OUTCOME, &format!("{id}{OUTCOME_END}"), outcome)
            .await
    }

    async fn create_beside<T: Serialize + Sync>(
        &self,
        kind: &str,
        name: &str,
        body: &T,
    ) -> Result<(), StateError> {
        let key = folder().child(name);
        match self.create(kind, &key, body).await? {
            CreateResult::Ours => Ok(()),
            CreateResult::Theirs(_) => Err(StateError::Missing(format!("`{key}` was written before"))),
        }
    }

    /// Returns the newest requests, up to `at_most`, and messages about those that cannot be read.
    ///
    /// # Errors
    /// The store fails.
    pub async fn recorded_requests<T: DeserializeOwned + Send>(
        &self,
        at_most: usize,
    ) -> Result<(Vec<RecordedRequest<T>>, Vec<String>), StateError> {
        let listed = self.store.list(&folder()).await?;
        let names: BTreeSet<String> = listed.iter().map(Key::last).collect();
        let requests = names.iter().filter(|name| !name.ends_with(OUTCOME_END)).rev();
        let wanted = requests.take(at_most).cloned().map(|id| {
            let outcome = format!("{id}{OUTCOME_END}");
            let has_outcome = names.contains(&outcome);
            async move {
                let request = self.read_beside::<T>(REQUEST, &id).await?;
                let outcome = if has_outcome {
                    Some(self.read_beside::<RecordedOutcome>(OUTCOME, &outcome).await?)
                } else {
                    None
                };
                Ok((id, request, outcome))
            }
        });
        let read = in_flight(wanted.collect::<Vec<_>>()).await?;
        let (mut found, mut unreadable) = (Vec::new(), BTreeMap::new());
        for (id, request, outcome) in read {
            let outcome = outcome.transpose().unwrap_or_else(|why| {
                unreadable.insert(id.clone(), why);
                None
            });
            match request {
                Ok((header, request)) => found.push(RecordedRequest {
                    id,
                    time: header.time,
                    request,
                    outcome: outcome.map(|(_, outcome)| outcome),
                }),
                Err(why) => drop(unreadable.insert(id, why)),
            }
        }
        Ok((found, unreadable.into_values().collect()))
    }

    /// Reads a document, or says why it cannot be read.
    async fn read_beside<T: DeserializeOwned>(
        &self,
        kind: &str,
        name: &str,
    ) -> Result<Result<(Header, T), String>, StateError> {
        let key = folder().child(name);
        let read = self.get_listed(&key).await;
        match read.and_then(|bytes| self.envelopes.read(kind, &key, &bytes)) {
            Err(error @ StateError::Store(_)) => Err(error),
            read => Ok(read.map_err(|error| chain(&error))),
        }
    }
}

fn folder() -> Key {
    Key::from_components(&["portal", "audit"])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::fixture, *};
    use crate::store::{MemoryStore, Store};

    #[tokio::test]
    async fn requests_are_kept_the_newest_first_and_what_cannot_be_read_is_told() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        let mut ids = Vec::new();
        for number in 0..5 {
            ids.push(states.record_request(&format!("request {number}")).await.unwrap());
        }
        let failed = RecordedOutcome {
            error: Some("no".to_owned()),
        };
        states.record_outcome(&ids[1], &failed).await.unwrap();
        assert!(
            states
                .record_outcome(&ids[1], &RecordedOutcome { error: None })
                .await
                .is_err()
        );
        let (found, unreadable) = states.recorded_requests::<String>(100).await.unwrap();
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let mut sorted = ids.clone();
        sorted.sort_unstable();
        sorted.reverse();
        assert_eq!(found.iter().map(|of| of.id.clone()).collect::<Vec<_>>(), sorted);
        let one = found.iter().find(|of| of.id == ids[1]).unwrap();
        assert_eq!(
            (one.request.as_str(), one.outcome.clone()),
            ("request 1", Some(failed))
        );
        assert_eq!(states.recorded_requests::<String>(2).await.unwrap().0.len(), 2);
        let key = folder().child("20990101T000000000Z-x");
        store
            .create(&key, bytes::Bytes::from_static(b"{}"))
            .await
            .unwrap();
        let (found, unreadable) = states.recorded_requests::<String>(100).await.unwrap();
        assert_eq!((found.len(), unreadable.len()), (5, 1));
    }

    #[tokio::test]
    async fn two_replicas_that_record_at_once_both_do() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (one, two) = (
            fixture::states(&store, &Arc::default()),
            fixture::states(&store, &Arc::default()),
        );
        let (a, b) = (["a"; 20], ["b"; 20]);
        let of = async |states: &StateStore, texts: [&str; 20]| {
            for text in texts {
                states.record_request(&text).await.unwrap();
            }
        };
        tokio::join!(of(&one, a), of(&two, b));
        let (found, _) = one.recorded_requests::<String>(100).await.unwrap();
        assert_eq!(found.len(), 40);
    }
}
