//! Decides which code may be compiled on a system without a sandbox: only that of the user's own checkout.

use konverge_base::error::{ErrorKind, UserError};
use konverge_config::Sandbox;
use konverge_kcl::{SANDBOX_SUPPORTED, SandboxMode};

/// The origin of the code that is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeOrigin {
    /// The checkout of the person who runs the command.
    OwnCheckout,
    /// The author of a pull request from outside, or anyone in a job's checkout.
    Others,
}

/// Returns what happens if a layer of the sandbox is missing, from `kcl.sandbox` and the system.
pub(crate) fn mode(configured: Option<Sandbox>, origin: CodeOrigin) -> SandboxMode {
    mode_on(SANDBOX_SUPPORTED, configured, origin)
}

fn mode_on(is_supported: bool, configured: Option<Sandbox>, origin: CodeOrigin) -> SandboxMode {
    match (configured, origin) {
        // `best-effort` tolerates that one layer is missing, but not that there is no sandbox at all.
        (_, CodeOrigin::Others) if !is_supported => SandboxMode::Required,
        (Some(Sandbox::Required), _) => SandboxMode::Required,
        (Some(Sandbox::BestEffort) | None, _) => SandboxMode::BestEffort,
    }
}

/// Returns an error for a job on a system without a sandbox.
///
/// # Errors
/// The system has no sandbox.
pub fn require_for_jobs() -> Result<(), UserError> {
    require_on(SANDBOX_SUPPORTED)
}

fn require_on(is_supported: bool) -> Result<(), UserError> {
    if is_supported {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Config,
        format!(
            "`konverge ci` compiles code of other people, and Konverge has no sandbox for that on {}",
            std::env::consts::OS
        ),
    )
    .hint("run the job on Linux: `runs-on: ubuntu-24.04`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_sandbox_only_the_own_checkout_is_compiled() {
        use {CodeOrigin::*, SandboxMode::*};
        for configured in [None, Some(Sandbox::BestEffort)] {
            assert_eq!(mode_on(false, configured, OwnCheckout), BestEffort);
            assert_eq!(mode_on(false, configured, Others), Required);
            assert_eq!(mode_on(true, configured, Others), BestEffort);
        }
        for origin in [OwnCheckout, Others] {
            assert_eq!(mode_on(false, Some(Sandbox::Required), origin), Required);
            assert_eq!(mode_on(true, Some(Sandbox::Required), origin), Required);
        }
    }

    #[test]
    fn a_job_without_a_sandbox_is_refused() {
        let refused = require_on(false).unwrap_err();
        assert!(refused.hints[0].contains("runs-on: ubuntu-24.04"), "{refused:?}");
        require_on(true).unwrap();
    }
}
