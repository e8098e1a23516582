//! The units that a push added to a plan and removed from it, by comparing two previews of one pull request.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{
    CommitId, Digest, StackId,
    plan::Basis,
    review::{ReviewRecord, ReviewUnit, ReviewedStack},
};

/// The difference between the plan of an earlier head and the plan of this one.
#[derive(Debug, Clone, PartialEq)]
pub struct ReviewDifference {
    /// The earlier head.
    pub earlier: CommitId,
    /// Units that only the plan of this head has.
    pub added: Vec<ReviewUnit>,
    /// Units that only the plan of the earlier head had.
    pub removed: Vec<ReviewUnit>,
    /// Stacks that cannot be compared: one of the two previews has no plan for them, or compared only Specs.
    pub incomparable: Vec<StackId>,
}

impl ReviewDifference {
    /// Compares the records of an earlier head with the stacks that are planned now. `failed` are the stacks that
    /// could not be planned now.
    ///
    /// Returns `None` without an earlier record.
    pub fn between(
        earlier: &[ReviewRecord],
        now: &[ReviewedStack],
        failed: &BTreeSet<StackId>,
    ) -> Option<Self> {
        let head = earlier.first()?.head.clone();
        let before: BTreeMap<_, _> = earlier
            .iter()
            .flat_map(|record| &record.stacks)
            .map(|stack| (&stack.id, stack))
            .collect();
        let after: BTreeMap<_, _> = now.iter().map(|stack| (&stack.id, stack)).collect();
        let mut difference = Self {
            earlier: head,
            added: Vec::new(),
            removed: Vec::new(),
            incomparable: Vec::new(),
        };
        let all: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
        for id in all {
            let (old, new) = (before.get(id), after.get(id));
            let same_basis = match (old, new) {
                (Some(old), Some(new)) => (old.basis == Basis::Spec) == (new.basis == Basis::Spec),
                _ => true,
            };
            if failed.contains(id) || !same_basis {
                difference.incomparable.push(id.clone());
                continue;
            }
            let units =
                |stack: Option<&&ReviewedStack>| stack.map_or(Vec::new(), |stack| stack.units.clone());
            let (old, new) = (units(old), units(new));
            difference.removed.extend(without(&old, &new));
            difference.added.extend(without(&new, &old));
        }
        Some(difference)
    }
}

/// Returns the units in `units` that `other` does not have.
fn without(units: &[ReviewUnit], other: &[ReviewUnit]) -> Vec<ReviewUnit> {
    let known: HashSet<Digest> = other.iter().map(ReviewUnit::digest).collect();
    let missing = units.iter().filter(|unit| !known.contains(&unit.digest()));
    missing.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{plan::Action, review::ReviewedStack};
    use serde_json::json;

    fn stack(id: &str, basis: Basis, values: &[i32]) -> ReviewedStack {
        let unit = |value: &i32| ReviewUnit {
            stack: id.parse().unwrap(),
            resource: "v1:ConfigMap:ns:a".parse().unwrap(),
            action: Action::Update,
            path: format!("/data/k{}", value / 10).into(),
            to: Some(json!(value)),
            from: None,
        };
        ReviewedStack {
            id: id.parse().unwrap(),
            basis,
            digest: Digest::of_set([]),
            spec_digest: None,
            claims: Default::default(),
            units: values.iter().map(unit).collect(),
        }
    }

    #[test]
    fn a_push_adds_and_takes_units() {
        let record = ReviewRecord {
            version: 1,
            pull_request: 1,
            head: "a".repeat(40).parse().unwrap(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: String::new(),
            findings: BTreeSet::new(),
            stacks: vec![
                stack("a/dev", Basis::Live, &[1, 11]),
                stack("b/dev", Basis::Live, &[1]),
                stack("c/dev", Basis::Spec, &[1]),
                stack("d/dev", Basis::Live, &[1]),
            ],
            comment: None,
        };
        let now = [
            stack("a/dev", Basis::Live, &[1, 12, 21]),
            stack("c/dev", Basis::Live, &[2]),
        ];
        let failed = BTreeSet::from(["d/dev".parse().unwrap()]);
        assert_eq!(ReviewDifference::between(&[], &now, &failed), None);
        let difference = ReviewDifference::between(&[record], &now, &failed).unwrap();
        let values = |units: &[ReviewUnit]| -> Vec<_> {
            let to = units.iter().map(|unit| unit.to.clone().unwrap());
            units.iter().map(|unit| unit.stack.to_string()).zip(to).collect()
        };
        let a = |n: i32| ("a/dev".to_owned(), json!(n));
        assert_eq!(values(&difference.added), [a(12), a(21)]);
        assert_eq!(
            values(&difference.removed),
            [a(11), ("b/dev".to_owned(), json!(1))]
        );
        let incomparable: Vec<_> = difference.incomparable.iter().map(StackId::as_str).collect();
        assert_eq!(incomparable, ["c/dev", "d/dev"]);
    }
}
