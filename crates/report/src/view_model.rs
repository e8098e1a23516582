//! The plan as the comment needs it: sorted, split into own changes and drift, with equal changes grouped. It
//! is built once and used for every size.

use std::collections::HashMap;

use crate::{
    CommentInput, diff,
    equal_changes::{ChangeGroup, EqualChanges, StackChanges},
    labels,
};
use konverge_base::{
    error::ErrorBody,
    model::{
        Digest, StackId,
        affected::{AffectedStack, InputChange},
        plan::{Action, Basis, ResourcePlan, StackPlan, Summary, Validation},
        spec::RuntimeKind,
    },
};

/// One stack in the comment.
pub(super) struct StackView<'a> {
    pub plan: &'a StackPlan,
    pub affected: Option<&'a AffectedStack>,
    /// Resources with a change of this pull request.
    pub own: Vec<&'a ResourcePlan>,
    /// The group of equal changes that shows the resource, in the order of `own`.
    pub grouped: Vec<Option<usize>>,
    pub wave: usize,
}

impl StackView<'_> {
    /// What will happen to its resources.
    pub(super) fn counts(&self) -> String {
        labels::counts_with_drift(&diff::own_summary(self.plan), diff::drifted(self.plan))
    }
}

/// The whole plan.
pub(super) struct PlanView<'a> {
    /// Failed and changed stacks, and those that only differ already, in the order of the comment.
    pub stacks: Vec<StackView<'a>>,
    pub groups: Vec<ChangeGroup<'a>>,
    /// Affected stacks without changes.
    pub unchanged: Vec<&'a StackId>,
    /// Stacks with drift.
    pub drifted: Vec<&'a StackPlan>,
    /// The summary over all stacks.
    pub total: Summary,
    /// The number of resources that only differ already, and are restored.
    pub restored: usize,
    /// The number of stacks that could not be planned.
    pub failed: usize,
    /// The number of those that could not be planned before the change either.
    pub failed_before: usize,
    /// True if the change adds `konverge.yaml`, so that every stack was compiled.
    pub introduces: bool,
    /// The number of stacks in the plan.
    pub planned: usize,
    /// The number of affected stacks; 0 if the user named the stacks.
    pub affected: usize,
    /// The number of stacks in the repository.
    pub all: usize,
    /// The digest over the digests of all stacks.
    pub digest: Digest,
}

impl PlanView<'_> {
    /// The stacks of which nothing could be planned, with their errors.
    pub(super) fn whole_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(|plan| !plan.fails_in_part() && !plan.fails_as_before)
    }

    /// The stacks that could not be planned before the change either, with their errors.
    pub(super) fn earlier_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(|plan| !plan.fails_in_part() && plan.fails_as_before)
    }

    /// The stacks of which a part could not be planned, with their errors.
    pub(super) fn partial_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(StackPlan::fails_in_part)
    }

    /// The Kubernetes resources of live previews that no server has validated, each with its stack.
    pub(super) fn unchecked(&self) -> Vec<(&StackId, labels::Title)> {
        let live = self.stacks.iter().filter(|stack| stack.plan.basis != Basis::Spec);
        let resources = live.flat_map(|stack| {
            let open = stack.own.iter().filter(|r| r.validated == Validation::None);
            let open = open.filter(|r| r.runtime == RuntimeKind::Kubernetes && r.action != Action::Delete);
            open.map(|r| (&stack.plan.id, labels::Title::with_runtime(&r.id, r.runtime)))
        });
        resources.collect()
    }

    fn failures(&self, kind: impl Fn(&StackPlan) -> bool) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        let plans = self.stacks.iter().map(|stack| stack.plan);
        let plans = plans.filter(move |plan| kind(plan));
        plans.filter_map(|plan| Some((&plan.id, plan.error.as_ref()?)))
    }

    /// The verdict in words: `10 to update, 1 to delete`. How many stacks that are says [`PlanView::stack_counts`].
    pub(super) fn verdict(&self) -> String {
        if self.introduces {
            return labels::compiling_stacks(self.planned - self.failed, self.planned);
        }
        if self.planned == 0 && self.affected == 0 {
            return "no stack is affected".to_owned();
        }
        let counts = labels::counts_with_drift(&self.total, self.restored);
        match (
            self.total.changed() + self.restored,
            self.failed - self.failed_before,
        ) {
            (0, 0) => "no changes".to_owned(),
            (0, failed) if failed == self.planned => "nothing could be planned".to_owned(),
            (0, _) => "no changes · with failures".to_owned(),
            (_, 0) => counts,
            (_, _) => format!("{counts} · with failures"),
        }
    }

    /// How many stacks change, stay and fail: `4 to change, 1 without changes, 1 failed`, which is each stack once.
    /// Empty without stacks.
    pub(super) fn stack_counts(&self) -> String {
        let is = |kind: fn(&StackPlan) -> bool| self.stacks.iter().filter(|stack| kind(stack.plan)).count();
        let before = is(|plan| plan.fails_as_before && !plan.fails_in_part());
        let parts = [
            (is(|plan| plan.error.is_none()), "to change"),
            (self.unchanged.len(), "without changes"),
            (
                is(|plan| plan.error.is_some() && !plan.fails_as_before && !plan.fails_in_part()),
                "failed",
            ),
            (is(StackPlan::fails_in_part), "failed in part"),
            (
                before,
                if before == 1 {
                    "fails as before"
                } else {
                    "fail as before"
                },
            ),
        ];
        let parts = parts.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts.map(|(count, word)| format!("{count} {word}")).collect();
        parts.join(", ")
    }

    /// The same with the number of stacks before it: `6 of 140 stacks affected: 4 to change, …`.
    pub(super) fn stacks_line(&self) -> Option<String> {
        if self.planned == 0 || self.introduces {
            return None;
        }
        let planned = match (self.affected, self.planned == self.all) {
            (0, _) => labels::plural(self.planned, "stack"),
            (_, true) => format!("{} affected", labels::plural(self.planned, "stack")),
            _ => format!(
                "{} of {} affected",
                self.planned,
                labels::plural(self.all, "stack")
            ),
        };
        Some(format!("{planned}: {}", self.stack_counts()))
    }
}

