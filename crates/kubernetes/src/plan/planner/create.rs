//! Plans objects that do not exist. The server validates them if possible, or else a known schema.

use serde_json::{Value, json};

use super::{
    super::object_planner::{DraftPlan, NamespaceNote, ObjectPlanner},
    planned_kinds::is_of_schema,
    server_generated::after_create,
};
use crate::{
    api::error_classify::{self, RefusalCause},
    object::{
        crd_validation::Definition,
        object_ref::{self, ObjectRef},
        plan_item::PlanItem,
    },
    plan::dry_run,
};
use konverge_base::{
    error::{UserError, chain},
    model::{
        Digest, masked_value,
        plan::{Action, FieldChange, Validation},
    },
};
use konverge_engine::runtime::{EarlierChange, Item};
use konverge_secrets::mask_object_at;

impl ObjectPlanner<'_> {
    pub(super) async fn create(&self, item: &Item, subject: &PlanItem) -> Result<DraftPlan, UserError> {
        let mut draft = self.create_later(item, subject);
        let body = self.body(item, self.scope.stack.as_str());
        let definition = self.plan_planned_kind(subject, &body, None)?;
        if body.values().any(masked_value::holds_unknown) {
            draft
                .notes
                .push("some values are known only after apply; the server checks the object then".to_owned());
            return Ok(draft);
        }
        let Some(of) = &subject.of else {
            return self.unknown_kind(subject, draft, &body);
        };
        let body = Value::Object(body);
        // In a missing namespace, the server would report only that.
        if self.lacks_namespace(subject) {
            self.validate_in_default(subject, &mut draft, body, definition)
                .await?;
            if let Some(definition) = definition {
                self.validated_by(definition, &mut draft);
            }
            return Ok(draft);
        }
        let request = dry_run::request(of, &subject.name, &body, false, true);
        match dry_run::send(&subject.cluster, of, &request, &item.needs).await {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.extend(answer.warnings);
                draft.expected = Some(after_create(answer.value, &body));
            }
            Err(error) => match error_classify::cause(&error) {
                RefusalCause::NoNamespace => {
                    self.note_absent_namespace(subject);
                    self.validate_in_default(subject, &mut draft, body, definition)
                        .await?;
                }
                RefusalCause::NoDryRun => draft
                    .notes
                    .push(format!("not checked by the server: {}", chain(&error))),
                // The cluster still has the old schema of the kind. By the plan's own CRD, the object is
                // valid.
                _ if definition.is_some() && is_of_schema(&error) => {}
                _ => match self.lifted_by(item, &error) {
                    none if none.is_empty() => return Err(subject.refusal_of(&error, &body, None)),
                    lifted_by => self.not_validated_yet(subject, &mut draft, &error, lifted_by),
                },
            },
        }
        if let Some(definition) = definition {
            self.validated_by(definition, &mut draft);
        }
        Ok(draft)
    }

    /// Returns the plan of a creation without validation.
    pub(super) fn create_later(&self, item: &Item, subject: &PlanItem) -> DraftPlan {
        let body = self.body(item, self.scope.stack.as_str());
        let mut shown = body.clone();
        let written = item.desired.as_ref().map(|d| &d.attributes);
        object_ref::remove_owner(&mut shown, written.is_some_and(object_ref::has_annotations));
        let mut draft = DraftPlan::new(Action::Create);
        let masked = mask_object_at(&self.runtime.secrets, &shown, &subject.places);
        draft.changes = vec![FieldChange::whole(None, Some(Value::Object(masked.into_owned())))];
        draft.recorded = self.record(item, subject, &body, None, None);
        draft.truth.desired = self.true_desired(item, subject, &body);
        draft.truth.after = draft.truth.desired.clone().map(Value::Object);
        let body = Value::Object(body);
        draft.expected = Some(after_create(body.clone(), &body));
        draft.write.body = Some(body);
        draft
    }

    /// Validates an object whose namespace does not exist yet: the server gets the same object with another
    /// name in `default`.
    async fn validate_in_default(
        &self,
        subject: &PlanItem,
        draft: &mut DraftPlan,
        body: Value,
        definition: Option<&Definition>,
    ) -> Result<(), UserError> {
        let Some(of) = &subject.of else { return Ok(()) };
        let absence = self.absence(&subject.name.namespace);
        let (mut name, mut body) = trial(subject, body);
        name.namespace = "default".to_owned();
        body["metadata"]["namespace"] = json!(name.namespace);
        let request = dry_run::request(of, &name, &body, false, true);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.push(checked_in_default(&absence));
                draft.notes.extend(answer.warnings);
            }
            // An invalid object is invalid in every namespace.
            Err(error) if error_classify::cause(&error) == RefusalCause::Invalid && definition.is_none() => {
                return Err(subject.refusal_of(&error, &body, None));
            }
            // Any other refusal may be about `default` only, such as a quota, so it does not stop the plan.
            Err(_) => draft.notes.push(format!("{absence}; not checked by the server")),
        }
        Ok(())
    }

    /// Describes that a namespace does not exist yet, and who creates it.
    fn absence(&self, namespace: &str) -> String {
        let whose = if self.namespaces.iter().any(|wanted| wanted == namespace) {
            "this plan creates it"
        } else {
            "this stack does not create the namespace: another stack must create it first"
        };
        format!("namespace `{namespace}` does not exist yet ({whose})")
    }

    /// Returns the notes that apply to all objects of a namespace.
    pub(in crate::plan) fn namespace_notes(&self) -> Vec<NamespaceNote> {
        let absent = self.absent.lock().expect("no panic while the lock is held");
        let notes = absent.iter().map(|(cluster, namespace)| {
            let is_said = |earlier: &EarlierChange| {
                let object = &earlier.resource.attributes;
                earlier.creates
                    && earlier.cluster.as_ref().is_none_or(|known| known == cluster)
                    && object_ref::metadata(object, "namespace") == namespace
                    && !object.values().any(masked_value::holds_unknown)
            };
            let note = checked_in_default(&self.absence(namespace));
            NamespaceNote {
                text: self.runtime.secrets.mask(&note),
                is_said: self.scope.pending.iter().any(is_said),
            }
        });
        notes.collect()
    }
}

fn checked_in_default(absence: &str) -> String {
    format!("{absence}; its objects are checked by the server as if in `default`")
}

/// Returns an object under a temporary name, so that the server validates it as a new one. The name is unique, and
/// always the same for the same object.
pub(super) fn trial(subject: &PlanItem, mut body: Value) -> (ObjectRef, Value) {
    let name = format!("konverge-preview-{}", Digest::of_json(&body).short());
    body["metadata"]["name"] = json!(name);
    let of = subject.name.clone();
    (ObjectRef { name, ..of }, body)
}
