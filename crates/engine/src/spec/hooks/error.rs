//! The errors of hooks.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, hook::HookTime},
};

use super::super::graph::GraphError;

/// A hook that cannot run as it is declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum HookError {
    /// The object has a Konverge hook annotation, but not the one that says when the hook runs.
    #[error("`{id}` has the annotation `{}` and no `konverge/hook`", .key.escape_debug())]
    NoTime { id: ResourceId, key: String },
    /// The annotation does not exist, or only Konverge itself may write it.
    #[error("`{id}`: `{}` is not an annotation of hooks", .key.escape_debug())]
    UnknownAnnotation { id: ResourceId, key: String },
    /// The annotation does not allow this value.
    #[error("`{id}`: the annotation `{key}` is `{}`; it must be one of `{choices}`", .value.escape_debug())]
    BadValue {
        id: ResourceId,
        key: &'static str,
        value: String,
        choices: String,
    },
    /// The hook is not a Job.
    #[error("`{id}` is not a Job of `batch/v1` but `{}`: only a Job can be a hook", .kind.escape_debug())]
    NotAJob { id: ResourceId, kind: String },
    /// The restart policy of the Job would restart its containers for ever, so that the hook never ends.
    #[error("the hook `{id}` has `restartPolicy: {}`", if .policy.is_empty() { "(not set)".into() } else { .policy.escape_debug().to_string() })]
    RestartPolicy { id: ResourceId, policy: String },
    /// The Job is suspended, so it never starts.
    #[error("the hook `{id}` has `suspend: true`, so it would never end")]
    Suspended { id: ResourceId },
    /// Hooks may not use this service account.
    #[error("the hook `{id}` uses the service account `{}`, which hooks may not use", .account.escape_debug())]
    Account { id: ResourceId, account: String },
    /// The stack has no workload that the hook could guard.
    #[error("the hook `{job}` is `{time}`, but its stack has no workload on its cluster")]
    NoWorkload { job: ResourceId, time: HookTime },
    /// The hook guards nothing: every workload already depends on it, or it depends on every workload.
    #[error("the hook `{job}` guards nothing: {}", all_beyond(*.time))]
    GuardsNothing { job: ResourceId, time: HookTime },
    /// A resource depends on a hook that does not run at each apply.
    #[error("`{by}` depends on `{job}`, which is a hook that runs `{time}` and has no place in the order")]
    Needed {
        job: ResourceId,
        time: HookTime,
        by: ResourceId,
    },
    /// Hooks wait for each other in a cycle.
    #[error("hooks wait for each other: {}", .0.iter().chain(.0.first()).map(|id| format!("`{id}`")).collect::<Vec<_>>().join(" → "))]
    Circle(Vec<ResourceId>),
    /// The graph of the resources is invalid.
    #[error(transparent)]
    Graph(GraphError),
}

impl HookError {
    /// Returns the object with the error, or the first one if hooks wait for each other.
    pub fn object(&self) -> Option<&ResourceId> {
        match self {
            Self::NoTime { id, .. }
            | Self::UnknownAnnotation { id, .. }
            | Self::BadValue { id, .. }
            | Self::NotAJob { id, .. }
            | Self::RestartPolicy { id, .. }
            | Self::Suspended { id }
            | Self::Account { id, .. } => Some(id),
            Self::NoWorkload { job, .. } | Self::GuardsNothing { job, .. } | Self::Needed { job, .. } => {
                Some(job)
            }
            Self::Circle(ids) => ids.first(),
            Self::Graph(_) => None,
        }
    }
}

fn all_beyond(time: HookTime) -> &'static str {
    match time {
        HookTime::Post => "every workload depends on it",
        _ => "it depends on every workload",
    }
}

impl From<HookError> for UserError {
    fn from(error: HookError) -> Self {
        let kind = match error {
            HookError::Account { .. } => ErrorKind::Policy,
            _ => ErrorKind::Spec,
        };
        let failure = UserError::from_error(kind, error.clone());
        match error {
            HookError::NoTime { .. } => {
                failure.hint("add `konverge/hook: pre`, `post`, `failed` or `pre-destroy`, or remove the annotation")
            }
            HookError::UnknownAnnotation { .. } => failure.hint(
                "the annotations are `konverge/hook`, `konverge/hook-on`, `konverge/hook-keep` and `konverge/hook-reversible`",
            ),
            HookError::BadValue { choices, .. } => failure.hint(format!("write one of `{choices}`")),
            HookError::NotAJob { .. } => {
                failure.hint("move the annotation to a Job, or remove it; `dependsOn` orders other objects")
            }
            HookError::RestartPolicy { .. } => {
                failure.hint("set `spec.template.spec.restartPolicy` to `Never` or `OnFailure`: a hook has to end")
            }
            HookError::Suspended { .. } => failure.hint("remove `spec.suspend` from the Job"),
            HookError::Account { account, .. } => failure.hint(format!(
                "add `{}` to `apply.hooks.service_accounts` in konverge.yaml on the default branch, or use an account of that list",
                account.escape_debug()
            )),
            HookError::NoWorkload { .. } => failure.hint(
                "a hook guards the workloads of its stack, such as a Deployment: move the Job into their stack, or remove `konverge/hook` so that it is a plain Job",
            ),
            HookError::GuardsNothing { .. } => {
                failure.hint("remove a `dependsOn` or a reference between the hook and the workload that it guards")
            }
            HookError::Needed { by, job, .. } => {
                failure.hint(format!("remove `{job}` from what `{by}` depends on"))
            }
            HookError::Circle(_) => failure.hint(
                "remove one of these `dependsOn` or references: a `pre` hook runs before every workload, and a `post` hook after every workload",
            ),
            HookError::Graph(error) => error.into(),
        }
    }
}
