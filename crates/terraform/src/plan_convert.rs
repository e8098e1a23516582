//! Converts a saved plan to the planned resources that are shown, recorded and executed.

use serde_json::{Map, Value};

use super::{
    change_display::{self, Origins},
    data_loss,
    error::of_resource,
    log_messages::LogMessage,
    masking,
    module_resource::{self, ModuleResource},
    prepared_plan::Ready,
    renamed::{CreatedResource, SameObject},
    saved_plan::{ResourceChange, SavedPlan, by_address},
    secret_changes,
    state_document::TerraformState,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId, masked_value,
        plan::{Action, FieldChange, ResourcePlan, Validation},
        spec::RuntimeKind,
        state::{Recorded, Replacement},
    },
};
use konverge_engine::runtime::{Item, PlannedResource, Preparation, TrueValues};
use konverge_secrets::{Secrets, mask_provider};

/// The context of a conversion.
pub(super) struct Segment<'a> {
    pub(super) stack: &'a StackId,
    pub(super) saved: &'a SavedPlan,
    pub(super) log: &'a [LogMessage],
    pub(super) book: &'a TerraformState,
    pub(super) secrets: &'a Secrets,
    /// The resources that earlier parts of the plan create.
    pub(super) created: Vec<CreatedResource>,
}

