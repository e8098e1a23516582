//! The tracing spans of a run: the run itself, its stages, its stacks, its requests and its waits.
//!
//! A stage is a period of the run and contains no other span: the work during a stage belongs to the run.
//!
//! The fields of the spans are names and numbers, and never a value, a header, a path or a body.

use tracing::{Span, debug_span, field::Empty, info_span};

/// The target of all spans.
pub const TARGET: &str = "konverge::span";

/// Creates the span of a command.
pub fn run(command: &str) -> Span {
    info_span!(target: TARGET, "run", of = command)
}

/// The stages of a command, one after the other.
pub struct Stages {
    _span: Span,
}

impl Stages {
    /// Starts the first stage, such as `compile and plan`.
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

/// Creates the span of a piece of work on one stack, such as `plan`.
pub fn stack(stack: &dyn std::fmt::Display, work: &str) -> Span {
    info_span!(target: TARGET, "stack", of = %stack, work)
}

/// Creates the span of one HTTP request to a host.
pub fn request(method: &str, host: &str) -> Span {
    debug_span!(target: TARGET, "request", of = host, method, status = Empty, bytes = Empty)
}

/// Records the response to a request: its status, and the size of its body if that is known.
pub fn answered(request: &Span, status: u16, bytes: Option<u64>) {
    request.record("status", status);
    if let Some(bytes) = bytes {
        request.record("bytes", bytes);
    }
}

/// Creates the span of a wait, such as `a lease`.
pub fn wait(what: &str) -> Span {
    info_span!(target: TARGET, "wait", of = what)
}
