//! Finds unchanged objects without requests. The proofs of [`noop_detection`] run on all cores, because they
//! are most of the work in a large stack.

use std::{borrow::Cow, collections::HashMap, num::NonZero, sync::Arc, thread};

use super::object_planner::{ObjectPlanner, TrueDesired, sent, unchanged, without_owner};
use crate::{
    FIELD_MANAGER, OWNER,
    api::{json_ref::JsonRef, noop_guard::Guard},
    object::{
        controller_values,
        crd_validation::Check,
        fetch::RawObject,
        noop_detection::{self, AppliedFingerprint},
        object_record::ObjectRecord,
        object_ref,
        plan_item::PlanItem,
    },
};
use konverge_base::{
    error::UserError,
    model::{Digest, GroupKind, state::Recorded},
};
use konverge_engine::runtime::{Item, PlannedResource};
use konverge_secrets::{mask_object_at, mask_secret_data_at};

/// The minimum number of tasks per thread.
const WORTH_A_THREAD: usize = 100;

/// Queries the guards of objects that the stack has applied. All objects of a type share them, and in each
/// namespace if that matters.
async fn add_guards(tasks: &mut [PlanTask]) -> Result<(), UserError> {
    let mut known: HashMap<_, Arc<Guard>> = HashMap::new();
    for PlanTask {
        item,
        subject,
        raw,
        guard,
        ..
    } in tasks
    {
        let (Some(of), Some(_), Some(_)) = (&subject.of, raw, &item.prior) else {
            continue;
        };
        let (cluster, namespace) = (&subject.cluster, subject.name.namespace());
        let by_namespace = cluster.is_by_namespace(of).await?;
        let key = (&cluster.api.name, of, namespace.filter(|_| by_namespace));
        let found = match known.get(&key) {
            Some(found) => Arc::clone(found),
            None => Arc::new(cluster.guard(of, namespace).await?),
        };
        *guard = Some(Arc::clone(known.entry(key).or_insert(found)));
    }
    Ok(())
}

