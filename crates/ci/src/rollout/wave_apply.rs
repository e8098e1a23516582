//! Applies or rolls back stacks of the current wave, and takes over what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{driver::RolloutDriver, fence::RolloutFence, outcomes::RolloutWait, rollback::WaveRollback};
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        apply_result::{ApplyReport, StackResult, WaitReason},
        rollout::RolloutRecord,
    },
};
use konverge_run::{
    Target,
    apply::{self, ApplyOptions, EndedRun},
    stack_order::StackOrder,
};
use konverge_state::StoredRollout;

impl RolloutDriver<'_> {
    /// Applies stacks of the wave. Returns true if something came of it.
    pub(super) async fn apply(
        &mut self,
        stored: &StoredRollout,
        stacks: &BTreeSet<StackId>,
    ) -> Result<bool, UserError> {
        let record = &stored.record;
        let (targets, why) = self.applicable(record, stacks)?;
        if targets.is_empty() {
            self.wait = Some(RolloutWait {
                reason: WaitReason::Wave,
                until: None,
                why,
            });
            return Ok(false);
        }
        let lane = self.lane(&record.commit);
        let fence = Arc::new(RolloutFence {
            inner: Arc::clone(&lane.options.approver),
            backend: self.backend.clone(),
            rollout: self.rollout.name.clone(),
            number: stored.number,
            approved: record.approved_now(),
            moved: Mutex::default(),
            changed: Mutex::default(),
        });
        let options = ApplyOptions {
            newer: lane.options.newer.clone(),
            commit: lane.options.commit.clone(),
            pull_requests: lane.options.pull_requests.clone(),
            allow_empty: lane.options.allow_empty,
            ..ApplyOptions::new(fence.clone())
        };
        let EndedRun { report, decisions } = apply::run(lane.planning, &targets, &options).await?;
        self.decisions.extend(decisions);
        self.take(record, report, &fence).await
    }

    /// The stacks that this job may apply now, and why it may not apply the others.
    fn applicable(
        &self,
        record: &RolloutRecord,
        stacks: &BTreeSet<StackId>,
    ) -> Result<(Vec<Target>, String), UserError> {
        let lane = self.lane(&record.commit);
        let leaving = lane.pending.iter().filter(|target| target.head.is_none());
        let leaving: BTreeSet<_> = leaving.map(|target| target.id.clone()).collect();
        let order = StackOrder::build(self.config, lane.pending)?.taking_down(&leaving);
        let is_done = |id: &StackId| {
            stacks.contains(id) || self.succeeded.contains(id) || self.had.get(id) == Some(&record.commit)
        };
        let mut why = "another job applies its stacks".to_owned();
        let mut targets = Vec::new();
        for target in lane.pending.iter().filter(|target| stacks.contains(&target.id)) {
            let first = order.before(&target.id).find(|first| !is_done(first));
            match first {
                Some(first) => why = format!("{first} must be applied before {} and is pending", target.id),
                None if self.scope.covers(target) => targets.push(target.clone()),
                None => {}
            }
        }
        Ok((targets, why))
    }

    /// Takes over what an apply did. Returns true if something came of it.
    async fn take(
        &mut self,
        record: &RolloutRecord,
        mut report: ApplyReport,
        fence: &RolloutFence,
    ) -> Result<bool, UserError> {
        let newer = match &self.older {
            Some(older) if older.commit == record.commit => older.pending.newer.take_out_of(&mut report),
            _ => BTreeMap::new(),
        };
        let mut goes_on = !newer.is_empty();
        self.had
            .extend(newer.into_keys().map(|id| (id, record.commit.clone())));
        let (moved, changed) = (fence.moved(), fence.changed());
        for outcome in report.stacks {
            let id = outcome.id.clone();
            if moved.contains(&id) || changed.contains(&id) {
                continue;
            }
            let message = outcome.error.as_ref().map(|error| error.message.clone());
            match outcome.result {
                result if apply::has_succeeded(result) => {
                    self.had.insert(id.clone(), record.commit.clone());
                    goes_on = true;
                }
                StackResult::Failed => {
                    self.failed.insert(id.clone(), message.unwrap_or_default());
                    goes_on = true;
                }
                // Nothing of it was changed, or it waits: the next run takes it up.
                _ => {}
            }
            self.outcomes.insert(id, outcome);
        }
        goes_on |= !changed.is_empty();
        self.changed.extend(changed);
        if !moved.is_empty() {
            self.read_newest(Some(record)).await?;
            return Ok(true);
        }
        if !goes_on {
            self.wait = Some(RolloutWait {
                reason: WaitReason::Wave,
                until: None,
                why: format!("{} is not applied yet", record.wave_title()),
            });
        }
        Ok(goes_on)
    }

    pub(super) async fn roll_back(
        &mut self,
        stored: &StoredRollout,
        stacks: &BTreeSet<StackId>,
    ) -> Result<bool, UserError> {
        let rollback = WaveRollback {
            job: self.job,
            tip: self.tip,
            backend: self.backend,
            config: self.config,
            scope: self.scope,
            stored,
        };
        let (outcomes, decisions, failed) = rollback.run(stacks).await?;
        self.decisions.extend(decisions);
        let goes_on = !outcomes.is_empty() || !failed.is_empty();
        for outcome in outcomes {
            self.had.remove(&outcome.id);
            self.outcomes.insert(outcome.id.clone(), outcome);
        }
        self.failed.extend(failed);
        if !goes_on {
            self.wait = Some(RolloutWait {
                reason: WaitReason::Wave,
                until: None,
                why: "another job rolls its stacks back".to_owned(),
            });
        }
        Ok(goes_on)
    }
}
