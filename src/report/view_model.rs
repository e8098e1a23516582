//! The plan as the comment needs it: sorted, split into own changes and drift, with equal changes grouped. It
//! is built once and used for every size.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::{
    model::{
        Digest, StackId,
        affected::{AffectedStack, InputChange},
        digest::DigestBuilder,
        plan::{Action, ResourcePlan, StackPlan, Summary},
    },
    report::{CommentInput, diff, labels},
};

/// One stack in the comment.
pub(super) struct StackView<'a> {
    pub plan: &'a StackPlan,
    pub affected: Option<&'a AffectedStack>,
    /// Resources with a change of this pull request.
    pub own: Vec<&'a ResourcePlan>,
    /// The [`Group`] that shows the resource, in the order of `own`.
    pub grouped: Vec<Option<usize>>,
    pub wave: usize,
}

/// Equal changes in several stacks.
pub(super) struct Group<'a> {
    /// The resources of one stack represent all.
    pub resources: Vec<&'a ResourcePlan>,
    /// The stacks, in the order of the comment.
    pub stacks: Vec<&'a StackId>,
}

/// The whole plan.
pub(super) struct PlanView<'a> {
    /// Failed and changed stacks, in the order of the comment.
    pub stacks: Vec<StackView<'a>>,
    pub groups: Vec<Group<'a>>,
    /// Affected stacks without changes.
    pub unchanged: Vec<&'a StackId>,
    /// Stacks with drift.
    pub drifted: Vec<&'a StackPlan>,
    /// The summary over all stacks.
    pub total: Summary,
    pub failed: usize,
    /// The word for the stacks of the plan: "affected", or another if the user named them.
    pub word: &'static str,
    /// The number of stacks in the denominator of the changed stacks.
    pub all: usize,
    /// The digest over the digests of all stacks.
    pub digest: Digest,
}

impl PlanView<'_> {
    /// The number of stacks that would change.
    pub(super) fn changed(&self) -> usize {
        self.stacks.len() - self.failed
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
        failed: 0,
        word: match input.affected.stacks.is_empty() {
            true => "stack",
            false => "affected stack",
        },
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
        let own: Vec<_> = plan.resources.iter().filter(|r| is_own(r)).collect();
        for resource in &own {
            view.total.count(resource.action);
        }
        if plan
            .resources
            .iter()
            .any(|r| r.changes.iter().any(diff::is_drift))
        {
            view.drifted.push(plan);
        }
        if own.is_empty() && plan.error.is_none() {
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
    group(&mut view);
    view
}

/// Returns true if the change itself touches the resource; otherwise it only has drift that would be
/// restored.
fn is_own(resource: &ResourcePlan) -> bool {
    match resource.action {
        Action::Unchanged => false,
        Action::Update => {
            resource.changes.is_empty()
                || resource.changes.iter().any(|c| !diff::is_drift(c))
                || !resource.notes.is_empty()
        }
        _ => true,
    }
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

/// Groups resources that change equally in several stacks, and joins groups of the same stacks.
fn group(view: &mut PlanView<'_>) {
    let mut places: BTreeMap<Digest, Vec<(usize, usize)>> = BTreeMap::new();
    for (s, stack) in view.stacks.iter().enumerate() {
        for (r, resource) in stack.own.iter().enumerate() {
            if let Some(digest) = shape(resource) {
                places.entry(digest).or_default().push((s, r));
            }
        }
    }
    let mut by_stacks: BTreeMap<Vec<usize>, Vec<Vec<(usize, usize)>>> = BTreeMap::new();
    for same in places.into_values() {
        let mut stacks: Vec<_> = same.iter().map(|(s, _)| *s).collect();
        stacks.dedup();
        if stacks.len() > 1 {
            by_stacks.entry(stacks).or_default().push(same);
        }
    }
    let mut found: Vec<_> = by_stacks.into_iter().collect();
    found.sort_by(|(a, x), (b, y)| {
        b.len()
            .cmp(&a.len())
            .then_with(|| a.cmp(b))
            .then_with(|| x.len().cmp(&y.len()))
    });
    for (stacks, mut sames) in found {
        sames.sort();
        let index = view.groups.len();
        let resources = sames
            .iter()
            .map(|same| view.stacks[same[0].0].own[same[0].1])
            .collect();
        for (s, r) in sames.into_iter().flatten() {
            view.stacks[s].grouped[r] = Some(index);
        }
        let stacks = stacks.into_iter().map(|s| &view.stacks[s].plan.id).collect();
        view.groups.push(Group { resources, stacks });
    }
}

/// The digest of a resource's change without its identity: equal in two stacks if a reader would see the same
/// lines. `None` for changes that must always be shown separately.
fn shape(resource: &ResourcePlan) -> Option<Digest> {
    if resource.data_loss || matches!(resource.action, Action::Delete | Action::Replace | Action::Forget) {
        return None;
    }
    let mut builder = DigestBuilder::new("shape");
    let title = labels::Title::of(&resource.id, resource.runtime);
    for part in [&title.group, &title.kind, labels::action_word(resource.action)] {
        builder.part(part.as_bytes());
    }
    for change in resource.changes.iter().filter(|c| diff::is_own(resource, c)) {
        builder.part(change.path.as_bytes());
        for side in [&change.from, &change.to] {
            match side {
                Some(value) => builder.part(Digest::of_json(&drop_name(value, &change.path)).as_bytes()),
                None => builder.part(b""),
            };
        }
    }
    for note in &resource.notes {
        builder.part(note.as_bytes());
    }
    Some(builder.finish())
}

/// A whole resource without its namespace. Its name stays, because the name of a new resource is part of what
/// is reviewed.
fn drop_name(value: &Value, path: &str) -> Value {
    let mut value = value.clone();
    if path.is_empty()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.shift_remove("namespace");
    }
    value
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