impl ObjectPlanner<'_> {
    /// Tries to prove each task unchanged; the others stay open. The results have the order of the tasks.
    pub(super) async fn prove_all(&self, mut tasks: Vec<PlanTask>) -> Result<Vec<Proof>, UserError> {
        add_guards(&mut tasks).await?;
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let share = tasks.len().div_ceil(cores).max(WORTH_A_THREAD);
        if tasks.len() <= share {
            return tasks.into_iter().map(|task| self.prove(task)).collect();
        }
        let mut tasks = tasks.into_iter();
        let shares = std::iter::from_fn(|| {
            let share: Vec<PlanTask> = tasks.by_ref().take(share).collect();
            (!share.is_empty()).then_some(share)
        });
        let prove = |share: Vec<PlanTask>| -> Result<Vec<Proof>, UserError> {
            share.into_iter().map(|task| self.prove(task)).collect()
        };
        thread::scope(|scope| {
            let threads: Vec<_> = shares.map(|share| scope.spawn(move || prove(share))).collect();
            let mut proofs = Vec::new();
            for thread in threads {
                let proven = thread.join();
                proofs.extend(proven.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
            }
            Ok(proofs)
        })
    }

    fn prove(&self, mut task: PlanTask) -> Result<Proof, UserError> {
        // A live Job proves nothing about a hook, whose recorded runs decide. A live object in a Namespace or
        // definition that is being deleted proves nothing either.
        let is_hook = self.scope.hooks.contains_key(&task.item.id);
        let is_ending = || self.ending.around(&task.subject, task.raw.is_some()).is_some();
        if is_hook || is_ending() || self.may_be_refused(&task)? {
            return Ok(Proof::Open(Box::new(task)));
        }
        let Some((recorded, truth)) = self.prove_noop(&mut task)? else {
            return Ok(Proof::Open(Box::new(task)));
        };
        let mut draft = unchanged(Some(recorded), truth);
        // To save memory in large stacks, only objects that other resources read, and Secrets, are parsed.
        let is_read =
            self.scope.read.contains(&task.item.id) || task.subject.name.group_kind() == GroupKind::SECRET;
        if let Some(raw) = task.raw.filter(|_| is_read) {
            draft.expected = Some(raw.read(&task.subject.cluster)?);
        }
        let planned = self.finish(task.item, &task.subject, draft);
        Ok(Proof::Unchanged(task.place, Box::new(planned)))
    }

    /// Returns true if the plan changes the CRD of an object's kind, and the new schema rejects the object.
    fn may_be_refused(&self, task: &PlanTask) -> Result<bool, UserError> {
        let (Some(definition), Some(raw), Some(desired)) =
            (self.definition(&task.subject), &task.raw, &task.item.desired)
        else {
            return Ok(false);
        };
        let live = raw.read(&task.subject.cluster)?;
        let check = definition.check(&desired.attributes, Some(&live));
        Ok(!matches!(check, Check::Fits | Check::NoSchema))
    }

    /// Returns the record of an object if applying the object provably changes nothing, and its attributes
    /// for policy rules, if they differ from the record. The desired object is then dropped, because it is
    /// not sent.
    fn prove_noop(&self, task: &mut PlanTask) -> Result<Option<(Recorded, TrueDesired)>, UserError> {
        let PlanTask {
            item,
            subject,
            raw,
            guard,
            ..
        } = task;
        let (Some(raw), Some(guard)) = (raw, guard.as_deref().filter(|guard| !guard.is_void())) else {
            return Ok(None);
        };
        // The proofs compare only entries of Konverge's own field manager, so another one needs the server.
        if self.runtime.options.field_manager != FIELD_MANAGER {
            return Ok(None);
        }
        let cluster = &subject.cluster.api.name;
        // A record from another cluster proves nothing about the object in this one.
        let is_here = |prior: &&Recorded| prior.cluster.as_ref().is_none_or(|there| there == cluster);
        let prior = item.prior.as_ref().filter(is_here);
        let record = prior.and_then(ObjectRecord::from_recorded).unwrap_or_default();
        let (echo, recorded_uid) = (record.echo, record.uid);
        let Some(live) = raw
            .parse()
            .filter(|live| self.is_ours(live) && !noop_detection::is_shared(live))
        else {
            return Ok(None);
        };
        // Under another guard, the server may set other defaults or mutate the object differently, so an old
        // proof is not valid.
        let same = guard.of_node(&live);
        let (Some(prior), Some(echo)) = (prior, echo.filter(|echo| echo.guard == same)) else {
            return Ok(None);
        };
        let Some(mut desired) = item.desired.take() else {
            return Ok(None);
        };
        let had_annotations = object_ref::has_annotations(&desired.attributes);
        // The usual object is exactly as recorded, and then needs no masked copy and no hash below.
        let as_recorded = *prior.attributes == desired.attributes && self.scope.ignore.is_empty();
        let mut body = sent(std::mem::take(&mut desired.attributes), self.scope.stack.as_str());
        let sent = if self.scope.ignore.is_empty() && !controller_values::may_be_filled(&body) {
            Cow::Borrowed(&body)
        } else {
            let live = raw.read(&subject.cluster)?;
            let (sent, _) = controller_values::give_up_filled(body.clone(), &live, FIELD_MANAGER);
            Cow::Owned(self.keep_ignored_paths(sent, &live))
        };
        let (secrets, places) = (&self.runtime.secrets, &subject.places);
        // The structural proof needs no copy of the live object, so it comes first.
        let holds = noop_detection::structural(&sent, &live) || {
            let live = raw.read(&subject.cluster)?;
            AppliedFingerprint::from_masked_apply(secrets, places, &sent, &live, &same).as_ref()
                == Some(&echo)
        };
        let is_same_object =
            recorded_uid.as_deref() == live.get("metadata").and_then(|m| Some(m.as_map()?.text("uid")));
        // The request would be equal to the last one, so the record is still valid. The UID must be equal as well: a
        // recreated object was never written by this stack.
        let stands = holds
            && is_same_object
            && (as_recorded || Digest::of_map(&mask_object_at(secrets, &sent, places)) == echo.desired);
        if stands {
            let truth = (!as_recorded).then(|| {
                let attributes = without_owner(&sent, had_annotations);
                mask_secret_data_at(secrets, &attributes, places).into_owned()
            });
            let recorded = Recorded {
                id: item.id.clone(),
                cluster: Some(cluster.clone()),
                extensions: desired.extensions,
                sharing: desired.sharing,
                ..prior.clone()
            };
            return Ok(Some((recorded, truth)));
        }
        // The proof has taken the desired object apart. It is put together again for the dry-run.
        let sent = sent.into_owned();
        object_ref::remove_owner(&mut body, had_annotations);
        desired.attributes = body;
        item.desired = Some(desired);
        if !holds {
            return Ok(None);
        }
        let live = raw.read(&subject.cluster)?;
        let recorded = self.record(item, subject, &sent, Some(&live), Some(guard));
        Ok(recorded.map(|recorded| (recorded, self.true_desired(item, subject, &sent))))
    }

    /// Returns true if the object is not being deleted and belongs to no other stack.
    fn is_ours(&self, live: &JsonRef<'_>) -> bool {
        let metadata = |key: &str| live.get("metadata")?.get(key);
        let owner = metadata("annotations").and_then(|a| a.get(OWNER));
        metadata("deletionTimestamp").is_none()
            && owner.is_none_or(|owner| owner.text() == self.scope.stack.as_str())
    }
}

/// An item during planning.
pub(super) struct PlanTask {
    /// The index of the item in the call.
    pub place: usize,
    pub item: Item,
    pub subject: PlanItem,
    /// The live object.
    pub raw: Option<RawObject>,
    /// The guard of an applied object.
    pub guard: Option<Arc<Guard>>,
}

/// The result of the local proof.
pub(super) enum Proof {
    /// An apply would change nothing.
    Unchanged(usize, Box<PlannedResource>),
    /// There is no proof, so the server must decide.
    Open(Box<PlanTask>),
}
