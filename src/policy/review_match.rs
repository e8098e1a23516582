//! The review check: every unit of a plan must be among the reviewed units.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};

use crate::{
    config::DriftPolicy,
    model::{
        ResourceId, StackId, diff, masked_value,
        plan::{Action, Basis, ChangeOrigin, ResourcePlan, StackPlan},
        review::{ReviewRecord, ReviewUnit, resource_units, stack_units},
    },
};

/// The recorded resources of a state, as last applied, with secrets as keyed hashes.
pub type LastWrites = BTreeMap<ResourceId, Arc<Map<String, Value>>>;

/// The reviewed units of one stack: the union of the records that count.
#[derive(Debug, Clone, Default)]
pub struct ReviewedUnits {
    by_path: BTreeMap<(ResourceId, String), Vec<ReviewUnit>>,
    last_writes: LastWrites,
    /// True if reviewers only saw a comparison of Specs, which is not enough here.
    needs_more_than_specs: bool,
    /// True if a newer version of a reviewed secret is written as well (`secrets.rotation: follow`).
    follows_rotation: bool,
}

/// Why a unit is not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Objection {
    /// No preview showed it.
    Unseen,
    /// It was reviewed, but the live value is neither the value that the reviewer saw, nor the new value, nor
    /// our last write.
    MovedGround,
    /// The live value changed since our last write, and `policy.drift` is `stop`.
    Drifted,
    /// It was reviewed as a comparison of Specs, and no recorded state says what is live.
    OnlySpecs,
}

/// One unit that is not accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreviewed {
    pub unit: ReviewUnit,
    /// Why.
    pub objection: Objection,
}

impl ReviewedUnits {
    /// The units of a stack in all records.
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

    /// The units of a stack without a recorded state. A reviewer of a comparison of Specs, as in a pull
    /// request from a fork, did not see the live objects. If no other review exists, the first apply needs an
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

    /// Adds a plan that was approved by its digest: everything it shows counts as reviewed, and what becomes
    /// known during the apply is checked against it too.
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
    pub fn on(mut self, last_writes: LastWrites) -> Self {
        self.last_writes = last_writes;
        self
    }

    /// Accepts a version of a secret that moved since the review.
    #[must_use]
    pub fn following_rotation(mut self, follows: bool) -> Self {
        self.follows_rotation = follows;
        self
    }

    fn add(&mut self, unit: ReviewUnit) {
        let place = (unit.resource.clone(), unit.path.clone());
        self.by_path.entry(place).or_default().push(unit);
    }

    /// The units of a stack's plan that are not accepted; empty if all are.
    pub fn objections(&self, plan: &StackPlan, drift: DriftPolicy) -> Vec<Unreviewed> {
        plan.resources
            .iter()
            .flat_map(|resource| self.resource_objections(&plan.id, resource, drift))
            .collect()
    }

    /// The units of one resource's plan that are not accepted. Used for plans that become known only during
    /// the apply.
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

    fn objection(&self, unit: &ReviewUnit, plan: &ResourcePlan, drift: DriftPolicy) -> Option<Objection> {
        // The object is already gone; only its record is removed and nothing live changes.
        if unit.action == Action::Forget {
            return None;
        }
        let place = (unit.resource.clone(), unit.path.clone());
        let seen = self.by_path.get(&place).map(Vec::as_slice).unwrap_or_default();
        let same = |reviewed: &&ReviewUnit| {
            reviewed.digest() == unit.digest() || admits(reviewed, unit, self.follows_rotation)
        };
        let reviewed: Vec<_> = seen.iter().filter(same).collect();
        let restores = restores_our_write(unit, plan);
        if reviewed.is_empty() && self.follows_rotation && only_rotates(unit, plan) {
            return None;
        }
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
        // A creation or deletion as a whole has no old value; a restore goes from any value to our last
        // write.
        let guarded = !matches!(unit.action, Action::Create | Action::Delete) && !restores;
        // Any reviewed unit of the path is enough: of two merges in a row the second one starts from the
        // result of the first.
        let seen_ground = seen
            .iter()
            .any(|reviewed| reviewed.to == unit.from || reviewed.from == unit.from);
        let known_ground = seen_ground || self.is_our_last_write(unit);
        (guarded && !known_ground).then_some(Objection::MovedGround)
    }

