//! Applies or rolls back the stacks of the current wave, and records their outcomes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use super::{driver::RolloutDriver, wave_approver::WaveApprover};
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        apply_result::{ApplyReport, StackResult, WaitReason},
        rollout::RolloutRecord,
    },
    sync::lock,
};
use konverge_rollout::RolloutWait;
use konverge_run::{
    Target,
    apply::{self, ApplyOptions, EndedRun},
    stack_order::StackOrder,
};
use konverge_state::StoredRollout;

impl RolloutDriver<'_> {
    /// Applies stacks of the wave. Returns true if the rollout may have a next step now.
    pub(super) async fn apply(
        &mut self,
        stored: &StoredRollout,
        stacks: &BTreeSet<StackId>,
        at_once: usize,
    ) -> Result<bool, UserError> {
        let record = &stored.record;
        let (targets, why) = self.applicable(record, stacks, at_once)?;
        if targets.is_empty() {
            self.wait_for_wave(why);
            return Ok(false);
        }
        let carried = self.carried(&record.commit);
        let approver = Arc::new(WaveApprover {
            inner: Arc::clone(&carried.options.approver),
            backend: self.backend.clone(),
            rollout: self.rollout.name.clone(),
            number: stored.number,
            approved: record.approved_now(),
            moved: Mutex::default(),
            changed: Mutex::default(),
        });
        let options = ApplyOptions {
            approver: approver.clone(),
            ..carried.options.clone()
        };
        let EndedRun { report, decisions } = apply::run(carried.planning, &targets, &options).await?;
        self.decisions.extend(decisions);
        self.record_outcomes(record, report, &approver).await
    }

    /// Returns the stacks that this job may apply now, and why it may not apply the others. Every job chooses the same
    /// stacks and applies those of its own environment, so that at most `at_once` stacks run, however many jobs there
    /// are.
    fn applicable(
        &self,
        record: &RolloutRecord,
        stacks: &BTreeSet<StackId>,
        at_once: usize,
    ) -> Result<(Vec<Target>, String), UserError> {
        let carried = self.carried(&record.commit);
        let order = StackOrder::for_apply(self.config, carried.pending)?;
        let is_done = |id: &StackId| self.succeeded.contains(id) || self.had.get(id) == Some(&record.commit);
        let (chosen, blocked) = first_in_order(&order, stacks, is_done, at_once);
        let targets = carried
            .pending
            .iter()
            .filter(|target| chosen.contains(&target.id));
        let targets: Vec<_> = targets
            .filter(|target| self.job.scope.covers(target))
            .cloned()
            .collect();
        let why = blocked.filter(|_| chosen.is_empty());
        Ok((
            targets,
            why.unwrap_or_else(|| "another job applies its stacks".to_owned()),
        ))
    }

    /// Records the outcomes of an apply. Returns true if the rollout may have a next step now.
    async fn record_outcomes(
        &mut self,
        record: &RolloutRecord,
        mut report: ApplyReport,
        approver: &WaveApprover,
    ) -> Result<bool, UserError> {
        let newer = match &self.older {
            Some(older) if older.commit == record.commit => older.newer.take_out_of(&mut report),
            _ => BTreeMap::new(),
        };
        let mut goes_on = !newer.is_empty();
        self.had
            .extend(newer.into_keys().map(|id| (id, record.commit.clone())));
        let (moved, changed) = (lock(&approver.moved).clone(), lock(&approver.changed).clone());
        for outcome in report.stacks {
            let id = outcome.id.clone();
            // These stacks were not tried, so the next record decides about them.
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
                // The stack was not changed, or it waits. The next run continues with it.
                _ => {}
            }
            self.outcomes.insert(id, outcome);
        }
        // A plan that differs from the approved one takes the rollout back to its gate.
        goes_on |= !changed.is_empty();
        self.changed.extend(changed);
        // Another run has written a record. Only the newest record decides what may be applied now.
        if !moved.is_empty() {
            self.read_newest(Some(record)).await?;
            return Ok(true);
        }
        if !goes_on {
            self.wait_for_wave(format!("{} is not applied yet", record.wave_title()));
        }
        Ok(goes_on)
    }

    pub(super) fn wait_for_wave(&mut self, why: String) {
        self.wait = Some(RolloutWait {
            reason: WaitReason::Wave,
            until: None,
            why,
        });
    }
}

/// Returns the first `at_once` stacks in the order of `after`, and why the next one must wait. A stack is chosen if all
/// stacks before it are done or chosen, too.
fn first_in_order(
    order: &StackOrder,
    stacks: &BTreeSet<StackId>,
    is_done: impl Fn(&StackId) -> bool,
    at_once: usize,
) -> (BTreeSet<StackId>, Option<String>) {
    let levels = order.waves();
    let mut sorted: Vec<_> = stacks.iter().collect();
    sorted.sort_by_key(|id| (levels.get(*id), *id));
    let mut chosen = BTreeSet::new();
    let mut blocked = None;
    for id in sorted {
        let first = order
            .before(id)
            .find(|first| !chosen.contains(*first) && !is_done(first));
        match first {
            Some(first) => {
                blocked.get_or_insert_with(|| format!("{first} must be applied before {id} and is pending"));
            }
            None if chosen.len() < at_once => {
                chosen.insert(id.clone());
            }
            None => {}
        }
    }
    (chosen, blocked)
}

#[cfg(test)]
mod tests {
    use konverge_base::model::RepoPath;
    use konverge_config::Config;

    use super::*;

    #[test]
    fn a_number_at_once_is_taken_in_the_order_of_after() {
        let target = |name: &str| {
            let folder = RepoPath::normalize(&format!("appops/{name}/prod")).unwrap();
            Target::forgotten(format!("{name}/prod").parse().unwrap(), folder)
        };
        let all = ["a", "b", "c", "free"].map(target);
        let rules =
            "stacks: [{match: 'a/prod', after: ['b/prod']}, {match: 'c/prod', after: ['free/prod']}]\n";
        let order = StackOrder::build(&Config::parse(rules).unwrap(), &all).unwrap();
        let chosen = |left: &[&str], done: &[&str], at_once| {
            let ids = |names: &[&str]| -> BTreeSet<StackId> {
                names
                    .iter()
                    .map(|name| format!("{name}/prod").parse().unwrap())
                    .collect()
            };
            let done = ids(done);
            let (chosen, why) = first_in_order(&order, &ids(left), |id| done.contains(id), at_once);
            let chosen: Vec<_> = chosen.iter().map(StackId::as_str).collect();
            (chosen.join(" "), why)
        };
        assert_eq!(chosen(&["a", "b"], &[], 1).0, "b/prod");
        assert_eq!(chosen(&["a"], &["b"], 1).0, "a/prod");
        assert_eq!(chosen(&["a", "b"], &[], 2).0, "a/prod b/prod");
        // What is blocked from outside of the wave takes no place.
        let says = "free/prod must be applied before c/prod and is pending";
        assert_eq!(
            chosen(&["b", "c"], &[], 2),
            ("b/prod".to_owned(), Some(says.to_owned()))
        );
        assert_eq!(chosen(&["b", "c"], &["free"], 2).0, "b/prod c/prod");
    }
}
