//! The stacks that `konverge.adopt.yaml` brings into a preview.

use std::collections::BTreeSet;

use crate::{
    OpenRevision, RunContext, Session, SpecSource, StateBackend, Target,
    adoption::{Adoption, FILE_NAME, RecordedStacks, differs},
    preview::Preview,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        plan::StackPlan,
        setting_change::SettingChange,
        takeover::{Takeover, TakeoverCounts},
    },
};
use konverge_report as report;

/// Adds the stacks that the pull request of a session takes over, as its preview does, and returns them. Without
/// clusters, no live object can be taken over, so nothing is added.
///
/// # Errors
/// See [`add`].
pub async fn add_proposed(session: &mut Session) -> Result<BTreeSet<StackId>, UserError> {
    let planning = &session.planning;
    let SpecSource::Compiled {
        head,
        base: Some(base),
        ..
    } = &planning.wanted
    else {
        return Ok(BTreeSet::new());
    };
    match &planning.backend {
        Some(backend) if !planning.config.clusters.is_empty() => {
            let (targets, settings) = (&mut session.targets, &mut session.settings);
            add(&planning.run, base, head, backend, targets, settings).await
        }
        _ => Ok(BTreeSet::new()),
    }
}

/// Adds the stacks that a change takes over, and those that it no longer leaves alone. Returns the former.
///
/// # Errors
/// `konverge.adopt.yaml` is invalid; errors of the store.
pub async fn add(
    run: &RunContext,
    base: &OpenRevision,
    head: &OpenRevision,
    backend: &StateBackend,
    targets: &mut Vec<Target>,
    settings: &mut Vec<SettingChange>,
) -> Result<BTreeSet<StackId>, UserError> {
    let added = proposed(run, base, head, backend, targets).await?;
    let released = released(base, head, backend, targets).await?;
    let names = added.iter().map(|target| target.id.clone()).collect();
    settings.extend(end_of_adoption(&released));
    targets.extend(added);
    targets.extend(released);
    targets.sort_by(|a, b| (a.folder(), &a.id).cmp(&(b.folder(), &b.id)));
    Ok(names)
}

/// Returns the stacks that a pull request takes over: its `konverge.adopt.yaml` differs from the base's and names the
/// stacks, no state is recorded for them, and the pull request does not affect them otherwise.
///
/// # Errors
/// `konverge.adopt.yaml` is invalid; errors of the store.
async fn proposed(
    run: &RunContext,
    base: &OpenRevision,
    head: &OpenRevision,
    backend: &StateBackend,
    affected: &[Target],
) -> Result<Vec<Target>, UserError> {
    if !differs(base.source.as_ref(), head.source.as_ref()) {
        return Ok(Vec::new());
    }
    let Some(adoption) = Adoption::load(head.source.as_ref())? else {
        return Ok(Vec::new());
    };
    let known = backend.states.known().await?;
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let mut targets = Vec::new();
    for id in &adoption.stacks {
        match head.layout.stack(id) {
            Some(_) if recorded.has(id) || affected.iter().any(|target| target.id == *id) => {}
            Some(stack) => targets.push(Target::new(stack, base.layout.stack(id))),
            None => run.notes.warning(&format!(
                "{FILE_NAME} names `{id}`, which is not a stack of this revision"
            )),
        }
    }
    Ok(targets)
}

/// Returns the stacks that the merge of a change applies for the first time, because the change deletes
/// `konverge.adopt.yaml`. No state is recorded for these stacks, and the change does not affect them otherwise.
///
/// # Errors
/// Errors of the store.
async fn released(
    base: &OpenRevision,
    head: &OpenRevision,
    backend: &StateBackend,
    affected: &[Target],
) -> Result<Vec<Target>, UserError> {
    if !base.has_root_file(FILE_NAME) || head.has_root_file(FILE_NAME) {
        return Ok(Vec::new());
    }
    let known = backend.states.known().await?;
    let recorded = RecordedStacks::find(backend, &head.layout, known).await?;
    let stacks = head.layout.stacks.iter();
    let left = stacks
        .filter(|stack| !recorded.has(&stack.id) && !affected.iter().any(|target| target.id == stack.id));
    Ok(left
        .map(|stack| Target::new(stack, base.layout.stack(&stack.id)))
        .collect())
}