impl Segment<'_> {
    /// Returns all resources in order: as they are shown, and as they are applied.
    pub(super) fn present(
        &self,
        subjects: Vec<ModuleResource>,
        token: String,
    ) -> (Vec<PlannedResource>, Vec<Ready>) {
        let changes = by_address(&self.saved.resource_changes);
        let drift = by_address(&self.saved.resource_drift);
        // All sensitive values are collected first, so that each is masked everywhere.
        for change in changes.values().chain(drift.values()) {
            let change = &change.change;
            let nothing = Value::Null;
            masking::mask_object(&change.before, &nothing, &change.before_sensitive, self.secrets);
            masking::mask_object(&change.after, &nothing, &change.after_sensitive, self.secrets);
        }
        let mut planned = Vec::with_capacity(subjects.len());
        let mut ready = Vec::with_capacity(subjects.len());
        for subject in subjects {
            let address = subject.address.to_string();
            let change = changes.get(address.as_str()).copied();
            let (plan, prepared) =
                self.resource(subject, change, drift.get(address.as_str()).copied(), &token);
            planned.push(plan);
            ready.push(prepared);
        }
        (planned, ready)
    }

    fn resource(
        &self,
        subject: ModuleResource,
        change: Option<&ResourceChange>,
        drift: Option<&ResourceChange>,
        token: &str,
    ) -> (PlannedResource, Ready) {
        let item = &subject.item;
        let mut action = match change {
            Some(change) => change_display::action(change, subject.moved_from.is_some()),
            // The plan has no change: the resource is in the state, is not desired, and no longer exists.
            None => Action::Forget,
        };
        let left_over = self
            .saved
            .deposed_addresses()
            .any(|a| a == subject.address.to_string());
        if left_over && action == Action::Unchanged {
            action = Action::Update;
        }
        // The approved replacement was interrupted; a reviewer must see that this run completes it.
        let begun = self
            .interrupted_replacement(&subject)
            .filter(|_| matches!(action, Action::Create | Action::Adopt));
        let shown = match (begun, &subject.made) {
            (Some(_), _) => Action::Replace,
            (None, Some(_)) if action == Action::Adopt => Action::Create,
            _ => action,
        };
        let recorded = item
            .desired
            .is_some()
            .then(|| self.record(&subject, change, action));
        let prior = item.prior.as_ref().map(|prior| &*prior.attributes);
        let changes = match (begun, change) {
            (Some(begun), _) => begun.changes.clone(),
            (None, Some(change)) => {
                let changes = self.changes(shown, change, drift, recorded.as_ref(), prior);
                secret_changes::with_references(changes, shown, &subject, self.secrets)
            }
            (None, None) => Vec::new(),
        };
        let truth = self.truth(&subject, change, shown, recorded.as_ref());
        let mut public = ResourcePlan::new(
            self.stack,
            item.id.clone(),
            RuntimeKind::Terraform,
            shown,
            changes,
        );
        public.validated = Validation::Server;
        if action == Action::Replace
            && let Some(change) = change
        {
            public.replace = change_display::paths(&change.change.replace_paths);
        }
        if let Some(begun) = begun {
            public.replace.clone_from(&begun.paths);
        }
        let wanted = (shown == Action::Replace).then(|| subject.wanted_id()).flatten();
        let replacement = wanted.map(|wanted| Replacement {
            wanted,
            changes: public.changes.clone(),
            paths: public.replace.clone(),
        });
        public.notes = self.notes(&subject, change, drift, left_over);
        let deleted = change.filter(|_| action == Action::Delete);
        let same =
            deleted.and_then(|change| SameObject::find(&subject, &change.change.before, &self.created));
        if let Some(same) = &same {
            public.notes.insert(0, same.warning(subject.id()));
        }
        if matches!(action, Action::Delete | Action::Replace)
            && let Some(loss) = data_loss::of_type(&subject.address.kind)
        {
            public.data_loss = true;
            public.notes.insert(0, loss.to_owned());
        }
        public.notes.extend(secret_changes::waiting(shown, &subject));
        if begun.is_some() {
            public.notes.push(Replacement::REST.to_owned());
        }
        let expected = change
            .filter(|_| item.desired.is_some())
            .map(|c| masking::expected_object(&c.change.after, &c.change.after_unknown));
        let sensitive = change.map_or(&Value::Null, |c| &c.change.after_sensitive);
        let texts = expected
            .as_ref()
            .map(|expected| masking::secret_texts(expected, sensitive));
        let ready = Ready {
            action,
            touched: left_over || change.is_some_and(is_touched),
            recorded: recorded.clone(),
            expected: expected.clone(),
            sensitive: sensitive.clone(),
            provisional: is_provisional(item),
            replacement,
            same_object: same.map(|same| same.created),
            subject: subject.clone(),
        };
        let is_protected = action == Action::Delete && module_resource::is_protected(&subject.item);
        let protected = is_protected.then(|| self.protected(&subject));
        let planned = PlannedResource {
            truth,
            recorded,
            protected,
            expected,
            sensitive: texts.unwrap_or_default(),
            sensitive_paths: sensitive.clone(),
            preparation: Preparation::new(token.to_owned()),
            ..PlannedResource::new(subject.item, public)
        };
        (planned, ready)
    }

    fn protected(&self, subject: &ModuleResource) -> UserError {
        let (id, stack) = (subject.id(), self.stack);
        let what = format!("`{id}` would be destroyed, but `lifecycle.prevent_destroy` is set on it");
        of_resource(ErrorKind::Policy, id, what)
            .hint("to destroy it, apply its Spec with `lifecycle.prevent_destroy: false` first")
            .hint(format!(
                "to keep the object and stop managing it: `konverge state forget {stack} '{id}'`"
            ))
    }

    /// Returns the replacement that an earlier run started, if the same resource is still desired.
    fn interrupted_replacement(&self, subject: &ModuleResource) -> Option<&Replacement> {
        let begun = self.book.begun.get(subject.id())?;
        (subject.wanted_id().as_ref() == Some(&begun.wanted)).then_some(begun)
    }

    /// Returns the values for policy rules of a resource.
    fn truth(
        &self,
        subject: &ModuleResource,
        planned: Option<&ResourceChange>,
        shown: Action,
        recorded: Option<&Recorded>,
    ) -> TrueValues {
        let nothing = Value::Null;
        let sensitive = planned.map_or(&nothing, |planned| &planned.change.after_sensitive);
        let desired = subject.item.desired.as_ref();
        let desired =
            desired.map(|desired| masking::true_attributes(&desired.attributes, sensitive, self.secrets));
        let is_recorded =
            |desired: &Map<String, Value>| recorded.is_some_and(|recorded| *recorded.attributes == *desired);
        let mut truth = TrueValues {
            desired: desired.filter(|desired| !is_recorded(desired)),
            ..TrueValues::default()
        };
        let changed = planned.filter(|_| !matches!(shown, Action::Unchanged | Action::Forget));
        let Some(ResourceChange { change, .. }) = changed else {
            return truth;
        };
        let judged = |object: &Value, unknown: &Value, sensitive: &Value| {
            masking::true_object(object, unknown, sensitive, self.secrets)
        };
        let mut before = judged(&change.before, &nothing, &change.before_sensitive);
        let mut after = judged(&change.after, &change.after_unknown, &change.after_sensitive);
        masking::hide_alike(&mut before, &mut after, change, self.secrets);
        secret_changes::add_marks(&mut before, &mut after, subject, self.secrets);
        (truth.before, truth.after) = (
            Some(before).filter(Value::is_object),
            Some(after).filter(Value::is_object),
        );
        truth
    }

    fn changes(
        &self,
        action: Action,
        planned: &ResourceChange,
        drift: Option<&ResourceChange>,
        recorded: Option<&Recorded>,
        prior: Option<&Map<String, Value>>,
    ) -> Vec<FieldChange> {
        let change = &planned.change;
        let nothing = Value::Null;
        // A value that is in clear text elsewhere is masked for display, and reviews do not cover it.
        let show = |object: &Value, unknown: &Value, sensitive: &Value| {
            masking::mask_object(object, unknown, sensitive, self.secrets)
        };
        let mut before = show(&change.before, &nothing, &change.before_sensitive);
        let mut after = show(&change.after, &change.after_unknown, &change.after_sensitive);
        // If a value is sensitive on one side of a change, it is masked on the other side too.
        masking::hide_alike(&mut before, &mut after, change, self.secrets);
        match action {
            Action::Create => vec![FieldChange::whole(None, Some(after))],
            Action::Delete => vec![FieldChange::whole(Some(before), None)],
            Action::Unchanged | Action::Forget => Vec::new(),
            _ => {
                let drifted = drift.map_or_else(Vec::new, |d| {
                    change_display::changed_paths(&d.change.before, &d.change.after)
                });
                let none = Map::new();
                let origins = Origins {
                    desired: recorded.map_or(&none, |r| &r.attributes),
                    prior,
                    drifted,
                };
                change_display::changes(&before, &after, &origins)
            }
        }
    }

    fn record(&self, subject: &ModuleResource, change: Option<&ResourceChange>, action: Action) -> Recorded {
        let none = (Map::new(), Map::new());
        let (attributes, extensions) = match &subject.item.desired {
            Some(desired) => (&desired.attributes, &desired.extensions),
            None => (&none.0, &none.1),
        };
        let sensitive = change.map_or(&Value::Null, |c| &c.change.after_sensitive);
        let masked = |map: Map<String, Value>| match self.secrets.mask_value(&Value::Object(map)) {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        let mut extensions = extensions.clone();
        if let Some(meta) = extensions.get_mut("providerMeta") {
            *meta = mask_provider(self.secrets, meta);
        }
        Recorded {
            extensions: masked(extensions),
            object_hash: change
                .and_then(|c| masking::object_hash(&subject.address.kind, &c.change.after, self.secrets)),
            private: secret_changes::record(action, subject),
            ..Recorded::new(
                subject.id().clone(),
                RuntimeKind::Terraform,
                masked(masking::attributes(attributes, sensitive, self.secrets)),
            )
        }
    }

    fn notes(
        &self,
        subject: &ModuleResource,
        change: Option<&ResourceChange>,
        drift: Option<&ResourceChange>,
        left_over: bool,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(old) = &subject.moved_from {
            notes.push(format!("its state moves here from `{old}`"));
        }
        notes.extend(self.left_in_flight(subject));
        if let Some(old) = subject.replaced() {
            notes.push(format!(
                "the object that it replaces has the id `{}` and may still exist: check, and delete it manually",
                super::log_messages::plain(self.secrets, old)
            ));
        }
        if drift.is_some_and(|d| d.change.after.is_null()) && self.interrupted_replacement(subject).is_none()
        {
            notes.push(match self.book.taken.get(subject.id()) {
                Some(old) => format!("the deletion of `{old}`, which was the same object, has deleted it"),
                None => "it was deleted outside Konverge".to_owned(),
            });
        }
        if left_over {
            notes.push("an old object of it, left over from a replacement, is deleted".to_owned());
        }
        let reason = change.and_then(|c| c.action_reason.as_deref());
        if reason == Some("replace_because_tainted") {
            notes.push("an earlier run did not complete it, so it is recreated".to_owned());
        }
        let address = subject.address.to_string();
        let warnings = self.log.iter().filter_map(|m| m.diagnostic.as_ref());
        let warnings = warnings.filter(|d| !d.is_error() && d.address() == Some(address.as_str()));
        notes.extend(warnings.map(|d| d.text(self.secrets)));
        notes
    }

    /// Returns a note about the object that an earlier run left in flight when it was stopped.
    fn left_in_flight(&self, subject: &ModuleResource) -> Option<String> {
        let flight = self.book.in_flight.get(subject.id())?;
        let plain = |text: &str| super::log_messages::plain(self.secrets, text);
        let (action, id) = (plain(&flight.action), flight.id.as_deref().map(plain));
        if let (Some(_), Some(id)) = (&subject.made, &id) {
            return Some(format!(
                "an earlier run created it with the id `{id}` and was interrupted: it is adopted, not created again"
            ));
        }
        if action != "create" {
            return Some(format!(
                "an earlier run was stopped during its {action}: the current object was read from the provider"
            ));
        }
        let named = id
            .as_deref()
            .map_or(String::new(), |id| format!(" with the id `{id}`"));
        if subject.resource_state().is_some() {
            return Some(format!(
                "an earlier run was stopped while it replaced it: another object of it{named} may exist at the provider; \
                 check, and delete the other object by hand"
            ));
        }
        let known = match &id {
            Some(_) => format!("it was made{named}"),
            None => "it may exist".to_owned(),
        };
        Some(format!(
            "an earlier run was interrupted while creating it: {known}; to take it over, set \
             `kusionstack.io/import-id` in its extensions to its id at the provider (`terraform import {} {}`)",
            subject.address,
            id.as_deref().unwrap_or("ID")
        ))
    }
}

fn is_touched(change: &ResourceChange) -> bool {
    use super::saved_plan::PlannedAction;
    change.change.importing.is_some()
        || change
            .change
            .actions
            .iter()
            .any(|verb| !matches!(verb, PlannedAction::NoOp))
}

/// Returns true if an item waits for values of other resources, so that its plan is only a preview.
fn is_provisional(item: &Item) -> bool {
    item.desired
        .as_ref()
        .is_some_and(|d| d.attributes.values().any(masked_value::holds_unknown))
}
