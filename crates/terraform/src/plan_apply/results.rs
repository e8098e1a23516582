//! The result of each resource, and its report to the sink.

use serde_json::{Map, Value};

use super::plan_execution::Application;
use crate::{
    error::{Class, FIX_FIRST, TerraformError, of_resource},
    log_messages::{TerraformDiagnostic, plain},
    masking,
    module_resource::ModuleResource,
    resource_state::ResourceState,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{masked_value, plan::Action},
};
use konverge_engine::runtime::AppliedResource;

impl Application<'_> {
    /// Reports a result for every resource that has none, after Terraform exited.
    pub(super) async fn finish(&mut self, code: Option<i32>, stderr: &str) {
        for index in 0..self.prepared.ready.len() {
            if self.ended.contains(&index) {
                continue;
            }
            let state = self.resource_state(index).await;
            let unstored = self.unstored_error(index);
            let ready = &self.prepared.ready[index];
            let standing = &self.progress.standings[index];
            // A resource succeeded if its completion was reported. Without that report, Terraform as a whole
            // must have succeeded, and no operation on the resource may be open.
            let well = unstored.is_none()
                && (standing.complete.is_some() || (code == Some(0) && standing.doing.is_none()));
            if well {
                let applied = self.applied(index, state.as_ref());
                self.end(index, Ok(applied)).await;
                continue;
            }
            // An object that may exist is recorded even if its operation failed.
            let may_exist = state.is_some() || standing.doing.is_some();
            if may_exist
                && standing.was_started()
                && let Some(recorded) = &ready.recorded
            {
                let recorded = recorded.clone();
                let id = ready.subject.id().clone();
                if let Err(failure) = self.sink.record_written(&id, recorded).await {
                    self.lost.get_or_insert(failure);
                }
            }
            let error =
                unstored.unwrap_or_else(|| self.error_of(index, stderr).after_expiry(&self.expiry_hints));
            self.end(index, Err(error.into())).await;
        }
    }

    /// Returns the error for an object that was created but not stored, with its id at the provider, so that
    /// a person can find it.
    fn unstored_error(&self, index: usize) -> Option<TerraformError> {
        let why = self.unstored.clone()?;
        let ready = self.prepared.ready.get(index).filter(|ready| ready.makes())?;
        let id = ready.subject.id();
        let made = plain(
            &self.runtime.options.secrets,
            self.progress.standings[index].id.as_deref()?,
        );
        let what = format!("`{id}` was created with the id `{made}`, but the id could not be stored");
        Some(why.context(what).with_resource(id).into())
    }

    fn error_of(&self, index: usize, stderr: &str) -> TerraformError {
        let secrets = &self.runtime.options.secrets;
        let subject = &self.prepared.ready[index].subject;
        let id = subject.id().clone();
        let address = subject.address.to_string();
        let users = &self.prepared.users;
        let of_provider = |about: &str| users.get(about).is_some_and(|ids| ids.contains(&id));
        if let Some(diagnostic) = self
            .progress
            .error_about(|about| about == address || of_provider(about))
        {
            return self.with_deleted(index, diagnostic.to_error(&id, secrets));
        }
        // Terraform reported no result of the operation, so only an error without a resource can explain it.
        let standing = &self.progress.standings[index];
        if standing.gave_up
            && let Some(error) = self.progress.error_of_nobody(&id, secrets)
        {
            return error;
        }
        if let Some(action) = standing.doing.as_deref() {
            let action = match action {
                "create" => "created",
                "delete" => "deleted",
                _ => "changed",
            };
            let what = format!(
                "`{id}` was being {action} when Terraform was stopped: the object may exist, but be incomplete"
            );
            return of_resource(ErrorKind::Interrupted, &id, what)
                .hint("if the object exists at the provider, set `kusionstack.io/import-id` in its extensions to its id there and run `konverge apply` again")
                .hint(format!("the equivalent Terraform command: `terraform import {address} ID`"))
                .into();
        }
        if self.interrupted.is_some() {
            let what = format!("`{id}` was not started: the run was interrupted");
            return of_resource(ErrorKind::Interrupted, &id, what)
                .hint("run the same command again")
                .into();
        }
        let failed = |diagnostic: &TerraformDiagnostic| {
            let ready = self.prepared.ready.iter().map(|ready| &ready.subject);
            let about = |subject: &&ModuleResource| {
                diagnostic.address() == Some(subject.address.to_string().as_str())
            };
            ready.into_iter().find(about).map(ModuleResource::id)
        };
        let why = match self.progress.diagnostics.first() {
            // The failed resource has this error already, so here only its name is shown.
            Some(diagnostic) => match failed(diagnostic) {
                Some(failed) => format!("`{failed}` failed"),
                None => format!("an earlier resource failed: {}", diagnostic.text(secrets)),
            },
            None => match plain(secrets, stderr) {
                text if text.is_empty() => "Terraform ended before it applied this resource".to_owned(),
                text => format!("Terraform ended before it applied this resource: {text}"),
            },
        };
        of_resource(
            ErrorKind::Terraform,
            &id,
            format!("`{id}` was not applied: {why}"),
        )
        .hint(FIX_FIRST)
        .into()
    }

    /// Adds to an error of an existing object the resources of the same type that the plan deletes, because
    /// one of them may be that object.
    fn with_deleted(&self, index: usize, error: TerraformError) -> TerraformError {
        let kind = &self.prepared.ready[index].subject.address.kind;
        match error {
            TerraformError::Provider {
                id,
                class: Class::Exists,
                text,
            } => TerraformError::exists(
                &id,
                &text,
                self.runtime.deleted_resources(&self.scope.stack, kind),
            ),
            other => other,
        }
    }

    pub(super) fn applied(&self, index: usize, state: Option<&ResourceState>) -> AppliedResource {
        let ready = &self.prepared.ready[index];
        let live = ready
            .expected
            .as_ref()
            .map(|expected| fill(expected, state.and_then(ResourceState::attributes)));
        let mut sensitive = state.map(ResourceState::secret_texts).unwrap_or_default();
        if let Some(live) = &live {
            sensitive.extend(masking::secret_texts(live, &ready.sensitive));
        }
        let mut recorded = ready.recorded.clone().filter(|_| ready.action != Action::Forget);
        if let (Some(recorded), Some(live)) = (&mut recorded, &live) {
            let (kind, secrets) = (&ready.subject.address.kind, &self.runtime.options.secrets);
            recorded.object_hash = masking::object_hash(kind, live, secrets);
        }
        AppliedResource {
            id: ready.subject.id().clone(),
            recorded,
            live,
            sensitive,
            waiting: None,
        }
    }

    /// Reports a result to the sink, once. If the sink cannot record it, no further operation starts.
    pub(super) async fn end(&mut self, index: usize, result: Result<AppliedResource, UserError>) {
        let id = self.prepared.ready[index].subject.id();
        if !self.ended.insert(index) || !self.asked.contains(id) {
            return;
        }
        if let Err(failure) = self.sink.record_result(id, result).await {
            self.lost.get_or_insert(failure);
        }
    }
}

