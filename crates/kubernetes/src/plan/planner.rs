//! Decides the action for one item from the recorded, the desired and the live object.

mod asked;
mod create;
mod hook;
mod planned_kinds;
mod replace;
mod server_generated;
mod unblock;
mod update;

use serde_json::Value;

use super::{
    object_planner::{DraftPlan, ObjectPlanner, ServerRefusal, check_protected, unchanged},
    prefilter::PlanTask,
};
use crate::{
    KEEP, OWNER,
    api::discovery::items,
    object::{
        completed_jobs, object_diff, object_record::ObjectRecord, object_ref, plan_item::PlanItem,
        precondition::Precondition,
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        masked_value, object_rules,
        plan::{Action, FieldChange, Validation},
        state::Recorded,
    },
};
use konverge_engine::runtime::{Foreign, Item, PlannedResource};
use konverge_secrets::{without, without_texts};

impl ObjectPlanner<'_> {
    /// Plans one item with its live object. Also returns the server's refusal, if earlier resources of the
    /// plan may resolve it.
    pub(super) async fn decide(
        &self,
        task: PlanTask,
    ) -> Result<(PlannedResource, Option<ServerRefusal>), UserError> {
        // The server quotes the live object in refusals and warnings. A secret value outside a Secret's data
        // may be known only from that object, so it is collected from there for masking.
        let live = match (task.subject.places.is_empty(), &task.raw) {
            (false, Some(raw)) => Some(raw.read(&task.subject.cluster)?),
            _ => None,
        };
        let values = live.map_or_else(Vec::new, |live| task.subject.places.texts(&live));
        let decided = self.decide_by_live(task).await;
        let (mut planned, mut refusal) = decided.map_err(|failure| without_texts(failure, &values))?;
        for note in planned.public.notes.iter_mut().filter(|_| !values.is_empty()) {
            *note = without(note, &values);
        }
        if let Some(refusal) = &mut refusal {
            refusal.failure = without_texts(refusal.failure.clone(), &values);
        }
        Ok((planned, refusal))
    }

    async fn decide_by_live(
        &self,
        task: PlanTask,
    ) -> Result<(PlannedResource, Option<ServerRefusal>), UserError> {
        let PlanTask {
            mut item,
            subject,
            raw,
            ..
        } = task;
        let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
        let never_ours = live.as_ref().is_some_and(|live| was_never_ours(&item, live));
        // The record is only an intent, and somebody else created the object, so it is planned and shown as
        // an adoption.
        if never_ours && item.desired.is_some() {
            item.prior = None;
        }
        let moved = item.prior.as_ref().and_then(|prior| prior.cluster.as_ref());
        if item.desired.is_some()
            && let Some(from) = moved.filter(|from| **from != subject.cluster.api.name)
        {
            let (id, to) = (&item.id, &subject.cluster.api.name);
            let what = format!("`{id}` would move from cluster `{from}` to `{to}`");
            return Err(UserError::new(ErrorKind::Spec, what)
            .with_resource(&item.id)
            .hint(format!(
                "if both names mean one cluster: call it `{from}` under `clusters` in konverge.yaml, as `{from}: {{context: …}}`"
            ))
            .hint("if the object is to move: remove it from the stack in one change, and add it for the other cluster in the next"));
        }
        if let (Some(silent), Some(_)) = (&subject.silent, &item.prior) {
            return Err(unreadable_error(&subject, silent));
        }
        // The recorded runs decide if a hook runs, not its live Job, which may have ended or be gone.
        if let (Some(task), Some(_)) = (self.scope.hooks.get(&item.id), &item.desired) {
            let mut draft = self.hook(&mut item, &subject, live.as_ref(), task).await?;
            let refusal = draft.refusal.take();
            return Ok((self.finish(item, &subject, draft), refusal));
        }
        // An object in a Namespace or definition that is being deleted will disappear with it, although it
        // still looks unchanged. So it is planned as a creation.
        let holder = self.ending.around(&subject, live.is_some());
        let mut draft = match (&item.desired, live) {
            (None, None) => DraftPlan::new(Action::Forget),
            (None, Some(live)) => self.delete(&item, &subject, &live),
            (Some(_), None) if self.is_over(&item, &subject) => {
                let body = self.body(&item, self.scope.stack.as_str());
                unchanged(item.prior.clone(), self.true_desired(&item, &subject, &body))
            }
            (Some(_), live) if live.as_ref().is_some_and(is_ending) || holder.is_some() => {
                let mut draft = self.create_later(&item, &subject);
                draft.notes.push(match holder {
                    Some(holder) => format!(
                        "its {holder} is being deleted with everything inside; it is created afterwards"
                    ),
                    None => ending_note(live.as_ref().unwrap_or(&Value::Null)),
                });
                draft.write.ending =
                    live.and_then(|live| live["metadata"]["uid"].as_str().map(str::to_owned));
                draft
            }
            (Some(_), None) => self.create(&item, &subject).await?,
            (Some(_), Some(live)) => {
                // An object of another stack is planned too. The engine decides later if that stack releases
                // it.
                let foreign = self.foreign(&item, &subject, &live);
                let updated = self.update(&item, &subject, &live).await;
                let mut draft = updated.map_err(|failure| match &foreign {
                    Some(Foreign { owner, .. }) => {
                        failure.hint(format!("it belongs to stack `{}`", owner.escape_debug()))
                    }
                    None => failure,
                })?;
                draft.foreign = foreign;
                if draft.action == Action::Unchanged {
                    draft.expected = Some(live);
                }
                draft
            }
        };
        let refusal = draft.refusal.take();
        Ok((self.finish(item, &subject, draft), refusal))
    }

    /// Returns the other stack that owns the object, if any. It stops the plan, unless that stack has
    /// released or shares the object. For a generated object, sharing is checked only if this stack has no
    /// record of it yet.
    fn foreign(&self, item: &Item, subject: &PlanItem, live: &Value) -> Option<Foreign> {
        let stack = self.scope.stack.as_str();
        let shares = || self.is_shared(item, live) && (item.prior.is_some() || !item.is_generated());
        let owner = object_ref::annotation(live, OWNER)
            .filter(|owner| *owner != stack && !self.scope.was(owner) && !shares())?;
        let name = owner.escape_debug();
        let what = format!("{} belongs to stack `{name}`", subject.title());
        let refusal = UserError::new(ErrorKind::Policy, what)
        .hint(format!(
            "remove the object from one of the two stacks; to move it here, remove it from `{name}` in the same change, or apply \
             that change to `{name}` first"
        ))
        .hint(format!(
            "if a stack of another repository owns the object: remove the object there with the annotation `{KEEP}: \"true\"`; then \
             set `{OWNER}` to `{stack}`"
        ));
        Some(Foreign {
            owner: owner.to_owned(),
            refusal,
        })
    }

    fn delete(&self, item: &Item, subject: &PlanItem, live: &Value) -> DraftPlan {
        if let Some(why) = self.not_ours_any_more(item, live) {
            let mut draft = DraftPlan::new(Action::Forget);
            draft.notes.push(format!("{} stays: {why}", subject.title()));
            return draft;
        }
        let mut draft = DraftPlan::new(Action::Delete);
        draft.protected = check_protected(subject, live, "deleted").err();
        let (secrets, places) = (&self.runtime.secrets, &subject.places);
        let escaped = masked_value::escape_marks(live);
        draft.truth.before = Some(object_diff::mask_for_rules(&escaped, secrets, places));
        let shown = object_diff::mask_for_display(&escaped, secrets, places);
        draft.changes = vec![FieldChange::whole(Some(shown), None)];
        draft.validated = Validation::Server;
        if let Some(loss) = object_rules::data_loss(live) {
            draft.data_loss = true;
            draft.notes.push(loss.to_owned());
        }
        draft.write.precondition = Some(Precondition::from_object(live));
        draft
    }

    fn not_ours_any_more(&self, item: &Item, live: &Value) -> Option<String> {
        let is_true = |name: &str| object_ref::annotation(live, name) == Some("true");
        if is_true(KEEP) {
            return Some(format!("its annotation `{KEEP}` says so"));
        }
        let owner = object_ref::annotation(live, OWNER);
        let is_own = |owner: &str| owner == self.scope.stack.as_str() || self.scope.was(owner);
        if owner.is_some_and(is_own) || self.is_shared(item, live) {
            return None;
        }
        if let Some(owner) = owner {
            return Some(format!("it belongs to stack `{}` now", owner.escape_debug()));
        }
        if was_never_ours(item, live) {
            return Some("another actor created it; this stack only intended to".to_owned());
        }
        let recorded = item.prior.as_ref().and_then(ObjectRecord::uid_of);
        match (recorded, live["metadata"]["uid"].as_str()) {
            (Some(recorded), Some(uid)) if recorded != uid => Some(
                "it was recreated by somebody else, and its owner annotation does not name this stack"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Returns true if the item is a Job that completed, was deleted by its time to live, and is still
    /// desired unchanged: then nothing is left to do. If other resources refer to it, it must exist.
    fn is_over(&self, item: &Item, subject: &PlanItem) -> bool {
        let Some(prior) = item
            .prior
            .as_ref()
            .filter(|prior| completed_jobs::expired_by_ttl(prior))
        else {
            return false;
        };
        let body = self.body(item, self.scope.stack.as_str());
        let now = self.record(item, subject, &body, None, None);
        now.is_some_and(|now| now.attributes == prior.attributes) && !self.scope.read.contains(&item.id)
    }
}

/// Returns the error for an object whose API does not respond, so that nobody knows if it exists.
pub(crate) fn unreadable_error(subject: &PlanItem, silent: &str) -> UserError {
    let (title, cluster) = (subject.title(), &subject.cluster.api.name);
    let what = format!(
        "cannot check whether {title} still exists: the API `{silent}` does not answer on cluster `{cluster}`"
    );
    UserError::new(ErrorKind::Kubernetes, what)
        .hint("run `kubectl get apiservices` to see why; run this command again when the API answers")
        .hint("if that API is gone for good, delete its APIService: Konverge then forgets its records")
}

/// Returns true if the record is only an intent, whose write may have failed, and the live object has no
/// owner: then somebody else created the object. A record imported from Kusion has no private data; its
/// object belongs to the stack.
fn was_never_ours(item: &Item, live: &Value) -> bool {
    let only_meant = |prior: &Recorded| !prior.private.is_none() && ObjectRecord::uid_of(prior).is_none();
    item.prior.as_ref().is_some_and(only_meant) && object_ref::annotation(live, OWNER).is_none()
}

fn is_ending(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null()
}

fn ending_note(live: &Value) -> String {
    let finalizers = items(&live["metadata"]["finalizers"]).filter_map(Value::as_str);
    let finalizers: Vec<_> = finalizers.collect();
    let held = if finalizers.is_empty() {
        String::new()
    } else {
        format!(" (held by: {})", finalizers.join(", "))
    };
    format!("the existing object is being deleted{held}; it is recreated afterwards")
}
