//! The only writes of the portal: its audit, the end of a lease, and the freeze. All of them go to the store.

use async_trait::async_trait;

use konverge_base::{error::UserError, model::StackId};
use konverge_portal::{AuditDocument, AuditEntry, PortalPerson, RequestOutcome};
use konverge_run::{StateBackend, apply_freeze};
use konverge_serve::{PortalActions, PortalRequest, UnlockResult};
use konverge_state::{DocumentWriter, RecordedOutcome, RecordedRequest, StateError};

use super::StorePortal;

impl StorePortal {
    /// Returns the states, with a person of the portal as the writer of the documents.
    fn written_by(&self, person: &PortalPerson) -> StateBackend {
        let mut backend = self.backend.clone();
        backend.states = backend.states.with_writer(DocumentWriter {
            run: "the portal".to_owned(),
            actor: format!("{}, subject {} of {}", person.name, person.subject, person.issuer),
        });
        backend
    }
}

#[async_trait]
impl PortalActions for StorePortal {
    async fn record(&self, request: &PortalRequest) -> Result<String, UserError> {
        let mut document = request.clone();
        // A person may type a secret into the reason. Mask the secrets that this process knows.
        let reason = request.input.reason.as_ref();
        document.input.reason = reason.map(|reason| self.backend.secrets.mask(reason));
        let backend = self.written_by(&request.person);
        Ok(backend.states.record_request(&document).await?)
    }

    async fn record_outcome(&self, entry: &str, error: Option<&str>) -> Result<(), UserError> {
        let outcome = RecordedOutcome {
            error: error.map(|error| self.backend.secrets.mask(error)),
        };
        Ok(self.backend.states.record_outcome(entry, &outcome).await?)
    }

    async fn unlock(
        &self,
        by: &PortalPerson,
        stack: &StackId,
        lease: &str,
        reason: &str,
    ) -> Result<UnlockResult, UserError> {
        match self.written_by(by).states.unlock(stack, lease, reason).await {
            Ok(_) => Ok(UnlockResult::Ended),
            Err(StateError::Missing(why)) => Ok(UnlockResult::OtherLease(why)),
            Err(error) => Err(error.into()),
        }
    }

    async fn freeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError> {
        apply_freeze::begin(&self.written_by(by), reason).await
    }

    async fn unfreeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError> {
        apply_freeze::end(&self.written_by(by), reason).await.map(drop)
    }

    async fn audit(&self, at_most: usize) -> Result<AuditDocument, UserError> {
        let (requests, unreadable) = self.backend.states.recorded_requests(at_most).await?;
        let unreadable = unreadable.iter();
        Ok(AuditDocument {
            version: 1,
            entries: requests.into_iter().map(entry).collect(),
            notices: unreadable
                .map(|why| format!("An entry cannot be read: {}", self.backend.secrets.mask(why)))
                .collect(),
        })
    }
}

fn entry(recorded: RecordedRequest<PortalRequest>) -> AuditEntry {
    let request = recorded.request;
    let error = recorded
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.error.clone());
    let outcome = match (request.operation.is_own_write(), &recorded.outcome, &error) {
        (false, ..) => RequestOutcome::Asked,
        (true, None, _) => RequestOutcome::Unknown,
        (true, Some(_), None) => RequestOutcome::Done,
        (true, Some(_), Some(_)) => RequestOutcome::Failed,
    };
    AuditEntry {
        id: recorded.id,
        time: recorded.time,
        operation: request.operation,
        stack: request.stack,
        folder: request.folder,
        input: request.input,
        person: request.person,
        address: request.address,
        forwarded_for: request.forwarded_for,
        outcome,
        error,
    }
}
