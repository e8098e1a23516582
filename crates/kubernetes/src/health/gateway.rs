//! The kinds of Gateway API. A route has conditions for each of its parents; a Gateway and a GatewayClass
//! have their own conditions that show if a controller accepts them.

use super::{
    object_view::{Condition, ObjectView},
    verdict::{HealthVerdict, WaitPolicy},
};

const GROUP: &str = "gateway.networking.k8s.io";

/// Conditions without which a route serves nothing or returns errors.
const NEEDED: [&str; 2] = ["Accepted", "ResolvedRefs"];

/// Returns the health of an object of Gateway API, depending on whether a controller has rejected, accepted
/// or not seen it. `None` if the status does not show it.
pub(super) fn evaluate(view: &ObjectView) -> Option<HealthVerdict> {
    if view.group_kind().group != GROUP {
        return None;
    }
    let own = view.condition("Accepted").filter(Condition::is_false);
    if let Some(rejected) = own.filter(|condition| !is_stale(view, condition)) {
        return Some(failed(rejected.lowercase_words()));
    }
    let parents = || view.list("/status/parents").chain(view.list("/status/ancestors"));
    let conditions = || {
        parents().flat_map(|parent| {
            let needed = parent
                .list("/conditions")
                .filter(|one| NEEDED.contains(&one.text("/type")));
            needed.map(move |one| (parent, one.text("/type"), Condition::from(one)))
        })
    };
    let is_rejected =
        |(_, _, condition): &(_, _, Condition<'_>)| condition.is_false() && !is_stale(view, condition);
    if let Some((parent, kind, condition)) = conditions().find(is_rejected) {
        let says = format!("{kind} is false: {}", condition.lowercase_words());
        return Some(failed(format!("{}: {says}", name_of(view, &parent))));
    }
    if let Some((parent, ..)) = conditions().find(|(_, _, condition)| is_stale(view, condition)) {
        let parent = name_of(view, &parent);
        return Some(HealthVerdict::progressing(format!(
            "{parent} has not seen its newest generation yet"
        )));
    }
    let accepted = conditions().filter(|(_, kind, condition)| *kind == "Accepted" && condition.is_true());
    let accepted: Vec<_> = accepted.map(|(parent, ..)| name_of(view, &parent)).collect();
    (!accepted.is_empty()).then(|| HealthVerdict::ready(format!("accepted by {}", accepted.join(", "))))
}

/// Returns a failure that may resolve itself, because a missing Gateway, Service or grant may be created a
/// moment later.
fn failed(says: String) -> HealthVerdict {
    HealthVerdict::failed(says).with_wait_policy(WaitPolicy::Transient)
}

fn is_stale(view: &ObjectView, condition: &Condition<'_>) -> bool {
    let wanted = view.number("/metadata/generation");
    matches!((condition.observed_generation, wanted), (Some(seen), Some(wanted)) if seen < wanted)
}

/// Returns a name such as `Gateway shop/web`, with the listener if the reference names one.
fn name_of(view: &ObjectView, parent: &ObjectView) -> String {
    let reference = |key: &str| match parent.text(&format!("/parentRef/{key}")) {
        "" => parent.text(&format!("/ancestorRef/{key}")),
        text => text,
    };
    fn or<'a>(text: &'a str, default: &'a str) -> &'a str {
        if text.is_empty() { default } else { text }
    }
    let kind = or(reference("kind"), "Gateway");
    let namespace = or(reference("namespace"), view.text("/metadata/namespace"));
    let listener = match reference("sectionName") {
        "" => String::new(),
        name => format!(" ({name})"),
    };
    format!("{kind} {namespace}/{}{listener}", reference("name"))
}
