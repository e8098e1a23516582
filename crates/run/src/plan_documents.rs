//! The plan documents of targets. Policy sets get true values, only in memory; printed documents are masked.

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::TargetPlan;
use konverge_base::model::{
    RepoPath, StackId,
    plan::{FieldChange, ResourcePlan, StackPlan},
    plan_document::{DesiredResource, StackDocument},
};
use konverge_engine::{self as engine, ComparedSpecs, SpecMask, TruePlan};
use konverge_policy_sets as policy_sets;
use konverge_secrets::Secrets;

/// Receives each stack of a preview as soon as it is planned, so that no plan must stay in memory.
#[async_trait]
pub trait DocumentVisitor: Send + Sync {
    /// Receives a planned stack.
    async fn visit(&self, planned: PlannedDocument<'_>);
}

/// A planned stack, from which a visitor takes the document that it needs.
pub struct PlannedDocument<'a> {
    /// The plan that the document shows.
    pub planned: &'a TargetPlan,
    /// The secrets that are masked in a printed document.
    pub secrets: &'a Secrets,
}

impl PlannedDocument<'_> {
    /// Returns the document with true values, for policy sets. Never print or store it.
    pub fn for_rules(&self) -> StackDocument {
        let truth = match self.planned {
            TargetPlan::Live(plan) => plan.truth(),
            TargetPlan::Spec(plan) => {
                let (base, head) = &plan.compared;
                let specs = ComparedSpecs { base, head };
                engine::true_spec_plan(&plan.public, specs, None, self.secrets)
            }
        };
        for_rules(truth)
    }

    /// Returns the document for printing, with all known secrets masked.
    pub fn masked(&self) -> StackDocument {
        let desired = match self.planned {
            TargetPlan::Live(plan) => plan.desired(),
            TargetPlan::Spec(plan) => {
                engine::desired_by_spec(&plan.compared.1, None, SpecMask::for_readers(self.secrets))
            }
        };
        let plan = masked_plan(self.planned.public(), self.secrets);
        let desired = desired.into_iter().map(|desired| DesiredResource {
            attributes: masked_map(&desired.attributes, self.secrets),
            ..desired
        });
        policy_sets::document(&plan, desired.collect())
    }
}

/// Creates the document for rules of a comparison of two Specs of a stack.
pub fn of_specs(
    stack: &StackId,
    folder: &RepoPath,
    specs: ComparedSpecs<'_>,
    secrets: &Secrets,
) -> StackDocument {
    let plan = engine::plan_against_spec(stack, folder, specs, None, SpecMask::for_readers(secrets));
    for_rules(engine::true_spec_plan(&plan, specs, None, secrets))
}

/// Creates a document with true values.
pub fn for_rules(truth: TruePlan) -> StackDocument {
    StackDocument {
        hidden: truth.hidden,
        ..policy_sets::document(&truth.plan, truth.desired)
    }
}

fn masked_plan(plan: &StackPlan, secrets: &Secrets) -> StackPlan {
    let masked = |value: &Option<Value>| value.as_ref().map(|value| secrets.mask_value(value));
    let change = |change: &FieldChange| FieldChange {
        from: masked(&change.from),
        to: masked(&change.to),
        ..change.clone()
    };
    let resources = plan.resources.iter().map(|resource| ResourcePlan {
        changes: resource.changes.iter().map(change).collect(),
        ..resource.clone()
    });
    StackPlan {
        resources: resources.collect(),
        ..plan.clone()
    }
}

fn masked_map(map: &Map<String, Value>, secrets: &Secrets) -> Map<String, Value> {
    let members = map.iter();
    members
        .map(|(key, value)| (key.clone(), secrets.mask_value(value)))
        .collect()
}
