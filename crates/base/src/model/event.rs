//! The events of the engine. `crates/report/src/` turns them into progress lines; the engine never writes text.

use super::{ResourceId, StackId, apply_result::ResourceResult, plan::Action};

/// An event of a run while it works.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// A step has handled this many of its stacks. The first event of a step has `done: 0`.
    StepProgress {
        /// The step.
        step: Step,
        /// The number of parts that are done.
        done: usize,
        /// The number of all parts.
        total: usize,
    },
    /// A stack is being planned.
    PlanStarted {
        /// The stack that begins.
        stack: StackId,
        /// The number of resources.
        resources: usize,
    },
    /// A stack is being applied.
    ApplyStarted {
        /// The stack that has a plan.
        stack: StackId,
        /// The number of resources to change.
        resources: usize,
    },
    /// The change of a resource was sent.
    ResourceStarted {
        /// Stack of the resource.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// The action on the resource.
        action: Action,
    },
    /// A note about a resource, sent before the resource is changed.
    ResourceNoted {
        /// Stack of the resource.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// The note as in the plan.
        note: String,
    },
    /// The engine waits until a resource is ready; `message` says what it waits for.
    ResourceProgress {
        /// Stack of the resource.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// The awaited condition, masked.
        message: String,
    },
    /// A resource is finished.
    ResourceEnded {
        /// Stack of the resource.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// How it ended.
        result: ResourceResult,
        /// Why, if the resource did not succeed.
        message: Option<String>,
    },
}

/// A step of a run that handles many stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// KCL compiles the stacks.
    Compile,
    /// The stacks are compiled, and compared with the infrastructure or with the base.
    Plan,
    /// The last applied objects are compared with the infrastructure.
    CheckDrift,
    /// Recorded states and the health of objects are read.
    QueryStatus,
    /// The stacks are applied.
    Apply,
}

/// Receives events. Must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event; it must not block.
    fn event(&self, event: RunEvent);
}

/// Drops every event.
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _: RunEvent) {}
}
