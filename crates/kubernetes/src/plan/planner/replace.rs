//! Plans a change of immutable fields, for which the object is deleted and recreated.

use serde_json::{Map, Value};

use super::{
    super::object_planner::{DraftPlan, ObjectPlanner, check_protected},
    create::trial,
    server_generated::{self, after_create},
    update::shown,
};
use crate::{
    api::error_classify::{self, RefusalCause},
    object::{object_diff::DiffSides, plan_item::PlanItem, volume_expansion::Expansion},
    plan::dry_run,
};
use konverge_base::{
    error::{UserError, chain},
    model::{
        FieldPath, GroupKind, masked_value,
        object_rules::{self, MUTABLE_IN_STATEFUL_SET},
        plan::{Action, ChangeOrigin, FieldChange, Validation},
    },
};
use konverge_engine::runtime::Item;

impl ObjectPlanner<'_> {
    /// Plans the replacement. The server validates the new object under a temporary name.
    pub(super) async fn replace(
        &self,
        item: &Item,
        subject: &PlanItem,
        body: &Map<String, Value>,
        live: &Value,
        paths: Vec<FieldPath>,
    ) -> Result<DraftPlan, UserError> {
        check_protected(subject, live, "replaced")?;
        let mut draft = self.plan_without_server(item, subject, body, live, None);
        draft.action = Action::Replace;
        let mut around_pods = false;
        let asked = Value::Object(body.clone());
        draft.expected = Some(after_create(asked.clone(), &asked));
        draft.write.force = false;
        if let Some(of) = &subject.of {
            let (name, mut trial) = trial(subject, asked.clone());
            // The live object still uses its ports and addresses, which a second object may not have.
            server_generated::give_up_held(&mut trial, live);
            let request = dry_run::request(of, &name, &trial, false, true);
            match dry_run::send(&subject.cluster, of, &request, &item.needs).await {
                Ok(answer) => {
                    draft.validated = Validation::Server;
                    draft.notes.extend(answer.warnings);
                    let mark = |mut answer: Value| {
                        answer["metadata"]["name"] = asked["metadata"]["name"].clone();
                        server_generated::put_back_held(&mut answer, &asked);
                        server_generated::mark(&mut answer, &asked, None);
                        answer
                    };
                    let shown = shown(&answer.value).map(mark);
                    let becomes = mark(answer.value);
                    let prior = self.prior(item, live);
                    let sides = DiffSides {
                        prior: prior.as_ref(),
                        desired: body,
                        live,
                        becomes: &becomes,
                        shown: shown.as_ref().unwrap_or(&becomes),
                        admission: self.may_mutate(subject, of).await?,
                        places: &subject.places,
                        manager: self.runtime.options.field_manager,
                    };
                    draft.changes = self.changes(&sides);
                    draft.truth = self.truth(item, subject, &sides);
                    // Values that the server and others added disappear with the old object.
                    draft.changes.retain(|change| !is_left_behind(subject, change));
                    around_pods = self.expand(subject, &mut draft, live, &becomes).await;
                }
                Err(error) if error_classify::cause(&error) == RefusalCause::Invalid => {
                    return Err(subject.refusal_of(&error, &trial, None));
                }
                Err(error) => draft.notes.push(format!(
                    "the new object was not checked by the server: {}",
                    chain(&error)
                )),
            }
        }
        draft.replace = forced_by(subject, paths, &draft.changes);
        if !around_pods {
            let notes = std::mem::take(&mut draft.notes);
            if let Some(loss) = object_rules::data_loss(live) {
                draft.data_loss = true;
                draft.notes.push(loss.to_owned());
            }
            draft
                .notes
                .push("recreated after deletion; expect downtime".to_owned());
            draft.notes.extend(notes);
        }
        Ok(draft)
    }

    /// Returns true if the set is recreated without its pods: only its volumes grow, and the server accepts
    /// that.
    async fn expand(&self, subject: &PlanItem, draft: &mut DraftPlan, live: &Value, becomes: &Value) -> bool {
        let is_set = subject.name.group_kind() == GroupKind::STATEFUL_SET;
        let forcing = forced_by(subject, vec!["/spec".into()], &draft.changes);
        if !is_set || forcing != ["/spec/volumeClaimTemplates"] {
            return false;
        }
        let Some(expansion) = Expansion::between(live, becomes) else {
            return false;
        };
        match expansion.carry_out(&subject.cluster, true).await {
            Ok(claims) => {
                let first = if claims.is_empty() {
                    "its volume claims are large enough".to_owned()
                } else {
                    format!("its volume claims are expanded first ({})", claims.join(", "))
                };
                draft.notes.push(format!(
                    "{first}; then it is recreated around its pods, which keep running, as do the volumes"
                ));
                draft.write.expansion = Some(expansion);
                true
            }
            Err(error) => {
                draft.notes.push(format!(
                    "its volumes cannot be expanded in place: {}",
                    chain(&error)
                ));
                false
            }
        }
    }
}

fn is_left_behind(subject: &PlanItem, change: &FieldChange) -> bool {
    let is_ours = !matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
    // Every Job has its own UID in its selector and in its pods' labels.
    let is_job = subject.name.group_kind() == GroupKind::JOB;
    let is_uid = is_job && change.to.as_ref().is_some_and(masked_value::is_unknown);
    !is_ours && (change.to.is_none() || is_uid)
}

/// Returns the paths that force the replacement. For a StatefulSet the server names only `spec`, so the
/// changes in it are used.
fn forced_by(subject: &PlanItem, paths: Vec<FieldPath>, changes: &[FieldChange]) -> Vec<FieldPath> {
    if subject.name.group_kind() != GroupKind::STATEFUL_SET || paths != ["/spec"] {
        return paths;
    }
    let is_forcing = |path: &&FieldPath| {
        let field = path
            .as_str()
            .strip_prefix("/spec/")
            .and_then(|rest| rest.split('/').next());
        field.is_some_and(|field| !MUTABLE_IN_STATEFUL_SET.contains(&field))
    };
    let changed = changes.iter().map(|change| &change.path);
    let forcing: Vec<_> = changed.filter(is_forcing).cloned().collect();
    if forcing.is_empty() { paths } else { forcing }
}
