//! The plan documents of targets: the input of policy sets.

use async_trait::async_trait;
use serde_json::Value;

use super::TargetPlan;
use crate::{
    engine::EnginePlan,
    model::{
        plan::StackPlan,
        plan_document::{OtherNames, StackDocument},
    },
    policy,
    secrets::Secrets,
};

/// Sees the plan document of each stack of a preview, as soon as it is planned. A document lives no longer.
#[async_trait]
pub trait DocumentVisitor: Send + Sync {
    /// Looks at the document of a stack.
    async fn visit(&self, document: StackDocument);
}

/// The document of a target with its other names, with all known secrets masked.
pub(super) fn of_target(
    planned: &TargetPlan,
    public: &StackPlan,
    known_as: OtherNames,
    secrets: &Secrets,
) -> StackDocument {
    let desired = match planned {
        TargetPlan::Live(plan) => plan.desired(),
        TargetPlan::Spec(plan) => plan.desired.clone(),
    };
    StackDocument {
        known_as,
        ..masked(policy::document(public, desired), secrets)
    }
}

/// The document of a plan that is applied.
pub(super) fn of_plan(plan: &EnginePlan, known_as: OtherNames, secrets: &Secrets) -> StackDocument {
    StackDocument {
        known_as,
        ..masked(policy::document(&plan.public, plan.desired()), secrets)
    }
}

/// Masks every known secret in the values.
pub(super) fn masked(mut document: StackDocument, secrets: &Secrets) -> StackDocument {
    let mask = |value: &mut Option<Value>| {
        if let Some(value) = value {
            *value = secrets.mask_value(value);
        }
    };
    for resource in &mut document.resources {
        mask(&mut resource.before);
        mask(&mut resource.after);
        for change in &mut resource.changes {
            mask(&mut change.from);
            mask(&mut change.to);
        }
    }
    document
}
