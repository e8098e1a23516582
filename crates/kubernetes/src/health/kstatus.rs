//! The conventions of controllers, as kstatus defines them: generation, `Reconciling`, `Stalled`, `Ready`.

use super::{
    Related,
    object_view::ObjectView,
    verdict::{HealthVerdict, WaitPolicy},
};

/// Seconds for which a new object may lack a status. After that, a kind whose objects never get one counts as
/// ready.
const STATUS_WINDOW: i64 = 15;

/// Returns the verdict for an object that is being deleted, with the reason why it still exists.
pub(super) fn terminating(view: &ObjectView) -> HealthVerdict {
    let finalizers: Vec<_> = view
        .list("/metadata/finalizers")
        .filter_map(|finalizer| finalizer.0.as_str())
        .collect();
    if finalizers.is_empty() {
        HealthVerdict::progressing("being deleted")
    } else {
        HealthVerdict::progressing(format!("being deleted, waiting for {}", finalizers.join(", ")))
    }
}

/// Returns a verdict if the controller has not seen the newest generation yet. With `strict`, that also holds
/// for a controller that reports no generation.
pub(super) fn unobserved(view: &ObjectView, strict: bool) -> Option<HealthVerdict> {
    let generation = view.number("/metadata/generation");
    match (generation, view.number("/status/observedGeneration")) {
        (Some(wanted), Some(seen)) if seen < wanted => Some(HealthVerdict::progressing(format!(
            "generation {wanted} is not observed yet (the controller is at {seen})"
        ))),
        (_, None) if strict => Some(HealthVerdict::progressing("not observed by its controller yet")),
        _ => None,
    }
}

/// Evaluates the conditions `Reconciling` and `Stalled`.
pub(super) fn reconciling(view: &ObjectView) -> Option<HealthVerdict> {
    if let Some(condition) = view.condition("Reconciling").filter(|c| c.is_true()) {
        return Some(HealthVerdict::progressing(condition.lowercase_words()));
    }
    let stalled = view.condition("Stalled").filter(|c| c.is_true())?;
    Some(HealthVerdict::failed(stalled.lowercase_words()).with_wait_policy(WaitPolicy::Blocked))
}

/// Evaluates an object of a kind without its own rule.
pub(super) fn evaluate(view: &ObjectView, related: &Related) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, false).or_else(|| reconciling(view)) {
        return verdict;
    }
    if view.at("/status").is_none() {
        return without_status(view, related);
    }
    let Some(ready) = view.condition("Ready") else {
        return HealthVerdict::ready("");
    };
    let stale = match (ready.observed_generation, view.number("/metadata/generation")) {
        (Some(seen), Some(wanted)) => seen < wanted,
        _ => false,
    };
    match ready.status {
        _ if stale => HealthVerdict::progressing("its condition Ready is about an older generation"),
        "True" => HealthVerdict::ready(ready.message),
        _ => HealthVerdict::progressing(ready.lowercase_words()),
    }
}

/// Evaluates an object without a status. Most such kinds never get one, but right after the creation the
/// controller may not have written it yet.
fn without_status(view: &ObjectView, related: &Related) -> HealthVerdict {
    let age = view
        .time("/metadata/creationTimestamp")
        .map(|created| related.now().as_second() - created.as_second());
    if related.reports_status(view) && age.is_none_or(|seconds| seconds < STATUS_WINDOW) {
        return HealthVerdict::progressing("its controller has not reported a status yet");
    }
    HealthVerdict::ready("")
}
