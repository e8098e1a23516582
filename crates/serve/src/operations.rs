//! Requests for operations. Each request is recorded first. A person starts CI runs at the forge under their own
//! name; the portal itself only ends leases and freezes applies.

use std::{sync::Arc, time::Instant};

use axum::{
    Form as FormBody, Router,
    extract::Path,
    http::StatusCode,
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};
use konverge_portal::{
    OperationAnswer, OperationInput, OverviewRow, PortalOperation, RequestOutcome, html, next_step,
};
use konverge_report::json;
use serde::Deserialize;

use super::{
    actions::{PortalActions, PortalRequest, UnlockResult},
    answer::{Form, RequestError, plain},
    api,
    cache::within_deadline,
    documents::Asked,
    login::Login,
    pages::stack_of,
    shared::Shared,
    sign_in::check_form,
};

/// The maximum length of a text in a request, in characters.
const LONGEST: usize = 500;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/freeze.html", get(freeze_page))
        .route("/freeze", post(freeze_form))
        .route("/unfreeze", post(unfreeze_form))
        .route("/stacks/{folder}/operations/{operation}", post(stack_form))
        .route("/api/v1/freeze", post(freeze_call))
        .route("/api/v1/unfreeze", post(unfreeze_call))
        .route("/api/v1/stacks/{id}/{operation}", post(stack_call))
}

/// The fields of a form.
#[derive(Deserialize)]
struct SentForm {
    #[serde(default)]
    csrf: String,
    reason: Option<String>,
    digest: Option<String>,
    serial: Option<String>,
    lease: Option<String>,
}

impl SentForm {
    fn input(self) -> Result<OperationInput, RequestError> {
        let serial = match self.serial.as_deref().map(str::trim) {
            None | Some("") => None,
            Some(text) => Some(text.parse().map_err(|_| {
                RequestError::wrong(
                    "`serial` must be a serial",
                    "the history of the stack lists the serials",
                )
            })?),
        };
        Ok(OperationInput {
            reason: self.reason,
            digest: self.digest,
            serial,
            lease: self.lease,
        })
    }
}

impl Asked {
    fn login(&self) -> Result<&Login, RequestError> {
        self.shared.login().ok_or_else(|| {
            RequestError::forbidden(
                "there is no login, so nobody can ask for an operation",
                "set `portal.login` in konverge.yaml on the default branch",
            )
        })
    }

    /// Checks that a form comes from a page of this portal, for this person.
    fn check_person(&self, csrf: &str) -> Result<(), RequestError> {
        check_form(self, self.login()?, csrf)
    }

    /// Checks that a call comes from a script. A session cookie is not enough, because another site could make the
    /// browser send it.
    fn check_script(&self) -> Result<(), RequestError> {
        let is_script = |of: &super::access::SignedIn| of.csrf.is_none();
        if self.access.signed_in.as_ref().is_some_and(is_script) {
            Ok(())
        } else {
            Err(RequestError::forbidden(
                "an operation of the API needs the token of a script",
                "send `Authorization: Bearer TOKEN`; people use the forms of the pages",
            ))
        }
    }

    async fn on_stack(
        &self,
        operation: PortalOperation,
        id: &StackId,
        input: OperationInput,
    ) -> Result<OperationAnswer, RequestError> {
        let index = self.shared.index(&self.access).await?;
        let row = index
            .overview
            .row(id)
            .ok_or_else(|| RequestError::unknown("this stack"))?;
        if !self.access.may_operate(row.stack.or_root()) {
            return Err(RequestError::forbidden(
                format!("the role `operator` for `{id}` is missing"),
                "add a rule with the role to `portal.roles` on the default branch",
            ));
        }
        let login = self.login()?;
        // The portal ends a lease itself. All other operations are only recorded, and the person continues at the
        // forge.
        if operation == PortalOperation::Unlock {
            let request = self.request(operation, Some(row), checked(operation, input)?)?;
            return self.write(login, &request).await;
        }
        let input = checked(operation, input)?;
        let roles = self.shared.roles().await?;
        let next = next_step(operation, row, &input, roles.workflow.as_deref());
        let next = next.map_err(|refusal| RequestError::conflict(refusal.message, refusal.hint))?;
        // The audit log records the digest of the drift that the person saw.
        let shown = row
            .drift
            .as_ref()
            .filter(|_| operation == PortalOperation::Restore);
        let input = OperationInput {
            digest: shown.map(|drift| drift.digest.to_string()).or(input.digest),
            ..input
        };
        let request = self.request(operation, Some(row), input)?;
        let audit = self.record(login, &request).await?;
        Ok(OperationAnswer {
            version: 1,
            operation,
            stack: Some(id.clone()),
            audit,
            outcome: RequestOutcome::Asked,
            next: Some(next),
        })
    }

