//! The plan in the form that the comment needs: sorted, split into own changes and drift, with equal changes grouped.
//! It is built once and used for every size of the comment.

use std::collections::HashMap;

use crate::{
    CommentInput, StackContext,
    danger::Danger,
    diff,
    equal_changes::{ChangeGroup, EqualChanges, StackChanges},
    labels,
};
use konverge_base::{
    error::ErrorBody,
    model::{
        Digest, StackId,
        affected::{AffectedStack, InputChange},
        path::RepoPath,
        plan::{Action, Basis, FieldChange, ResourcePlan, StackPlan, Summary, Validation},
        spec::RuntimeKind,
        takeover,
    },
};

/// One stack in the comment.
pub(super) struct StackView<'a> {
    pub plan: &'a StackPlan,
    pub affected: Option<&'a AffectedStack>,
    pub context: Option<&'a StackContext>,
    /// The resources that this pull request changes, without those that are taken over without a change.
    pub own: Vec<&'a ResourcePlan>,
    /// The number of resources that are taken over without a change: only the owner annotation is added.
    pub kept: usize,
    /// For each resource in `own`: the number of the group of equal changes that shows it.
    pub grouped: Vec<Option<usize>>,
    pub wave: usize,
}

impl StackView<'_> {
    /// Returns the counts of the stack's planned changes.
    pub(super) fn counts(&self) -> String {
        labels::counts_with_drift(&diff::own_summary(self.plan), diff::drifted(self.plan))
    }

    pub(super) fn is_production(&self) -> bool {
        self.context.is_some_and(|context| context.is_production)
    }

    /// Returns the environment of the stack, or else its name in the project.
    pub(super) fn environment(&self) -> &str {
        let named = self.context.map(|context| context.environment.as_str());
        named
            .filter(|name| !name.is_empty())
            .unwrap_or(self.plan.id.name())
    }

    /// Returns the sort key of the stack: failures and dangerous changes come first.
    fn rank(&self) -> u8 {
        let dangers = self
            .own
            .iter()
            .filter_map(|resource| Danger::of_resource(resource));
        let drift = (diff::drifted(self.plan) > 0).then_some(Danger::Change);
        match (dangers.chain(drift).min(), &self.plan.error) {
            (_, Some(_)) if !self.plan.fails_as_before => 0,
            (Some(Danger::Grave), _) => 1,
            (Some(Danger::Change), _) => 2,
            (Some(Danger::TakeOver), _) => 3,
            (None, _) => 4,
        }
    }

    /// Returns the shortest chain from a changed file to the stack.
    pub(super) fn shortest_chain(&self) -> Option<&[RepoPath]> {
        let reasons = self.affected?.why.iter();
        let reason = reasons.min_by_key(|reason| (reason.chain.len(), *reason))?;
        Some(if reason.chain.is_empty() {
            std::slice::from_ref(&reason.path)
        } else {
            &reason.chain
        })
    }
}

/// A stack that is taken over without a change.
pub(super) struct TakenOver<'a> {
    pub id: &'a StackId,
    pub context: Option<&'a StackContext>,
    pub objects: usize,
}

/// The common cause of the changes of several stacks.
pub(super) struct Cause<'a> {
    /// The common start of the chains from a changed file to the stacks.
    chain: &'a [RepoPath],
    /// The changed files if they have no common start, each with the number of its stacks, the highest number first.
    files: Vec<(&'a RepoPath, usize)>,
}

/// The maximum number of files that are listed as a cause.
const FILES: usize = 3;

impl Cause<'_> {
    /// Returns the chain or the files. `code` formats a path.
    pub(super) fn text(&self, code: impl Fn(&str) -> String) -> String {
        match self.chain {
            [] => {
                let named = self.files.iter().take(FILES);
                let mut named: Vec<_> = named
                    .map(|(file, stacks)| {
                        format!("{} ({})", code(file.as_str()), labels::plural(*stacks, "stack"))
                    })
                    .collect();
                let more = self.files.len().saturating_sub(FILES);
                named.extend((more > 0).then(|| labels::plural(more, "more file")));
                named.join(", ")
            }
            chain => chain_text(chain, code),
        }
    }
}

