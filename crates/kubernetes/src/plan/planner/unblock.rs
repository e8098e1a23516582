//! Plans an object that the server refuses because of fields outside the Spec, which the same change then
//! removes.
//!
//! The dry-run of the apply fails, so the server computes the new object from one JSON patch, which removes
//! those fields and sets the Spec. The apply first takes the fields over, and then removes them because it
//! does not set them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    super::object_planner::ObjectPlanner,
    asked::{Asked, conflict},
};
use crate::{
    api::{
        client::{ApiRequest, ApiResponse},
        error::ApiError,
        error_classify::{self, RefusalCause},
        options::Conflicts,
    },
    object::{
        blocking_fields::{self, BlockingField, Holder},
        managed_fields,
        plan_item::PlanItem,
        server_merge,
    },
    plan::dry_run::{DryRunResponse, SentDryRun},
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::FieldPath,
};

/// Maximum number of consecutive refusals after which the named fields are added to the candidates.
const ROUNDS: usize = 6;
/// Maximum number of fields that are tried, because each costs a request.
const MOST: usize = 40;

/// The result of the search for blocking fields.
pub(super) enum Unblocked {
    /// The server accepts the Spec without the blocking fields.
    Accepted(Box<DryRunResponse>),
    /// The server refuses the Spec even if all candidate fields are removed.
    Refused(ApiError),
}

