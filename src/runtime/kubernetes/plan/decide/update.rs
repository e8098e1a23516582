//! What is there already: unchanged if that can be proven, else what the server says.

use serde_json::{Map, Value, json};

use super::{
    Draft, Planner, Subject, check_protected,
    create::{expected, scratch_name},
    with_owner,
};
use crate::{
    error::{ErrorKind, Failure},
    model::{
        diff,
        plan::{Action, Change, Origin, Validation},
        state::Recorded,
        value,
    },
    runtime::{
        Item,
        kubernetes::{
            change::{self, Sides},
            dry_run::{self, Answered, Ownership, Refused},
            fields, managers, rollout,
            seen::Seen,
            triage::{self, Cause},
        },
    },
    secrets::mask_object,
};

impl Planner<'_> {
    pub(super) async fn update(
        &self,
        item: &Item,
        subject: &Subject,
        live: &Value,
    ) -> Result<Draft, Failure> {
        let owner = self.owner(live);
        let body = self.left_alone(self.body(item, owner), live);
        if body.values().any(value::holds_unknown) {
            return Ok(self.undecided(item, subject, &body, live));
        }
        let Some(of) = &subject.of else {
            return Err(Failure::new(
                ErrorKind::Internal,
                "an object was found of a kind that is not known",
            ));
        };
        let guard = subject.cluster.guard(of).await?;
        let prior = item
            .prior
            .as_ref()
            .map(|prior| with_owner(prior.attributes.as_ref().clone(), owner));
        // What the project has made already is not taken over.
        let adopting = item.prior.is_none() && !self.is_shared(live);
        let ownership = Ownership {
            prior: prior.as_ref(),
            adopting,
            policy: self.runtime.options.conflicts,
        };
        let sent = Value::Object(body.clone());
        match dry_run::ask(&subject.cluster, of, &subject.name, sent, &ownership).await {
            Ok(answered) => {
                let environment = subject.cluster.environment().await?;
                let sides = Sides {
                    prior: prior.as_ref(),
                    desired: &body,
                    live,
                    becomes: &answered.answer.value,
                    admission: environment.may_mutate(&of.group, &of.plural),
                };
                let mut changes = change::changes(&sides, &self.runtime.secrets);
                changes.retain(|change| !self.is_ignored(&change.path));
                let adopting = ownership.adopting;
                let blame = managers::blame_notes(live, &changes);
                let mut draft = self.answered(item, subject, &sides, (changes, adopting), &answered, &guard);
                draft.notes.extend(blame);
                Ok(draft)
            }
            Err(Refused::Conflicts(conflicts)) => Err(conflict(subject, &conflicts)),
            Err(Refused::Api(error)) => match triage::cause(&error) {
                Cause::Immutable(paths) => self.replace(item, subject, &body, live, paths).await,
                Cause::NoDryRun => {
                    let mut draft = self.undecided(item, subject, &body, live);
                    draft.notes.push(format!("not checked by the server: {error}"));
                    Ok(draft)
                }
                _ => Err(subject.refusal(&error)),
            },
        }
    }

    /// At paths that are not compared what is sent is what is there, so that nothing comes of it, whoever owns it.
    pub(in crate::runtime::kubernetes::plan) fn left_alone(
        &self,
        body: Map<String, Value>,
        live: &Value,
    ) -> Map<String, Value> {
        let mut body = Value::Object(body);
        for path in &self.scope.ignore {
            if diff::at(&body, path).is_none() {
                continue;
            }
            match (diff::at(live, path), change::member(&mut body, path)) {
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

    fn is_ignored(&self, path: &str) -> bool {
        let within = |ignored: &String| {
            path.strip_prefix(ignored.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.scope.ignore.iter().any(within)
    }

    fn answered(
        &self,
        item: &Item,
        subject: &Subject,
        sides: &Sides<'_>,
        (changes, adopting): (Vec<Change>, bool),
        answered: &Answered,
        guard: &str,
    ) -> Draft {
        if changes.is_empty() && !adopting {
            let mut draft = unchanged(self.record(item, subject, sides.desired, Some(sides.live), guard));
            draft.notes.clone_from(&answered.notes);
            return draft;
        }
        let mut draft = Draft::new(if adopting { Action::Adopt } else { Action::Update });
        draft.changes = changes;
        draft.validated = Validation::Server;
        draft.notes.clone_from(&answered.notes);
        draft.notes.extend(rollout::impact(sides.live, sides.becomes));
        draft.notes.extend(answered.answer.warnings.iter().cloned());
        draft.recorded = self.record(item, subject, sides.desired, Some(sides.live), "");
        draft.expected = Some(after_update(sides.becomes.clone()));
        draft.private = json!({"body": answered.body, "force": answered.force});
        Seen::keep(sides.live, &mut draft.private);
        if adopting {
            let version = sides.becomes["apiVersion"].as_str().unwrap_or_default();
            draft.private["ours"] = json!(fields::ours(sides.becomes, version));
        }
        draft
    }

    /// What can be said without the server: what is there, with what is wanted laid over it.
    fn undecided(&self, item: &Item, subject: &Subject, body: &Map<String, Value>, live: &Value) -> Draft {
        let shown = change::shown(live, &self.runtime.secrets);
        let wanted = Value::Object(mask_object(&self.runtime.secrets, body).into_owned());
        let becomes = change::overlay(&shown, &wanted, "");
        let changes: Vec<_> = diff::differences(&shown, &becomes)
            .into_iter()
            .map(|d| Change {
                path: d.path,
                from: d.from,
                to: d.to,
                origin: Origin::Change,
            })
            .collect();
        let is_known = |change: &Change| change.to.as_ref().is_none_or(|to| !value::holds_unknown(to));
        let action = match item.prior {
            None => Action::Adopt,
            Some(_) if changes.iter().any(is_known) => Action::Update,
            Some(_) => Action::Unknown,
        };
        let mut draft = Draft::new(action);
        draft.changes = changes;
        draft.recorded = self.record(item, subject, body, Some(live), "");
        let laid_over = change::overlay(live, &Value::Object(body.clone()), "");
        draft.expected = Some(after_update(laid_over));
        draft.private = json!({"body": body, "force": item.prior.is_none()});
        Seen::keep(live, &mut draft.private);
        draft
    }

    /// Some field can not be changed in place: the object is deleted and made anew. The server checks the new one under
    /// a name of its own.
    async fn replace(
        &self,
        item: &Item,
        subject: &Subject,
        body: &Map<String, Value>,
        live: &Value,
        paths: Vec<String>,
    ) -> Result<Draft, Failure> {
        check_protected(subject, live, "replaced")?;
        let mut draft = self.undecided(item, subject, body, live);
        draft.action = Action::Replace;
        draft.replace = paths;
        draft
            .notes
            .push("it is deleted, and made anew when it is gone".to_owned());
        if let Some(loss) = triage::loses_data(live) {
            draft.data_loss = true;
            draft.notes.push(loss.to_owned());
        }
        let body = Value::Object(body.clone());
        draft.expected = Some(expected(body.clone(), &body));
        draft.private["force"] = json!(false);
        let Some(of) = &subject.of else { return Ok(draft) };
        let mut name = subject.name.clone();
        name.name = scratch_name(&body);
        let mut scratch = body;
        scratch["metadata"]["name"] = json!(name.name);
        match subject
            .cluster
            .api
            .call(&dry_run::request(of, &name, &scratch, false, true))
            .await
        {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.extend(answer.warnings);
            }
            Err(error) if triage::cause(&error) == Cause::Invalid => return Err(subject.refusal(&error)),
            Err(error) => draft
                .notes
                .push(format!("the new one was not checked by the server: {error}")),
        }
        Ok(draft)
    }
}

/// Nothing would come of it.
pub(in crate::runtime::kubernetes::plan) fn unchanged(recorded: Option<Recorded>) -> Draft {
    let mut draft = Draft::new(Action::Unchanged);
    draft.validated = Validation::Server;
    draft.recorded = recorded;
    draft
}

/// What references may read after an update: all of it but what moves by itself.
fn after_update(mut becomes: Value) -> Value {
    if let Some(metadata) = becomes["metadata"].as_object_mut() {
        metadata.shift_remove("managedFields");
        for key in ["resourceVersion", "generation"] {
            metadata.insert(key.to_owned(), value::unknown());
        }
    }
    becomes["status"] = value::unknown();
    becomes
}

fn conflict(subject: &Subject, conflicts: &[(String, String)]) -> Failure {
    let owned = |(path, owner): &(String, String)| format!("`{path}` (owned by `{}`)", owner.escape_debug());
    let fields: Vec<_> = conflicts.iter().map(owned).collect();
    Failure::new(
        ErrorKind::Policy,
        format!(
            "{}: other field managers own what the Spec wants to set: {}",
            subject.title(),
            fields.join(", ")
        ),
    )
    .hint("take the field out of the Spec, or say `apply.conflicts: take` (or `leave`) in `konverge.yaml`")
}
