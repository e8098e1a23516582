//! Review units: the changes that a reviewer approved. A unit is (stack, resource, action, path, to). The value before
//! the change (`from`) is recorded too, but is not part of the unit.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    CommitId, Digest, FieldPath, ResourceId, StackId,
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
    /// The reviewed resource.
    pub resource: ResourceId,
    /// The action of an apply on the resource.
    pub action: Action,
    /// The path of the field that changes; empty for the resource itself.
    pub path: FieldPath,
    /// The new value, masked; `None` if the value is removed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub to: Option<Value>,
    /// The old value, masked. It is not part of the unit's digest.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "super::plan::present"
    )]
    pub from: Option<Value>,
}

impl ReviewUnit {
    /// Returns the digest over (stack, resource, action, path, to) in canonical JSON. It is the same in a job with and
    /// in a job without access to the values of secrets.
    pub fn digest(&self) -> Digest {
        let mut builder = DigestBuilder::new("unit");
        for part in [
            self.stack.as_str(),
            self.resource.as_str(),
            &self.action.to_string(),
            self.path.as_str(),
        ] {
            builder.part(part.as_bytes());
        }
        match &self.to {
            Some(value) => builder.part(digest_of_known(value).as_bytes()),
            None => builder.part(b""),
        };
        builder.finish()
    }

    /// Returns the unit's part of the plan digest. For an adopted resource it includes the live value, because there is
    /// no earlier apply to compare with: if somebody changes that value, an approval of the old digest no longer
    /// applies.
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

/// Returns the digest of a value without the hashes that only a job with access to the secrets can compute.
fn digest_of_known(value: &Value) -> Digest {
    let known = without_value_hashes(value);
    Digest::of_json(known.as_ref().unwrap_or(value))
}

/// Returns the units of one resource's plan. Changes by the server itself (defaults, admission) are shown but not
/// reviewed. A resource whose fields do not change has one unit: its action. An update that only changes the
/// owner of fields has no unit, because every value stays.
pub fn resource_units(stack: &StackId, plan: &ResourcePlan) -> Vec<ReviewUnit> {
    let keeps_values = plan.changes.is_empty() && !plan.ownership.is_empty();
    if plan.action == Action::Unchanged || (plan.action == Action::Update && keeps_values) {
        return Vec::new();
    }
    let unit = |path: &FieldPath, to: Option<&Value>, from: Option<&Value>| ReviewUnit {
        stack: stack.clone(),
        resource: plan.id.clone(),
        action: plan.action,
        path: path.clone(),
        to: to.cloned(),
        from: from.cloned(),
    };
    if matches!(plan.action, Action::Delete | Action::Forget) {
        return vec![unit(&FieldPath::root(), None, None)];
    }
    let mut units: Vec<_> = plan
        .changes
        .iter()
        .filter(|change| !matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission))
        .map(|change| unit(&change.path, change.to.as_ref(), change.from.as_ref()))
        .collect();
    if units.is_empty() {
        units.push(unit(&FieldPath::root(), None, None));
    }
    units
}

/// Returns the units of a stack's plan.
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
    /// The commit of the default branch whose policies applied. `None` in older records: then `base` counts
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
    /// The comment that showed the plan. It is stored in a separate document, because it is written later. Loaded only
    /// if `findings` is not empty.
    #[serde(skip)]
    pub comment: Option<RecordedComment>,
}

/// The line in an approving review that overrides every denial that the comment shows.
pub const OVERRIDE_ALL_SHOWN: &str = "konverge override";

/// The comment of a preview, as Konverge wrote it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedComment {
    /// The digest of the comment's text.
    pub digest: Digest,
    /// The time of the write, by GitHub's clock.
    pub written: Timestamp,
}

/// One stack of a review record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReviewedStack {
    /// Identity of the stack.
    pub id: StackId,
    /// The object that the Spec was compared with; `spec` for pull requests from forks.
    pub basis: Basis,
    /// The digest of the stack's plan at the review.
    pub digest: Digest,
    /// The digest of the Spec at the head, if it was compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The short hashes of the objects that the stack would create or adopt. They show conflicts between the shards of
    /// a preview.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub claims: Marks,
    /// The changes that the reviewer was shown.
    pub units: Vec<ReviewUnit>,
}
