//! The freeze of all applies: an apply of any kind asks for it before it touches a stack.

use crate::StateBackend;
use konverge_base::error::{ErrorKind, UserError};
use konverge_state::ApplyFreeze;

/// Stops the caller if applies are frozen.
///
/// # Errors
/// Applies are frozen, or the store cannot say.
pub(crate) async fn check(backend: &StateBackend) -> Result<(), UserError> {
    match backend.states.freeze().await? {
        None => Ok(()),
        Some(freeze) => Err(UserError::new(ErrorKind::Policy, sentence(&freeze)).hint(
            "`konverge unfreeze --reason TEXT` ends the freeze; the next run then applies what is pending",
        )),
    }
}

/// `applies are frozen since TIME by WHO: REASON`.
pub fn sentence(freeze: &ApplyFreeze) -> String {
    format!(
        "applies are frozen since {:.0} by {}: {}",
        freeze.since, freeze.writer, freeze.reason
    )
}

/// Freezes all applies, or ends the freeze. Returns the freeze that held before.
///
/// # Errors
/// There is no reason. Errors of the store.
pub async fn set(
    backend: &StateBackend,
    frozen: bool,
    reason: &str,
) -> Result<Option<ApplyFreeze>, UserError> {
    if reason.trim().is_empty() {
        return Err(UserError::new(ErrorKind::Usage, "the reason is empty")
            .hint("give one with `--reason TEXT`; every run that is stopped shows it"));
    }
    let before = backend.states.freeze().await?;
    if frozen || before.is_some() {
        backend.states.set_freeze(frozen, reason.trim()).await?;
    }
    Ok(before)
}