/// Returns the note that the end of the adoption applies these stacks; `None` if there are none.
fn end_of_adoption(released: &[Target]) -> Option<SettingChange> {
    let mut stacks: Vec<_> = released.iter().map(|target| target.id.clone()).collect();
    stacks.sort();
    (!stacks.is_empty()).then(|| SettingChange {
        key: FILE_NAME.to_owned(),
        effect: "the stack was left alone until now, and the merge applies it for the first time".to_owned(),
        stacks,
    })
}

/// Sets an error on each stack that cannot be adopted unchanged, and removes these stacks from the review record.
pub fn refuse_changes(preview: &mut Preview, proposed: &BTreeSet<StackId>) {
    let mut refused = BTreeSet::new();
    let stacks = preview.plan.stacks.iter_mut();
    for stack in stacks.filter(|stack| proposed.contains(&stack.id)) {
        if Takeover::judge(stack) == Takeover::Unchanged {
            continue;
        }
        refused.insert(stack.id.clone());
        stack.fails_as_before = false;
        if stack.error.is_none() {
            stack.error = Some(refusal(stack).body());
        }
    }
    preview.reviewed.retain(|stack| !refused.contains(&stack.id));
}

fn refusal(stack: &StackPlan) -> UserError {
    let counts = TakeoverCounts::count(stack);
    UserError::new(
        ErrorKind::Policy,
        format!(
            "{FILE_NAME} takes over stacks as they run, but the first apply of `{}` would change {} and create {}",
            stack.id,
            report::plural(counts.changed, "resource"),
            counts.new,
        ),
    )
    .hint(format!(
        "remove `{}` from {FILE_NAME} (`konverge adopt --write` does), and let a pull request that edits the stack show the change",
        stack.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, stack};
    use konverge_base::model::{
        plan::{Action, Basis, Plan, ResourcePlan},
        spec::RuntimeKind,
    };

    fn planned(name: &str, action: Action) -> StackPlan {
        let object = "v1:ConfigMap:shop:web".parse().unwrap();
        let resource = ResourcePlan::new(&id(name), object, RuntimeKind::Kubernetes, action, Vec::new());
        StackPlan::new(stack(name).folder, id(name), Basis::Live, vec![resource])
    }

    /// `konverge.adopt.yaml` promises that nothing changes, so that nobody looks at the plan.
    #[test]
    fn a_stack_that_would_change_is_not_taken_over() {
        let mut preview = Preview {
            plan: Plan {
                version: 1,
                stacks: vec![
                    planned("shop/same", Action::Adopt),
                    planned("shop/new", Action::Create),
                    planned("shop/other", Action::Create),
                ],
            },
            reviewed: Vec::new(),
            hidden: Vec::new(),
            declared: std::collections::BTreeMap::new(),
        };
        refuse_changes(&mut preview, &[id("shop/same"), id("shop/new")].into());
        let errors = preview.plan.stacks.iter().map(|stack| stack.error.as_ref());
        let errors: Vec<_> = errors
            .map(|error| error.map(|error| error.message.as_str()))
            .collect();
        assert_eq!((errors[0], errors[2]), (None, None));
        let refused = errors[1].unwrap();
        assert!(
            refused.contains("of `shop/new`") && refused.ends_with("and create 1"),
            "{refused}"
        );
    }

    #[test]
    fn the_end_of_an_adoption_names_the_stacks_that_its_merge_applies() {
        assert_eq!(end_of_adoption(&[]), None);
        let released = [
            Target::new(&stack("shop/prod"), None),
            Target::new(&stack("pay/prod"), None),
        ];
        let change = end_of_adoption(&released).unwrap();
        assert_eq!(
            (change.key.as_str(), change.stacks),
            (FILE_NAME, vec![id("pay/prod"), id("shop/prod")])
        );
    }
}
