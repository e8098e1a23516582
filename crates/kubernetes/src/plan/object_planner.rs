//! [`ObjectPlanner`]: the state that all items of a call share. [`DraftPlan`]: an unfinished plan of one
//! item.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use serde_json::{Map, Value};

use super::ending_containers::EndingContainers;
use crate::{
    OWNER, PROTECT,
    api::{clusters::Kubernetes, error::ApiError, error_classify, noop_guard::Guard},
    object::{
        completed_jobs, controller_values,
        crd_validation::Definition,
        noop_detection::AppliedFingerprint,
        object_diff,
        object_record::{ObjectRecord, PreparedWrite, is_unready},
        object_ref,
        plan_item::{HEALTH_POLICY, PlanItem},
        secret_references::PlannedReferences,
    },
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        ClusterName, FieldPath, GroupKind, ResourceId,
        plan::{Action, FieldChange, PodImpact, ResourcePlan, Validation},
        spec::RuntimeKind,
        state::{Recorded, RuntimeRecord},
    },
};
use konverge_engine::runtime::{Foreign, Item, Needs, PlannedResource, Preparation, StackScope, TrueValues};
use konverge_secrets::{mask_object_at, mask_secret_data_at};

/// The inputs and results that all items of a call share.
pub(super) struct ObjectPlanner<'a> {
    pub runtime: &'a Kubernetes,
    pub scope: &'a StackScope,
    /// The CustomResourceDefinitions of the plan.
    pub definitions: Vec<Definition>,
    /// The names of the desired Namespaces.
    pub namespaces: Vec<String>,
    /// Namespaces that do not exist yet, by cluster: those that this plan creates, and those that the server
    /// reported as missing.
    pub absent: Mutex<BTreeSet<(ClusterName, String)>>,
    /// The containers that are being deleted with their content.
    pub ending: EndingContainers,
    /// The names of desired objects, including those of earlier batches.
    pub names: HashMap<ResourceId, Named>,
}

/// An object that others may depend on.
pub(super) struct Named {
    /// True for a role, whose rules decide if a binding to it escalates permissions.
    pub is_role: bool,
    pub name: String,
}

/// A refusal of the server that earlier resources of the plan may resolve.
pub(super) struct ServerRefusal {
    pub failure: UserError,
    /// The earlier resources that the refusal may be about. If the plan creates or changes one of them, the
    /// refusal is not final.
    pub lifted_by: Vec<ResourceId>,
}

/// A note that applies to all objects of a namespace.
pub(super) struct NamespaceNote {
    pub text: String,
    /// True if an object already has the note.
    pub is_said: bool,
}

/// An unfinished plan of one item.
pub(super) struct DraftPlan {
    pub action: Action,
    pub changes: Vec<FieldChange>,
    pub truth: TrueValues,
    pub validated: Validation,
    pub replace: Vec<FieldPath>,
    pub ownership: Vec<FieldPath>,
    pub data_loss: bool,
    pub pods: PodImpact,
    pub notes: Vec<String>,
    pub recorded: Option<Recorded>,
    pub foreign: Option<Foreign>,
    pub protected: Option<UserError>,
    /// True if the item must be planned again when earlier resources are applied.
    pub provisional: bool,
    pub refusal: Option<ServerRefusal>,
    pub expected: Option<Value>,
    pub write: PreparedWrite,
}

