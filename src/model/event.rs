//! What the engine says while it works; `report/` turns events into progress lines, never the engine.

use super::{ResourceId, StackId, apply_result::ResourceResult, plan::Action};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// A stack is being planned.
    PlanStarted {
        /// The stack.
        stack: StackId,
        /// How many resources.
        resources: usize,
    },
    /// A stack is being applied.
    ApplyStarted {
        /// The stack.
        stack: StackId,
        /// How many resources will be touched.
        resources: usize,
    },
    /// A resource's change has been sent.
    ResourceStarted {
        /// The stack.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// What happens to it.
        action: Action,
    },
    /// What a reader should know of a resource before it is touched.
    ResourceNoted {
        /// The stack.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// As in its plan.
        note: String,
    },
    /// Waiting for a resource to be ready; `message` says for what.
    ResourceProgress {
        /// The stack.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// A few words.
        message: String,
    },
    /// A resource ended.
    ResourceEnded {
        /// The stack.
        stack: StackId,
        /// The resource.
        id: ResourceId,
        /// How.
        result: ResourceResult,
        /// Why, if not well.
        message: Option<String>,
    },
}

/// Where events go. Must not block.
pub trait EventSink: Send + Sync {
    /// Takes one event.
    fn event(&self, event: RunEvent);
}

/// Drops every event.
pub struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _: RunEvent) {}
}
