//! The findings of a drift check for one stack: the difference, and the objects that were not ready. They are recorded
//! with the check, so that a page can describe the drift.

use serde::{Deserialize, Serialize};

use super::{
    ClusterName, ResourceId, health::Health, json_parts::is_default, review::ReviewUnit,
    stack_status::ObjectStatus,
};

/// The maximum number of changes in a [`StackLook`].
const UNITS: usize = 60;
/// The maximum size of these changes as JSON, in bytes.
const UNIT_BYTES: usize = 16 << 10;
/// The maximum number of unready objects in a [`StackLook`].
const UNREADY: usize = 30;
/// The maximum length of the reason of an object, in characters.
const LONGEST_MESSAGE: usize = 300;

/// The number of objects of a stack by their health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthCounts {
    /// Objects that are ready, or suspended by the Spec.
    pub ready: usize,
    /// Objects that are changing.
    #[serde(skip_serializing_if = "is_default")]
    pub progressing: usize,
    /// Objects that do not become ready without a change.
    #[serde(skip_serializing_if = "is_default")]
    pub failed: usize,
    /// Objects that are suspended, but not by the Spec.
    #[serde(skip_serializing_if = "is_default")]
    pub suspended: usize,
    /// Objects whose health is unknown.
    #[serde(skip_serializing_if = "is_default")]
    pub unknown: usize,
}

impl HealthCounts {
    /// Counts objects; `None` if there are none.
    pub fn from_objects(objects: &[ObjectStatus]) -> Option<Self> {
        let mut counts = Self::default();
        for object in objects {
            let count = match object.health {
                _ if object.is_ready() => &mut counts.ready,
                Health::Ready => &mut counts.ready,
                Health::Progressing => &mut counts.progressing,
                Health::Failed => &mut counts.failed,
                Health::Suspended => &mut counts.suspended,
                Health::Unknown => &mut counts.unknown,
            };
            *count += 1;
        }
        (!objects.is_empty()).then_some(counts)
    }

    /// Returns each count with its word, the worst first; a count of zero is left out.
    pub fn words(&self) -> Vec<String> {
        let all = [
            (self.failed, "failed"),
            (self.progressing, "progressing"),
            (self.suspended, "suspended"),
            (self.unknown, "unknown"),
            (self.ready, "ready"),
        ];
        let some = all.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, word)| format!("{count} {word}")).collect()
    }

    /// Returns true if all objects are ready.
    pub fn is_all_ready(&self) -> bool {
        self.progressing + self.failed + self.suspended + self.unknown == 0
    }
}

/// The findings of a drift check for one stack, masked and limited in size.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StackLook {
    /// The URL of the run, or `user@host` outside CI.
    pub run: String,
    /// The number of the issue about the drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<u64>,
    /// The difference: `from` is the live value, `to` the applied one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<ReviewUnit>,
    /// The number of changes that are left out.
    #[serde(skip_serializing_if = "is_default")]
    pub more: usize,
    /// The objects that are not ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unready: Vec<UnreadyObject>,
}

/// An object that is not ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadyObject {
    /// The object that is not ready.
    pub id: ResourceId,
    /// The cluster of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The health of the object.
    pub health: Health,
    /// The reason of the health.
    pub message: String,
}

impl StackLook {
    /// Creates the findings; `None` if there are none. The texts must be masked already.
    pub fn new(run: &str, units: Vec<ReviewUnit>, objects: &[ObjectStatus]) -> Option<Self> {
        let (kept, more) = bounded(units);
        let unready = objects.iter().filter(|object| !object.is_ready());
        let unready = unready.take(UNREADY).map(|object| UnreadyObject {
            id: object.id.clone(),
            cluster: object.cluster.clone(),
            health: object.health,
            message: object.message.chars().take(LONGEST_MESSAGE).collect(),
        });
        let look = Self {
            run: run.to_owned(),
            issue: None,
            units: kept,
            more,
            unready: unready.collect(),
        };
        (look.more > 0 || !look.units.is_empty() || !look.unready.is_empty()).then_some(look)
    }

    /// Removes the difference, and keeps only the number of its changes.
    pub fn drop_units(&mut self) {
        self.more += std::mem::take(&mut self.units).len();
    }

    /// Returns the size of the difference as JSON, in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.units.iter().map(size).sum()
    }
}

/// Returns the first changes that fit into the limits, and the number of the others.
pub fn bounded(units: Vec<ReviewUnit>) -> (Vec<ReviewUnit>, usize) {
    let all = units.len();
    let mut bytes = 0;
    let fits = |unit: &ReviewUnit| {
        bytes += size(unit);
        bytes <= UNIT_BYTES
    };
    let kept: Vec<_> = units.into_iter().take(UNITS).take_while(fits).collect();
    let more = all - kept.len();
    (kept, more)
}

fn size(unit: &ReviewUnit) -> usize {
    serde_json::to_string(unit).map_or(0, |text| text.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::plan::Action;

    fn object(health: Health, suspended_by_spec: bool) -> ObjectStatus {
        ObjectStatus {
            id: "v1:Pod:shop:web".parse().unwrap(),
            cluster: None,
            health,
            message: "m".repeat(1000),
            suspended_by_spec,
        }
    }

    fn unit(text: &str) -> ReviewUnit {
        ReviewUnit {
            stack: "shop/prod".parse().unwrap(),
            resource: "v1:ConfigMap:shop:web".parse().unwrap(),
            action: Action::Update,
            path: "/data/text".into(),
            to: Some(json!(text)),
            from: None,
        }
    }

    #[test]
    fn what_the_spec_suspends_is_ready_and_the_worst_comes_first() {
        let objects = [
            object(Health::Ready, false),
            object(Health::Suspended, true),
            object(Health::Suspended, false),
            object(Health::Failed, false),
        ];
        let counts = HealthCounts::from_objects(&objects).unwrap();
        assert_eq!(counts.words(), ["1 failed", "1 suspended", "2 ready"]);
        assert!(!counts.is_all_ready());
        assert_eq!(HealthCounts::from_objects(&[]), None);
        let text = serde_json::to_string(&HealthCounts::from_objects(&objects[..1]).unwrap()).unwrap();
        assert_eq!(text, r#"{"ready":1}"#);
    }

    #[test]
    fn a_look_is_bounded_and_one_with_nothing_to_tell_is_not_kept() {
        assert_eq!(
            StackLook::new("run", Vec::new(), &[object(Health::Ready, false)]),
            None
        );
        let objects = vec![object(Health::Failed, false); UNREADY + 1];
        let look = StackLook::new("run", vec![unit("a"); UNITS + 7], &objects).unwrap();
        assert_eq!((look.units.len(), look.more), (UNITS, 7));
        assert_eq!(look.unready.len(), UNREADY);
        assert_eq!(look.unready[0].message.len(), LONGEST_MESSAGE);
        let mut look = StackLook::new("run", vec![unit(&"x".repeat(10 << 10)); 3], &[]).unwrap();
        assert_eq!((look.units.len(), look.more), (1, 2));
        look.drop_units();
        assert_eq!((look.units.len(), look.more), (0, 3));
    }
}