    /// Returns true if the live value is our last write: then only another merge changed it, and nobody else.
    fn is_our_last_write(&self, unit: &ReviewUnit) -> bool {
        let Some(written) = self.last_writes.get(&unit.resource) else {
            return false;
        };
        let written = Value::Object(Map::clone(written));
        match (diff::at(&written, &unit.path), &unit.from) {
            (Some(written), Some(found)) => diff::same(written, found),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Returns true if a reviewed unit covers this unit. A value reviewed as *known after apply* covers any
/// value, but no action more severe than the reviewed one.
fn admits(reviewed: &ReviewUnit, unit: &ReviewUnit, any_version: bool) -> bool {
    let turned_out = (reviewed.action, unit.action) == (Action::Unknown, Action::Update);
    let actions_meet = reviewed.action == unit.action || turned_out;
    match (&reviewed.to, &unit.to) {
        (Some(expected), Some(actual)) => {
            actions_meet && reviewed.stack == unit.stack && fits(expected, actual, any_version)
        }
        _ => false,
    }
}

/// Returns true if a value matches the reviewed one, with anything in the places that were unknown then. The
/// version of a secret that the review could not read was unknown too.
fn fits(expected: &Value, actual: &Value, any_version: bool) -> bool {
    if masked_value::is_unknown(expected) {
        return true;
    }
    if let (Some(reviewed), Some(now)) = (
        masked_value::as_reference(expected),
        masked_value::as_reference(actual),
    ) {
        let same_version = any_version || reviewed.version.is_none() || reviewed.version == now.version;
        return same_version && (reviewed.reference, reviewed.text) == (now.reference, now.text);
    }
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            expected.len() == actual.len()
                && expected.iter().all(|(key, value)| {
                    actual
                        .get(key)
                        .is_some_and(|other| fits(value, other, any_version))
                })
        }
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len()
                && expected.iter().zip(actual).all(|(a, b)| fits(a, b, any_version))
        }
        (expected, actual) => expected == actual,
    }
}

/// Returns true if the unit only writes another version of a secret that is already there.
fn only_rotates(unit: &ReviewUnit, plan: &ResourcePlan) -> bool {
    let mut changes = plan.changes.iter().filter(|change| change.path == unit.path);
    plan.action == Action::Update && changes.any(|change| change.origin == ChangeOrigin::Rotation)
}

