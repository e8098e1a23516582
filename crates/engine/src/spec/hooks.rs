//! The hooks of a Spec: their Jobs, the resources that each guards, its position in the order, and its digest.

mod declaration;
mod error;
mod foreign;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

pub use self::error::HookError;
use self::{
    declaration::HookDeclaration,
    foreign::{HookSource, UnreadAnnotations},
};
use super::graph::{ResourceGraph, cycle_text};
use konverge_base::model::{
    Digest, GroupKind, ResourceId,
    digest::DigestBuilder,
    hook::{HOOK_STAMP, HookPurpose, HookRules, HookTask, HookTasks, HookTime},
    spec::{Resource, RuntimeKind, Spec},
};

/// The hooks of a Spec.
#[derive(Debug, Default)]
pub struct SpecHooks {
    /// The hooks, by the ids of their Jobs.
    pub tasks: HookTasks,
    /// Notes on annotations of Argo CD or Helm that have no effect in Konverge.
    pub notes: Vec<String>,
}

/// Reads the hooks of a Spec, and adds them to its graph. `mask` hides secrets before a digest is computed.
///
/// # Errors
/// A hook cannot run as it is declared.
pub fn order_hooks(
    resources: &[Resource],
    graph: &mut ResourceGraph,
    rules: &HookRules,
    mask: &dyn Fn(&Resource) -> Resource,
) -> Result<SpecHooks, HookError> {
    let mut notes = Vec::new();
    let mut unread = UnreadAnnotations::new();
    let mut declared = BTreeMap::new();
    for resource in resources {
        // Annotations of Konverge take precedence over those of Argo CD and Helm.
        let own = HookDeclaration::read(resource)?;
        let declaration = own.or_else(|| foreign::read(resource, rules, &mut notes));
        let source = declaration.map(|_| match own {
            Some(_) => HookSource::Own,
            None => HookSource::Foreign,
        });
        foreign::collect_unread(resource, rules, source, &mut unread);
        if let Some(declaration) = declaration {
            declaration.check(resource, rules)?;
            declared.insert(&resource.id, (resource, declaration));
        }
    }
    notes.extend(foreign::notes_of(unread));
    if declared.is_empty() {
        return Ok(SpecHooks {
            tasks: HookTasks::new(),
            notes,
        });
    }
    let is_guarded = |resource: &&Resource| is_workload(resource) && !declared.contains_key(&resource.id);
    let workloads: Vec<_> = resources.iter().filter(is_guarded).collect();
    let mut edges = Vec::new();
    let mut guarded: BTreeMap<&ResourceId, BTreeSet<&ResourceId>> = BTreeMap::new();
    for (id, (job, declaration)) in &declared {
        let guards = guarded_workloads(graph, job, declaration.time, &workloads)?;
        edges.extend(guards.iter().filter_map(|&workload| match declaration.time {
            HookTime::Pre => Some(((*id).clone(), workload.clone())),
            HookTime::Post => Some((workload.clone(), (*id).clone())),
            HookTime::Failed | HookTime::PreDestroy => None,
        }));
        guarded.insert(*id, guards);
    }
    graph.add_hook_edges(&edges).map_err(|cycle| {
        let what = format!("hooks wait for each other: {}", cycle_text(&cycle));
        let hint = "remove one of these `dependsOn` or references: a `pre` hook runs before every workload, and a `post` hook after every workload";
        HookError::new(&cycle[0], what, hint)
    })?;
    // Each workload is digested once, although several hooks may guard it.
    let mut digests: BTreeMap<&ResourceId, Digest> = BTreeMap::new();
    for workload in &workloads {
        digests.insert(&workload.id, mask(workload).digest());
    }
    let mut tasks = HookTasks::new();
    for (id, (job, declaration)) in &declared {
        let guards = guarded.remove(*id).unwrap_or_default();
        // The digest covers the Job and everything that it guards: if any of them changes, the hook must run again.
        let mut digest = DigestBuilder::new("hook");
        digest.part(declaration.time.word().as_bytes());
        digest.part(mask(job).digest().as_bytes());
        for guard in &guards {
            digest.part(guard.as_str().as_bytes());
            digest.part(digests[guard].as_bytes());
        }
        tasks.insert(
            (*id).clone(),
            HookTask {
                time: declaration.time,
                always: declaration.always || declaration.time == HookTime::Failed,
                keeps_last: declaration.keeps_last,
                reversible: declaration.reversible,
                guards: guards.into_iter().cloned().collect(),
                digest: digest.finish(),
                serial: rules.serial,
                may_run: rules.purpose != HookPurpose::Restore && declaration.time != HookTime::PreDestroy,
            },
        );
    }
    Ok(SpecHooks { tasks, notes })
}

