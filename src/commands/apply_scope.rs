//! The changes that an apply would make, and where, for the question to the person who starts it.

use std::collections::BTreeSet;

use konverge_base::{
    error::UserError,
    model::{
        ClusterName, StackId,
        plan::{Action, Plan, Summary},
        spec::RuntimeKind,
    },
};
use konverge_run::{
    Planner, Target,
    cluster_selection::{self, Live},
};

/// The changes of a plan, and where they are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyScope {
    /// All changes.
    pub changes: Summary,
    /// The stacks with a change.
    pub stacks: Vec<StackId>,
    /// Names of the clusters where objects change, for people; or the kubeconfig from the command line.
    pub clusters: Vec<String>,
    /// True if Terraform resources change.
    pub terraform: bool,
}

/// Computes the scope of a plan of these targets.
///
/// # Errors
/// A state cannot be read.
pub async fn find_scope(
    planning: &Planner,
    targets: &[Target],
    plan: &Plan,
) -> Result<ApplyScope, UserError> {
    let mut scope = ApplyScope {
        changes: Summary::default(),
        stacks: Vec::new(),
        clusters: Vec::new(),
        terraform: false,
    };
    let mut clusters = BTreeSet::new();
    for stack in plan.stacks.iter().filter(|stack| stack.summary.changed() > 0) {
        scope.changes = scope.changes + stack.summary;
        scope.stacks.push(stack.id.clone());
        let changed = |kind: RuntimeKind| {
            let mut resources = stack.resources.iter();
            resources.any(|resource| resource.runtime == kind && resource.action != Action::Unchanged)
        };
        scope.terraform |= changed(RuntimeKind::Terraform);
        let target = targets.iter().find(|target| target.id == stack.id);
        if let Some(target) = target.filter(|_| changed(RuntimeKind::Kubernetes)) {
            clusters.extend(clusters_of(planning, target).await?);
        }
    }
    scope.clusters = clusters.into_iter().map(|name| place(planning, &name)).collect();
    Ok(scope)
}

/// Returns the cluster that the rules assign to a stack, and those with recorded objects of the stack.
async fn clusters_of(planning: &Planner, target: &Target) -> Result<BTreeSet<ClusterName>, UserError> {
    let recorded = planning.prior(target).await?;
    let recorded = recorded.into_iter().flat_map(|state| state.resources);
    let mut clusters: BTreeSet<_> = recorded.filter_map(|resource| resource.cluster).collect();
    if let Some(stack) = target.rules() {
        clusters.extend(cluster_selection::cluster_of(
            &planning.config,
            stack,
            &planning.given,
            Live::Required,
        )?);
    }
    Ok(clusters)
}

/// Describes a cluster as the person named it: by its name in `konverge.yaml`, or by the context or kubeconfig of the
/// command line.
fn place(planning: &Planner, name: &ClusterName) -> String {
    let given = &planning.given;
    if planning.config.clusters.contains_key(name) || *name != cluster_selection::given_name() {
        return format!("cluster `{name}`");
    }
    match (&given.context, &given.kubeconfig) {
        (Some(context), _) => format!("the cluster of context `{}`", context.escape_debug()),
        (None, Some(file)) => format!("the cluster of `{}`", file.escape_debug()),
        (None, None) => format!("cluster `{name}`"),
    }
}
