//! The health of rollouts that stop by themselves until somebody promotes them: Argo's Rollout, Flagger's
//! Canary, OpenKruise's Rollout and CloneSet, KusionStack's CollaSet, Rollout and RolloutRun.
//!
//! A rollout that the Spec itself pauses is ready, like a paused Deployment. One that something else pauses
//! (a controller at a step, a person, a partition) waits for promotion.

use jiff::{Span, Timestamp};
use serde_json::Value;

use super::{
    Health, Related,
    kstatus::unobserved,
    kusion_rollout,
    object_view::ObjectView,
    promotion::{is_of_spec, waits},
    verdict::{HealthVerdict, WaitPolicy},
};
use konverge_base::model::{
    GroupKind,
    apply_result::{WaitReason, Waiting},
};

/// Returns the health of such a rollout, whose Spec the field manager `manager` applies. `None` for any other
/// kind, and if the conventions of custom resources are more precise.
pub(super) fn evaluate(view: &ObjectView, related: &Related, manager: &str) -> Option<HealthVerdict> {
    let GroupKind { group, kind } = view.group_kind();
    match (group, kind) {
        ("argoproj.io", "Rollout") => argo_rollout(view, manager),
        ("flagger.app", "Canary") => canary(view),
        ("rollouts.kruise.io", "Rollout") => kruise_rollout(view),
        ("apps.kruise.io", "CloneSet") => Some(pod_set(view, &CLONE_SET, manager)),
        ("apps.kusionstack.io", "CollaSet") => Some(pod_set(view, &COLLA_SET, manager)),
        ("rollout.kusionstack.io", "Rollout") => kusion_rollout::rollout(view, related, manager),
        ("rollout.kusionstack.io", "RolloutRun") => kusion_rollout::run(view),
        _ => None,
    }
}

/// Completes the verdict of a user's rule: such a rule can report a suspended rollout, but not that it waits
/// for promotion.
pub(super) fn with_promotion(
    verdict: HealthVerdict,
    view: &ObjectView,
    related: &Related,
    manager: &str,
) -> HealthVerdict {
    if verdict.health != Health::Suspended {
        return verdict;
    }
    let own = evaluate(view, related, manager);
    match own.map(|own| own.weight) {
        Some(WaitPolicy::Waiting(Waiting { until: None, .. })) => waits(&verdict.message),
        Some(WaitPolicy::Waiting(Waiting {
            until: Some(until), ..
        })) => waits_until(until, &verdict.message),
        _ => verdict,
    }
}

fn waits_until(until: Timestamp, why: &str) -> HealthVerdict {
    let shown = until.strftime("%Y-%m-%d %H:%M:%S UTC");
    HealthVerdict::suspended(format!("paused until {shown}: {why}")).with_wait_policy(WaitPolicy::Waiting(
        Waiting {
            reason: WaitReason::Time,
            until: Some(until),
            wave: None,
        },
    ))
}

/// Evaluates an Argo Rollout by `status.phase`, which exists since Argo Rollouts 1.0.
fn argo_rollout(view: &ObjectView, manager: &str) -> Option<HealthVerdict> {
    if let Some(verdict) = argo_unobserved(view) {
        return Some(verdict);
    }
    let phase = view.text("/status/phase");
    if let Some(failure) = argo_failure(view).filter(|_| phase.is_empty()) {
        return Some(failure);
    }
    if let Some(pause) = view.list("/status/pauseConditions").next() {
        let why = pause.text("/reason");
        return Some(match argo_pause_end(view, &pause) {
            Some(until) => waits_until(until, why),
            None => waits(why),
        });
    }
    if view.flag("/spec/paused") {
        return Some(paused(view, "/spec/paused", manager));
    }
    if view.flag("/status/controllerPause") {
        // Somebody has removed the reason for the pause, but the controller has not noticed it yet.
        return Some(HealthVerdict::progressing("waits for its controller to continue"));
    }
    let message = view.text("/status/message");
    Some(match phase {
        "Healthy" => HealthVerdict::ready(message),
        "Progressing" => HealthVerdict::progressing(message),
        "Degraded" => HealthVerdict::failed(message),
        "Paused" => waits(message),
        _ => return None,
    })
}

/// Returns a failure that is reported in the form of versions before 1.0.
fn argo_failure(view: &ObjectView) -> Option<HealthVerdict> {
    let is_failure = |condition: &ObjectView| {
        condition.text("/type") == "InvalidSpec"
            || matches!(
                condition.text("/reason"),
                "RolloutAborted" | "ProgressDeadlineExceeded"
            )
    };
    let found = view.list("/status/conditions").find(is_failure)?;
    Some(HealthVerdict::failed(found.text("/message")))
}

