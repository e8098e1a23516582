//! Decides the action of one item from the recorded, the desired and the live object.

mod create;
mod planned_kinds;
mod replace;
mod server_generated;
mod update;

pub(super) use update::unchanged;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use serde_json::{Map, Value, json};

use super::{PlanItem, Task};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId,
        plan::{Action, ChangeOrigin, FieldChange, ResourcePlan, Validation},
        spec::RuntimeKind,
        state::{Recorded, RuntimeRecord},
    },
    runtime::{
        Foreign, Item, Needs, PlannedResource, Preparation, StackScope,
        kubernetes::{
            KEEP, OWNER, PROTECT, completed_jobs,
            crd_validation::Definition,
            error::ApiError,
            error_classify,
            noop_detection::AppliedEcho,
            noop_guard::Guard,
            object_diff,
            object_record::{ObjectRecord, PreparedWrite},
            object_ref,
            precondition::Precondition,
            readiness,
            runtime::Kubernetes,
        },
    },
    secrets::{mask_object, secret_texts},
};

/// What all items of a call share.
pub(super) struct ObjectPlanner<'a> {
    pub runtime: &'a Kubernetes,
    pub scope: &'a StackScope,
    /// The CustomResourceDefinitions of the plan.
    pub definitions: Vec<Definition>,
    /// The names of the desired Namespaces.
    pub namespaces: Vec<String>,
    /// Namespaces that do not exist yet, by cluster: those of this plan, and those that the server reported
    /// as missing.
    pub absent: Mutex<BTreeSet<(ClusterName, String)>>,
    /// The names of the desired objects, including earlier batches.
    pub names: HashMap<ResourceId, Named>,
}

/// An object that others may depend on.
pub(super) struct Named {
    pub kind: String,
    pub name: String,
}

/// A refusal of the server that earlier resources of the plan may resolve.
pub(super) struct ServerRefusal {
    pub failure: UserError,
    /// The resources that the refusal concerns: if the plan creates or changes one of them, the refusal is
    /// not final.
    pub lifted_by: Vec<ResourceId>,
}

/// An unfinished plan.
pub(super) struct DraftPlan {
    action: Action,
    changes: Vec<FieldChange>,
    validated: Validation,
    replace: Vec<String>,
    ownership: Vec<String>,
    data_loss: bool,
    notes: Vec<String>,
    recorded: Option<Recorded>,
    foreign: Option<Foreign>,
    protected: Option<UserError>,
    /// True if it is planned again when the earlier resources are applied.
    provisional: bool,
    refusal: Option<ServerRefusal>,
    pub(super) expected: Option<Value>,
    write: PreparedWrite,
}

impl DraftPlan {
    fn new(action: Action) -> Self {
        Self {
            action,
            changes: Vec::new(),
            validated: Validation::None,
            replace: Vec::new(),
            ownership: Vec::new(),
            data_loss: false,
            notes: Vec::new(),
            recorded: None,
            foreign: None,
            protected: None,
            provisional: false,
            refusal: None,
            expected: None,
            write: PreparedWrite::default(),
        }
    }
}

