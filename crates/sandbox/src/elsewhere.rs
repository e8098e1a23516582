//! What a system other than Linux has of the layers: none.
//!
//! macOS has `sandbox-exec`, which Apple calls deprecated and whose language is not documented, so nothing rests on it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::layers::SandboxLayers;

/// Hints for [`SandboxError::Missing`](super::SandboxError::Missing).
pub const HINTS: [&str; 2] = [
    "run konverge on Linux, for example in the image of the release: `docker run ghcr.io/konverge/konverge`",
    "here only your own checkout is compiled, outside of CI, and unless konverge.yaml has `kcl.sandbox: required`",
];

/// How a process runs that lacks a layer.
pub(super) const WEAKENED: &str = "without a sandbox";

/// Returns the reason why every layer is missing.
pub(super) fn restrict(_: &SandboxLayers) -> Vec<String> {
    let system = match std::env::consts::OS {
        "macos" => "macOS",
        other => other,
    };
    vec![format!(
        "{system} has neither Landlock nor seccomp, and does not bound memory: run code that you trust"
    )]
}

/// Limits the stack as far as the system allows. The address space has no limit: macOS maps more than any into
/// every process, and refuses the call.
pub(super) fn limit_memory(layers: &SandboxLayers) -> Result<(), String> {
    let words = |error: nix::Error| format!("cannot set the limit of stack: {error}");
    let (_, most) = getrlimit(Resource::RLIMIT_STACK).map_err(words)?;
    let limit = layers.profile.stack().min(most);
    setrlimit(Resource::RLIMIT_STACK, limit, most).map_err(words)
}
