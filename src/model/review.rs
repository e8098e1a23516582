//! What a reviewer agreed to: units of meaning. A unit is (stack, resource, action, path, to); what stood there before
//! (`from`) is a guard beside it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CommitId, Digest, ResourceId, StackId,
    claim::Marks,
    digest::DigestBuilder,
    plan::{Action, Basis, ChangeOrigin, ResourcePlan, StackPlan},
};

/// One thing that somebody reviewed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewUnit {
    /// The stack.
    pub stack: StackId,
    /// The resource.
    pub resource: ResourceId,
    /// What happens to it.
    pub action: Action,
    /// The changed path.
    pub path: String,
    /// What it becomes, masked; absent if it goes away.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub to: Option<Value>,
    /// What it was, masked: a guard, not part of the digest.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub from: Option<Value>,
}

impl ReviewUnit {
    /// Over (stack, resource, action, path, to) in canonical JSON.
    pub fn digest(&self) -> Digest {
        let mut builder = DigestBuilder::new("unit");
        for part in [
            self.stack.as_str(),
            self.resource.as_str(),
            action_word(self.action),
            &self.path,
        ] {
            builder.part(part.as_bytes());
        }
        match &self.to {
            Some(value) => builder.part(Digest::of_json(value).as_bytes()),
            None => builder.part(b""),
        };
        builder.finish()
    }
}

fn action_word(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Update => "update",
        Action::Replace => "replace",
        Action::Delete => "delete",
        Action::Adopt => "adopt",
        Action::Forget => "forget",
        Action::Unchanged => "unchanged",
        Action::Unknown => "unknown",
    }
}

/// The units of one resource's plan. Changes that the server makes by itself (defaults, admission) are shown but not
/// reviewed; a resource without changes of its own still has one unit, its action. An update that changes nothing but
/// the owner of fields has none: every value stays.
pub fn resource_units(stack: &StackId, plan: &ResourcePlan) -> Vec<ReviewUnit> {
    let keeps_values = plan.changes.is_empty() && !plan.ownership.is_empty();
    if plan.action == Action::Unchanged || (plan.action == Action::Update && keeps_values) {
        return Vec::new();
    }
    let unit = |path: &str, to: Option<&Value>, from: Option<&Value>| ReviewUnit {
        stack: stack.clone(),
        resource: plan.id.clone(),
        action: plan.action,
        path: path.to_owned(),
        to: to.cloned(),
        from: from.cloned(),
    };
    if matches!(plan.action, Action::Delete | Action::Forget) {
        return vec![unit("", None, None)];
    }
    let mut units: Vec<_> = plan
        .changes
        .iter()
        .filter(|change| !matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission))
        .map(|change| unit(&change.path, change.to.as_ref(), change.from.as_ref()))
        .collect();
    if units.is_empty() {
        units.push(unit("", None, None));
    }
    units
}

/// The units of a stack's plan.
pub fn stack_units(plan: &StackPlan) -> Vec<ReviewUnit> {
    plan.resources
        .iter()
        .flat_map(|resource| resource_units(&plan.id, resource))
        .collect()
}

/// What a preview, or a share of one, records under `reviews/<pr>/<head sha>/<run>-<attempt>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewRecord {
    /// Always 1.
    pub version: u32,
    /// The pull request.
    pub pull_request: u64,
    /// The previewed head.
    pub head: CommitId,
    /// What it was compared with.
    pub base: CommitId,
    /// The commit of the default branch whose policy was in force; absent in older records: then it is the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<CommitId>,
    /// The run that made it, as a URL.
    pub run: String,
    /// Per previewed stack its plan's digest and units. Stacks without change are listed too, with no units.
    pub stacks: Vec<ReviewedStack>,
}

/// One stack of a review record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewedStack {
    /// The stack.
    pub id: StackId,
    /// What the Spec was compared with; `spec` for forks' pull requests.
    pub basis: Basis,
    /// The plan's digest.
    pub digest: Digest,
    /// The Spec's digest at head, if it was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// What it would create or take over, by which the shares of a preview are compared with each other.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub claims: Marks,
    /// The units.
    pub units: Vec<ReviewUnit>,
}
