//! The impact of a change on running pods: which change restarts how many.

use serde_json::Value;

use konverge_base::model::{GroupKind, diff};

/// A sentence for the reviewer if pods are restarted, terminated or created.
pub(crate) fn impact(live: &Value, becomes: &Value) -> Option<String> {
    let kind = GroupKind::from_object(live);
    let spec = &live["spec"];
    let template_changed = !diff::same(&spec["template"], &becomes["spec"]["template"]);
    let count = |object: &Value| object["spec"]["replicas"].as_u64().unwrap_or(1);
    match kind {
        GroupKind::DEPLOYMENT | GroupKind::STATEFUL_SET | GroupKind::REPLICA_SET => {
            let (before, after) = (count(live), count(becomes));
            let scaled = match after.cmp(&before) {
                std::cmp::Ordering::Greater => Some(format!("starts {}", pods(after - before))),
                std::cmp::Ordering::Less => Some(format!("ends {}", pods(before - after))),
                std::cmp::Ordering::Equal => None,
            };
            let restarted = (template_changed && before.min(after) > 0)
                .then(|| restart(kind, &becomes["spec"], before.min(after)))
                .flatten();
            let parts: Vec<_> = restarted.into_iter().chain(scaled).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        GroupKind::DAEMON_SET if template_changed => {
            if becomes["spec"]["updateStrategy"]["type"] == "OnDelete" {
                return Some("pods take the change when they are deleted (OnDelete)".to_owned());
            }
            match live["status"]["desiredNumberScheduled"].as_u64() {
                Some(0) | None => None,
                Some(count) => Some(format!("restarts {} node by node", pods(count))),
            }
        }
        _ => None,
    }
}

fn restart(kind: GroupKind<'_>, spec: &Value, count: u64) -> Option<String> {
    if kind == GroupKind::REPLICA_SET {
        return None;
    }
    if spec["paused"] == true {
        return Some("paused: no pod restarts until it is resumed".to_owned());
    }
    let strategy = if kind == GroupKind::DEPLOYMENT {
        &spec["strategy"]
    } else {
        &spec["updateStrategy"]
    };
    match strategy["type"].as_str() {
        Some("Recreate") => Some(format!(
            "restarts {} at once: all end before the first new one starts",
            pods(count)
        )),
        Some("OnDelete") => Some("pods take the change when they are deleted (OnDelete)".to_owned()),
        _ if kind == GroupKind::STATEFUL_SET => {
            let partition = strategy["rollingUpdate"]["partition"].as_u64().unwrap_or(0);
            let restarted = count.saturating_sub(partition);
            let kept = if partition > 0 {
                format!(" (partition {partition}: the others stay)")
            } else {
                String::new()
            };
            Some(format!("restarts {} one by one{kept}", pods(restarted)))
        }
        _ => Some(format!("restarts {} by rolling update", pods(count))),
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
            "restarts 1 pod at once: all end before the first new one starts; starts 3 pods"
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
