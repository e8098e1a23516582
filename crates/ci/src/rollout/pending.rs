//! The pending stacks of a rollout: those with which it begins, without those that another run has applied since.

use std::collections::{BTreeMap, BTreeSet};

use super::{carried_commit::CarriedCommit, driver::RolloutDriver};
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        rollout::{RolloutRecord, RolloutStack},
    },
};
use konverge_policy::rollout::{ChangedStack, RolloutStart, begin};
use konverge_run::Target;

impl RolloutDriver<'_> {
    /// Starts a rollout of the head, if the head changes stacks. Returns true if there is a new record.
    pub(super) async fn begin(&mut self) -> Result<bool, UserError> {
        if self.pending.is_empty() {
            return Ok(false);
        }
        let known = self.backend.states.known().await?;
        // The record is newer than at the start of the run, so another run may have applied some of the listed stacks.
        // Without this check a second rollout would begin with them.
        let is_old = self.stored.as_ref().map_or(0, |stored| stored.number) != self.first;
        let mut changed = BTreeMap::new();
        for (wave, target) in self.pending {
            if self.had.get(&target.id) == Some(self.head.commit) {
                continue;
            }
            // The index was read at the start, so it lacks the serials of stacks that this run has applied.
            let own = self.outcomes.get(&target.id).and_then(|outcome| outcome.serial);
            if is_old && self.has_commit(self.head, target).await? {
                self.had.insert(target.id.clone(), self.head.commit.clone());
                continue;
            }
            let serial = own.or_else(|| known.entries.get(&target.id).map(|entry| entry.serial));
            let stack = RolloutStack {
                folder: target.folder().clone(),
                input: self.head.planning.input_digest(target)?,
                before: serial.filter(|serial| *serial > 0),
            };
            changed.insert(target.id.clone(), ChangedStack { wave: *wave, stack });
        }
        let matcher = self.config.rollout_matcher();
        let wave_of = |_: &StackId, stack: &RolloutStack| match matcher.wave_of(&stack.folder) {
            Ok(Some((name, wave))) if name == self.rollout.name => Some(wave),
            _ => None,
        };
        let start = RolloutStart {
            name: &self.rollout.name,
            commit: self.head.commit,
            rules: &self.rules,
            changed: &changed,
            prior: self.stored.as_ref().map(|stored| &stored.record),
            now: self.now(),
        };
        match begin(&start, wave_of) {
            Some(record) => self.write(record).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns true if a commit has been applied to a stack by now.
    async fn has_commit(&self, carried: CarriedCommit<'_>, target: &Target) -> Result<bool, UserError> {
        let wanted = carried.planning.input_digest(target)?;
        let Some(now) = self.backend.states.load(&target.id).await? else {
            return Ok(false);
        };
        Ok(match wanted {
            Some(wanted) => now.state.input_digest == Some(wanted) && !now.was_interrupted(),
            None => now.retired,
        })
    }

    /// Returns the stacks of a rollout to which its commit has not been applied.
    pub(super) async fn pending_of(
        &mut self,
        record: &RolloutRecord,
    ) -> Result<BTreeSet<StackId>, UserError> {
        self.look_up_applied(record).await?;
        let commit = &record.commit;
        let pending = self.carried(commit).pending.iter().map(|target| &target.id);
        let is_of_it = |id: &&StackId| record.waves.iter().any(|wave| wave.contains_key(*id));
        let pending = pending.filter(|id| is_of_it(id) && self.had.get(*id) != Some(commit));
        Ok(pending.cloned().collect())
    }

    /// If another run wrote the record, reads from the states which pending stacks it has applied. All waves that have
    /// begun are read, because the rollout may go back to an earlier one.
    async fn look_up_applied(&mut self, record: &RolloutRecord) -> Result<(), UserError> {
        let number = self.stored.as_ref().map_or(0, |stored| stored.number);
        let is_own = self.wrote.is_some_and(|(wrote, _)| wrote == number);
        if is_own || std::mem::replace(&mut self.looked_up, number) == number {
            return Ok(());
        }
        let carried = self.carried(&record.commit);
        let begun: BTreeSet<_> = record.begun_stacks().map(|(id, _)| id).collect();
        let mut applied = Vec::new();
        for target in carried.pending.iter().filter(|target| begun.contains(&target.id)) {
            let is_known = self.had.get(&target.id) == Some(&record.commit);
            if !is_known && self.has_commit(carried, target).await? {
                applied.push(target.id.clone());
            }
        }
        let commit = |id| (id, record.commit.clone());
        self.had.extend(applied.into_iter().map(commit));
        Ok(())
    }
}
