//! The freeze of all applies. Every kind of apply checks it before it changes a stack.

use crate::StateBackend;
use konverge_base::error::{ErrorKind, UserError};
use konverge_state::{ApplyFreeze, FreezeReason, StateError};

/// Returns an error if applies are frozen.
///
/// # Errors
/// Applies are frozen, or the store cannot be read.
pub async fn check(backend: &StateBackend) -> Result<(), UserError> {
    match backend.states.freeze().await? {
        None => Ok(()),
        Some(freeze) => Err(UserError::new(ErrorKind::Policy, sentence(&freeze)).hint(
            "`konverge unfreeze --reason TEXT` ends the freeze; the next run then applies what is pending",
        )),
    }
}

/// Formats a freeze: `applies are frozen since TIME by WHO: REASON; since …`.
pub fn sentence(freeze: &ApplyFreeze) -> String {
    let one = |reason: &FreezeReason| {
        format!(
            "since {:.0} by {}: {}",
            reason.since, reason.writer, reason.reason
        )
    };
    let reasons: Vec<_> = freeze.reasons.iter().map(one).collect();
    format!("applies are frozen {}", reasons.join("; "))
}

/// The result of `konverge unfreeze`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndedFreeze {
    /// Applies were not frozen.
    Nothing,
    /// This freeze ended.
    Freeze(ApplyFreeze),
    /// The freeze document was unreadable, so it stopped every apply; it was removed.
    Unreadable,
}

/// Freezes all applies.
///
/// # Errors
/// The reason is empty; errors of the store.
pub async fn begin(backend: &StateBackend, reason: &str) -> Result<(), UserError> {
    Ok(backend.states.begin_freeze(given(reason)?).await?)
}

/// Ends the freeze, so that applies can run again.
///
/// # Errors
/// The reason is empty; errors of the store.
pub async fn end(backend: &StateBackend, reason: &str) -> Result<EndedFreeze, UserError> {
    let reason = given(reason)?;
    let ended = match backend.states.freeze().await {
        Ok(None) => return Ok(EndedFreeze::Nothing),
        Ok(Some(freeze)) => EndedFreeze::Freeze(freeze),
        Err(StateError::Damaged { .. }) => EndedFreeze::Unreadable,
        Err(error) => return Err(error.into()),
    };
    backend.states.end_freeze(reason).await?;
    Ok(ended)
}

fn given(reason: &str) -> Result<&str, UserError> {
    match reason.trim() {
        "" => Err(UserError::new(ErrorKind::Usage, "the reason is empty")
            .hint("give a reason with `--reason TEXT`; every run that is stopped shows it")),
        reason => Ok(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::backend;

    #[tokio::test]
    async fn a_freeze_stops_every_apply_and_says_since_when_by_whom_and_why() {
        let backend = backend();
        check(&backend).await.unwrap();
        begin(&backend, " an incident\n").await.unwrap();
        begin(&backend, "the second one").await.unwrap();
        let refused = check(&backend).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Policy);
        let said = &refused.message;
        assert!(said.starts_with("applies are frozen since "), "{said}");
        assert!(said.contains(": an incident; since "), "{said}");
        assert!(
            said.ends_with(": the second one") && said.contains("ada"),
            "{said}"
        );
        assert!(refused.hints[0].contains("konverge unfreeze"), "{refused:?}");
        let EndedFreeze::Freeze(ended) = end(&backend, "it is over").await.unwrap() else {
            panic!("there was a freeze")
        };
        assert_eq!(ended.reasons.len(), 2);
        check(&backend).await.unwrap();
        assert_eq!(end(&backend, "again").await.unwrap(), EndedFreeze::Nothing);
    }

    #[tokio::test]
    async fn a_freeze_begins_and_ends_with_a_reason() {
        let backend = backend();
        for empty in ["", " ", "\n\t"] {
            assert_eq!(begin(&backend, empty).await.unwrap_err().kind, ErrorKind::Usage);
            assert_eq!(end(&backend, empty).await.unwrap_err().kind, ErrorKind::Usage);
        }
        check(&backend).await.unwrap();
    }
}