/// Returns true if the unit restores our last write: its change comes from an edit by others, not from the
/// Spec.
fn restores_our_write(unit: &ReviewUnit, plan: &ResourcePlan) -> bool {
    plan.action == Action::Update
        && plan.changes.iter().any(|change| {
            change.path == unit.path
                && matches!(change.origin, ChangeOrigin::Drift | ChangeOrigin::Manager(_))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{plan::FieldChange, review::ReviewedStack, spec::RuntimeKind};
    use serde_json::json;
    use std::collections::BTreeSet;

    fn change(path: &str, from: Value, to: Value, origin: ChangeOrigin) -> FieldChange {
        FieldChange {
            path: path.into(),
            from: Some(from),
            to: Some(to),
            origin,
        }
    }

    fn plan(action: Action, changes: Vec<FieldChange>) -> StackPlan {
        let stack: StackId = "shop/prod".parse().unwrap();
        let id = "apps/v1:Deployment:shop:web".parse().unwrap();
        let resource = ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, action, changes);
        StackPlan::new(
            "appops/shop/prod".parse_path(),
            stack,
            Basis::Live,
            vec![resource],
        )
    }

    trait ParsePath {
        fn parse_path(&self) -> crate::model::RepoPath;
    }

    impl ParsePath for str {
        fn parse_path(&self) -> crate::model::RepoPath {
            crate::model::RepoPath::normalise(self).unwrap()
        }
    }

    fn record(plan: &StackPlan) -> ReviewRecord {
        ReviewRecord {
            version: 1,
            pull_request: 7,
            head: "a".repeat(40).parse().unwrap(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: "https://example.com/run".into(),
            findings: BTreeSet::new(),
            stacks: vec![ReviewedStack {
                id: plan.id.clone(),
                basis: plan.basis,
                digest: plan.digest,
                spec_digest: None,
                claims: Default::default(),
                units: crate::model::review::stack_units(plan),
            }],
        }
    }

    fn objections(reviewed: &[&StackPlan], now: &StackPlan, drift: DriftPolicy) -> Vec<Objection> {
        let records: Vec<_> = reviewed.iter().map(|plan| record(plan)).collect();
        let reviewed = ReviewedUnits::from_records(&now.id, &records);
        reviewed
            .objections(now, drift)
            .into_iter()
            .map(|o| o.objection)
            .collect()
    }

    fn image(from: &str, to: &str) -> StackPlan {
        plan(
            Action::Update,
            vec![change("/image", json!(from), json!(to), ChangeOrigin::Change)],
        )
    }

    #[test]
    fn what_was_seen_passes_and_what_was_not_stops() {
        assert!(objections(&[&image("a", "b")], &image("a", "b"), DriftPolicy::Restore).is_empty());
        assert_eq!(
            objections(&[&image("a", "b")], &image("a", "c"), DriftPolicy::Restore),
            [Objection::Unseen]
        );
        assert_eq!(
            objections(&[], &image("a", "b"), DriftPolicy::Restore),
            [Objection::Unseen]
        );
    }

    #[test]
    fn the_ground_must_be_what_the_reviewer_saw() {
        let ground = objections(&[&image("a", "b")], &image("x", "b"), DriftPolicy::Restore);
        assert_eq!(ground, [Objection::MovedGround]);
    }

    #[test]
    fn our_last_write_is_known_ground_and_nothing_else_is() {
        let secret = |hash: &str| json!({"$secret": hash});
        let item = "/spec/containers/name=web/image";
        let seen = plan(
            Action::Update,
            vec![
                change(item, json!("a"), json!("c"), ChangeOrigin::Change),
                change("/token", secret("old"), secret("new"), ChangeOrigin::Change),
            ],
        );
        let written = json!({"spec": {"containers": [{"name": "side", "image": "s"}, {"name": "web", "image": "b"}]}, "token": secret("ours")});
        let reviewed = ReviewedUnits::from_records(&seen.id, &[record(&seen)]);
        let id = seen.resources[0].id.clone();
        let ours = LastWrites::from([(id, Arc::new(written.as_object().unwrap().clone()))]);
        let on_ours = reviewed.clone().on(ours.clone());
        let told = |reviewed: &ReviewedUnits, image: &str, token: &str| -> Vec<_> {
            let now = plan(
                Action::Update,
                vec![
                    change(item, json!(image), json!("c"), ChangeOrigin::Change),
                    change("/token", secret(token), secret("new"), ChangeOrigin::Change),
                ],
            );
            let objections = reviewed.objections(&now, DriftPolicy::Restore);
            objections
                .into_iter()
                .map(|o| (o.unit.path, o.objection))
                .collect()
        };
        let moved = |path: &str| (path.to_owned(), Objection::MovedGround);
        assert_eq!(told(&reviewed, "b", "ours"), [moved(item), moved("/token")]);
        assert_eq!(told(&on_ours, "b", "ours"), []);
        assert_eq!(told(&on_ours, "s", "ours"), [moved(item)]);
        assert_eq!(told(&on_ours, "b", "theirs"), [moved("/token")]);
        // It accepts nothing that was not reviewed, and nothing of another resource.
        let unseen = ReviewedUnits::default().on(ours);
        let unseen = unseen.objections(&image("b", "c"), DriftPolicy::Restore);
        assert_eq!(unseen[0].objection, Objection::Unseen);
        let other = LastWrites::from([("v1:Secret:shop:web".parse().unwrap(), Arc::default())]);
        assert_eq!(told(&reviewed.on(other), "b", "old"), [moved(item)]);
    }

    #[test]
    fn two_merges_in_a_row_pass_together() {
        let (first, second) = (image("a", "b"), image("a", "c"));
        assert!(objections(&[&first, &second], &image("b", "c"), DriftPolicy::Restore).is_empty());
    }

    #[test]
    fn drift_is_put_back_or_stops_by_policy() {
        let drifted = plan(
            Action::Update,
            vec![change("/replicas", json!(9), json!(3), ChangeOrigin::Drift)],
        );
        assert!(objections(&[], &drifted, DriftPolicy::Restore).is_empty());
        assert_eq!(objections(&[], &drifted, DriftPolicy::Stop), [Objection::Drifted]);
    }

    #[test]
    fn known_after_apply_admits_any_value_but_nothing_else() {
        let unknown = plan(
            Action::Create,
            vec![FieldChange {
                path: String::new(),
                from: None,
                to: Some(json!({"data": {"host": masked_value::unknown(), "port": 1}})),
                origin: ChangeOrigin::Change,
            }],
        );
        let known = |port: u32| {
            plan(
                Action::Create,
                vec![FieldChange {
                    path: String::new(),
                    from: None,
                    to: Some(json!({"data": {"host": "10.0.0.1", "port": port}})),
                    origin: ChangeOrigin::Change,
                }],
            )
        };
        assert!(objections(&[&unknown], &known(1), DriftPolicy::Restore).is_empty());
        assert_eq!(
            objections(&[&unknown], &known(2), DriftPolicy::Restore),
            [Objection::Unseen]
        );
    }

    fn at_class(action: Action, to: Value) -> StackPlan {
        plan(
            action,
            vec![change("/spec/class", json!("slow"), to, ChangeOrigin::Change)],
        )
    }

    #[test]
    fn what_was_not_known_may_turn_out_an_update_and_nothing_graver() {
        let seen = at_class(Action::Unknown, masked_value::unknown());
        let now = |action| objections(&[&seen], &at_class(action, json!("fast")), DriftPolicy::Restore);
        assert!(now(Action::Update).is_empty());
        assert!(now(Action::Unknown).is_empty());
        for action in [Action::Replace, Action::Adopt, Action::Create] {
            assert_eq!(now(action), [Objection::Unseen], "{action:?}");
        }
        // A reviewer of a replacement with an unknown value accepted any value.
        let replaced = at_class(Action::Replace, masked_value::unknown());
        let now = at_class(Action::Replace, json!("fast"));
        assert!(objections(&[&replaced], &now, DriftPolicy::Restore).is_empty());
    }

    #[test]
    fn the_ground_of_every_path_is_guarded_whatever_happens_to_its_object() {
        for action in [Action::Update, Action::Adopt, Action::Replace, Action::Unknown] {
            let change = |from: &str, to: &str| {
                let change = change("/image", json!(from), json!(to), ChangeOrigin::Change);
                plan(action, vec![change])
            };
            let now = |from: &str| objections(&[&change("a", "b")], &change(from, "b"), DriftPolicy::Restore);
            assert!(now("a").is_empty(), "{action:?}");
            assert_eq!(now("x"), [Objection::MovedGround], "{action:?}");
        }
    }

    #[test]
    fn a_delete_needs_a_review_of_its_own() {
        let gone = plan(Action::Delete, vec![]);
        assert_eq!(
            objections(&[&image("a", "b")], &gone, DriftPolicy::Restore),
            [Objection::Unseen]
        );
        assert!(objections(&[&gone], &gone, DriftPolicy::Restore).is_empty());
    }

    #[test]
    fn the_first_apply_of_what_was_only_compared_as_specs_needs_an_agreement() {
        let now = image("a", "b");
        let outside = StackPlan {
            basis: Basis::Spec,
            ..now.clone()
        };
        let (outside, inside) = (record(&outside), record(&now));
        let first = |records: &[ReviewRecord]| ReviewedUnits::from_unrecorded(&now.id, records);
        let told = |reviewed: ReviewedUnits| -> Vec<_> {
            let objections = reviewed.objections(&now, DriftPolicy::Restore);
            objections.into_iter().map(|o| o.objection).collect()
        };
        assert_eq!(
            told(first(std::slice::from_ref(&outside))),
            [Objection::OnlySpecs]
        );
        assert!(told(first(std::slice::from_ref(&outside)).with_agreed(&now)).is_empty());
        assert!(told(first(&[outside.clone(), inside])).is_empty());
        assert_eq!(told(first(&[])), [Objection::Unseen]);
        // Later applies have a state to compare with.
        assert!(told(ReviewedUnits::from_records(&now.id, [&outside])).is_empty());
    }

    #[test]
    fn whoever_agrees_to_a_plan_agrees_to_what_becomes_known_of_it() {
        let seen = at_class(Action::Unknown, masked_value::unknown());
        let agreed = ReviewedUnits::default().with_agreed(&seen);
        assert!(agreed.objections(&seen, DriftPolicy::Stop).is_empty());
        let later = |action, from: &str| {
            let change = change("/spec/class", json!(from), json!("fast"), ChangeOrigin::Change);
            let now = plan(action, vec![change]);
            agreed.resource_objections(&now.id, &now.resources[0], DriftPolicy::Stop)
        };
        assert!(later(Action::Update, "slow").is_empty());
        assert!(!later(Action::Update, "other").is_empty());
        assert!(!later(Action::Replace, "slow").is_empty());
        let drifted = plan(
            Action::Update,
            vec![change("/replicas", json!(9), json!(3), ChangeOrigin::Drift)],
        );
        let agreed = ReviewedUnits::default().with_agreed(&drifted);
        assert!(agreed.objections(&drifted, DriftPolicy::Stop).is_empty());
    }

    #[test]
    fn a_version_that_moved_is_written_unless_rotation_stops() {
        let secret = |version: Option<&str>| {
            masked_value::reference(masked_value::ReferenceMark {
                reference: "db:pay#/password",
                version,
                text: None,
            })
        };
        let planned = |version: &str, origin: ChangeOrigin| {
            let from = json!({"$secret": "old"});
            plan(
                Action::Update,
                vec![change("/data/p", from, secret(Some(version)), origin)],
            )
        };
        let seen = |version: Option<&str>| {
            let from = json!({"$secret": "old"});
            let shown = plan(
                Action::Update,
                vec![change("/data/p", from, secret(version), ChangeOrigin::Change)],
            );
            let mut reviewed = ReviewedUnits::default();
            stack_units(&shown)
                .into_iter()
                .for_each(|unit| reviewed.add(unit));
            reviewed
        };
        let objections = |reviewed: ReviewedUnits, follows: bool, plan: &StackPlan| {
            let reviewed = reviewed.following_rotation(follows);
            reviewed.objections(plan, DriftPolicy::Restore).len()
        };
        let newer = planned("8", ChangeOrigin::Change);
        assert_eq!(objections(seen(Some("7")), true, &newer), 0);
        assert_eq!(objections(seen(Some("7")), false, &newer), 1);
        assert_eq!(objections(seen(Some("8")), false, &newer), 0);
        // The preview could not read the version.
        assert_eq!(objections(seen(None), false, &newer), 0);
        // Another reference is another value.
        let mut other = newer.clone();
        other.resources[0].changes[0].to =
            Some(json!({"$secret": {"ref": "db:root#/password", "version": "7"}}));
        assert_eq!(objections(seen(Some("7")), true, &other), 1);
        let rotated = planned("8", ChangeOrigin::Rotation);
        assert_eq!(objections(ReviewedUnits::default(), true, &rotated), 0);
        assert_eq!(objections(ReviewedUnits::default(), false, &rotated), 1);
    }
}
