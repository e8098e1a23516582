//! The hooks in a comparison of two Specs, for which no cluster is queried.

use serde_json::{Value, json};

use super::{
    hook_plan,
    plan_error::PlanError,
    spec_diff::{ComparedSpecs, SpecMask, plan_resource},
};
use crate::spec::{graph::ResourceGraph, hooks::SpecHooks};
use konverge_base::model::{
    ClusterName, RepoPath,
    hook::{HOOK_STAMP, HookRules, HookTime},
    plan::{Action, FieldChange, ResourcePlan, StackPlan},
    spec::{Resource, Spec},
};
use konverge_secrets::Secrets;

/// Shows the hooks of the head in a comparison of Specs. A hook is shown as run if its digest differs from that of the
/// base.
///
/// # Errors
/// A hook of the head cannot run as it is declared.
pub fn show_spec_hooks(
    plan: StackPlan,
    specs: ComparedSpecs<'_>,
    rules: &HookRules,
    cluster: Option<&ClusterName>,
    secrets: &Secrets,
) -> Result<StackPlan, PlanError> {
    let ComparedSpecs { base, head } = specs;
    let hooks = read(head, rules, &plan.stack, secrets)?;
    // An error in the base is ignored: it is not part of this change, and its hooks then count as new.
    let before = read(base, rules, &plan.stack, secrets).unwrap_or_default();
    let mut shown = plan;
    shown.notes.extend(hooks.notes);
    if hooks.tasks.is_empty() {
        return Ok(shown);
    }
    // The Jobs of hooks are shown as runs, not as changes, so they are taken out of the plan and added again below.
    let count = shown.summary.unchanged + shown.resources.len();
    let is_hook = |plan: &ResourcePlan| hooks.tasks.contains_key(&plan.id) && plan.action != Action::Delete;
    let mut resources: Vec<_> = shown
        .resources
        .iter()
        .filter(|plan| !is_hook(plan))
        .cloned()
        .collect();
    let whys = hook_plan::whys(&hooks.tasks, &resources.iter().collect::<Vec<_>>());
    let changes = !resources.is_empty();
    for (id, task) in &hooks.tasks {
        let is_done = before
            .tasks
            .get(id)
            .is_some_and(|before| before.digest == task.digest);
        let job_in = |spec: &'_ Spec| spec.resources.iter().find(|resource| resource.id == *id).cloned();
        let job = job_in(head);
        let runs = match task.time {
            HookTime::Failed => changes && task.may_run,
            HookTime::Pre | HookTime::Post => (task.always || !is_done) && task.may_run,
            // A `pre-destroy` hook does not run in this apply: a new or changed one is only recorded.
            HookTime::PreDestroy => job_in(base) != job,
        };
        let Some(job) = job.filter(|_| runs) else {
            continue;
        };
        let stamp = (!task.is_for_later()).then(|| task.digest.to_string());
        let mut run = run_plan(
            &shown,
            &job,
            stamp.as_deref(),
            cluster,
            SpecMask::for_readers(secrets),
        );
        run.notes.extend(whys.get(id).cloned());
        resources.push(run);
    }
    let unchanged = count.saturating_sub(resources.len());
    let mut whole = StackPlan::new(shown.stack, shown.id, shown.basis, resources);
    whole.summary.unchanged = unchanged;
    whole.notes = shown.notes;
    Ok(whole)
}

/// Copies the runs of hooks from a shown plan into the same plan with other masks.
pub(super) fn repeat_runs(
    plan: StackPlan,
    shown: &StackPlan,
    head: &Spec,
    cluster: Option<&ClusterName>,
    mask: SpecMask<'_>,
) -> StackPlan {
    let is_run = |plan: &&ResourcePlan| plan.action == Action::Run;
    let runs: Vec<_> = shown.resources.iter().filter(is_run).collect();
    if runs.is_empty() {
        return plan;
    }
    let others = plan
        .resources
        .iter()
        .filter(|one| !runs.iter().any(|run| run.id == one.id));
    let mut resources: Vec<_> = others.cloned().collect();
    for run in runs {
        let job = head.resources.iter().find(|resource| resource.id == run.id);
        let stamp = run
            .changes
            .iter()
            .find_map(|change| change.to.as_ref()?["metadata"]["annotations"][HOOK_STAMP].as_str());
        if let Some(job) = job {
            resources.push(run_plan(&plan, job, stamp, cluster, mask));
        }
    }
    let mut whole = StackPlan::new(plan.stack, plan.id, plan.basis, resources);
    whole.summary.unchanged = plan.summary.unchanged;
    whole
}

fn read(
    spec: &Spec,
    rules: &HookRules,
    folder: &RepoPath,
    secrets: &Secrets,
) -> Result<SpecHooks, PlanError> {
    let mut graph = ResourceGraph::from_spec(&spec.resources)?;
    hook_plan::read(&spec.resources, &mut graph, rules, folder, secrets)
}

fn run_plan(
    plan: &StackPlan,
    job: &Resource,
    stamp: Option<&str>,
    cluster: Option<&ClusterName>,
    mask: SpecMask<'_>,
) -> ResourcePlan {
    let mut shown = Value::Object(mask.apply(job).attributes);
    if let Some(stamp) = stamp {
        shown["metadata"]["annotations"][HOOK_STAMP] = json!(stamp);
    }
    let change = FieldChange::whole(None, Some(shown));
    plan_resource(&plan.id, job, Action::Run, vec![change], cluster)
}
