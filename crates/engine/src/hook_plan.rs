//! Hooks in a plan: which of them run, and why.

use std::collections::{HashMap, HashSet};

use crate::{
    plan_error::PlanError,
    runtime::PlannedResource,
    spec::{
        graph::ResourceGraph,
        hooks::{HookError, SpecHooks, order_hooks},
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath, ResourceId, StackId,
        hook::{HOOK, HOOK_REVERSIBLE, HOOK_STAMP, HookPurpose, HookRules, HookTask, HookTasks, HookTime},
        plan::{Action, ResourcePlan},
        spec::Resource,
        state::{Recorded, StackState},
        text::first_few,
    },
};
use konverge_secrets::{Secrets, mask_resource};
use serde_json::Value;

/// Reads the hooks of the desired resources, and puts them into their order.
///
/// # Errors
/// A hook cannot run as it is declared, or a rollback would run a hook that is not reversible, or go back past one.
pub(super) fn read(
    resources: &[Resource],
    graph: &mut ResourceGraph,
    rules: &HookRules,
    folder: &RepoPath,
    secrets: &Secrets,
) -> Result<SpecHooks, PlanError> {
    let mask = |resource: &Resource| mask_resource(secrets, resource);
    let hooks = order_hooks(resources, graph, rules, &mask);
    let path = if folder.is_root() { "." } else { folder.as_str() };
    hooks.map_err(|HookError { object, error }| {
        let error = Box::new(error.at(path, None, None));
        HookError { object, error }.into()
    })
}

/// Checks that a rollback neither runs a `pre` hook that is not reversible, nor goes back past one that has run.
pub(super) fn check_rollback(
    tasks: &HookTasks,
    state: &StackState,
    rules: &HookRules,
) -> Result<(), UserError> {
    if rules.purpose != HookPurpose::Rollback {
        return Ok(());
    }
    let recorded: HashMap<_, _> = state.resources.iter().map(|one| (&one.id, one)).collect();
    let is_done = |id: &ResourceId, task: &HookTask| {
        let stamp = recorded.get(id).and_then(|one| annotation(one, HOOK_STAMP));
        stamp.is_some_and(|stamp| task.is_stamp(stamp))
    };
    let runs = tasks.iter().find(|(id, task)| {
        task.time == HookTime::Pre && !task.reversible && (task.always || !is_done(id, task))
    });
    if let Some((id, _)) = runs {
        return Err(irreversible(id, "run"));
    }
    let passed = state.resources.iter().find(|one| {
        annotation(one, HOOK) == Some(HookTime::Pre.word())
            && annotation(one, HOOK_STAMP).is_some()
            && annotation(one, HOOK_REVERSIBLE) != Some("true")
            && !tasks.get(&one.id).is_some_and(|task| is_done(&one.id, task))
    });
    passed.map_or(Ok(()), |one| Err(irreversible(&one.id, "go back past")))
}

fn irreversible(id: &ResourceId, does: &str) -> UserError {
    UserError::new(
        ErrorKind::Policy,
        format!("the rollback would {does} the `pre` hook `{id}`, which is not marked as reversible"),
    )
    .hint(format!(
        "if the effects of the hook may stay, or its Job works with both versions, set `{HOOK_REVERSIBLE}: \"true\"` on it and apply that first"
    ))
    .hint("or repair forward: apply a commit of your own with the older version")
}

fn annotation<'a>(recorded: &'a Recorded, key: &str) -> Option<&'a str> {
    let annotations = recorded.attributes.get("metadata")?.get("annotations")?;
    annotations.get(key).and_then(Value::as_str)
}

/// Decides which hooks run once the whole plan is known. Hooks that run after a failed apply stay in the plan only if
/// the plan has a change. Each hook that runs gets a note with the reason.
pub(super) fn settle(stack: &StackId, tasks: &HookTasks, planned: &mut [Option<PlannedResource>]) {
    if tasks.is_empty() {
        return;
    }
    let time_of = |id: &ResourceId| tasks.get(id).map(|task| task.time);
    let is_change = |planned: &PlannedResource| {
        let is_failed = time_of(&planned.item.id) == Some(HookTime::Failed);
        planned.public.action != Action::Unchanged && !is_failed
    };
    let changes = planned.iter().flatten().any(is_change);
    let shown: Vec<_> = planned.iter().flatten().map(|one| &one.public).collect();
    let mut whys = whys(tasks, &shown);
    for one in planned.iter_mut().flatten() {
        if time_of(&one.item.id) == Some(HookTime::Failed) && !changes {
            let (id, kind) = (one.item.id.clone(), one.public.runtime);
            let cluster = one.public.cluster.clone();
            one.public = ResourcePlan::new(stack, id, kind, Action::Unchanged, Vec::new());
            one.public.cluster = cluster;
            one.recorded.clone_from(&one.item.prior);
            one.provisional = false;
        }
        if one.public.action == Action::Run
            && let Some(why) = whys.remove(&one.item.id)
        {
            one.public.notes.insert(0, why);
        }
    }
}

/// Returns the reason why each hook runs.
pub(super) fn whys(tasks: &HookTasks, plans: &[&ResourcePlan]) -> HashMap<ResourceId, String> {
    let changing: HashMap<_, _> = plans
        .iter()
        .filter(|plan| !matches!(plan.action, Action::Unchanged | Action::Run))
        .map(|plan| (&plan.id, *plan))
        .collect();
    let why = |(id, task): (&ResourceId, &HookTask)| {
        let guards: Vec<_> = task
            .guards
            .iter()
            .filter_map(|guard| changing.get(guard))
            .collect();
        (id.clone(), cause(task, &guards))
    };
    tasks.iter().map(why).collect()
}

fn cause(task: &HookTask, changing: &[&&ResourcePlan]) -> String {
    let word = match task.time {
        HookTime::PreDestroy if task.is_for_later() => {
            return "it runs before the stack is deleted; this apply only records it".to_owned();
        }
        HookTime::Pre | HookTime::PreDestroy => "before",
        HookTime::Post => "after",
        HookTime::Failed => {
            return "it runs only if this apply fails, and cannot change the result".to_owned();
        }
    };
    let Some(first) = changing.first() else {
        return if task.always {
            format!("it runs {word} every apply (`konverge/hook-on: always`)")
        } else {
            "no run of this version has succeeded yet".to_owned()
        };
    };
    let named = first_few(changing.iter().map(|resource| title(&resource.id)), 1);
    format!("it runs {word} {named}, because {}", what_changes(first))
}

/// Formats an id as ``Deployment `shop/web` ``.
fn title(id: &ResourceId) -> String {
    match id.object() {
        Some(object) => format!("{} `{}`", object.kind, object.path()),
        None => format!("`{id}`"),
    }
}

fn what_changes(plan: &ResourcePlan) -> String {
    match plan.action {
        Action::Create => return "it is new".to_owned(),
        Action::Delete => return "it is deleted".to_owned(),
        Action::Replace => return "it is replaced".to_owned(),
        _ => {}
    }
    let fields: HashSet<_> = plan
        .changes
        .iter()
        .filter_map(|change| {
            change
                .path
                .as_str()
                .rsplit('/')
                .next()
                .filter(|name| !name.is_empty())
        })
        .collect();
    match (fields.len(), fields.into_iter().next()) {
        (1, Some(field)) => format!("its `{}` changes", field.escape_debug()),
        _ => "it changes".to_owned(),
    }
}
