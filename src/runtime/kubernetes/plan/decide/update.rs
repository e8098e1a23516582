//! What is there already: unchanged if that can be proven, else what the server says.

use serde_json::{Map, Value, json};

use super::{
    Draft, Planner, Subject,
    defined::is_of_schema,
    invented::{self, after_update},
    with_owner,
};
use crate::{
    error::{ErrorKind, Failure},
    model::{
        diff,
        plan::{Action, Change, Validation},
        state::Recorded,
        value,
    },
    runtime::{
        Item,
        kubernetes::{
            change::{self, Sides},
            discovery::ResourceType,
            dry_run::{self, Answered, Ownership, Refused},
            fields,
            guard::Guard,
            managers, rollout,
            seen::Seen,
            triage::{self, Cause},
        },
    },
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
        let definition = self.defined(subject, &body, Some(live))?;
        if body.values().any(value::holds_unknown) {
            return Ok(self.undecided(item, subject, &body, live));
        }
        let (Some(of), definition) = (&subject.of, definition) else {
            return match definition {
                Some(definition) => Ok(self.update_later(item, subject, definition, &body, live)),
                None => Err(Failure::new(
                    ErrorKind::Internal,
                    "an object was found of a kind that is not known",
                )),
            };
        };
        let guard = subject.cluster.guard(of, subject.name.namespace()).await?;
        let prior = self.prior(item, owner);
        // What the project has made already is not taken over.
        let adopting = item.prior.is_none() && !self.is_shared(live);
        let ownership = Ownership {
            prior: prior.as_ref(),
            adopting,
            policy: self.runtime.options.conflicts,
        };
        let sent = Value::Object(body.clone());
        let asked = dry_run::ask(&subject.cluster, of, &subject.name, sent, &ownership, &item.needs);
        match asked.await {
            Ok(answered) => {
                let mut becomes = answered.answer.value.clone();
                invented::mark(&mut becomes, &answered.body, Some(live));
                let sides = Sides {
                    prior: prior.as_ref(),
                    desired: &body,
                    live,
                    becomes: &becomes,
                    admission: self.may_mutate(subject, of).await?,
                };
                let changes = self.changes(&sides);
                let blame = managers::blame_notes(live, &changes);
                let unchanged = changes.is_empty() && !adopting;
                let Some(definition) = definition.filter(|_| !unchanged) else {
                    let changes = (changes, adopting);
                    let mut draft = self.answered(item, subject, &sides, changes, &answered, &guard);
                    draft.notes.extend(blame);
                    return Ok(draft);
                };
                let mut defaulted = becomes.clone();
                definition.set_defaults(&mut defaulted);
                let sides = Sides {
                    becomes: &defaulted,
                    ..sides
                };
                let changes = self.changes(&sides);
                let mut draft = self.answered(item, subject, &sides, (changes, adopting), &answered, &guard);
                draft.notes.extend(blame);
                self.judged_by(definition, &mut draft);
                draft.provisional = true;
                Ok(draft)
            }
            Err(Refused::Conflicts(conflicts)) => Err(conflict(subject, &conflicts)),
            Err(Refused::Api(error)) => match (triage::cause(&error), definition) {
                (_, Some(definition)) if is_of_schema(&error) => {
                    Ok(self.update_later(item, subject, definition, &body, live))
                }
                (Cause::Immutable(paths), _) => self.replace(item, subject, &body, live, paths).await,
                (Cause::NoDryRun, _) => {
                    let mut draft = self.undecided(item, subject, &body, live);
                    draft.notes.push(format!("not checked by the server: {error}"));
                    Ok(draft)
                }
                _ => match self.lifted_by(item, &error) {
                    none if none.is_empty() => Err(subject.refusal(&error)),
                    lifted_by => {
                        let mut draft = self.undecided(item, subject, &body, live);
                        self.not_validated_yet(subject, &mut draft, &error, lifted_by);
                        draft.provisional = true;
                        Ok(draft)
                    }
                },
            },
        }
    }

    /// As last applied, with its owner; secrets masked.
    pub(super) fn prior(&self, item: &Item, owner: &str) -> Option<Map<String, Value>> {
        let prior = item.prior.as_ref();
        prior.map(|prior| with_owner(prior.attributes.as_ref().clone(), owner))
    }

    pub(super) async fn may_mutate(&self, subject: &Subject, of: &ResourceType) -> Result<bool, Failure> {
        let environment = subject.cluster.environment().await?;
        Ok(environment.may_mutate(&of.group, &of.plural))
    }

    /// The changes, without those at paths that are not compared.
    pub(super) fn changes(&self, sides: &Sides<'_>) -> Vec<Change> {
        let mut changes = change::changes(sides, &self.runtime.secrets);
        changes.retain(|change| !self.is_ignored(&change.path));
        changes
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
        guard: &Guard,
    ) -> Draft {
        if changes.is_empty() && !adopting {
            let mut draft =
                unchanged(self.record(item, subject, sides.desired, Some(sides.live), Some(guard)));
            draft.notes.clone_from(&answered.notes);
            return draft;
        }
        let mut draft = Draft::new(if adopting { Action::Adopt } else { Action::Update });
        draft.changes = changes;
        draft.validated = Validation::Server;
        draft.notes.clone_from(&answered.notes);
        draft.notes.extend(rollout::impact(sides.live, sides.becomes));
        draft.notes.extend(answered.answer.warnings.iter().cloned());
        draft.recorded = self.record(item, subject, sides.desired, Some(sides.live), None);
        draft.expected = Some(after_update(sides.becomes.clone()));
        draft.private = json!({"body": answered.body, "force": answered.force});
        Seen::keep(sides.live, &mut draft.private);
        if adopting {
            let version = sides.becomes["apiVersion"].as_str().unwrap_or_default();
            draft.private["ours"] = json!(fields::ours(sides.becomes, version));
        }
        draft
    }

    /// What can be said without the server: what is wanted takes the place of what is there.
    pub(super) fn undecided(
        &self,
        item: &Item,
        subject: &Subject,
        body: &Map<String, Value>,
        live: &Value,
    ) -> Draft {
        self.undecided_by(item, subject, body, live, &|_| {})
    }

    /// As [`Planner::undecided`]; `fill_in` adds what the server will add.
    pub(super) fn undecided_by(
        &self,
        item: &Item,
        subject: &Subject,
        body: &Map<String, Value>,
        live: &Value,
        fill_in: &dyn Fn(&mut Value),
    ) -> Draft {
        let prior = self.prior(item, self.owner(live)).map(Value::Object);
        let mut becomes = change::merged(live, prior.as_ref(), &Value::Object(body.clone()), "");
        fill_in(&mut becomes);
        let changes = self.changes(&Sides {
            prior: prior.as_ref().and_then(Value::as_object),
            desired: body,
            live,
            becomes: &becomes,
            admission: false,
        });
        let is_known = |change: &Change| change.to.as_ref().is_none_or(|to| !value::holds_unknown(to));
        let action = match item.prior {
            None => Action::Adopt,
            Some(_) if changes.iter().any(is_known) => Action::Update,
            Some(_) => Action::Unknown,
        };
        let mut draft = Draft::new(action);
        draft.changes = changes;
        draft.recorded = self.record(item, subject, body, Some(live), None);
        draft.expected = Some(after_update(becomes));
        draft.private = json!({"body": body, "force": item.prior.is_none()});
        Seen::keep(live, &mut draft.private);
        draft
    }
}

/// Nothing would come of it.
pub(in crate::runtime::kubernetes::plan) fn unchanged(recorded: Option<Recorded>) -> Draft {
    let mut draft = Draft::new(Action::Unchanged);
    draft.validated = Validation::Server;
    draft.recorded = recorded;
    draft
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