impl ObjectPlanner<'_> {
    /// Plans one item with its live object. Also returns the server's refusal, if earlier resources may
    /// resolve it.
    pub(super) async fn decide(
        &self,
        task: Task,
    ) -> Result<(PlannedResource, Option<ServerRefusal>), UserError> {
        let Task {
            mut item,
            subject,
            raw,
            ..
        } = task;
        let live = raw.map(|raw| raw.read(&subject.cluster)).transpose()?;
        let never_ours = live.as_ref().is_some_and(|live| was_never_ours(&item, live));
        if never_ours && item.desired.is_some() {
            item.prior = None;
        }
        let moved = item.prior.as_ref().and_then(|prior| prior.cluster.as_ref());
        if item.desired.is_some()
            && let Some(from) = moved.filter(|from| **from != subject.cluster.api.name)
        {
            return Err(UserError::new(
                ErrorKind::Spec,
                format!(
                    "`{}` would move from cluster `{from}` to `{}`",
                    item.id, subject.cluster.api.name
                ),
            )
            .hint(
                "take it out of the stack in one change, and put it back for the other cluster in the next",
            ));
        }
        if let (Some(silent), Some(_)) = (&subject.silent, &item.prior) {
            return Err(unreadable_error(&subject, silent));
        }
        let mut draft = match (&item.desired, live) {
            (None, None) => DraftPlan::new(Action::Forget),
            (None, Some(live)) => self.delete(&item, &subject, &live),
            (Some(_), None) if self.is_over(&item, &subject) => unchanged(item.prior.clone()),
            (Some(_), None) => self.create(&item, &subject).await?,
            (Some(_), Some(live)) if is_ending(&live) => {
                let mut draft = self.create_later(&item, &subject);
                draft.notes.push(ending_note(&live));
                draft.write.ending = live["metadata"]["uid"].as_str().map(str::to_owned);
                draft
            }
            (Some(_), Some(live)) => {
                let foreign = self.foreign(&subject, &live);
                let mut draft =
                    self.update(&item, &subject, &live)
                        .await
                        .map_err(|failure| match &foreign {
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

    /// Accepts a plan that the server refuses until an earlier resource is applied.
    fn not_validated_yet(
        &self,
        subject: &PlanItem,
        draft: &mut DraftPlan,
        error: &ApiError,
        lifted_by: Vec<ResourceId>,
    ) {
        let before: Vec<_> = lifted_by.iter().map(|id| format!("`{id}`")).collect();
        let before = before.join(", ");
        draft.notes.push(format!(
            "not validated yet: the server refuses it until {before} is applied ({error})"
        ));
        draft.refusal = Some(ServerRefusal {
            failure: subject.refusal(error),
            lifted_by,
        });
    }

    /// The earlier resources that a refusal may be about.
    fn lifted_by(&self, item: &Item, error: &ApiError) -> Vec<ResourceId> {
        let Needs::Planned(needs) = &item.needs else {
            return Vec::new();
        };
        let is_about = |id: &&ResourceId| {
            let named = self.names.get(*id);
            named.is_some_and(|named| error_classify::is_about(error, &named.kind, &named.name))
        };
        needs.iter().filter(is_about).cloned().collect()
    }

    pub(super) fn finish(&self, item: Item, subject: &PlanItem, mut draft: DraftPlan) -> PlannedResource {
        let stack = &self.scope.stack;
        let mut public = ResourcePlan::new(
            stack,
            item.id.clone(),
            RuntimeKind::Kubernetes,
            draft.action,
            draft.changes,
        )
        .with_ownership(stack, draft.ownership);
        public.cluster = Some(subject.cluster.api.name.clone());
        public.validated = draft.validated;
        public.replace = draft.replace;
        public.data_loss = draft.data_loss;
        if item
            .desired
            .as_ref()
            .is_some_and(|d| d.extensions.contains_key("healthPolicy"))
        {
            draft.notes.push(
                "its `healthPolicy` (assertions in KCL) is not asked: write it as a rule (`health.k` takes it as it is), see `apply.health_rules`"
                    .to_owned(),
            );
        }
        draft.notes.dedup();
        public.notes = draft
            .notes
            .iter()
            .map(|note| self.runtime.secrets.mask(note))
            .collect();
        PlannedResource {
            public,
            recorded: draft.recorded,
            foreign: draft.foreign,
            protected: draft.protected,
            unready: draft.action == Action::Unchanged
                && item.prior.as_ref().is_some_and(readiness::is_unready),
            provisional: draft.provisional,
            sensitive: draft.expected.as_ref().map(secret_texts).unwrap_or_default(),
            expected: draft.expected.filter(|_| self.scope.read.contains(&item.id)),
            preparation: Preparation::new(draft.write),
            item,
        }
    }

    /// Returns true if the namespace is known to be missing.
    fn lacks_namespace(&self, subject: &PlanItem) -> bool {
        let absent = self.absent.lock().expect("no panic while the lock is held");
        absent.contains(&(subject.cluster.api.name.clone(), subject.name.namespace.clone()))
    }

    fn note_absent_namespace(&self, subject: &PlanItem) {
        let mut absent = self.absent.lock().expect("no panic while the lock is held");
        absent.insert((subject.cluster.api.name.clone(), subject.name.namespace.clone()));
    }

    /// Returns true if a CRD belongs to a stack of the same project: then it belongs to all of them.
    fn is_shared(&self, live: &Value) -> bool {
        let is_beside = |owner| self.scope.stack.is_beside(owner);
        live["kind"] == "CustomResourceDefinition"
            && object_ref::annotation(live, OWNER).is_some_and(is_beside)
    }

    /// An object of another stack stops the plan, unless that stack has released it.
    fn foreign(&self, subject: &PlanItem, live: &Value) -> Option<Foreign> {
        let stack = self.scope.stack.as_str();
        let owner = object_ref::annotation(live, OWNER)
            .filter(|owner| *owner != stack && !self.scope.was(owner) && !self.is_shared(live))?;
        let name = owner.escape_debug();
        let refusal = UserError::new(
            ErrorKind::Policy,
            format!("{} belongs to stack `{name}`", subject.title()),
        )
        .hint(format!(
            "take it out of one of the two stacks; to move it here, take it out of `{name}` in the same change, or apply \
             that change to `{name}` first"
        ))
        .hint(format!(
            "a stack of another repository hands it over by removing it there with the annotation `{KEEP}: \"true\"`; then \
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
        draft.changes = vec![FieldChange {
            path: String::new(),
            from: Some(object_diff::mask_for_display(live, &self.runtime.secrets)),
            to: None,
            origin: ChangeOrigin::Change,
        }];
        draft.validated = Validation::Server;
        if let Some(loss) = error_classify::loses_data(live) {
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
        if owner.is_some_and(is_own) || self.is_shared(live) {
            return None;
        }
        if let Some(owner) = owner {
            return Some(format!("it belongs to stack `{}` now", owner.escape_debug()));
        }
        if was_never_ours(item, live) {
            return Some("somebody else made it: this stack only meant to".to_owned());
        }
        let recorded = item.prior.as_ref().and_then(recorded_uid);
        match (recorded, live["metadata"]["uid"].as_str()) {
            (Some(recorded), Some(uid)) if recorded != uid => Some(
                "somebody else made it anew since, and it does not name this stack as its owner".to_owned(),
            ),
            _ => None,
        }
    }

    /// What is sent: as desired, with its owner, without what only the server writes.
    fn body(&self, item: &Item, owner: &str) -> Map<String, Value> {
        let desired = item.desired.as_ref().map(|d| d.attributes.clone());
        sent(desired.unwrap_or_default(), owner)
    }

    /// What is sent for an object that belongs to this stack only.
    pub(super) fn sent(&self, body: Map<String, Value>) -> Map<String, Value> {
        sent(body, self.scope.stack.as_str())
    }

    /// The owner of the object: the stack that created it, if that is of the same project and may share it.
    fn owner<'v>(&'v self, live: &'v Value) -> &'v str {
        let stack = self.scope.stack.as_str();
        match self.is_shared(live) {
            true => object_ref::annotation(live, OWNER).unwrap_or(stack),
            false => stack,
        }
    }

    /// Returns true if the item is a Job that completed, was deleted by its time to live, and is still
    /// desired unchanged: nothing is left to do. If references read it, it must exist.
    fn is_over(&self, item: &Item, subject: &PlanItem) -> bool {
        let Some(prior) = item
            .prior
            .as_ref()
            .filter(|prior| completed_jobs::went_by_itself(prior))
        else {
            return false;
        };
        let body = self.body(item, self.scope.stack.as_str());
        let now = self.record(item, subject, &body, None, None);
        now.is_some_and(|now| now.attributes == prior.attributes) && !self.scope.read.contains(&item.id)
    }

    /// The record of an object, from the live object if it exists.
    pub(super) fn record(
        &self,
        item: &Item,
        subject: &PlanItem,
        body: &Map<String, Value>,
        live: Option<&Value>,
        guard: Option<&Guard>,
    ) -> Option<Recorded> {
        let desired = item.desired.as_ref()?;
        Some(record(self.runtime, item, subject, desired, body, live, guard))
    }
}

fn sent(mut body: Map<String, Value>, owner: &str) -> Map<String, Value> {
    if object_ref::text(&body, "kind") == "Secret" && object_ref::text(&body, "apiVersion") == "v1" {
        object_ref::string_data_to_data(&mut body);
    }
    object_diff::strip_server_side(&mut body);
    with_owner(body, owner)
}

fn with_owner(mut object: Map<String, Value>, owner: &str) -> Map<String, Value> {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if annotations.is_null() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(OWNER.to_owned(), Value::String(owner.to_owned()));
        }
    }
    object
}

/// The record of an object: the desired object, masked, and what later proves that it is unchanged.
pub(in crate::runtime::kubernetes) fn record(
    runtime: &Kubernetes,
    item: &Item,
    subject: &PlanItem,
    desired: &crate::model::spec::Resource,
    body: &Map<String, Value>,
    live: Option<&Value>,
    guard: Option<&Guard>,
) -> Recorded {
    let secrets = &runtime.secrets;
    let mut record = ObjectRecord::default();
    if let Some(live) = live {
        record.uid = live["metadata"]["uid"].as_str().map(str::to_owned);
        // A guard that proves nothing is not stored: it would differ in each run.
        let guard = guard.filter(|guard| !guard.is_void());
        record.echo =
            guard.and_then(|guard| AppliedEcho::from_masked_apply(secrets, body, live, &guard.of(live)));
    }
    let mut attributes = body.clone();
    object_ref::remove_owner(&mut attributes, object_ref::has_annotations(&desired.attributes));
    let mut recorded = Recorded {
        id: item.id.clone(),
        runtime: RuntimeKind::Kubernetes,
        cluster: Some(subject.cluster.api.name.clone()),
        attributes: Arc::new(mask_object(secrets, &attributes).into_owned()),
        depends_on: Vec::new(),
        extensions: desired.extensions.clone(),
        private: RuntimeRecord::encode(&record),
    };
    if let Some(live) = live {
        completed_jobs::note(&mut recorded, live);
    }
    recorded
}

/// An object that was created may exist or not, as far as can be seen.
fn unreadable_error(subject: &PlanItem, silent: &str) -> UserError {
    UserError::new(
        ErrorKind::Kubernetes,
        format!(
            "whether {} is still there cannot be seen: `{silent}` does not answer on cluster `{}`",
            subject.title(),
            subject.cluster.api.name
        ),
    )
    .hint("`kubectl get apiservices` shows why; run it again when it answers")
    .hint("if that API is gone for good, delete its APIService: then what was recorded of it is forgotten")
}

fn recorded_uid(prior: &Recorded) -> Option<String> {
    ObjectRecord::of(prior)?.uid
}

/// Returns true if the record is only an intent, whose write may never have arrived, and the live object has
/// no owner: then somebody else created it. A record imported from Kusion has no private data at all; its
/// object is ours.
fn was_never_ours(item: &Item, live: &Value) -> bool {
    let only_meant = |prior: &Recorded| !prior.private.is_none() && recorded_uid(prior).is_none();
    item.prior.as_ref().is_some_and(only_meant) && object_ref::annotation(live, OWNER).is_none()
}

fn is_ending(live: &Value) -> bool {
    !live["metadata"]["deletionTimestamp"].is_null()
}

fn ending_note(live: &Value) -> String {
    let finalizers: Vec<_> = live["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let held = if finalizers.is_empty() {
        String::new()
    } else {
        format!(" (held by: {})", finalizers.join(", "))
    };
    format!("the one that is there is being deleted{held}; it is recreated when that is gone")
}

fn check_protected(subject: &PlanItem, live: &Value, what: &str) -> Result<(), UserError> {
    if object_ref::annotation(live, PROTECT) != Some("true") {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Policy,
        format!(
            "{} would be {what}, but its annotation `{PROTECT}` forbids that",
            subject.title()
        ),
    )
    .hint(format!(
        "if it is wanted, set `{PROTECT}: \"false\"` in a change of its own first"
    )))
}
