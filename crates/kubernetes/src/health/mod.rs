//! Evaluates the health of an object: [`assess`].
//!
//! The first matching rule applies: the user's own ([`HealthRules`]: Argo CD's Lua scripts, CEL, KCL), then
//! those of built-in kinds (`builtin`), of Gateway API (`gateway`) and of rollouts (`progressive`), then the
//! conventions of custom resources (`kstatus`). Everything here is pure: other objects (pods, replica sets,
//! events) are passed as [`Related`], and the caller runs rules in KCL and in Lua ([`Evaluate`]).

mod builtin;
mod cel;
mod diagnosis;
mod gateway;
mod kcl;
mod kstatus;
mod kusion_rollout;
mod lua;
mod manifests;
mod object_view;
mod pods;
mod progressive;
mod promotion;
mod related;
mod rules;
mod workloads;

pub use diagnosis::{FailingPod, Log, culprit};
pub use kcl::AssertionResult;
pub use lua::run_lua;
pub use manifests::{Manifest, ManifestError, documents};
pub use related::Related;
pub use rules::{Evaluate, HealthRules, RulesError};
pub use verdict::{HealthVerdict, WaitPolicy};

use konverge_base::model::GroupKind;
use serde_json::Value;

use object_view::ObjectView;

pub use konverge_base::model::health::Health;

/// Evaluates an object as the API server returns it. Never panics, whatever the object contains.
///
/// If a user's rule gives no result (a script that returns nothing), the later rules apply.
pub async fn assess(object: &Value, related: &Related, rules: &HealthRules) -> HealthVerdict {
    let view = ObjectView(object);
    match rules.evaluate(view.group_kind(), object).await {
        Some(verdict) => progressive::with_promotion(verdict, &view, related, rules.field_manager()),
        None => built_in(object, related, rules),
    }
}

/// Evaluates an object by Konverge's own rules. Of `rules`, only the field manager is used.
pub fn built_in(object: &Value, related: &Related, rules: &HealthRules) -> HealthVerdict {
    let view = ObjectView(object);
    let of = view.group_kind();
    if !view.text("/metadata/deletionTimestamp").is_empty() {
        return kstatus::terminating(&view);
    }
    builtin::evaluate(of, &view, related)
        .or_else(|| gateway::evaluate(&view))
        .or_else(|| progressive::evaluate(&view, related, rules.field_manager()))
        .unwrap_or_else(|| kstatus::evaluate(&view, related))
}

/// Returns true if the Spec itself suspends an object: by the built-in rule of its kind, or with
/// `spec.suspend` for a kind without one. A user's rule is not enough, because it does not tell who suspended
/// the object.
pub fn is_suspended_by_spec(object: &Value, rules: &HealthRules) -> bool {
    let view = ObjectView(object);
    let of = view.group_kind();
    let (related, manager) = (Related::default(), rules.field_manager());
    if let Some(own) = progressive::evaluate(&view, &related, manager) {
        return own.health == Health::Suspended && !matches!(own.weight, WaitPolicy::Waiting(_));
    }
    let own = builtin::evaluate(of, &view, &related);
    let field = match of {
        GroupKind::DEPLOYMENT => "/spec/paused",
        _ => "/spec/suspend",
    };
    let is_suspended = own.map_or(view.flag(field), |own| own.health == Health::Suspended);
    is_suspended && promotion::is_of_spec(&view, field, manager)
}

#[cfg(test)]
mod tests;
mod verdict;
