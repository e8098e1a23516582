//! Plans existing objects: unchanged if that can be proven, otherwise by the server's response.

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{
    super::object_planner::{DraftPlan, ObjectPlanner, unchanged, with_owner},
    asked::{Asked, conflict},
    planned_kinds::is_of_schema,
    server_generated::{self, after_update},
    unblock::Unblocked,
};
use crate::{
    OWNER,
    api::{
        client::ApiRequest,
        discovery::ResourceType,
        error::ApiError,
        error_classify::{self, RefusalCause},
    },
    object::{
        blocking_fields::{BlockingField, Holder},
        controller_values::{self, ControllerValue},
        crd_validation::Definition,
        drift_author,
        field_leftovers::{self, Leftover},
        field_ownership::Transfer,
        object_diff::{self, DiffSides},
        object_record::PreparedWrite,
        object_ref,
        plan_item::PlanItem,
        precondition::Precondition,
    },
    plan::{
        dry_run::{self, DryRunRefusal, DryRunResponse, Ownership},
        rollout_impact,
    },
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        FieldPath, masked_value,
        plan::{Action, ChangeOrigin, FieldChange, Validation},
    },
};
use konverge_engine::runtime::{Item, TrueValues};
use konverge_secrets::mask_object_at;

impl ObjectPlanner<'_> {
    pub(super) async fn update(
        &self,
        item: &Item,
        subject: &PlanItem,
        live: &Value,
    ) -> Result<DraftPlan, UserError> {
        let body = self.body(item, self.owner(item, live));
        let manager = self.runtime.options.field_manager;
        let (body, given_up) = controller_values::give_up_filled(body, live, manager);
        let body = self.keep_ignored_paths(body, live);
        let mut draft = self.update_to(item, subject, live, body).await?;
        draft.notes.extend(given_up.iter().map(ControllerValue::note));
        Ok(draft)
    }

    /// Plans an existing object with this body.
    async fn update_to(
        &self,
        item: &Item,
        subject: &PlanItem,
        live: &Value,
        body: Map<String, Value>,
    ) -> Result<DraftPlan, UserError> {
        let definition = self.plan_planned_kind(subject, &body, Some(live))?;
        // A dry-run is impossible with a value that is not known yet.
        if body.values().any(masked_value::holds_unknown) {
            return Ok(self.plan_without_server(item, subject, &body, live, None));
        }
        let (Some(of), definition) = (&subject.of, definition) else {
            return match definition {
                Some(definition) => Ok(self.update_later(item, subject, definition, &body, live)),
                None => {
                    let what = "an object was found of a kind that is not known";
                    Err(UserError::new(ErrorKind::Internal, what))
                }
            };
        };
        let guard = subject.cluster.guard(of, subject.name.namespace()).await?;
        let prior = self.prior(item, live);
        // A shared object that the project already has is not adopted.
        let adopting = item.prior.is_none() && !self.is_shared(item, live);
        let ownership = Ownership {
            manager: self.runtime.options.field_manager,
            prior: prior.as_ref(),
            adopting,
            policy: self.runtime.options.conflicts,
        };
        let sent = self.without_scaled(&body, live);
        let asked = dry_run::ask(&subject.cluster, of, &subject.name, sent, &ownership, &item.needs);
        let answered = asked.await;
        let asked = Asked {
            item,
            subject,
            of,
            guard,
            live,
            body: &body,
            prior: prior.as_ref(),
            adopting,
        };
        let (error, sent) = match answered {
            Ok(answered) => {
                // If somebody changed the key of a list item, the server accepts the Spec and keeps both
                // items, so the changed one is removed.
                let answered = self.without_rekeyed(&asked, answered).await?;
                return self.use_dry_run(asked, definition, answered).await;
            }
            Err(DryRunRefusal::Conflicts(conflicts)) => {
                return self.compared(&asked, conflict(subject, &conflicts));
            }
            Err(DryRunRefusal::Api(refused)) => *refused,
        };
        // An apply removes only fields that its manager applied before. So a field of another manager may
        // block the Spec, and is then removed with this change.
        let error = match error_classify::cause(&error) {
            RefusalCause::Invalid => match self.unblock(&asked, error, sent).await {
                Ok(Unblocked::Accepted(answered)) => {
                    return self.use_dry_run(asked, definition, *answered).await;
                }
                Ok(Unblocked::Refused(error)) => error,
                Err(failure) => return self.compared(&asked, failure),
            },
            _ => error,
        };
        self.use_refusal(asked, definition, &error).await
    }

    /// Plans an object that cannot be changed. A drift check shows how it differs; every other plan returns
    /// the failure.
    fn compared(&self, asked: &Asked<'_>, failure: UserError) -> Result<DraftPlan, UserError> {
        if !self.scope.only_compares {
            return Err(failure);
        }
        let mut draft = self.plan_without_server(asked.item, asked.subject, asked.body, asked.live, None);
        draft
            .notes
            .push(format!("an apply could not restore it: {failure}"));
        Ok(draft)
    }

    /// Returns the plan from the server's response to the dry-run.
    async fn use_dry_run(
        &self,
        asked: Asked<'_>,
        definition: Option<&Definition>,
        mut answered: DryRunResponse,
    ) -> Result<DraftPlan, UserError> {
        let Asked { subject, live, .. } = asked;
        let answer = &mut answered.answer.value;
        let left = self.leave_nothing_over(&asked, answer).await?;
        let transfer = Transfer::between(self.runtime.options.field_manager, live, answer, |path| {
            self.is_ignored(path)
        })
        .with_leftovers(&left);
        let mark = |mut answer: Value| {
            server_generated::mark(&mut answer, &answered.sent.body, Some(live));
            answer
        };
        let becomes = mark(answer.clone());
        let shown = shown(answer).map(mark);
        let shown = shown.as_ref().unwrap_or(&becomes);
        let sides = DiffSides {
            prior: asked.prior,
            desired: asked.body,
            live,
            becomes: &becomes,
            shown,
            admission: self.may_mutate(subject, asked.of).await?,
            places: &subject.places,
            manager: self.runtime.options.field_manager,
        };
        let changes = blamed(self.changes(&sides), &sides, &answered.blocking);
        let blame = drift_author::blame_notes(live, &changes, self.runtime.options.field_manager);
        // Even without changed values, an apply is needed to adopt the object or to change the owner of
        // fields.
        let unchanged = changes.is_empty() && !asked.adopting && transfer.is_settled();
        let mut draft = match definition.filter(|_| !unchanged) {
            None => self.use_answer(&asked, &sides, changes, transfer, &answered),
            Some(definition) => {
                // The response is by the server's current schema. The planned schema may set other
                // defaults, so the object is planned again after that schema is applied.
                let [defaulted, shown] = [&becomes, shown].map(|object| {
                    let mut object = object.clone();
                    definition.set_defaults(&mut object);
                    object
                });
                let sides = DiffSides {
                    becomes: &defaulted,
                    shown: &shown,
                    ..sides
                };
                let changes = blamed(self.changes(&sides), &sides, &answered.blocking);
                let mut draft = self.use_answer(&asked, &sides, changes, transfer, &answered);
                self.validated_by(definition, &mut draft);
                draft.provisional = true;
                draft
            }
        };
        draft.notes.extend(blame);
        Ok(draft)
    }

    /// Plans an object whose dry-run the server refused.
    async fn use_refusal(
        &self,
        asked: Asked<'_>,
        definition: Option<&Definition>,
        error: &ApiError,
    ) -> Result<DraftPlan, UserError> {
        let Asked {
            item,
            subject,
            body,
            live,
            ..
        } = asked;
        match (error_classify::cause(error), definition) {
            (_, Some(definition)) if is_of_schema(error) => {
                Ok(self.update_later(item, subject, definition, body, live))
            }
            (RefusalCause::Immutable(paths), _) => self.replace(item, subject, body, live, paths).await,
            (RefusalCause::NoDryRun, _) => {
                let mut draft = self.plan_without_server(item, subject, body, live, None);
                draft
                    .notes
                    .push(format!("not checked by the server: {}", chain(error)));
                Ok(draft)
            }
            (cause, _) => match self.lifted_by(item, error) {
                // No earlier resource of the plan can resolve this refusal, so it is final. A drift check
                // still compares the object.
                none if none.is_empty() => {
                    let sent = Value::Object(body.clone());
                    let failure = subject.refusal_of(error, &sent, Some(live));
                    match cause {
                        RefusalCause::Invalid | RefusalCause::Denied | RefusalCause::Quota => {
                            self.compared(&asked, failure)
                        }
                        _ => Err(failure),
                    }
                }
                lifted_by => {
                    let mut draft = self.plan_without_server(item, subject, body, live, None);
                    self.not_validated_yet(subject, &mut draft, error, lifted_by);
                    draft.provisional = true;
                    Ok(draft)
                }
            },
        }
    }

    /// Returns the object to send. If the autoscaler set the number of replicas last and the Spec has the
    /// same number, it is left out, so that Konverge does not take it over.
    fn without_scaled(&self, body: &Map<String, Value>, live: &Value) -> Value {
        let mut sent = Value::Object(body.clone());
        if drift_author::is_autoscaled(live) {
            let replicas = FieldPath::new("/spec/replicas");
            let live = replicas.get(live);
            if live.is_some() && replicas.get(&sent) == live {
                dry_run::remove(&mut sent, &replicas);
            }
        }
        sent
    }

    /// Finds fields that the last apply wrote and the Spec no longer sets, but that an apply alone would keep
    /// because updating managers own them. The server computes the object without these fields, which
    /// replaces `becomes`.
    async fn leave_nothing_over(
        &self,
        asked: &Asked<'_>,
        becomes: &mut Value,
    ) -> Result<Vec<Leftover>, UserError> {
        let Asked {
            subject, of, live, ..
        } = *asked;
        let Some(prior) = asked.prior else {
            return Ok(Vec::new());
        };
        let secrets = &self.runtime.secrets;
        let desired = Value::Object(mask_object_at(secrets, asked.body, &subject.places).into_owned());
        let prior = Value::Object(prior.clone());
        let mut left = field_leftovers::leftovers(
            &prior,
            &desired,
            &object_diff::mask_for_display(live, secrets, &subject.places),
            becomes,
        );
        left.retain(|leftover| !self.is_ignored(&leftover.path));
        let paths = || left.iter().map(|leftover| &leftover.path);
        let Some(patch) = field_leftovers::removal(live, paths()).filter(|_| !left.is_empty()) else {
            return Ok(Vec::new());
        };
        let request = ApiRequest::patch(subject.name.path(of), "application/json-patch+json", &patch)
            .query("dryRun", "All")
            .query("fieldManager", self.runtime.options.field_manager);
        match subject.cluster.api.call(&request).await {
            Ok(answer) => {
                // Only the values at these paths are taken over, because the rest of the response is not the
                // result of the apply.
                for leftover in &left {
                    let Some((map, key)) = leftover.path.member(becomes) else {
                        continue;
                    };
                    match leftover.path.get(&answer.value) {
                        Some(value) => map.insert(key, value.clone()),
                        None => map.shift_remove(&key),
                    };
                }
                Ok(left)
            }
            Err(error) => match error_classify::cause(&error) {
                // Without these fields the object is invalid, so they are kept.
                RefusalCause::Invalid | RefusalCause::Immutable(_) => Ok(Vec::new()),
                _ => Err(subject.refusal(&error)),
            },
        }
    }

    /// Returns the object as last applied, with its owner and with secrets masked.
    pub(super) fn prior(&self, item: &Item, live: &Value) -> Option<Map<String, Value>> {
        let prior = item.prior.as_ref()?;
        // After a move of the stack, the last write was under its earlier identity, so the new identity is a change of
        // the object.
        let earlier = object_ref::annotation(live, OWNER).filter(|owner| self.scope.was(owner));
        let owner = earlier.unwrap_or_else(|| self.owner(item, live));
        Some(with_owner(prior.attributes.as_ref().clone(), owner))
    }

    pub(super) async fn may_mutate(&self, subject: &PlanItem, of: &ResourceType) -> Result<bool, UserError> {
        let environment = subject.cluster.environment().await?;
        Ok(environment.admission.may_mutate(&of.group, &of.plural))
    }

    /// Returns the values of a changed object for policy rules.
    pub(super) fn truth(&self, item: &Item, subject: &PlanItem, sides: &DiffSides<'_>) -> TrueValues {
        let judged =
            |object: &Value| object_diff::mask_for_rules(object, &self.runtime.secrets, sides.places);
        TrueValues {
            desired: self.true_desired(item, subject, sides.desired),
            before: Some(judged(&masked_value::escape_marks(sides.live))),
            after: Some(judged(sides.shown)),
        }
    }

    /// Returns the changes without those at ignored paths.
    pub(super) fn changes(&self, sides: &DiffSides<'_>) -> Vec<FieldChange> {
        let mut changes = object_diff::changes(sides, &self.runtime.secrets);
        changes.retain(|change| !self.is_ignored(&change.path));
        changes
    }

    /// Replaces values at ignored paths by the live values, so that they do not change, no matter who owns
    /// them.
    pub(in crate::plan) fn keep_ignored_paths(
        &self,
        body: Map<String, Value>,
        live: &Value,
    ) -> Map<String, Value> {
        let mut body = Value::Object(body);
        for path in &self.scope.ignore {
            if path.get(&body).is_none() {
                continue;
            }
            match (path.get(live), path.member(&mut body)) {
                (Some(found), Some((map, key))) => drop(map.insert(key, found.clone())),
                (None, Some((map, key))) => drop(map.shift_remove(&key)),
                (_, None) => {}
            }
        }
        match body {
            Value::Object(body) => body,
            _ => Map::new(),
        }
    }

    pub(super) fn is_ignored(&self, path: &FieldPath) -> bool {
        let mut ignored = self.scope.ignore.iter();
        ignored.any(|ignored| path.is_within(ignored))
    }

    fn use_answer(
        &self,
        asked: &Asked<'_>,
        sides: &DiffSides<'_>,
        changes: Vec<FieldChange>,
        transfer: Transfer,
        answered: &DryRunResponse,
    ) -> DraftPlan {
        let Asked {
            item,
            subject,
            adopting,
            ..
        } = *asked;
        if changes.is_empty() && !adopting && transfer.is_settled() {
            let guard = Some(&asked.guard);
            let recorded = self.record(item, subject, sides.desired, Some(sides.live), guard);
            let mut draft = unchanged(recorded, self.true_desired(item, subject, sides.desired));
            draft.notes.clone_from(&answered.sent.notes);
            return draft;
        }
        let transfer = transfer.apart_from(changes.iter().map(|change| &change.path));
        let mut draft = DraftPlan::new(if adopting { Action::Adopt } else { Action::Update });
        draft.changes = changes;
        draft.truth = self.truth(item, subject, sides);
        if !adopting {
            draft.ownership = transfer.paths();
        }
        draft.validated = Validation::Server;
        draft.notes.clone_from(&answered.sent.notes);
        draft
            .notes
            .extend(answered.blocking.iter().map(BlockingField::note));
        if !adopting {
            draft.notes.extend(transfer.notes());
        }
        let impact = rollout_impact::impact(sides.live, sides.becomes);
        draft.pods = impact.pods;
        draft.notes.extend(impact.note);
        draft.notes.extend(answered.answer.warnings.iter().cloned());
        // Without a guard, the record proves nothing about the object: only the response to the write can.
        draft.recorded = self.record(item, subject, sides.desired, Some(sides.live), None);
        draft.expected = Some(after_update(sides.becomes.clone()));
        draft.write = PreparedWrite {
            body: Some(answered.sent.body.clone()),
            force: answered.sent.force,
            precondition: Some(Precondition::from_object(sides.live)),
            claim: transfer.claim,
            blocking: answered.blocking.iter().map(|field| field.path.clone()).collect(),
            ..PreparedWrite::default()
        };
        draft
    }

    /// Plans as far as possible without the server: desired values replace live ones. The server will add the
    /// defaults of `definition`.
    pub(super) fn plan_without_server(
        &self,
        item: &Item,
        subject: &PlanItem,
        body: &Map<String, Value>,
        live: &Value,
        definition: Option<&Definition>,
    ) -> DraftPlan {
        let prior = self.prior(item, live).map(Value::Object);
        let desired = Value::Object(body.clone());
        let merge = |live: &Value| {
            let mut becomes = object_diff::merge(live, prior.as_ref(), &desired, "");
            if let Some(definition) = definition {
                definition.set_defaults(&mut becomes);
            }
            becomes
        };
        let becomes = merge(live);
        let shown = shown(live).as_ref().map(merge);
        let sides = DiffSides {
            prior: prior.as_ref().and_then(Value::as_object),
            desired: body,
            live,
            becomes: &becomes,
            shown: shown.as_ref().unwrap_or(&becomes),
            admission: false,
            places: &subject.places,
            manager: self.runtime.options.field_manager,
        };
        let changes = self.changes(&sides);
        let truth = self.truth(item, subject, &sides);
        let is_known = |change: &FieldChange| !change.to.as_ref().is_some_and(masked_value::holds_unknown);
        let action = match item.prior {
            None => Action::Adopt,
            // If every change depends on an unknown value, the apply may find that nothing changes, so the action is
            // unknown.
            Some(_) if changes.iter().any(is_known) => Action::Update,
            Some(_) => Action::Unknown,
        };
        let mut draft = DraftPlan::new(action);
        draft.changes = changes;
        draft.truth = truth;
        draft.recorded = self.record(item, subject, body, Some(live), None);
        draft.expected = Some(after_update(becomes));
        draft.write = PreparedWrite {
            body: Some(Value::Object(body.clone())),
            force: item.prior.is_none(),
            precondition: Some(Precondition::from_object(live)),
            ..PreparedWrite::default()
        };
        draft
    }
}

/// Returns the object for display, with markers escaped that others wrote; `None` if it has no markers.
pub(super) fn shown(foreign: &Value) -> Option<Value> {
    match masked_value::escape_marks(foreign) {
        Cow::Borrowed(_) => None,
        Cow::Owned(escaped) => Some(escaped),
    }
}

/// Returns the changes, with the origin of those within a field for which the server refused the change because of
/// another manager: the origin is that manager if the path was not in the prior Spec, else the Spec.
fn blamed(
    mut changes: Vec<FieldChange>,
    sides: &DiffSides<'_>,
    blocking: &[BlockingField],
) -> Vec<FieldChange> {
    if blocking.is_empty() {
        return changes;
    }
    let prior = sides.prior.cloned().map(Value::Object);
    for change in &mut changes {
        let field = blocking.iter().find(|field| change.path.is_within(&field.path));
        let Some(Holder::Updates(manager)) = field.map(|field| &field.holder) else {
            continue;
        };
        change.origin = match &prior {
            Some(prior) if change.path.get(prior).is_none() => ChangeOrigin::Manager(manager.clone()),
            _ => ChangeOrigin::Change,
        };
    }
    changes
}