impl ObjectPlanner<'_> {
    /// Finds the fields outside the Spec because of which the server refuses it.
    ///
    /// # Errors
    /// Another manager applies the fields, or the policy leaves them to the manager that updated them.
    pub(super) async fn unblock(
        &self,
        asked: &Asked<'_>,
        refusal: ApiError,
        sent: SentDryRun,
    ) -> Result<Unblocked, UserError> {
        let mut error = refusal.clone();
        let mut paths = BTreeSet::new();
        let mut answer = None;
        // A refusal may name only some of the fields. Without these, the server names the next ones.
        for _ in 0..ROUNDS {
            let suspects = self.suspects(asked, &sent.body, &error);
            let known = paths.len();
            paths.extend(suspects);
            if paths.len() == known || paths.len() > MOST {
                break;
            }
            match self.ask_without(asked, &sent.body, &paths).await {
                Ok(accepted) => {
                    answer = Some(accepted);
                    break;
                }
                Err(next) if error_classify::cause(&next) == RefusalCause::Invalid => error = next,
                Err(next) => return Ok(Unblocked::Refused(next)),
            }
        }
        let Some(mut answer) = answer else {
            return Ok(Unblocked::Refused(refusal));
        };
        let manager = self.runtime.options.field_manager;
        let mut fields: Vec<_> = paths
            .iter()
            .map(|path| BlockingField::new(asked.live, path, manager))
            .collect();
        // Fields that the server accepts together with the Spec are kept. Those that others apply are tried
        // first.
        fields.sort_by_key(|field| match field.holder {
            Holder::Applies(_) => 0,
            Holder::Updates(_) => 1,
            Holder::Server => 2,
        });
        for field in &fields {
            let mut fewer = paths.clone();
            fewer.remove(&field.path);
            if !fewer.is_empty()
                && let Ok(accepted) = self.ask_without(asked, &sent.body, &fewer).await
            {
                (paths, answer) = (fewer, accepted);
            }
        }
        fields.retain(|field| paths.contains(&field.path));
        self.check_allowed(asked, &fields, &refusal)?;
        Ok(Unblocked::Accepted(Box::new(DryRunResponse {
            answer,
            sent,
            blocking: fields,
        })))
    }

    /// Removes list items whose key somebody has changed, although the server accepts the Spec together with them.
    /// Returns the server's response without these items.
    pub(super) async fn without_rekeyed(
        &self,
        asked: &Asked<'_>,
        answered: DryRunResponse,
    ) -> Result<DryRunResponse, UserError> {
        let restores = matches!(
            self.runtime.options.conflicts,
            Conflicts::Restore | Conflicts::Write
        );
        let Some(prior) = asked.prior.filter(|_| restores) else {
            return Ok(answered);
        };
        let manager = self.runtime.options.field_manager;
        let prior = Value::Object(prior.clone());
        let mut rekeyed = blocking_fields::rekeyed(&prior, &answered.sent.body, asked.live, manager);
        rekeyed.retain(|field| !self.is_ignored(&field.path));
        if rekeyed.is_empty() {
            return Ok(answered);
        }
        let paths = rekeyed.iter().map(|field| field.path.clone()).collect();
        match self.ask_without(asked, &answered.sent.body, &paths).await {
            Ok(answer) => Ok(DryRunResponse {
                answer,
                blocking: rekeyed,
                ..answered
            }),
            // Without these fields the object is invalid, so they are kept.
            Err(error) if error.is_code(422) => Ok(answered),
            Err(error) => Err(asked.subject.refusal(&error)),
        }
    }

    fn suspects(&self, asked: &Asked<'_>, body: &Value, error: &ApiError) -> BTreeSet<FieldPath> {
        let Some(status) = error.status().filter(|status| status.code == 422) else {
            return BTreeSet::new();
        };
        let fields = status.causes.iter().map(|cause| cause.field.as_str());
        let mut suspects = blocking_fields::suspects(fields, asked.live, body);
        suspects.retain(|path| !self.is_ignored(path));
        suspects
    }

    /// Requests the object that results from the Spec without these fields.
    pub(super) async fn ask_without(
        &self,
        asked: &Asked<'_>,
        body: &Value,
        paths: &BTreeSet<FieldPath>,
    ) -> Result<ApiResponse, ApiError> {
        let Asked {
            subject, of, live, ..
        } = *asked;
        let manager = self.runtime.options.field_manager;
        let mut without = live.clone();
        for path in paths {
            path.remove(&mut without);
        }
        let becomes = server_merge::merge(&without, body, manager);
        let patch = server_merge::patch(live, &becomes);
        let request = ApiRequest::patch(subject.name.path(of), "application/json-patch+json", &patch)
            .query("dryRun", "All")
            .query("fieldManager", manager)
            .query("fieldValidation", "Strict");
        let mut answer = subject.cluster.api.call(&request).await?;
        // The server records a patch as an update. Which fields the apply will own is known only after they
        // are taken over.
        let mut entries = live["metadata"]["managedFields"].clone();
        if let Some(entries) = entries.as_array_mut() {
            entries.retain(|entry| !managed_fields::is_applied_by(entry, manager));
        }
        answer.value["metadata"]["managedFields"] = entries;
        Ok(answer)
    }

    /// Checks that the fields may be removed: no other manager applies them, and the policy for conflicts does not
    /// leave them to the manager that updated them.
    fn check_allowed(
        &self,
        asked: &Asked<'_>,
        fields: &[BlockingField],
        error: &ApiError,
    ) -> Result<(), UserError> {
        let prior = asked.prior.cloned().map(Value::Object);
        let is_left = |path: &FieldPath| match self.runtime.options.conflicts {
            _ if asked.adopting => false,
            Conflicts::Write => false,
            Conflicts::Stop | Conflicts::Leave => true,
            // If Konverge applied the parent of the field, somebody else added the field, so `restore`
            // removes it.
            Conflicts::Restore => {
                let around = path.split_last().map(|(around, _)| around).unwrap_or_default();
                prior.as_ref().is_none_or(|prior| around.get(prior).is_none())
            }
        };
        let mut left = Vec::new();
        for BlockingField { path, holder, .. } in fields {
            match holder {
                Holder::Applies(manager) => return Err(applied_by(asked.subject, path, manager, error)),
                Holder::Updates(manager) if is_left(path) => left.push((path.clone(), manager.clone())),
                Holder::Updates(_) | Holder::Server => {}
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        Err(conflict(asked.subject, &left))
    }
}

/// Returns the error that another manager applies the field that blocks the Spec.
fn applied_by(subject: &PlanItem, path: &FieldPath, manager: &str, error: &ApiError) -> UserError {
    let manager = manager.escape_debug();
    let what = format!(
        "{}: the server does not accept the Spec together with `{path}`, which `{manager}` applies: {}",
        subject.title(),
        chain(error)
    );
    UserError::new(ErrorKind::Policy, what)
    .hint(format!(
        "let `{manager}` apply the value of the Spec first, or remove the field from what `{manager}` applies; then run this command again"
    ))
    .hint(format!("Konverge never overwrites a field that `{manager}` applies"))
}
