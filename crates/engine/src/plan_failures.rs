//! [`PlanFailures`]: the resources that could not be planned, and those that depend on them.

use std::collections::HashMap;

use super::plan_nodes::DraftNode;
use crate::runtime::PlanFailure;
use konverge_base::{error::UserError, model::ResourceId};

/// The failures of a plan.
#[derive(Default)]
pub(super) struct PlanFailures {
    /// Each failed resource with its reason.
    pub own: HashMap<ResourceId, PlanFailure>,
    /// The skipped resources, each with the failed resource that it depends on.
    pub waiting: HashMap<ResourceId, ResourceId>,
}

impl PlanFailures {
    /// Returns true if there is no plan of this resource, for any reason.
    pub(crate) fn has(&self, id: &ResourceId) -> bool {
        self.own.contains_key(id) || self.waiting.contains_key(id)
    }

    /// Returns, for each draft, the index of a failed draft that it depends on, directly or indirectly.
    pub(crate) fn hold(&self, drafts: &[DraftNode]) -> Vec<Option<usize>> {
        let mut held = vec![None; drafts.len()];
        if self.own.is_empty() {
            return held;
        }
        let mut dependents = vec![Vec::new(); drafts.len()];
        for (index, draft) in drafts.iter().enumerate() {
            for &on in &draft.waits {
                dependents[on].push(index);
            }
        }
        let failed = |draft: &DraftNode| self.own.contains_key(&draft.item.id);
        for failed in (0..drafts.len()).filter(|&n| failed(&drafts[n])) {
            let mut reached = vec![failed];
            while let Some(next) = reached.pop() {
                for &dependent in &dependents[next] {
                    if held[dependent].is_none() {
                        held[dependent] = Some(failed);
                        reached.push(dependent);
                    }
                }
            }
        }
        held
    }
}

/// Adds the resource's id to the message of a failure, unless the message names the resource already.
pub(super) fn of_resource(id: &ResourceId, failure: UserError) -> UserError {
    if failure.resource() == Some(id.as_str()) {
        failure
    } else {
        failure.context(format_args!("`{id}`")).with_resource(id)
    }
}

/// Combines all failures into one: the first in full, the others by name.
pub(super) fn combine_failures(failures: &[(ResourceId, UserError)]) -> Option<UserError> {
    let (id, first) = failures.first()?;
    let mut failure = of_resource(id, first.clone());
    if failures.len() > 1 {
        let others: Vec<_> = failures[1..]
            .iter()
            .take(5)
            .map(|(id, failure)| of_resource(id, failure.clone()).message)
            .collect();
        failure.message = format!(
            "{}; and {} more: {}",
            failure.message,
            failures.len() - 1,
            others.join("; ")
        );
        // The failures may need different remedies, so the hints of the others are added.
        for (_, other) in failures[1..].iter().take(5) {
            let new = other.hints.iter().filter(|hint| !failure.hints.contains(hint));
            let new: Vec<_> = new.cloned().collect();
            failure.hints.extend(new);
        }
    }
    Some(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::error::ErrorKind;

    #[test]
    fn one_failure_is_shown_in_full_and_others_are_counted() {
        let failure = |name: &str| {
            let id: ResourceId = format!("v1:ConfigMap:ns:{name}").parse().expect("an id");
            (id, UserError::new(ErrorKind::Spec, name.to_owned()))
        };
        let combined = |failures: &[_]| combine_failures(failures).map(|failure| failure.message);
        assert_eq!(combined(&[]), None);
        let one = combined(&[failure("a")]);
        assert!(one.is_some_and(|text| !text.contains("more")));
        let two = combined(&[failure("a"), failure("b")]);
        assert!(two.is_some_and(|text| text.contains("and 1 more: ") && text.contains("ns:b")));
    }

    #[test]
    fn a_failure_names_its_resource_once() {
        let [a, b] =
            ["v1:ConfigMap:ns:a", "v1:ConfigMap:ns:b"].map(|id| -> ResourceId { id.parse().expect("an id") });
        let failure = UserError::new(ErrorKind::Spec, format!("`{a}` is wrong"));
        let named = failure.clone().with_resource(&a);
        assert_eq!(of_resource(&a, named.clone()), failure);
        assert_eq!(
            of_resource(&b, named).message,
            "`v1:ConfigMap:ns:b`: `v1:ConfigMap:ns:a` is wrong"
        );
        // The text alone does not tell: it may come from outside.
        assert_ne!(of_resource(&a, failure.clone()), failure);
    }

    #[test]
    fn what_failed_and_what_waits_for_it_has_no_plan() {
        let [a, b, c] = ["a", "b", "c"]
            .map(|name| -> ResourceId { format!("v1:ConfigMap:ns:{name}").parse().expect("an id") });
        let mut failures = PlanFailures::default();
        failures
            .own
            .insert(a.clone(), UserError::new(ErrorKind::Spec, "wrong").into());
        failures.waiting.insert(b.clone(), a.clone());
        assert_eq!([&a, &b, &c].map(|id| failures.has(id)), [true, true, false]);
    }
}
