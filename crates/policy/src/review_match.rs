//! The review check: every unit of a plan must be among the reviewed units.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use konverge_base::model::{
    FieldPath, ResourceId, StackId, diff, masked_value,
    plan::{Action, Basis, ChangeOrigin, ResourcePlan, StackPlan},
    review::{ReviewRecord, ReviewUnit, resource_units, stack_units},
    stack_output::FilledTexts,
};
use konverge_config::DriftPolicy;

/// The attributes of each resource as the state recorded them after the last apply, with secrets as keyed hashes.
pub type LastWrites = BTreeMap<ResourceId, Arc<Map<String, Value>>>;

/// The reviewed units of one stack, taken from all review records that count.
#[derive(Debug, Clone, Default)]
pub struct ReviewedUnits {
    by_path: BTreeMap<(ResourceId, FieldPath), Vec<ReviewUnit>>,
    last_writes: LastWrites,
    /// True if the reviewers saw only a comparison of Specs, which does not show the live objects and so is not
    /// enough.
    needs_more_than_specs: bool,
    /// True if a newer version of a reviewed secret is also written (`secrets.rotation: write`).
    follows_rotation: bool,
    /// The present values of texts that were unknown at the review because they read outputs of other stacks.
    filled: FilledTexts,
}

/// Reasons why a unit of a plan is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// No preview showed the unit.
    Unseen,
    /// The unit was reviewed, but the live value is now neither the old nor the new value of the review, nor our
    /// last write.
    BaseChanged,
    /// The live value changed since our last write, and `policy.drift` is `stop`.
    Drifted,
    /// The unit was reviewed as a comparison of Specs, and no recorded state says what is live.
    OnlySpecs,
}

/// A unit of a plan that is not accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreviewed {
    /// The change that no review shows.
    pub unit: ReviewUnit,
    /// The reason why the unit is not accepted.
    pub objection: Objection,
}