/// Returns a verdict if the controller has not seen the newest generation. `observedGeneration` is a text;
/// before 0.10 it was a hash, which is no number or a larger one.
fn argo_unobserved(view: &ObjectView) -> Option<HealthVerdict> {
    let number = |pointer: &str| view.text(pointer).parse::<i64>().ok();
    let generation = view.number("/metadata/generation");
    let seen = number("/status/observedGeneration");
    let workload = number("/metadata/annotations/rollout.argoproj.io~1workload-generation")
        .filter(|_| view.at("/spec/workloadRef").is_some());
    let is_old = match (seen, generation) {
        _ if view.at("/status").is_none() => true,
        (Some(seen), Some(wanted)) => seen < wanted,
        _ => false,
    };
    let is_old = is_old || workload.is_some() && workload != number("/status/workloadObservedGeneration");
    is_old.then(|| HealthVerdict::progressing("not observed by its controller yet"))
}

/// Returns the end of a timed pause: of the current canary step, or before the automatic promotion of
/// blue-green.
fn argo_pause_end(view: &ObjectView, pause: &ObjectView) -> Option<Timestamp> {
    let start = pause.time("/startTime")?;
    let duration = match pause.text("/reason") {
        "CanaryPauseStep" => {
            let step = view.number("/status/currentStepIndex")?;
            seconds(view.at(&format!("/spec/strategy/canary/steps/{step}/pause/duration"))?)?
        }
        "BlueGreenPause" => view.number("/spec/strategy/blueGreen/autoPromotionSeconds")?,
        _ => return None,
    };
    // A duration of 0 means that the pause does not end by itself.
    let duration = Some(duration).filter(|seconds| *seconds > 0)?;
    start.checked_add(Span::new().try_seconds(duration).ok()?).ok()
}

/// Parses a number of seconds, or a text such as `90`, `30s`, `10m` or `1h`.
fn seconds(duration: &Value) -> Option<i64> {
    if let Some(seconds) = duration.as_i64() {
        return Some(seconds);
    }
    let text = duration.as_str()?;
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

/// Returns the health of a Flagger Canary. It reacts to changes of its target, and writing the Canary itself
/// starts nothing. So an apply does not wait for its phases, but a wave of a rollout does.
fn canary(view: &ObjectView) -> Option<HealthVerdict> {
    let phase = view.text("/status/phase");
    let message = || match view.condition("Promoted").map(|promoted| promoted.message) {
        None | Some("") => phase.to_lowercase(),
        Some(message) => message.to_owned(),
    };
    Some(match phase {
        "Waiting" => waits("the analysis of the canary starts when somebody confirms it"),
        "WaitingPromotion" => waits(""),
        "Initialized" | "Succeeded" => HealthVerdict::ready(message()),
        "Initializing" | "Progressing" | "Promoting" | "Finalising" | "Terminating" | "Terminated" => {
            HealthVerdict::progressing(message()).with_wait_policy(WaitPolicy::Indirect)
        }
        "Failed" => HealthVerdict::failed(message()).with_wait_policy(WaitPolicy::Indirect),
        _ => return None,
    })
}

/// Returns the health of an OpenKruise Rollout, which is treated like a Canary. A step with a duration ends
/// by itself.
fn kruise_rollout(view: &ObjectView) -> Option<HealthVerdict> {
    if let Some(verdict) = kruise_pause(view) {
        return Some(verdict);
    }
    let is_under_way = unobserved(view, false).is_none() && view.text("/status/phase") == "Progressing";
    is_under_way.then(|| {
        HealthVerdict::progressing(view.text("/status/message")).with_wait_policy(WaitPolicy::Indirect)
    })
}

fn kruise_pause(view: &ObjectView) -> Option<HealthVerdict> {
    let ways = ["canary", "blueGreen"];
    let way = ways
        .into_iter()
        .find(|way| view.text(&format!("/status/{way}Status/currentStepState")) == "StepPaused")?;
    let step = view
        .number(&format!("/status/{way}Status/currentStepIndex"))
        .unwrap_or(1);
    // Steps are numbered from 1.
    let duration = format!("/spec/strategy/{way}/steps/{}/pause/duration", step - 1);
    let is_timed = view.number(&duration).is_some_and(|seconds| seconds > 0);
    let is_paused = view.text("/status/phase") == "Progressing" && !is_timed;
    is_paused.then(|| waits(&format!("step {step}")))
}

/// The names of the fields of a set of pods that is updated in parts.
struct PodSetFields {
    paused: &'static str,
    /// The field with the number or the share of pods that keep the old revision.
    partition: &'static str,
    current_revision: &'static str,
    updated_revision: &'static str,
}

const CLONE_SET: PodSetFields = PodSetFields {
    paused: "/spec/updateStrategy/paused",
    partition: "/spec/updateStrategy/partition",
    current_revision: "/status/currentRevision",
    updated_revision: "/status/updateRevision",
};

const COLLA_SET: PodSetFields = PodSetFields {
    paused: "/spec/paused",
    partition: "/spec/updateStrategy/rollingUpdate/byPartition/partition",
    current_revision: "/status/currentRevision",
    updated_revision: "/status/updatedRevision",
};

fn pod_set(view: &ObjectView, fields: &PodSetFields, manager: &str) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, true) {
        return verdict;
    }
    if view.flag(fields.paused) {
        return paused(view, fields.paused, manager);
    }
    let wanted = view.number("/spec/replicas").unwrap_or(1);
    let replicas = view.count("/status/replicas");
    let updated = view.count("/status/updatedReplicas");
    let of_updated = |state: &str| view.number(&format!("/status/updated{state}Replicas"));
    // Older versions of the controller report no `Available` count, so `Ready` is used, or else all updated
    // replicas.
    let available = of_updated("Available")
        .or_else(|| of_updated("Ready"))
        .unwrap_or(updated);
    let is_update = view.text(fields.current_revision) != view.text(fields.updated_revision);
    let old = if is_update {
        view.at(fields.partition).map_or(0, |kept| share(kept, wanted))
    } else {
        0
    };
    let target = wanted - old;
    if replicas < wanted {
        HealthVerdict::progressing(format!("{replicas} of {wanted} replicas created"))
    } else if updated < target {
        HealthVerdict::progressing(format!("{updated} of {target} replicas updated"))
    } else if available < target {
        HealthVerdict::progressing(format!("{available} of {target} updated replicas available"))
    } else if old == 0 {
        HealthVerdict::ready(format!("{wanted} replicas"))
    } else if is_of_spec(view, fields.partition, manager) {
        HealthVerdict::ready(format!(
            "{updated} of {wanted} replicas updated, as its partition says"
        ))
    } else {
        waits(&format!("{updated} of {wanted} replicas updated"))
    }
}

