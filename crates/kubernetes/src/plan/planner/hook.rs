//! Plans the Job of a hook: it runs, unless its run for this digest has already succeeded. The live Job of an
//! earlier run is not changed but recreated.

use serde_json::{Value, json};

use super::{
    super::object_planner::{DraftPlan, ObjectPlanner, check_protected, unchanged},
    create::trial,
};
use crate::{
    OWNER,
    object::{
        object_record::{HookRun, ObjectRecord},
        object_ref,
        plan_item::PlanItem,
    },
    plan::dry_run,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        hook::{HOOK_STAMP, HookTask},
        masked_value,
        plan::{Action, Validation},
        state::Recorded,
    },
};
use konverge_engine::runtime::Item;

/// Returns true if the record of a hook that runs later is unchanged.
fn is_same(prior: &Recorded, now: &Recorded) -> bool {
    (&now.attributes, &now.extensions) == (&prior.attributes, &prior.extensions)
}

impl ObjectPlanner<'_> {
    /// Plans the run of a hook. The Job gets the stamp of the run. A hook that runs when its stack is removed
    /// is only recorded; if it is new or changed, the plan shows that future run.
    pub(super) async fn hook(
        &self,
        item: &mut Item,
        subject: &PlanItem,
        live: Option<&Value>,
        task: &HookTask,
    ) -> Result<DraftPlan, UserError> {
        let last = HookRun::of(item.prior.as_ref());
        let is_done = |run: &HookRun| run.succeeded == Some(true) && task.is_done_by(&run.stamp);
        let kept = task
            .is_for_later()
            .then(|| self.kept_for_later(item, subject))
            .flatten();
        let is_unchanged = match &kept {
            Some(kept) => item.prior.as_ref().is_some_and(|prior| is_same(prior, kept)),
            None => !task.may_run || last.is_some_and(|(run, _)| is_done(&run)),
        };
        if is_unchanged {
            let body = self.body(item, self.scope.stack.as_str());
            let truth = self.true_desired(item, subject, &body);
            return Ok(unchanged(item.prior.clone(), truth));
        }
        if let Some(desired) = item.desired.as_mut().filter(|_| kept.is_none()) {
            object_ref::annotate(&mut desired.attributes, HOOK_STAMP, task.stamp());
        }
        let mut draft = match live {
            None => self.create(item, subject).await?,
            Some(live) => {
                self.check_replaceable(item, subject, live)?;
                let mut draft = self.create_later(item, subject);
                self.validate_job(item, subject, &mut draft).await?;
                draft
            }
        };
        draft.action = Action::Run;
        // The number of the apply is not shown, because reviews must not depend on it.
        let shown = draft.changes.iter_mut().filter_map(|change| change.to.as_mut());
        for object in shown.chain(&mut draft.truth.after).filter(|_| kept.is_none()) {
            object["metadata"]["annotations"][HOOK_STAMP] = json!(task.digest.to_string());
        }
        // The Job must exist until its end is recorded, so it gets no time to live yet.
        let body = draft.write.body.as_mut();
        if let Some(spec) = body.and_then(|body| body["spec"].as_object_mut()) {
            spec.shift_remove("ttlSecondsAfterFinished");
        }
        if kept.is_some() {
            draft.recorded = kept;
        }
        Ok(draft)
    }

    /// Returns the record of a hook that runs when its stack is removed, because its Spec is gone by then.
    fn kept_for_later(&self, item: &Item, subject: &PlanItem) -> Option<Recorded> {
        let body = self.body(item, self.scope.stack.as_str());
        let mut recorded = self.record(item, subject, &body, None, None)?;
        ObjectRecord::update(&mut recorded, |record| record.hook = Some(HookRun::not_due()));
        Some(recorded)
    }

    /// Checks that a live Job may be deleted for the next run.
    fn check_replaceable(&self, item: &Item, subject: &PlanItem, live: &Value) -> Result<(), UserError> {
        if let Some(foreign) = self.foreign(item, subject, live) {
            return Err(foreign.refusal);
        }
        if object_ref::annotation(live, OWNER).is_none() {
            let what = format!(
                "{} exists, and no stack owns it: a hook would delete it",
                subject.title()
            );
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint("give the hook another name, or delete that Job"));
        }
        check_protected(subject, live, "recreated")
    }

    /// Lets the server validate the Job under another name, because it would refuse a change of the live one.
    async fn validate_job(
        &self,
        item: &Item,
        subject: &PlanItem,
        draft: &mut DraftPlan,
    ) -> Result<(), UserError> {
        let (Some(of), Some(body)) = (&subject.of, &draft.write.body) else {
            return Ok(());
        };
        if masked_value::holds_unknown(body) {
            let note = "some values are known only after apply; the server checks the object then";
            draft.notes.push(note.to_owned());
            return Ok(());
        }
        let (name, body) = trial(subject, body.clone());
        let request = dry_run::request(of, &name, &body, false, true);
        match dry_run::send(&subject.cluster, of, &request, &item.needs).await {
            Ok(answer) => {
                draft.validated = Validation::Server;
                draft.notes.extend(answer.warnings);
                Ok(())
            }
            Err(error) => match self.lifted_by(item, &error) {
                none if none.is_empty() => Err(subject.refusal_of(&error, &body, None)),
                lifted_by => {
                    self.not_validated_yet(subject, draft, &error, lifted_by);
                    Ok(())
                }
            },
        }
    }
}
