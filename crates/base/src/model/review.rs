//! Review units: what a reviewer approved. A unit is (stack, resource, action, path, to). The value before
//! the change (`from`) is a guard beside it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CommitId, Digest, ResourceId, StackId,
    claim::Marks,
    digest::DigestBuilder,
    masked_value::without_value_hashes,
    plan::{Action, Basis, ChangeOrigin, ResourcePlan, StackPlan},
};

/// One reviewed change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewUnit {
    /// Stack of the resource.
    pub stack: StackId,
    /// The resource.
    pub resource: ResourceId,
    /// The action of an apply on it.
    pub action: Action,
    /// The field that changes; empty for the resource itself.
    pub path: String,
    /// The new value, masked; `None` if the value is removed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub to: Option<Value>,
    /// The old value, masked. It is a guard and not part of the unit's digest.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub from: Option<Value>,
}

impl ReviewUnit {
    /// The digest over (stack, resource, action, path, to) in canonical JSON. A job that has the values of secrets and one
    /// that has none give a unit the same digest.
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
            Some(value) => builder.part(digest_of_known(value).as_bytes()),
            None => builder.part(b""),
        };
        builder.finish()
    }

    /// The part of the unit in the digest of a plan. A takeover has no earlier apply to compare with, so the digest of its
    /// plan stands for the live values, too: an approval does not fit once somebody has changed one of them.
    pub(super) fn plan_digest(&self) -> Digest {
        let live = self.from.as_ref().filter(|_| self.action == Action::Adopt);
        let Some(live) = live else {
            return self.digest();
        };
        let mut builder = DigestBuilder::new("takeover");
        builder.part(self.digest().as_bytes());
        builder.part(digest_of_known(live).as_bytes());
        builder.finish()
    }
}

/// The digest of a value without what only a job with the values of secrets knows.
fn digest_of_known(value: &Value) -> Digest {
    let known = without_value_hashes(value);
    Digest::of_json(known.as_ref().unwrap_or(value))
}

fn action_word(action: Action) -> &'static str {
    match action {
        Action::Create => "create",
        Action::Update => "update",
        Action::Replace => "replace",
        Action::Delete => "delete",
        Action::Adopt => "adopt",
        Action::Forget => "forget",
        Action::Run => "run",
        Action::Unchanged => "unchanged",
        Action::Unknown => "unknown",
    }
}

/// The units of one resource's plan. Changes by the server itself (defaults, admission) are shown but not
/// reviewed. A resource without changes of its own has one unit: its action. An update that only changes the
/// owner of fields has no unit, because every value stays.
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

/// The record of a preview, or of one shard of it, stored as `reviews/<pr>/<head sha>/<run>-<attempt>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewRecord {
    /// Version of this format.
    pub version: u32,
    /// Number of the pull request.
    pub pull_request: u64,
    /// The previewed head.
    pub head: CommitId,
    /// The base that the head was compared with.
    pub base: CommitId,
    /// The commit of the default branch whose policy applied. `None` in older records: the base is used
    /// instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<CommitId>,
    /// The URL of the run that wrote the record.
    pub run: String,
    /// The digests of the denials of policy sets that the comment shows: a review of this head may override them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub findings: BTreeSet<Digest>,
    /// The plan digest and the units of each previewed stack. Unchanged stacks are listed too, with no units.
    pub stacks: Vec<ReviewedStack>,
    /// The comment that showed it; a document beside the record, because it is written later. Loaded only with
    /// `findings`.
    #[serde(skip)]
    pub comment: Option<RecordedComment>,
}

/// The line of an approving review that overrides every denial which the comment shows.
pub const OVERRIDE_ALL_SHOWN: &str = "konverge override";

/// The comment of a preview, as Konverge wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedComment {
    /// The digest of its text.
    pub digest: Digest,
    /// GitHub's time of the write.
    pub written: Timestamp,
}

/// One stack of a review record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewedStack {
    /// Identity of the stack.
    pub id: StackId,
    /// The side that the Spec was compared with; `spec` for pull requests from forks.
    pub basis: Basis,
    /// The digest of its plan at the review.
    pub digest: Digest,
    /// The digest of the Spec at the head, if it was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The short hashes of what the stack would create or adopt. With them the shards of a preview are
    /// compared.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub claims: Marks,
    /// Everything that the reviewer was shown of it.
    pub units: Vec<ReviewUnit>,
}