pub(super) fn build<'a>(input: &CommentInput<'a>) -> PlanView<'a> {
    let affected: HashMap<&StackId, &AffectedStack> =
        input.affected.stacks.iter().map(|s| (&s.id, s)).collect();
    let mut view = PlanView {
        stacks: Vec::new(),
        groups: Vec::new(),
        unchanged: Vec::new(),
        drifted: Vec::new(),
        total: Summary::default(),
        restored: 0,
        failed: 0,
        failed_before: 0,
        introduces: input.mode.introduces,
        planned: input.plan.stacks.len(),
        affected: input.affected.stacks.len(),
        all: [
            input.run.stacks_in_repository,
            input.affected.stacks.len(),
            input.plan.stacks.len(),
        ]
        .into_iter()
        .fold(0, usize::max),
        digest: Digest::of_set(input.plan.stacks.iter().map(|s| s.digest)),
    };
    for plan in &input.plan.stacks {
        view.failed += usize::from(plan.error.is_some());
        view.failed_before += usize::from(plan.fails_as_before);
        let own: Vec<_> = plan.resources.iter().filter(|r| diff::touches(r)).collect();
        for resource in &own {
            view.total.count_resource(resource);
        }
        if plan
            .resources
            .iter()
            .any(|r| r.changes.iter().any(diff::is_drift))
        {
            view.drifted.push(plan);
        }
        let restored = diff::drifted(plan);
        view.restored += restored;
        if own.is_empty() && restored == 0 && plan.error.is_none() {
            view.unchanged.push(&plan.id);
            continue;
        }
        view.stacks.push(StackView {
            plan,
            affected: affected.get(&plan.id).copied(),
            grouped: vec![None; own.len()],
            own,
            wave: input.waves.get(&plan.id).copied().unwrap_or(0),
        });
    }
    view.stacks.sort_by(|a, b| {
        let key = |s: &StackView<'_>| (s.wave, environment(s.plan.id.name()));
        key(a).cmp(&key(b)).then_with(|| a.plan.id.cmp(&b.plan.id))
    });
    find_equal_changes(&mut view);
    view
}

/// Finds the changes that several stacks make.
fn find_equal_changes(view: &mut PlanView<'_>) {
    let owns: Vec<_> = view.stacks.iter().map(|stack| stack.own.clone()).collect();
    let stacks: Vec<_> = view
        .stacks
        .iter()
        .zip(&owns)
        .map(|(stack, resources)| StackChanges {
            stack: &stack.plan.id,
            resources,
        })
        .collect();
    let equal = EqualChanges::find(&stacks);
    for (s, stack) in view.stacks.iter_mut().enumerate() {
        stack.grouped = (0..stack.own.len()).map(|r| equal.group_of(s, r)).collect();
    }
    view.groups = equal.groups;
}

/// The rank of an environment from harmless to critical, by its usual names.
fn environment(name: &str) -> usize {
    const ORDER: [&[&str]; 4] = [
        &["dev", "local"],
        &["test", "qa", "sit"],
        &["stag", "pre", "uat"],
        &["prod", "live"],
    ];
    let name = name.to_ascii_lowercase();
    // Pre-production is not production, so the later names are checked last.
    ORDER
        .iter()
        .position(|names| names.iter().any(|n| name.contains(n)))
        .unwrap_or(ORDER.len())
}

/// The word for a change of the stack's inputs other than *modified*.
pub(super) fn lifecycle(stack: &StackView<'_>) -> Option<&'static str> {
    match stack.affected?.change {
        InputChange::Added => Some("new stack"),
        InputChange::Removed => Some("removed stack"),
        InputChange::Modified => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_ordered_from_the_harmless() {
        let mut names = ["prod", "zeta", "pre-prod", "dev", "test"];
        names.sort_by_key(|n| environment(n));
        assert_eq!(names, ["dev", "test", "pre-prod", "prod", "zeta"]);
    }
}
