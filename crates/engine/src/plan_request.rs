//! [`PlanRequest`]: the input of a plan.

use std::collections::BTreeMap;

use serde_json::Value;

use super::RuntimeRegistry;
use konverge_base::model::{
    ClusterName, RepoPath, StackId, event::EventSink, hook::HookRules, spec::Spec, stack_output::OutputName,
    state::StackState,
};
use konverge_secrets::{Secrets, StackReferences};

/// The input of a plan.
pub struct PlanRequest<'a> {
    /// Identity of the stack.
    pub stack: StackId,
    /// Folder of the stack.
    pub folder: RepoPath,
    /// The desired resources.
    pub spec: Spec,
    /// The outputs that the stack publishes, by name: a value, or a text with references ([`Spec::outputs`]).
    pub outputs: BTreeMap<OutputName, Value>,
    /// The recorded state.
    pub state: &'a StackState,
    /// The runtimes that read the live objects.
    pub runtimes: &'a RuntimeRegistry,
    /// Paths that are not compared.
    pub ignore: &'a [String],
    /// The cluster of the stack. The extension `cluster` of a resource takes precedence.
    pub cluster: Option<ClusterName>,
    /// Receives the progress.
    pub events: &'a dyn EventSink,
    /// The rules for hooks.
    pub hooks: HookRules,
    /// Answers questions about the stack's references to secrets.
    pub references: StackReferences,
    /// Masks the messages of failures.
    pub secrets: &'a Secrets,
    /// The plan is a drift check: it is never applied.
    pub only_compares: bool,
}