impl DraftPlan {
    pub(super) fn new(action: Action) -> Self {
        Self {
            action,
            changes: Vec::new(),
            truth: TrueValues::default(),
            validated: Validation::None,
            replace: Vec::new(),
            ownership: Vec::new(),
            data_loss: false,
            pods: PodImpact::default(),
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

/// The desired object for policy rules; `None` if there is no desired object, or if it is exactly as
/// recorded.
pub(super) type TrueDesired = Option<Map<String, Value>>;

/// Returns the plan of an unchanged object.
pub(super) fn unchanged(recorded: Option<Recorded>, truth: TrueDesired) -> DraftPlan {
    let mut draft = DraftPlan::new(Action::Unchanged);
    draft.validated = Validation::Server;
    let is_as_recorded = |truth: &Map<String, Value>| {
        recorded
            .as_ref()
            .is_some_and(|recorded| *recorded.attributes == *truth)
    };
    draft.truth.desired = truth.filter(|truth| !is_as_recorded(truth));
    draft.recorded = recorded;
    draft
}

impl DraftPlan {
    /// Replaces the stand-ins in the plan by the references to secrets.
    fn refer(&mut self, item: &mut Item, references: &Arc<PlannedReferences>) {
        if item.desired.is_some() {
            item.desired = Some(references.original().clone());
        }
        self.notes.extend(references.explain(&mut self.changes));
        if let Some(recorded) = &mut self.recorded {
            ObjectRecord::update(recorded, |record| record.references = references.written());
        }
        if let Some(expected) = &mut self.expected {
            references.hide_stand_ins(expected);
        }
        self.write.references = Some(Arc::clone(references));
    }
}

impl ObjectPlanner<'_> {
    /// Accepts a plan that the server refuses until an earlier resource is applied.
    pub(super) fn not_validated_yet(
        &self,
        subject: &PlanItem,
        draft: &mut DraftPlan,
        error: &ApiError,
        lifted_by: Vec<ResourceId>,
    ) {
        let before: Vec<_> = lifted_by.iter().map(|id| format!("`{id}`")).collect();
        let (before, says) = (before.join(", "), chain(error));
        let note = format!("not validated yet: the server refuses it until {before} is applied ({says})");
        draft.notes.push(note);
        draft.refusal = Some(ServerRefusal {
            failure: subject.refusal(error),
            lifted_by,
        });
    }

    /// Returns the earlier resources that a refusal may be about.
    pub(super) fn lifted_by(&self, item: &Item, error: &ApiError) -> Vec<ResourceId> {
        let Needs::Planned(needs) = &item.needs else {
            return Vec::new();
        };
        let is_about = |id: &&ResourceId| {
            let named = self.names.get(*id);
            named.is_some_and(|named| error_classify::is_about(error, named.is_role, &named.name))
        };
        needs.iter().filter(is_about).cloned().collect()
    }

    pub(super) fn finish(&self, mut item: Item, subject: &PlanItem, mut draft: DraftPlan) -> PlannedResource {
        if let Some(references) = &subject.references {
            draft.refer(&mut item, references);
        }
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
        public.pods = draft.pods;
        if item
            .desired
            .as_ref()
            .is_some_and(|d| d.extensions.contains_key(HEALTH_POLICY) && subject.health_policy.is_none())
        {
            draft.notes.push(
                "its `healthPolicy` has no assertions in KCL (`health.kcl`), so the usual rules say when it is ready"
                    .to_owned(),
            );
        }
        let changes = draft.action != Action::Unchanged;
        let rules = item.desired.as_ref().filter(|_| changes);
        let rules = rules.and_then(|desired| controller_values::aggregated_rules(&desired.attributes));
        draft.notes.extend(rules.map(|rules| rules.note()));
        draft.notes.dedup();
        public.notes = draft
            .notes
            .iter()
            // A note may quote the server, which may quote secret values.
            .map(|note| self.runtime.secrets.mask(note))
            .collect();
        let sensitive = draft
            .expected
            .as_ref()
            .map(|expected| subject.secret_texts(expected));
        PlannedResource {
            truth: draft.truth,
            recorded: draft.recorded,
            foreign: draft.foreign,
            protected: draft.protected,
            unready: draft.action == Action::Unchanged && item.prior.as_ref().is_some_and(is_unready),
            provisional: draft.provisional,
            sensitive: sensitive.unwrap_or_default(),
            // Kept only if other resources refer to the object, to save memory in a large stack.
            expected: draft.expected.filter(|_| self.scope.read.contains(&item.id)),
            preparation: Preparation::new(draft.write),
            ..PlannedResource::new(item, public)
        }
    }

    /// Returns true if the namespace is known to be missing.
    pub(super) fn lacks_namespace(&self, subject: &PlanItem) -> bool {
        let absent = self.absent.lock().expect("no panic while the lock is held");
        absent.contains(&subject.namespace_key())
    }

    pub(super) fn note_absent_namespace(&self, subject: &PlanItem) {
        let mut absent = self.absent.lock().expect("no panic while the lock is held");
        absent.insert(subject.namespace_key());
    }

    /// Returns true if the item is shared in its project, and another stack of the project owns the live object.
    pub(super) fn is_shared(&self, item: &Item, live: &Value) -> bool {
        let is_beside = |owner| self.scope.stack.is_sibling_of(owner);
        item.is_shared() && object_ref::annotation(live, OWNER).is_some_and(is_beside)
    }

    /// Returns the object to send: the desired object with its owner, without fields that only the server
    /// writes.
    pub(super) fn body(&self, item: &Item, owner: &str) -> Map<String, Value> {
        let desired = item.desired.as_ref().map(|d| d.attributes.clone());
        sent(desired.unwrap_or_default(), owner)
    }

    /// Returns the owner of the object: a stack of the same project that created it and shares it, or else
    /// this stack.
    pub(super) fn owner<'v>(&'v self, item: &Item, live: &'v Value) -> &'v str {
        let stack = self.scope.stack.as_str();
        if self.is_shared(item, live) {
            object_ref::annotation(live, OWNER).unwrap_or(stack)
        } else {
            stack
        }
    }

    /// Returns the desired object for policy rules.
    pub(super) fn true_desired(
        &self,
        item: &Item,
        subject: &PlanItem,
        body: &Map<String, Value>,
    ) -> TrueDesired {
        let desired = item.desired.as_ref()?;
        let attributes = without_owner(body, object_ref::has_annotations(&desired.attributes));
        Some(mask_secret_data_at(&self.runtime.secrets, &attributes, &subject.places).into_owned())
    }

    /// Returns the record of an object, with data of the live object if it exists.
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

pub(super) fn sent(mut body: Map<String, Value>, owner: &str) -> Map<String, Value> {
    if GroupKind::from_attributes(&body) == GroupKind::SECRET {
        object_ref::string_data_to_data(&mut body);
    }
    object_diff::strip_server_side(&mut body);
    controller_values::give_up_aggregated_rules(&mut body);
    with_owner(body, owner)
}

pub(super) fn with_owner(mut object: Map<String, Value>, owner: &str) -> Map<String, Value> {
    object_ref::annotate(&mut object, OWNER, owner.to_owned());
    object
}

/// Returns the object without the owner annotation that Konverge added.
pub(super) fn without_owner(body: &Map<String, Value>, had_annotations: bool) -> Map<String, Value> {
    let mut attributes = body.clone();
    object_ref::remove_owner(&mut attributes, had_annotations);
    attributes
}

/// Returns the record of an object: the desired object, masked, and the digests that later prove that it is
/// unchanged.
pub(crate) fn record(
    runtime: &Kubernetes,
    item: &Item,
    subject: &PlanItem,
    desired: &konverge_base::model::spec::Resource,
    body: &Map<String, Value>,
    live: Option<&Value>,
    guard: Option<&Guard>,
) -> Recorded {
    let secrets = &runtime.secrets;
    let mut record = ObjectRecord::default();
    if let Some(live) = live {
        record.uid = live["metadata"]["uid"].as_str().map(str::to_owned);
        // A guard that proves nothing is not stored, because it would differ in each run.
        let guard = guard.filter(|guard| !guard.is_void());
        record.echo = guard.and_then(|guard| {
            let guard = guard.for_object(live);
            AppliedFingerprint::from_masked_apply(secrets, &subject.places, body, live, &guard)
        });
    }
    let attributes = without_owner(body, object_ref::has_annotations(&desired.attributes));
    let mut recorded = Recorded {
        id: item.id.clone(),
        runtime: RuntimeKind::Kubernetes,
        cluster: Some(subject.cluster.api.name.clone()),
        attributes: Arc::new(mask_object_at(secrets, &attributes, &subject.places).into_owned()),
        depends_on: Vec::new(),
        extensions: desired.extensions.clone(),
        object_hash: None,
        private: RuntimeRecord::encode(&record),
        sharing: desired.sharing,
    };
    if let Some(live) = live {
        completed_jobs::note(&mut recorded, live);
    }
    recorded
}

pub(super) fn check_protected(subject: &PlanItem, live: &Value, what: &str) -> Result<(), UserError> {
    if object_ref::annotation(live, PROTECT) != Some("true") {
        return Ok(());
    }
    let title = subject.title();
    let what = format!("{title} would be {what}, but its annotation `{PROTECT}` forbids it");
    Err(UserError::new(ErrorKind::Policy, what).hint(format!(
        "to allow that, set `{PROTECT}: \"false\"` in a change of its own first"
    )))
}