    async fn on_all(
        &self,
        operation: PortalOperation,
        input: OperationInput,
    ) -> Result<OperationAnswer, RequestError> {
        if !self.access.may_freeze() {
            return Err(RequestError::forbidden(
                "the freeze is for all stacks, and the role `operator` for `**` is missing",
                "add a rule with the role to `portal.roles` on the default branch",
            ));
        }
        let login = self.login()?;
        let request = self.request(operation, None, checked(operation, input)?)?;
        self.write(login, &request).await
    }

    fn request(
        &self,
        operation: PortalOperation,
        row: Option<&OverviewRow>,
        input: OperationInput,
    ) -> Result<PortalRequest, RequestError> {
        let signed_in = self.access.signed_in.as_ref();
        let person = signed_in.map(|of| of.person.clone());
        let forwarded = self.headers.get("x-forwarded-for");
        let forwarded = forwarded.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Ok(PortalRequest {
            operation,
            stack: row.map(|row| row.id.clone()),
            folder: row.map(|row| row.stack.or_root().clone()),
            input,
            person: person.ok_or_else(|| RequestError::signed_out("no person is signed in"))?,
            address: self
                .client
                .as_ref()
                .map_or_else(|| "unknown".to_owned(), |client| client.0.clone()),
            forwarded_for: forwarded.map(|text| text.chars().take(LONGEST).collect()),
        })
    }

    async fn record(&self, login: &Login, request: &PortalRequest) -> Result<String, RequestError> {
        let person = &request.person;
        login
            .requests
            .take(&format!("{} {}", person.issuer, person.subject), Instant::now())
            .map_err(RequestError::too_many)?;
        Ok(within_deadline(login.actions.record(request)).await?)
    }

    /// Records the request, performs it, and records the outcome.
    async fn write(&self, login: &Login, request: &PortalRequest) -> Result<OperationAnswer, RequestError> {
        let actions = &*login.actions;
        // The request is recorded first. If the process is killed after that, the entry without an outcome shows
        // that the write may have happened.
        let audit = self.record(login, request).await?;
        let done = within_deadline(carry_out(actions, request)).await;
        // The cache is emptied also after an error, because the write may still have happened.
        self.shared.forget().await;
        let error = match &done {
            Ok(UnlockResult::Ended) => None,
            Ok(UnlockResult::OtherLease(why)) => Some(why.clone()),
            Err(error) => Some(error.to_string()),
        };
        if let Err(error) = within_deadline(actions.record_outcome(&audit, error.as_deref())).await {
            // The entry stays in the audit log, with an unknown outcome.
            tracing::warn!(%error, entry = audit, "the outcome of a request is not in the audit");
        }
        match done? {
            UnlockResult::Ended => Ok(OperationAnswer {
                version: 1,
                operation: request.operation,
                stack: request.stack.clone(),
                audit,
                outcome: RequestOutcome::Done,
                next: None,
            }),
            UnlockResult::OtherLease(message) => Err(RequestError::conflict(message, "load the page again")),
        }
    }
}

/// Performs one of the portal's own writes.
pub(super) async fn carry_out(
    actions: &dyn PortalActions,
    request: &PortalRequest,
) -> Result<UnlockResult, UserError> {
    let reason = request.input.reason.as_deref().unwrap_or_default();
    let by = &request.person;
    match (request.operation, &request.stack) {
        (PortalOperation::Unlock, Some(stack)) => {
            let lease = request.input.lease.as_deref().unwrap_or_default();
            actions.unlock(by, stack, lease, reason).await
        }
        (PortalOperation::Freeze, None) => actions.freeze(by, reason).await.map(|()| UnlockResult::Ended),
        (PortalOperation::Unfreeze, None) => actions.unfreeze(by, reason).await.map(|()| UnlockResult::Ended),
        (other, _) => Err(UserError::new(
            ErrorKind::Internal,
            format!("the portal itself does not do `{}`", other.key()),
        )),
    }
}

