//! The only writes of the portal: its audit, the end of a lease, and the freeze. All of them go to the store.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use konverge_base::{
    error::UserError,
    model::{RepoPath, StackId},
};
use konverge_portal::{
    AuditDocument, AuditEntry, OperationInput, PortalOperation, PortalPerson, RequestOutcome,
};
use konverge_run::{StateBackend, apply_freeze};
use konverge_serve::{PortalActions, PortalRequest, UnlockResult};
use konverge_state::{DocumentWriter, RecordedOutcome, RecordedRequest, StateError};

use super::StorePortal;

/// The body of an entry in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RequestDocument {
    operation: PortalOperation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stack: Option<StackId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<RepoPath>,
    input: OperationInput,
    person: PortalPerson,
    address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    forwarded_for: Option<String>,
}

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
        let mut input = request.input.clone();
        // A person may type a secret into the reason. Mask the secrets that this process knows.
        input.reason = input.reason.map(|reason| self.backend.secrets.mask(&reason));
        let (stack, folder) = request.stack.clone().unzip();
        let document = RequestDocument {
            operation: request.operation,
            stack,
            folder,
            input,
            person: request.person.clone(),
            address: request.address.clone(),
            forwarded_for: request.forwarded_for.clone(),
        };
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

fn entry(recorded: RecordedRequest<RequestDocument>) -> AuditEntry {
    let RequestDocument {
        operation,
        stack,
        folder,
        input,
        person,
        address,
        forwarded_for,
    } = recorded.request;
    let is_own_write = matches!(
        operation,
        PortalOperation::Unlock | PortalOperation::Freeze | PortalOperation::Unfreeze
    );
    let error = recorded
        .outcome
        .as_ref()
        .and_then(|outcome| outcome.error.clone());
    let outcome = match (is_own_write, &recorded.outcome, &error) {
        (false, ..) => RequestOutcome::Asked,
        (true, None, _) => RequestOutcome::Unknown,
        (true, Some(_), None) => RequestOutcome::Done,
        (true, Some(_), Some(_)) => RequestOutcome::Failed,
    };
    AuditEntry {
        id: recorded.id,
        time: recorded.time,
        operation,
        stack,
        folder,
        input,
        person,
        address,
        forwarded_for,
        outcome,
        error,
    }
}
