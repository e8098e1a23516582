//! The impact of a change on running pods: which change restarts how many.

use serde_json::Value;

use konverge_base::model::{GroupKind, diff, plan::PodImpact};

/// The impact of a change on pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RolloutImpact {
    /// A sentence for the reviewer.
    pub note: Option<String>,
    pub pods: PodImpact,
}

impl RolloutImpact {
    fn note(note: &str) -> Self {
        Self {
            note: Some(note.to_owned()),
            pods: PodImpact::default(),
        }
    }

    fn restarts(count: u64, how: &str) -> Self {
        Self {
            note: Some(format!("restarts {} {how}", pods(count))),
            pods: PodImpact {
                restarts: count,
                ..PodImpact::default()
            },
        }
    }

    /// Combines two impacts, with their notes one after the other.
    fn and(self, other: Self) -> Self {
        let notes: Vec<_> = [self.note, other.note].into_iter().flatten().collect();
        Self {
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            pods: self.pods + other.pods,
        }
    }
}

/// Computes how many pods a change restarts, ends or starts.
pub(crate) fn impact(live: &Value, becomes: &Value) -> RolloutImpact {
    let kind = GroupKind::from_object(live);
    let spec = &live["spec"];
    let template_changed = !diff::same(&spec["template"], &becomes["spec"]["template"]);
    let count = |object: &Value| object["spec"]["replicas"].as_u64().unwrap_or(1);
    match kind {
        GroupKind::DEPLOYMENT | GroupKind::STATEFUL_SET | GroupKind::REPLICA_SET => {
            let (before, after) = (count(live), count(becomes));
            let restarted = if template_changed && before.min(after) > 0 {
                restart(kind, &becomes["spec"], before.min(after))
            } else {
                RolloutImpact::default()
            };
            restarted.and(scaled(before, after))
        }
        GroupKind::DAEMON_SET if template_changed => {
            if becomes["spec"]["updateStrategy"]["type"] == "OnDelete" {
                return RolloutImpact::note(ON_DELETE);
            }
            match live["status"]["desiredNumberScheduled"].as_u64() {
                Some(0) | None => RolloutImpact::default(),
                Some(count) => RolloutImpact::restarts(count, "node by node"),
            }
        }
        _ => RolloutImpact::default(),
    }
}

const ON_DELETE: &str = "pods take the change when they are deleted (OnDelete)";

fn scaled(before: u64, after: u64) -> RolloutImpact {
    let (starts, ends) = (after.saturating_sub(before), before.saturating_sub(after));
    let note = match (starts, ends) {
        (0, 0) => None,
        (0, ends) => Some(format!("ends {}", pods(ends))),
        (starts, _) => Some(format!("starts {}", pods(starts))),
    };
    RolloutImpact {
        note,
        pods: PodImpact {
            restarts: 0,
            starts,
            ends,
        },
    }
}

fn restart(kind: GroupKind<'_>, spec: &Value, count: u64) -> RolloutImpact {
    if kind == GroupKind::REPLICA_SET {
        return RolloutImpact::default();
    }
    if spec["paused"] == true {
        return RolloutImpact::note("paused: no pod restarts until it is resumed");
    }
    let strategy = if kind == GroupKind::DEPLOYMENT {
        &spec["strategy"]
    } else {
        &spec["updateStrategy"]
    };
    match strategy["type"].as_str() {
        Some("Recreate") => {
            RolloutImpact::restarts(count, "at once: all pods end before the first new pod starts")
        }
        Some("OnDelete") => RolloutImpact::note(ON_DELETE),
        _ if kind == GroupKind::STATEFUL_SET => {
            let partition = strategy["rollingUpdate"]["partition"].as_u64().unwrap_or(0);
            let restarted = count.saturating_sub(partition);
            let kept = if partition > 0 {
                format!(" (partition {partition}: the others stay)")
            } else {
                String::new()
            };
            RolloutImpact::restarts(restarted, &format!("one by one{kept}"))
        }
        _ => RolloutImpact::restarts(count, "by rolling update"),
    }
}

fn pods(count: u64) -> String {
    if count == 1 {
        "1 pod".to_owned()
    } else {
        format!("{count} pods")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(kind: &str, image: &str, replicas: u64, extra: Value) -> Value {
        let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": image}]}}}});
        for (key, value) in extra.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        object
    }

    fn describe(kind: &str, before: u64, after: u64, image: &str, extra: Value) -> Option<String> {
        impact(
            &object(kind, "a", before, extra.clone()),
            &object(kind, image, after, extra),
        )
        .note
    }

    #[test]
    fn restarts_are_counted_by_strategy() {
        assert_eq!(describe("Deployment", 3, 3, "a", json!({})), None);
        assert_eq!(
            describe("Deployment", 3, 3, "b", json!({})).unwrap(),
            "restarts 3 pods by rolling update"
        );
        assert_eq!(
            describe("Deployment", 3, 1, "a", json!({})).unwrap(),
            "ends 2 pods"
        );
        assert_eq!(
            describe("Deployment", 1, 4, "b", json!({"strategy": {"type": "Recreate"}})).unwrap(),
            "restarts 1 pod at once: all pods end before the first new pod starts; starts 3 pods"
        );
        let partition =
            json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        assert_eq!(
            describe("StatefulSet", 5, 5, "b", partition).unwrap(),
            "restarts 3 pods one by one (partition 2: the others stay)"
        );
        assert_eq!(describe("Deployment", 0, 0, "b", json!({})), None);
    }
}
