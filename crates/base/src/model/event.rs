//! The events of the engine. `crates/report/src/` turns them into progress lines; the engine itself prints nothing.

use super::{ResourceId, StackId, apply_result::ResourceResult, plan::Action};

/// An event during a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// A step has finished this many of its stacks. The first event of a step has `done: 0`.
    StepProgress {
        /// The step of the run.
        step: Step,
        /// The number of finished stacks.
        done: usize,
        /// The number of all stacks.
        total: usize,
    },
    /// A stack is being planned.
    PlanStarted {
        /// The stack that is planned.
        stack: StackId,
        /// The number of resources.
        resources: usize,
    },
    /// A stack is being applied.
    ApplyStarted {
        /// The stack that is applied.
        stack: StackId,
        /// The number of resources to change.
        resources: usize,
    },
    /// The change of a resource was sent.
    ResourceStarted {
        /// Stack of the resource.
        stack: StackId,
        /// The resource that is being changed.
        id: ResourceId,
        /// The action on the resource.
        action: Action,
    },
    /// A note about a resource, sent before the resource is changed.
    ResourceNoted {
        /// Stack of the resource.
        stack: StackId,
        /// The resource that the note is about.
        id: ResourceId,
        /// The note, as in the plan.
        note: String,
    },
    /// The engine waits until a resource is ready; `message` says what it waits for.
    ResourceProgress {
        /// Stack of the resource.
        stack: StackId,
        /// The resource that is being changed.
        id: ResourceId,
        /// The condition that the engine waits for, masked.
        message: String,
    },
    /// A resource is finished.
    ResourceEnded {
        /// Stack of the resource.
        stack: StackId,
        /// The resource that was changed.
        id: ResourceId,
        /// The result for the resource.
        result: ResourceResult,
        /// The reason, if the resource did not succeed.
        message: Option<String>,
    },
}

/// A step of a run that handles many stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// KCL compiles the stacks.
    Compile,
    /// The stacks are compiled and compared with the infrastructure or with the base.
    Plan,
    /// The applied objects are compared with the infrastructure.
    CheckDrift,
    /// The recorded states and the health of objects are read.
    QueryStatus,
    /// The stacks are applied.
    Apply,
}

/// Receives events. Must not block.
pub trait EventSink: Send + Sync {
    /// Receives one event. The call must not block.
    fn event(&self, event: RunEvent);
}

/// Drops every event.
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _: RunEvent) {}
}
