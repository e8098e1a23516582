//! [`PlanRequest`]: the input of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::RuntimeRegistry;
use konverge_base::model::{
    ClusterName, FieldPath, RepoPath, StackId, event::EventSink, hook::HookRules, spec::Spec,
    stack_output::OutputName, state::StackState,
};
use konverge_secrets::{Secrets, StackReferences};

/// The input of a plan.
pub struct PlanRequest<'a> {
    /// The identity of the stack.
    pub stack: StackId,
    /// The folder of the stack.
    pub folder: RepoPath,
    /// The desired resources.
    pub spec: Spec,
    /// The outputs that the stack publishes, by name. The value may be a text with references ([`Spec::outputs`]).
    pub outputs: BTreeMap<OutputName, Value>,
    /// The recorded state.
    pub state: &'a StackState,
    /// The runtimes that read the live objects.
    pub runtimes: &'a RuntimeRegistry,
    /// The paths that are not compared (`stacks[].ignore`).
    pub ignore: &'a [FieldPath],
    /// The cluster of the stack. The extension `cluster` of a resource takes precedence.
    pub cluster: Option<ClusterName>,
    /// Receives the progress.
    pub events: &'a dyn EventSink,
    /// The rules for hooks.
    pub hooks: HookRules,
    /// Tells which secret references the stack has.
    pub references: StackReferences,
    /// Masks the messages of failures.
    pub secrets: &'a Secrets,
    /// True for a drift check: the plan is never applied.
    pub only_compares: bool,
}
