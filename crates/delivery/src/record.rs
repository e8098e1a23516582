//! [`DeliveryRecord`]: the record of a delivery in the state.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::state::{JournalEntry, StackState},
};

use super::controller::DeliveryTarget;

/// The key of the record in the runtime data of a state.
const KEY: &str = "delivery";

/// The controller that delivers the objects of a stack, and the artifacts that were pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryRecord {
    /// The controller's object and its artifact.
    #[serde(flatten)]
    pub target: DeliveryTarget,
    /// The digests to which the tag may point, the newest last. After a healthy delivery there is only one.
    pub digests: Vec<String>,
    /// The artifact with which the controller was last healthy: `oci://HOST/NAME:TAG@DIGEST`. `None` if it never was.
    pub delivered: Option<String>,
}

impl DeliveryRecord {
    /// Creates the record before a push. The delivery has not ended until the controller is healthy with this digest.
    pub(crate) fn pushing(before: Option<&Self>, target: &DeliveryTarget, digest: &str) -> Self {
        let mut digests = Self::pushed(before, target);
        digests.retain(|one| one != digest);
        digests.push(digest.to_owned());
        let controller = before.filter(|before| before.target.is_same_object(target));
        Self {
            target: target.clone(),
            digests,
            delivered: controller.and_then(|before| before.delivered.clone()),
        }
    }

    /// Creates the record after the controller was healthy with a digest.
    pub(crate) fn settled(target: &DeliveryTarget, digest: String) -> Self {
        Self {
            target: target.clone(),
            delivered: Some(target.with_digest(&digest)),
            digests: vec![digest],
        }
    }

    /// Returns the digests that applies of the stack have pushed to the artifact of a target.
    pub(crate) fn pushed(before: Option<&Self>, target: &DeliveryTarget) -> Vec<String> {
        let before = before.filter(|before| before.target.artifact == target.artifact);
        before.map(|before| before.digests.clone()).unwrap_or_default()
    }

    /// Returns the digest to which the tag certainly points, if the controller was healthy with this digest.
    pub(crate) fn settled_digest(&self) -> Option<&str> {
        match self.digests.as_slice() {
            [only] if self.delivered.as_ref() == Some(&self.target.with_digest(only)) => Some(only),
            _ => None,
        }
    }

    /// Reads the record of a stack; `None` if Konverge itself applies its objects.
    ///
    /// # Errors
    /// A newer version of Konverge wrote the record.
    pub(crate) fn read(data: &BTreeMap<String, Value>) -> Result<Option<Self>, UserError> {
        let Some(value) = data.get(KEY).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let record = Self::deserialize(value).map_err(|error| {
            let what = format!("its record of the delivery cannot be read: {error}");
            UserError::new(ErrorKind::State, what).hint("use the version of Konverge that wrote it")
        })?;
        Ok(Some(record))
    }

    /// Returns the key and the value of the record in the state.
    pub(crate) fn entry(&self) -> (&'static str, Value) {
        let value = serde_json::to_value(self).expect("a record is plain data");
        (KEY, value)
    }
}

/// Returns the journal entry after which Konverge manages the fields of the objects again. If a run is killed before it
/// writes the entry, the next run takes the fields again.
pub fn ended() -> JournalEntry {
    JournalEntry::Runtime {
        key: KEY.to_owned(),
        value: Value::Null,
    }
}

/// Removes the record, because Konverge applies the objects again or the stack has none.
pub fn forget(state: &mut StackState) {
    state.runtime.remove(KEY);
}

/// The runtimes' data of a stack that was delivered.
#[cfg(test)]
pub(super) fn recorded() -> BTreeMap<String, Value> {
    let record = DeliveryRecord::settled(&tests::target("oci://r/a"), "sha256:1".to_owned());
    let (key, value) = record.entry();
    [(key.to_owned(), value)].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_config::DeliveryTool;

    pub(super) fn target(artifact: &str) -> DeliveryTarget {
        DeliveryTarget {
            tool: DeliveryTool::Flux,
            name: "a".to_owned(),
            namespace: "flux-system".to_owned(),
            cluster: None,
            artifact: artifact.to_owned(),
            tag: "live".to_owned(),
        }
    }

    #[test]
    fn a_delivery_is_settled_only_after_the_controller_was_healthy() {
        let (ours, moved) = (target("oci://r/a"), target("oci://other/a"));
        let first = DeliveryRecord::pushing(None, &ours, "sha256:1");
        assert_eq!((first.settled_digest(), &first.delivered), (None, &None));
        let again = DeliveryRecord::pushing(Some(&first), &ours, "sha256:1");
        assert_eq!(again, first, "a second run knows no more than the first");
        let done = DeliveryRecord::settled(&ours, "sha256:1".to_owned());
        assert_eq!(done.settled_digest(), Some("sha256:1"));
        assert_eq!(DeliveryRecord::pushing(Some(&done), &ours, "sha256:1"), done);

        let second = DeliveryRecord::pushing(Some(&done), &ours, "sha256:2");
        assert_eq!(second.digests, ["sha256:1", "sha256:2"]);
        assert_eq!(
            (second.settled_digest(), &second.delivered),
            (None, &done.delivered)
        );
        let back = DeliveryRecord::pushing(Some(&second), &ours, "sha256:1");
        assert_eq!((back.digests.len(), back.settled_digest()), (2, None));

        // The same content elsewhere is a delivery of its own, by a controller that has the objects.
        let elsewhere = DeliveryRecord::pushing(Some(&done), &moved, "sha256:1");
        assert_eq!(elsewhere.digests, ["sha256:1"]);
        assert_eq!(
            (elsewhere.settled_digest(), &elsewhere.delivered),
            (None, &done.delivered)
        );
        let other = DeliveryTarget {
            tool: DeliveryTool::Argocd,
            ..ours
        };
        assert_eq!(
            DeliveryRecord::pushing(Some(&done), &other, "sha256:1").delivered,
            None
        );
    }

    #[test]
    fn a_record_without_the_healthy_artifact_is_not_settled() {
        let mut value = DeliveryRecord::settled(&target("oci://r/a"), "sha256:1".to_owned())
            .entry()
            .1;
        value.as_object_mut().unwrap().remove("delivered");
        let record = DeliveryRecord::read(&[(KEY.to_owned(), value)].into())
            .unwrap()
            .unwrap();
        assert_eq!(record.settled_digest(), None);
    }
}
