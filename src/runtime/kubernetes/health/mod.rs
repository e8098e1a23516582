//! Whether an object has become what its manifest asks for: [`judge`].
//!
//! Rules in force, first match: the user's own ([`HealthRules`]: Argo CD's Lua scripts, CEL, KCL), then one per built-in kind
//! ([`builtin`]), then the conventions that custom resources keep ([`generic`], those of kstatus). Everything here is
//! pure: what else must be known (pods, replica sets, events) is handed in as [`Related`], and rules in KCL are run by
//! whoever has the core ([`Evaluate`]).

mod builtin;
mod cel;
mod diagnosis;
mod kcl;
mod kstatus;
mod lua;
mod manifests;
mod object_view;
mod pods;
mod related;
mod rules;
mod workloads;

pub use diagnosis::{FailingPod, Log, culprit};
pub use kcl::{AssertionResult, Evaluate};
pub use manifests::{Manifest, ManifestError, documents};
pub use related::Related;
pub use rules::{HealthRules, RulesError};

use serde_json::Value;

use object_view::ObjectView;

pub use crate::model::health::Health;

/// What somebody who waits should make of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As it says: a failure is the controller's last word.
    Final,
    /// A failure that waiting does not remove (an image that does not exist): it counts once it has lasted.
    Blocked,
    /// A failure that may heal by itself (a crash loop, a node that is still to come): it is shown, and waited for.
    Transient,
    /// Worth a remark, never worth waiting for.
    Advisory,
}

/// The answer of [`judge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthVerdict {
    /// In a word.
    pub health: Health,
    /// Why, for people; may be empty. Holds text from the cluster: escape before printing.
    pub message: String,
    /// How seriously to take it.
    pub weight: Weight,
}

impl HealthVerdict {
    fn new(health: Health, message: impl Into<String>) -> Self {
        Self {
            health,
            message: message.into(),
            weight: Weight::Final,
        }
    }

    fn ready(message: impl Into<String>) -> Self {
        Self::new(Health::Ready, message)
    }

    fn progressing(message: impl Into<String>) -> Self {
        Self::new(Health::Progressing, message)
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::new(Health::Failed, message)
    }

    fn suspended(message: impl Into<String>) -> Self {
        Self::new(Health::Suspended, message)
    }

    fn unknown(message: impl Into<String>) -> Self {
        Self::new(Health::Unknown, message)
    }

    fn weighing(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }
}

/// Judges an object as the API server gives it. Never panics, whatever the object holds.
///
/// A user's rule that has no opinion (a script that returns nothing) leaves the object to the rules that come after it.
pub fn judge(object: &Value, related: &Related, rules: &HealthRules) -> HealthVerdict {
    let view = ObjectView(object);
    let (group, kind) = (view.group(), view.text("/kind"));
    if let Some(verdict) = rules.judge(group, kind, object, related.now()) {
        return verdict;
    }
    if !view.text("/metadata/deletionTimestamp").is_empty() {
        return kstatus::terminating(&view);
    }
    builtin::judge(group, kind, &view, related).unwrap_or_else(|| kstatus::judge(&view, related))
}

/// As [`judge`], with rules in KCL asked too.
pub async fn assess(object: &Value, related: &Related, rules: &HealthRules) -> HealthVerdict {
    let view = ObjectView(object);
    match rules.assertions(view.group(), view.text("/kind")) {
        Some(assertions) => assertions.judge(object).await,
        None => judge(object, related, rules),
    }
}

#[cfg(test)]
mod tests;