/// Returns a number of pods. A share such as `50%` is rounded up.
fn share(kept: &Value, all: i64) -> i64 {
    let percent = kept.as_str().and_then(|text| text.strip_suffix('%'));
    let number = match percent {
        Some(percent) => percent
            .parse::<i64>()
            .ok()
            .map(|percent| (all.saturating_mul(percent) + 99) / 100),
        None => kept.as_i64().or_else(|| kept.as_str()?.parse().ok()),
    };
    number.unwrap_or(0).clamp(0, all.max(0))
}

/// Returns the verdict for an object with `true` in this field: whether the Spec or somebody else paused it.
fn paused(view: &ObjectView, field: &str, manager: &str) -> HealthVerdict {
    if is_of_spec(view, field, manager) {
        HealthVerdict::suspended("paused")
    } else {
        waits("somebody paused it")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::HealthRules, *};

    fn judged(object: &Value) -> Option<HealthVerdict> {
        let view = ObjectView(object);
        evaluate(&view, &Related::default(), crate::FIELD_MANAGER)
    }

    fn waiting(object: &Value) -> Option<Waiting> {
        match judged(object)?.weight {
            WaitPolicy::Waiting(waiting) => Some(waiting),
            _ => None,
        }
    }

    fn promotion() -> Option<Waiting> {
        Some(Waiting {
            reason: WaitReason::Promotion,
            until: None,
            wave: None,
        })
    }

    fn rollout(spec: Value, status: Value) -> Value {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web", "generation": 3}, "spec": spec, "status": status})
    }

    #[test]
    fn an_argo_rollout_waits_at_a_step() {
        let steps =
            |pause: Value| json!({"strategy": {"canary": {"steps": [{"setWeight": 20}, {"pause": pause}]}}});
        let status = json!({"observedGeneration": "3", "phase": "Paused", "message": "CanaryPauseStep", "currentStepIndex": 1,
            "pauseConditions": [{"reason": "CanaryPauseStep", "startTime": "2026-11-21T10:00:00Z"}]});
        let at_step = judged(&rollout(steps(json!({})), status.clone())).unwrap();
        assert_eq!(at_step.health, Health::Suspended);
        assert_eq!(at_step.message, "paused, waits for promotion: CanaryPauseStep");
        for (duration, until) in [
            (json!(90), "2026-11-21T10:01:30Z"),
            (json!("90"), "2026-11-21T10:01:30Z"),
            (json!("10m"), "2026-11-21T10:10:00Z"),
            (json!("1h"), "2026-11-21T11:00:00Z"),
        ] {
            let expected = Some(Waiting {
                reason: WaitReason::Time,
                until: Some(until.parse().unwrap()),
                wave: None,
            });
            let timed = rollout(steps(json!({"duration": duration})), status.clone());
            assert_eq!(waiting(&timed), expected, "{duration}");
        }
        // A duration that cannot be read has no known end.
        for duration in [
            json!("1 day"),
            json!("h"),
            json!(""),
            json!({}),
            json!(0),
            json!("99999999999999999h"),
        ] {
            let timed = rollout(steps(json!({"duration": duration})), status.clone());
            assert_eq!(waiting(&timed), promotion(), "{duration}");
        }
        // An older generation says nothing.
        let mut old = status;
        old["observedGeneration"] = json!("2");
        assert_eq!(
            judged(&rollout(steps(json!({})), old)).unwrap().health,
            Health::Progressing
        );
    }

    #[test]
    fn blue_green_waits_for_its_promotion() {
        let status = json!({"observedGeneration": "3", "phase": "Paused",
            "pauseConditions": [{"reason": "BlueGreenPause", "startTime": "2026-11-21T10:00:00Z"}]});
        let spec = json!({"strategy": {"blueGreen": {"activeService": "web"}}});
        assert_eq!(waiting(&rollout(spec, status.clone())), promotion());
        let timed = json!({"strategy": {"blueGreen": {"activeService": "web", "autoPromotionSeconds": 30}}});
        let until = waiting(&rollout(timed, status)).unwrap().until.unwrap();
        assert_eq!(until.to_string(), "2026-11-21T10:00:30Z");
    }

    /// As in a paused Deployment: the Spec wants it so. Somebody else does not speak for the Spec.
    #[test]
    fn what_the_spec_pauses_does_not_wait() {
        let paused = |manager: &str, operation: &str, object: Value, field: Value| {
            let mut object = object;
            object["metadata"]["managedFields"] =
                json!([{"manager": manager, "operation": operation, "fieldsV1": {"f:spec": field}}]);
            waiting(&object)
        };
        let argo = rollout(
            json!({"paused": true}),
            json!({"observedGeneration": "3", "phase": "Paused"}),
        );
        let set = |kind: &str, spec: Value| {
            json!({"apiVersion": kind.split_once(' ').unwrap().0, "kind": kind.split_once(' ').unwrap().1,
                "metadata": {"name": "web", "generation": 2}, "spec": spec,
                "status": {"observedGeneration": 2, "replicas": 4, "updatedReplicas": 1, "updatedAvailableReplicas": 1,
                    "currentRevision": "a", "updatedRevision": "b", "updateRevision": "b"}})
        };
        let collaset = "apps.kusionstack.io/v1alpha1 CollaSet";
        let cloneset = "apps.kruise.io/v1alpha1 CloneSet";
        let partition =
            json!({"f:updateStrategy": {"f:rollingUpdate": {"f:byPartition": {"f:partition": {}}}}});
        for (object, field) in [
            (argo, json!({"f:paused": {}})),
            (
                set(collaset, json!({"replicas": 4, "paused": true})),
                json!({"f:paused": {}}),
            ),
            (
                set(
                    collaset,
                    json!({"replicas": 4, "updateStrategy": {"rollingUpdate": {"byPartition": {"partition": 3}}}}),
                ),
                partition,
            ),
            (
                set(
                    cloneset,
                    json!({"replicas": 4, "updateStrategy": {"paused": true}}),
                ),
                json!({"f:updateStrategy": {"f:paused": {}}}),
            ),
            (
                set(
                    cloneset,
                    json!({"replicas": 4, "updateStrategy": {"partition": "75%"}}),
                ),
                json!({"f:updateStrategy": {"f:partition": {}}}),
            ),
        ] {
            assert_eq!(waiting(&object), None, "nobody is known: {object}");
            assert_eq!(
                paused("konverge", "Apply", object.clone(), field.clone()),
                None,
                "{object}"
            );
            for (manager, operation) in [
                ("kubectl-argo-rollouts", "Update"),
                ("konverge", "Update"),
                ("argocd-controller", "Apply"),
            ] {
                let by_other = paused(manager, operation, object.clone(), field.clone());
                assert_eq!(by_other, promotion(), "{manager} {operation}: {object}");
            }
            // The controller of a delivery writes the Spec, and Argo CD may update instead of apply.
            for (manager, operation, expected) in [
                ("argocd-controller", "Update", None),
                ("argocd-controller", "Apply", None),
                ("kustomize-controller", "Apply", promotion()),
                ("konverge", "Apply", promotion()),
            ] {
                let mut object = object.clone();
                object["metadata"]["managedFields"] =
                    json!([{"manager": manager, "operation": operation, "fieldsV1": {"f:spec": field}}]);
                let rules = HealthRules::default().with_field_manager("argocd-controller");
                let waits = |object: &Value| match super::super::built_in(object, &Related::default(), &rules)
                    .weight
                {
                    WaitPolicy::Waiting(waiting) => Some(waiting),
                    _ => None,
                };
                assert_eq!(waits(&object), expected, "{manager} {operation}: {object}");
                // Once it applies, its update is the change of a webhook.
                let applied = json!({"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {}});
                let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
                entries.push(applied);
                let expected = if operation == "Update" {
                    promotion()
                } else {
                    expected
                };
                assert_eq!(waits(&object), expected, "{manager} {operation}: {object}");
            }
        }
    }

    #[test]
    fn a_set_of_pods_is_waited_for_until_its_part_is_updated() {
        let set = |updated: i64, available: i64, revision: &str| {
            let object = json!({"apiVersion": "apps.kusionstack.io/v1alpha1", "kind": "CollaSet",
                "metadata": {"name": "web", "generation": 2, "managedFields": [{"manager": "rollout", "operation": "Update",
                    "fieldsV1": {"f:spec": {"f:updateStrategy": {"f:rollingUpdate": {"f:byPartition": {"f:partition": {}}}}}}}]},
                "spec": {"replicas": 4, "updateStrategy": {"rollingUpdate": {"byPartition": {"partition": 2}}}},
                "status": {"observedGeneration": 2, "replicas": 4, "updatedReplicas": updated,
                    "updatedAvailableReplicas": available, "currentRevision": "a", "updatedRevision": revision}});
            judged(&object).unwrap()
        };
        for (updated, available, revision, health) in [
            (1, 1, "b", Health::Progressing),
            (2, 1, "b", Health::Progressing),
            (2, 2, "b", Health::Suspended),
            // Without an update a partition holds nothing.
            (4, 4, "a", Health::Ready),
            (3, 3, "a", Health::Progressing),
        ] {
            let verdict = set(updated, available, revision);
            assert_eq!(
                verdict.health, health,
                "{updated} {available} {revision}: {verdict:?}"
            );
        }
    }

    #[test]
    fn a_canary_and_openkruises_rollout_wait_at_their_steps() {
        let canary = |phase: &str| {
            let object = json!({"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "web"}, "status": {"phase": phase}});
            waiting(&object)
        };
        for phase in [
            "Initializing",
            "Initialized",
            "Progressing",
            "Promoting",
            "Succeeded",
            "Failed",
            "",
        ] {
            assert_eq!(canary(phase), None, "{phase}");
        }
        for phase in ["Waiting", "WaitingPromotion"] {
            assert_eq!(canary(phase), promotion(), "{phase}");
        }
        let kruise = |way: &str, pause: Value, state: &str, phase: &str| {
            let object = json!({"apiVersion": "rollouts.kruise.io/v1beta1", "kind": "Rollout", "metadata": {"name": "web"},
                "spec": {"strategy": {way: {"steps": [{"replicas": 1, "pause": pause}]}}},
                "status": {"phase": phase, format!("{way}Status"): {"currentStepIndex": 1, "currentStepState": state}}});
            waiting(&object)
        };
        for way in ["canary", "blueGreen"] {
            assert_eq!(kruise(way, json!({}), "StepPaused", "Progressing"), promotion());
            assert_eq!(
                kruise(way, json!({"duration": 0}), "StepPaused", "Progressing"),
                promotion()
            );
            assert_eq!(
                kruise(way, json!({"duration": 60}), "StepPaused", "Progressing"),
                None
            );
            assert_eq!(
                kruise(way, json!({}), "StepUpgrade", "Progressing"),
                None,
                "it continues"
            );
            assert_eq!(kruise(way, json!({}), "StepPaused", "Terminating"), None);
        }
    }
}
