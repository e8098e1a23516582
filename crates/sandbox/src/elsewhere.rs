//! The sandbox layers on systems other than Linux: none.
//!
//! macOS has `sandbox-exec`, but Apple calls it deprecated and does not document its language, so Konverge does not
//! rely on it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::layers::SandboxLayers;

/// Hints for [`SandboxError::Missing`](super::SandboxError::Missing).
pub const HINTS: [&str; 2] = [
    "run konverge on Linux, for example in the image of the release: `docker run ghcr.io/konverge/konverge`",
    "without a sandbox, Konverge compiles only your own checkout outside of CI, and only if konverge.yaml does not require a sandbox (`kcl.sandbox: required`)",
];

/// The words of a warning for a process that runs without a layer of the sandbox.
pub(super) const WEAKENED: &str = "without a sandbox";

/// Returns the reason why all layers are missing.
pub(super) fn restrict(_: &SandboxLayers) -> Vec<String> {
    let system = match std::env::consts::OS {
        "macos" => "macOS",
        other => other,
    };
    vec![format!(
        "{system} has neither Landlock nor seccomp, and cannot limit memory: run only code that you trust"
    )]
}

/// Limits the stack as far as the system allows. The address space is not limited: macOS maps very large regions
/// into every process, and rejects such a limit.
pub(super) fn limit_memory(layers: &SandboxLayers) -> Result<(), String> {
    let words = |error: nix::Error| format!("cannot set the limit of stack: {error}");
    let (_, most) = getrlimit(Resource::RLIMIT_STACK).map_err(words)?;
    let limit = layers.profile.stack().min(most);
    setrlimit(Resource::RLIMIT_STACK, limit, most).map_err(words)
}