/// Fills the unknown values of a planned object from the state.
fn fill(expected: &Value, attributes: Option<&Map<String, Value>>) -> Value {
    let (Value::Object(expected), Some(attributes)) = (expected, attributes) else {
        return expected.clone();
    };
    let known = |key: &String, planned: Option<&Value>, actual: &Value| match planned {
        Some(planned) if !masked_value::holds_unknown(planned) => (key.clone(), planned.clone()),
        _ => (key.clone(), untyped(actual)),
    };
    attributes
        .iter()
        .map(|(key, actual)| known(key, expected.get(key), actual))
        .collect::<Map<_, _>>()
        .into()
}

/// Returns an attribute without the form `{"type": …, "value": …}`, in which a state writes an attribute of
/// dynamic type.
fn untyped(attribute: &Value) -> Value {
    let is_type = |kind: &Value| match kind {
        Value::String(name) => ["string", "number", "bool", "dynamic"].contains(&name.as_str()),
        Value::Array(parts) => {
            let first = parts.first().and_then(Value::as_str);
            matches!(first, Some("list" | "set" | "map" | "object" | "tuple")) && parts.len() >= 2
        }
        _ => false,
    };
    match attribute {
        Value::Object(map) if map.len() == 2 && map.get("type").is_some_and(is_type) => {
            map.get("value").unwrap_or(attribute).clone()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_not_known_comes_from_the_state() {
        let expected = json!({"input": {"a": 1}, "output": {"$unknown": true}, "id": {"$unknown": true}, "odd": {"$unknown": true}});
        let state = json!({"input": {"type": ["object", {"a": "number"}], "value": {"a": 1}},
            "output": {"type": ["object", {"a": "number"}], "value": {"a": 1}}, "id": "x", "odd": {"type": "t3.micro", "value": 2}});
        assert_eq!(
            fill(&expected, state.as_object()),
            json!({"input": {"a": 1}, "output": {"a": 1}, "id": "x", "odd": {"type": "t3.micro", "value": 2}})
        );
        assert_eq!(fill(&expected, None), expected);
    }
}
