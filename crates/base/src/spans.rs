//! The spans of a run: the run itself, its stages, stacks and requests, and what it waits for.
//!
//! A stage is a time of the run, and holds no other span: what is done in it belongs to the run.
//!
//! Their fields are names and numbers, and never a value, a header, a path or a body.

use tracing::{Span, debug_span, field::Empty, info_span};

/// The target of all spans.
pub const TARGET: &str = "konverge::span";

/// One command.
pub fn run(command: &str) -> Span {
    info_span!(target: TARGET, "run", of = command)
}

/// The stages of a command, one after the other.
pub struct Stages {
    _span: Span,
}

impl Stages {
    /// Starts with a stage, such as `compile and plan`.
    pub fn start(name: &str) -> Self {
        Self {
            _span: info_span!(target: TARGET, "stage", of = name),
        }
    }

    /// Ends the stage and starts the next.
    pub fn next(&mut self, name: &str) {
        *self = Self::start(name);
    }
}

/// The work on one stack, such as `plan`.
pub fn stack(stack: &dyn std::fmt::Display, work: &str) -> Span {
    info_span!(target: TARGET, "stack", of = %stack, work)
}

/// One HTTP request to a host.
pub fn request(method: &str, host: &str) -> Span {
    debug_span!(target: TARGET, "request", of = host, method, status = Empty, bytes = Empty)
}

/// The answer to a request: its status, and the size of its body if it is known.
pub fn answered(request: &Span, status: u16, bytes: Option<u64>) {
    request.record("status", status);
    if let Some(bytes) = bytes {
        request.record("bytes", bytes);
    }
}

/// A time in which nothing is done, such as `a lease`.
pub fn wait(what: &str) -> Span {
    info_span!(target: TARGET, "wait", of = what)
}