/// Checks the input of an operation, and drops fields that do not belong to it.
fn checked(operation: PortalOperation, input: OperationInput) -> Result<OperationInput, RequestError> {
    let text = |name: &str, text: Option<String>| {
        let text = text
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty());
        if text.as_ref().is_some_and(|text| text.chars().count() > LONGEST) {
            Err(RequestError::wrong(
                format!("`{name}` is longer than {LONGEST} characters"),
                "make it shorter",
            ))
        } else {
            Ok(text)
        }
    };
    let required = |name: &str, value: Option<String>| {
        text(name, value)?.ok_or_else(|| {
            RequestError::wrong(
                format!("`{name}` is missing"),
                "give a reason: it is recorded, and every stopped run shows it",
            )
        })
    };
    let is_required = operation.is_own_write();
    // Each operation keeps only its own fields, so that the audit log never contains input without an effect.
    Ok(OperationInput {
        reason: if is_required {
            Some(required("reason", input.reason)?)
        } else {
            text("reason", input.reason)?
        },
        lease: match operation {
            PortalOperation::Unlock => Some(required("lease", input.lease)?),
            _ => None,
        },
        digest: match operation {
            PortalOperation::Approve => text("digest", input.digest)?,
            _ => None,
        },
        serial: input.serial.filter(|_| operation == PortalOperation::Rollback),
    })
}

/// Responds with 202 if the person must take the next step, with 200 if the operation is done.
fn answered(answer: Result<OperationAnswer, RequestError>, form: Form) -> Response {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return error.answer(form),
    };
    let status = match answer.outcome {
        RequestOutcome::Asked => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    let text = match form {
        Form::Json => json::document(&answer),
        Form::Page(_) | Form::Csv => html::answered(&answer, form.depth()),
    };
    plain(status, form.media_type(), text)
}

async fn freeze_page(asked: Asked) -> Response {
    let make = async {
        let csrf = asked
            .access
            .csrf()
            .ok_or_else(|| RequestError::unknown("this page"))?;
        let index = asked.shared.index(&asked.access).await?;
        let csrf = Some(csrf).filter(|_| asked.access.may_freeze());
        Ok(html::freeze(&index.overview, csrf))
    };
    match make.await {
        Ok(page) => plain(StatusCode::OK, asked.form.media_type(), page),
        Err(error) => RequestError::answer(error, asked.form),
    }
}

async fn form_on_all(asked: Asked, sent: SentForm, operation: PortalOperation) -> Response {
    let make = async {
        asked.check_person(&sent.csrf)?;
        asked.on_all(operation, sent.input()?).await
    };
    answered(make.await, asked.form)
}

async fn freeze_form(asked: Asked, FormBody(sent): FormBody<SentForm>) -> Response {
    form_on_all(asked, sent, PortalOperation::Freeze).await
}

async fn unfreeze_form(asked: Asked, FormBody(sent): FormBody<SentForm>) -> Response {
    form_on_all(asked, sent, PortalOperation::Unfreeze).await
}

async fn stack_form(
    asked: Asked,
    Path((folder, operation)): Path<(String, String)>,
    FormBody(sent): FormBody<SentForm>,
) -> Response {
    let make = async {
        asked.check_person(&sent.csrf)?;
        let operation = known(&operation)?;
        let id = stack_of(&*asked.shared.index(&asked.access).await?, &folder)?;
        asked.on_stack(operation, &id, sent.input()?).await
    };
    answered(make.await, asked.form)
}

fn known(operation: &str) -> Result<PortalOperation, RequestError> {
    PortalOperation::of_stack(operation).ok_or_else(|| RequestError::unknown("this operation"))
}

/// Parses the input of an API call: a JSON object, or an empty body.
fn called(body: &Bytes) -> Result<OperationInput, RequestError> {
    if body.is_empty() {
        return Ok(OperationInput::default());
    }
    serde_json::from_slice(body).map_err(|error| {
        RequestError::wrong(
            format!("the body cannot be read: {error}"),
            "send `{\"reason\": \"TEXT\"}`",
        )
    })
}

async fn call_on_all(asked: Asked, body: &Bytes, operation: PortalOperation) -> Response {
    let make = async {
        asked.check_script()?;
        asked.on_all(operation, called(body)?).await
    };
    answered(make.await, asked.form)
}

async fn freeze_call(asked: Asked, body: Bytes) -> Response {
    call_on_all(asked, &body, PortalOperation::Freeze).await
}

async fn unfreeze_call(asked: Asked, body: Bytes) -> Response {
    call_on_all(asked, &body, PortalOperation::Unfreeze).await
}

async fn stack_call(asked: Asked, Path((id, operation)): Path<(String, String)>, body: Bytes) -> Response {
    let make = async {
        asked.check_script()?;
        let operation = known(&operation)?;
        asked.on_stack(operation, &api::parse(&id)?, called(&body)?).await
    };
    answered(make.await, asked.form)
}