impl ReviewedUnits {
    /// Collects the units of a stack from all records.
    pub fn from_records<'a>(stack: &StackId, records: impl IntoIterator<Item = &'a ReviewRecord>) -> Self {
        let mut reviewed = Self::default();
        let stacks = records
            .into_iter()
            .flat_map(|record| &record.stacks)
            .filter(|reviewed| reviewed.id == *stack);
        for unit in stacks.flat_map(|reviewed| &reviewed.units) {
            reviewed.add(unit.clone());
        }
        reviewed
    }

    /// Collects the units of a stack that has no recorded state. Reviewers of a comparison of Specs, as in a pull
    /// request from a fork, did not see the live objects. So without any other review the first apply needs an
    /// approval by digest.
    pub fn from_unrecorded<'a>(
        stack: &StackId,
        records: impl IntoIterator<Item = &'a ReviewRecord> + Clone,
    ) -> Self {
        let mut stacks = records
            .clone()
            .into_iter()
            .flat_map(|record| &record.stacks)
            .filter(|reviewed| reviewed.id == *stack && !reviewed.units.is_empty());
        Self {
            needs_more_than_specs: stacks.all(|reviewed| reviewed.basis == Basis::Spec),
            ..Self::from_records(stack, records)
        }
    }

    /// Adds a plan that was approved by its digest. All its units count as reviewed, and values that become known
    /// only during the apply are checked against them too.
    #[must_use]
    pub fn with_agreed(mut self, plan: &StackPlan) -> Self {
        for unit in stack_units(plan) {
            self.add(unit);
        }
        self.needs_more_than_specs = false;
        self
    }

    /// Accepts our own last writes as the old value, whatever the old value was at the review.
    #[must_use]
    pub fn with_last_writes(mut self, last_writes: LastWrites) -> Self {
        self.last_writes = last_writes;
        self
    }

    /// Accepts another version of a secret than the reviewed one.
    #[must_use]
    pub fn following_rotation(mut self) -> Self {
        self.follows_rotation = true;
        self
    }

    /// Accepts these values for texts that the review showed as known only after the apply of other stacks.
    #[must_use]
    pub fn with_filled(mut self, filled: FilledTexts) -> Self {
        self.filled = filled;
        self
    }

    fn add(&mut self, unit: ReviewUnit) {
        let key = (unit.resource.clone(), unit.path.clone());
        self.by_path.entry(key).or_default().push(unit);
    }

    /// Returns the units of a stack's plan that are not accepted; empty if all are.
    pub fn objections(&self, plan: &StackPlan, drift: DriftPolicy) -> Vec<Unreviewed> {
        plan.resources
            .iter()
            .flat_map(|resource| self.resource_objections(&plan.id, resource, drift))
            .collect()
    }

    /// Returns the units of one resource's plan that are not accepted. Used also for plans that become known only
    /// during the apply.
    pub fn resource_objections(
        &self,
        stack: &StackId,
        plan: &ResourcePlan,
        drift: DriftPolicy,
    ) -> Vec<Unreviewed> {
        resource_units(stack, plan)
            .into_iter()
            .filter_map(|unit| {
                let objection = self.objection(&unit, plan, drift)?;
                Some(Unreviewed { unit, objection })
            })
            .collect()
    }

    /// Returns the units of a resource that disappeared during the apply and is created again. The resource was
    /// reviewed at its first creation, so only the drift policy may refuse the second one.
    pub fn recreation_objections(
        stack: &StackId,
        plan: &ResourcePlan,
        drift: DriftPolicy,
    ) -> Vec<Unreviewed> {
        if drift == DriftPolicy::Restore {
            return Vec::new();
        }
        let units = resource_units(stack, plan).into_iter();
        let refuse = |unit| Unreviewed {
            unit,
            objection: Objection::Drifted,
        };
        units.map(refuse).collect()
    }

    fn objection(&self, unit: &ReviewUnit, plan: &ResourcePlan, drift: DriftPolicy) -> Option<Objection> {
        // The live object is already gone: the apply only removes its record.
        if unit.action == Action::Forget {
            return None;
        }
        let key = (unit.resource.clone(), unit.path.clone());
        let seen = self.by_path.get(&key).map(Vec::as_slice).unwrap_or_default();
        let same = |reviewed: &&ReviewUnit| reviewed.digest() == unit.digest() || self.admits(reviewed, unit);
        let reviewed: Vec<_> = seen.iter().filter(same).collect();
        let restores = restores_our_write(unit, plan);
        if reviewed.is_empty() && self.follows_rotation && only_rotates(unit, plan) {
            return None;
        }
        // Somebody edited the object after the review, so no preview shows that the apply restores it. The drift
        // policy decides.
        if reviewed.is_empty() {
            return match (restores, drift) {
                (true, DriftPolicy::Restore) => None,
                (true, DriftPolicy::Stop) => Some(Objection::Drifted),
                (false, _) => Some(Objection::Unseen),
            };
        }
        if self.needs_more_than_specs {
            return Some(Objection::OnlySpecs);
        }
        // A creation, a deletion and a run as a whole have no old value to compare. A restore may start from any
        // value.
        let guarded = !matches!(unit.action, Action::Create | Action::Delete | Action::Run) && !restores;
        // The old value may be that of any reviewed unit of the path: of two merges in a row, the second starts
        // from the result of the first.
        let seen_base = seen
            .iter()
            .any(|reviewed| reviewed.to == unit.from || reviewed.from == unit.from);
        let known_base = seen_base || self.is_our_last_write(unit);
        (guarded && !known_base).then_some(Objection::BaseChanged)
    }

    /// Returns true if a reviewed unit covers this unit. A value reviewed as *known after apply* covers any value,
    /// but never a more severe action than the reviewed one.
    fn admits(&self, reviewed: &ReviewUnit, unit: &ReviewUnit) -> bool {
        let turned_out = (reviewed.action, unit.action) == (Action::Unknown, Action::Update);
        let actions_meet = reviewed.action == unit.action || turned_out;
        match (&reviewed.to, &unit.to) {
            (Some(expected), Some(actual)) => {
                actions_meet && reviewed.stack == unit.stack && self.fits(expected, actual)
            }
            _ => false,
        }
    }

    /// Returns true if a value matches the reviewed one. Parts of the reviewed value that were unknown match
    /// anything; this includes the version of a secret that the review could not read. A text that waited for
    /// outputs of other stacks must equal its present value.
    fn fits(&self, expected: &Value, actual: &Value) -> bool {
        if let Some(text) = masked_value::as_unknown_output(expected) {
            return self.filled.get(text) == Some(actual);
        }
        if masked_value::is_unknown(expected) {
            return true;
        }
        if let (Some(reviewed), Some(now)) = (
            masked_value::as_reference(expected),
            masked_value::as_reference(actual),
        ) {
            // A SOPS file changes only by a commit, and that commit needs its own review.
            let moves = !now.is_of_file() && (self.follows_rotation || reviewed.version.is_none());
            let same_version = moves || reviewed.version == now.version;
            return same_version && (reviewed.reference, reviewed.text) == (now.reference, now.text);
        }
        match (expected, actual) {
            (Value::Object(expected), Value::Object(actual)) => {
                expected.len() == actual.len()
                    && expected
                        .iter()
                        .all(|(key, value)| actual.get(key).is_some_and(|other| self.fits(value, other)))
            }
            (Value::Array(expected), Value::Array(actual)) => {
                expected.len() == actual.len() && expected.iter().zip(actual).all(|(a, b)| self.fits(a, b))
            }
            (expected, actual) => expected == actual,
        }
    }

    /// Returns true if the live value is our last write: then nobody but our own applies has changed it since the
    /// review.
    fn is_our_last_write(&self, unit: &ReviewUnit) -> bool {
        let Some(written) = self.last_writes.get(&unit.resource) else {
            return false;
        };
        let written = Value::Object(Map::clone(written));
        match (unit.path.get(&written), &unit.from) {
            (Some(written), Some(found)) => diff::same(written, found),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Returns true if the unit only writes another version of a secret to a field that already holds it.
fn only_rotates(unit: &ReviewUnit, plan: &ResourcePlan) -> bool {
    let mut changes = plan.changes.iter().filter(|change| change.path == unit.path);
    plan.action == Action::Update && changes.any(|change| change.origin == ChangeOrigin::Rotation)
}

/// Returns true if the unit restores our last write: the change comes from an edit of the live object, not from the
/// Spec.
fn restores_our_write(unit: &ReviewUnit, plan: &ResourcePlan) -> bool {
    plan.action == Action::Update
        && plan.changes.iter().any(|change| {
            change.path == unit.path
                && matches!(change.origin, ChangeOrigin::Drift | ChangeOrigin::Manager(_))
        })
}

#[cfg(test)]
#[path = "review_match_tests.rs"]
mod tests;