/// Returns both ends of a chain, and the number of files between them: `base/base.k → models/app.k`. `code` formats a
/// path.
pub(super) fn chain_text(chain: &[RepoPath], code: impl Fn(&str) -> String) -> String {
    match chain {
        [] => String::new(),
        [only] => code(only.as_str()),
        [first, last] => format!("{} → {}", code(first.as_str()), code(last.as_str())),
        [first, between @ .., last] => format!(
            "{} → {} → {}",
            code(first.as_str()),
            labels::plural(between.len(), "file"),
            code(last.as_str())
        ),
    }
}

/// The whole plan, prepared for the comment.
pub(super) struct PlanView<'a> {
    /// The stacks that failed, change or have drift, in the order of the comment.
    pub stacks: Vec<StackView<'a>>,
    pub groups: Vec<ChangeGroup<'a>>,
    /// The stacks whose resources are all taken over without a change.
    pub taken_over: Vec<TakenOver<'a>>,
    /// The affected stacks without changes.
    pub unchanged: Vec<&'a StackId>,
    /// The stacks with drift.
    pub drifted: Vec<&'a StackPlan>,
    /// The summary over all stacks.
    pub total: Summary,
    /// The number of resources that have only drift, which an apply reverts.
    pub restored: usize,
    /// The number of stacks that the change removes.
    pub removed: usize,
    /// The number of stacks that could not be planned.
    pub failed: usize,
    /// The number of stacks that could not be planned before the change either.
    pub failed_before: usize,
    /// True if the change adds `konverge.yaml`, so that every stack was compiled.
    pub introduces: bool,
    /// True if an apply stops at changes that others made.
    pub stops_at_drift: bool,
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
    /// Returns the stacks of which nothing could be planned, with their errors.
    pub(super) fn whole_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(|plan| !plan.fails_in_part() && !plan.fails_as_before)
    }

    /// Returns the stacks that could not be planned before the change either, with their errors.
    pub(super) fn earlier_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(|plan| !plan.fails_in_part() && plan.fails_as_before)
    }

    /// Returns the stacks of which a part could not be planned, with their errors.
    pub(super) fn partial_failures(&self) -> impl Iterator<Item = (&StackId, &ErrorBody)> {
        self.failures(StackPlan::fails_in_part)
    }

    /// Returns the Kubernetes resources of live previews that no server has validated, each with its stack.
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

    /// Returns the verdict as a text: `10 to update, 1 to delete`. [`PlanView::stack_counts`] has the numbers of
    /// stacks.
    pub(super) fn verdict(&self) -> String {
        if self.introduces {
            return labels::compiling_stacks(self.planned - self.failed, self.planned);
        }
        if self.planned == 0 && self.affected == 0 {
            return "no stack is affected".to_owned();
        }
        let mut counts = labels::counts(&self.total);
        let others_changed = self.changed_by_others_or_restored();
        if others_changed > 0 {
            let resources = labels::plural(others_changed, "resource");
            // A new version of a secret does not stop an apply.
            let stops = self.stops_at_drift && !self.changed_by_others().is_empty();
            counts = match (self.total.changed(), stops) {
                (0, false) => format!("only takes back what others changed in {resources}"),
                (_, false) => format!("{counts}, and takes back what others changed in {resources}"),
                (0, true) => format!("stops, because others changed {resources}"),
                (_, true) => format!("{counts}, but stops where others changed {resources}"),
            };
        }
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

    /// Returns the number of stacks with each result: `4 to change (1 in production), 1 without changes, 1 failed`.
    /// Each stack counts once. Empty without stacks.
    pub(super) fn stack_counts(&self) -> String {
        let of = |kind: fn(&StackPlan) -> bool| {
            let stacks = self.stacks.iter().filter(|stack| kind(stack.plan));
            let (mut count, mut production) = (0, 0);
            for stack in stacks {
                count += 1;
                production += usize::from(stack.is_production());
            }
            (count, production)
        };
        let before = of(|plan| plan.fails_as_before && !plan.fails_in_part());
        let taken_over = self.taken_over.iter();
        let in_production = taken_over.filter(|stack| stack.context.is_some_and(|c| c.is_production));
        let parts = [
            (of(|plan| plan.error.is_none()), "to change"),
            (
                (self.taken_over.len(), in_production.count()),
                "taken over as they run",
            ),
            ((self.unchanged.len(), 0), "without changes"),
            (
                of(|plan| plan.error.is_some() && !plan.fails_as_before && !plan.fails_in_part()),
                "failed",
            ),
            (of(StackPlan::fails_in_part), "failed in part"),
            (
                before,
                if before.0 == 1 {
                    "fails as before"
                } else {
                    "fail as before"
                },
            ),
        ];
        let parts = parts.into_iter().filter(|((count, _), _)| *count > 0);
        let parts: Vec<_> = parts
            .map(|((count, production), word)| labels::with_production(format!("{count} {word}"), production))
            .collect();
        parts.join(", ")
    }

    /// Returns the counts of stacks after their total: `6 of 140 stacks affected: 4 to change, …`.
    pub(super) fn stacks_line(&self) -> Option<String> {
        if self.planned == 0 || self.introduces {
            return None;
        }
        let removed = match self.removed {
            0 => String::new(),
            removed => format!(", {removed} of them removed"),
        };
        let planned = match (self.affected, self.planned == self.all) {
            (0, _) => labels::plural(self.planned, "stack"),
            (_, true) => format!("{} affected{removed}", labels::plural(self.planned, "stack")),
            _ => format!(
                "{} of {} affected{removed}",
                self.planned,
                labels::plural(self.all, "stack")
            ),
        };
        Some(format!("{planned}: {}", self.stack_counts()))
    }

    /// Returns true if a merge would change nothing.
    pub(super) fn changes_nothing(&self) -> bool {
        self.stacks.is_empty() && self.taken_over.is_empty()
    }

    /// Returns the sentence about stacks that are taken over without a change; `None` if there are none.
    pub(super) fn takeover_sentence(&self) -> Option<String> {
        let objects = self.taken_over.iter().map(|stack| stack.objects).sum();
        labels::taken_over(self.taken_over.len(), objects)
    }

    /// Returns the common cause of the changes in a group.
    pub(super) fn cause(&self, group: &ChangeGroup<'_>) -> Option<Cause<'_>> {
        let members = group.members.iter().map(|member| &self.stacks[*member]);
        let chains: Vec<_> = members.filter_map(StackView::shortest_chain).collect();
        let (first, others) = chains.split_first()?;
        let common = |chain: &[RepoPath]| first.iter().zip(chain).take_while(|(a, b)| a == b).count();
        let length = others
            .iter()
            .map(|chain| common(chain))
            .min()
            .unwrap_or(first.len());
        let mut files: HashMap<&RepoPath, usize> = HashMap::new();
        for file in chains.iter().filter_map(|chain| chain.first()) {
            *files.entry(file).or_default() += 1;
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        Some(Cause {
            chain: &first[..length],
            files,
        })
    }

    /// Returns the number of resources whose drift an apply reverts, including those with a change of their own.
    fn changed_by_others_or_restored(&self) -> usize {
        let resources = self.drifted.iter().flat_map(|stack| &stack.resources);
        let differs = |resource: &&ResourcePlan| {
            diff::differs_already(resource) || resource.changes.iter().any(diff::is_by_others)
        };
        resources.filter(differs).count()
    }

    /// Returns the changes of others since the last apply that an apply would revert.
    pub(super) fn changed_by_others(&self) -> Vec<(&StackId, &ResourcePlan, &FieldChange)> {
        let resources = self.drifted.iter().flat_map(|stack| {
            let resources = stack.resources.iter();
            resources.map(|resource| (&stack.id, resource))
        });
        let changes = resources.flat_map(|(stack, resource)| {
            let others = resource
                .changes
                .iter()
                .filter(|change| diff::is_by_others(change));
            others.map(move |change| (stack, resource, change))
        });
        changes.collect()
    }
}

pub(super) fn build<'a>(input: &CommentInput<'a>) -> PlanView<'a> {
    let affected: HashMap<&StackId, &AffectedStack> =
        input.affected.stacks.iter().map(|s| (&s.id, s)).collect();
    let is_removed = |stack: &&AffectedStack| stack.change == InputChange::Removed;
    let removed = input.affected.stacks.iter().filter(is_removed).count();
    let mut view = PlanView {
        removed,
        stacks: Vec::new(),
        groups: Vec::new(),
        taken_over: Vec::new(),
        unchanged: Vec::new(),
        drifted: Vec::new(),
        total: Summary::default(),
        restored: 0,
        failed: 0,
        failed_before: 0,
        introduces: input.mode.introduces,
        stops_at_drift: input.mode.stops_at_drift,
        planned: input.plan.stacks.len(),
        affected: input.affected.stacks.len(),
        all: [
            // Removed stacks are not in the repository any more.
            input.run.stacks_in_repository + removed,
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
        let (kept, own): (Vec<_>, Vec<_>) = plan
            .resources
            .iter()
            .filter(|r| diff::touches(r))
            .partition(|resource| takeover::stays(&plan.id, resource));
        let kept = kept.len();
        for resource in &own {
            view.total.count_resource(&plan.id, resource);
        }
        view.total.adopt += kept;
        if plan
            .resources
            .iter()
            .any(|r| r.changes.iter().any(diff::is_drift))
        {
            view.drifted.push(plan);
        }
        let restored = diff::drifted(plan);
        view.restored += restored;
        let context = input.contexts.get(&plan.id);
        if own.is_empty() && kept > 0 && restored == 0 && plan.error.is_none() {
            view.taken_over.push(TakenOver {
                id: &plan.id,
                context,
                objects: kept,
            });
            continue;
        }
        if own.is_empty() && restored == 0 && plan.error.is_none() {
            view.unchanged.push(&plan.id);
            continue;
        }
        view.stacks.push(StackView {
            plan,
            affected: affected.get(&plan.id).copied(),
            context,
            kept,
            grouped: vec![None; own.len()],
            own,
            wave: input.waves.get(&plan.id).copied().unwrap_or(0),
        });
    }
    view.stacks.sort_by(|a, b| {
        let key = |stack: &StackView<'_>| (stack.rank(), !stack.is_production(), stack.wave);
        key(a).cmp(&key(b)).then_with(|| a.plan.id.cmp(&b.plan.id))
    });
    find_equal_changes(&mut view);
    view
}

/// Groups the changes that are equal in several stacks.
fn find_equal_changes(view: &mut PlanView<'_>) {
    let owns: Vec<_> = view.stacks.iter().map(|stack| stack.own.clone()).collect();
    let stacks: Vec<_> = view
        .stacks
        .iter()
        .zip(&owns)
        .map(|(stack, resources)| StackChanges {
            stack: &stack.plan.id,
            is_production: stack.is_production(),
            resources,
        })
        .collect();
    let equal = EqualChanges::find(&stacks);
    for (s, stack) in view.stacks.iter_mut().enumerate() {
        stack.grouped = (0..stack.own.len()).map(|r| equal.group_of(s, r)).collect();
    }
    view.groups = equal.groups;
}

/// Returns the word for a new or a removed stack; `None` for a modified one.
pub(super) fn lifecycle(stack: &StackView<'_>) -> Option<&'static str> {
    match stack.affected?.change {
        InputChange::Added => Some("new stack"),
        InputChange::Removed => Some("removed stack"),
        InputChange::Modified => None,
    }
}