/// Removes the objects that Argo CD or Helm would create only at a time that Konverge does not have (such as
/// `helm.sh/hook: test`). Returns a note about each of them.
pub fn leave_out(spec: &mut Spec, rules: &HookRules) -> Vec<String> {
    let mut notes = Vec::new();
    spec.resources.retain(|resource| {
        let why = foreign::why_left_out(resource, rules);
        let stays = why.is_none();
        notes.extend(why);
        stays
    });
    notes
}

/// Returns the run of a recorded `pre-destroy` hook; `None` if the recorded resource is not such a hook.
///
/// # Errors
/// A hook cannot run as it is declared.
pub fn pre_destroy_task(
    job: &Resource,
    others: Vec<ResourceId>,
    rules: &HookRules,
) -> Result<Option<HookTask>, HookError> {
    let own = HookDeclaration::read(&without_stamp(job))?;
    let declaration = own.or_else(|| foreign::read(job, rules, &mut Vec::new()));
    let Some(declaration) = declaration.filter(|hook| hook.time == HookTime::PreDestroy) else {
        return Ok(None);
    };
    declaration.check(job, rules)?;
    let mut digest = DigestBuilder::new("pre-destroy-hook");
    digest.part(without_stamp(job).digest().as_bytes());
    for id in &others {
        digest.part(id.as_str().as_bytes());
    }
    Ok(Some(HookTask {
        time: declaration.time,
        always: true,
        keeps_last: false,
        reversible: true,
        guards: others,
        digest: digest.finish(),
        serial: rules.serial,
        may_run: true,
    }))
}

/// Returns a recorded Job without the annotations that Konverge added.
fn without_stamp(job: &Resource) -> Resource {
    let mut job = job.clone();
    let metadata = job
        .attributes
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = metadata.and_then(Value::as_object_mut) {
        annotations.shift_remove(HOOK_STAMP);
    }
    job
}

/// Returns the workloads that a hook guards: the workloads of its cluster, except those that the hook depends on and
/// those that depend on the hook.
fn guarded_workloads<'a>(
    graph: &ResourceGraph,
    job: &Resource,
    time: HookTime,
    workloads: &[&'a Resource],
) -> Result<BTreeSet<&'a ResourceId>, HookError> {
    let id = &job.id;
    let (beyond, why) = match time {
        HookTime::Pre => (graph.ancestors(id), "it depends on every workload"),
        HookTime::Post => (graph.descendants(id), "every workload depends on it"),
        HookTime::Failed | HookTime::PreDestroy => {
            return match graph.dependents(id).first() {
                Some((by, _)) => Err(HookError::new(
                    id,
                    format!(
                        "`{by}` depends on `{id}`, which is a hook that runs `{time}` and has no place in the order"
                    ),
                    format!("remove `{id}` from what `{by}` depends on"),
                )),
                None => Ok(workloads.iter().map(|workload| &workload.id).collect()),
            };
        }
    };
    let here: BTreeSet<_> = workloads
        .iter()
        .filter(|workload| cluster(workload) == cluster(job))
        .map(|workload| &workload.id)
        .collect();
    if here.is_empty() {
        return Err(HookError::new(
            id,
            format!("the hook `{id}` is `{time}`, but its stack has no workload on its cluster"),
            "a hook guards the workloads of its stack, such as a Deployment: move the Job into their stack, or remove `konverge/hook` so that it is a plain Job",
        ));
    }
    let guards: BTreeSet<_> = here.into_iter().filter(|id| !beyond.contains(*id)).collect();
    if guards.is_empty() {
        let hint = "remove a `dependsOn` or a reference between the hook and the workload that it guards";
        Err(HookError::new(
            id,
            format!("the hook `{id}` guards nothing: {why}"),
            hint,
        ))
    } else {
        Ok(guards)
    }
}

fn cluster(resource: &Resource) -> Option<&Value> {
    resource.extensions.get("cluster")
}

/// Returns true if an object runs pods: it is a Pod, or it has a pod template.
fn is_workload(resource: &Resource) -> bool {
    let spec = resource.attributes.get("spec");
    let containers = |path: &[&str]| {
        let at = path.iter().try_fold(spec?, |value, key| value.get(key));
        at?.get("containers")?.as_array()
    };
    let is_pod = GroupKind::from_attributes(&resource.attributes) == GroupKind::POD;
    resource.runtime == RuntimeKind::Kubernetes
        && (is_pod
            || containers(&["template", "spec"]).is_some()
            || containers(&["jobTemplate", "spec", "template", "spec"]).is_some())
}
