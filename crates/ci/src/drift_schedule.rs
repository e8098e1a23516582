//! Schedules drift checks: selects the stacks that are due, and keeps the history of their checks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

use super::job::Job;
use konverge_base::model::{
    Digest, StackId, review,
    stack_look::{HealthCounts, StackLook},
};
use konverge_config::{Config, Span};
use konverge_run::{StateBackend, Target, drift::DriftReport};
use konverge_state::{DriftCheck, DriftHistory, KnownDrift};

/// The default age after which the last successful run is too old.
const STALE_AFTER: Span = Span::seconds(2 * 24 * 3600);

/// The drift history, with the time of this run.
pub(super) struct DriftSchedule {
    history: DriftHistory,
    now: Timestamp,
    stale_after: Duration,
}

impl DriftSchedule {
    /// Loads the history. If it is unreadable, the check starts a new one.
    pub(crate) async fn load(job: &Job, backend: &StateBackend, config: &Config) -> Self {
        let history = backend.states.drift_history().await.unwrap_or_else(|error| {
            job.run.warn("the drift history could not be read", error);
            DriftHistory::default()
        });
        Self {
            history,
            now: Timestamp::now(),
            stale_after: config.drift.stale_after.unwrap_or(STALE_AFTER).duration(),
        }
    }

    /// Returns at most `most` targets that are due, the least recently checked first.
    pub(crate) fn select_due(&self, mut targets: Vec<Target>, most: Option<u32>) -> Vec<Target> {
        targets.sort_by_cached_key(|target| (self.last_checked(&target.id), target.id.clone()));
        targets.truncate(most.map_or(usize::MAX, |most| most.max(1) as usize));
        targets
    }

    /// Returns the age of the last successful run, if it is too old.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        let since = self.time_since(self.history.good?);
        (since > self.stale_after).then_some(since)
    }

    /// Returns the stacks whose last check found a difference with one of these digests, each with the digest.
    pub(crate) fn stacks_with(&self, digests: &BTreeSet<Digest>) -> BTreeMap<StackId, Digest> {
        let known = self.history.stacks.iter();
        let known = known.filter_map(|(stack, check)| Some((stack, check.drift.as_ref()?.digest)));
        known
            .filter(|(_, digest)| digests.contains(digest))
            .map(|(stack, digest)| (stack.clone(), digest))
            .collect()
    }

    /// Records the results of a run, and the stacks that it restored.
    pub(crate) fn record_run(&mut self, checked: &DriftReport, restored: &[StackId], run: &str) {
        self.record_stacks(checked, restored, run);
        let plan = &checked.plan;
        // A run with a stack that cannot be compared is not successful. So the check becomes overdue if this goes on,
        // because nobody would see the drift of the stack.
        if plan.stacks.iter().all(|stack| stack.error.is_none()) {
            self.history.good = Some(self.now);
        }
    }

    /// Records the results of some stacks, and which of them were restored.
    pub(crate) fn record_stacks(&mut self, checked: &DriftReport, restored: &[StackId], run: &str) {
        self.now = Timestamp::now();
        for stack in &checked.plan.stacks {
            let known = self.history.stacks.remove(&stack.id);
            let (before, before_health, before_look) = known.map_or((None, None, None), |check| {
                (check.drift, check.health, check.look)
            });
            let seen = || KnownDrift {
                digest: stack.digest,
                since: before.as_ref().map_or(self.now, |seen| seen.since),
            };
            let drift = match (&stack.error, stack.summary.changed()) {
                // A failed check neither finds drift nor ends it, so the earlier finding stays.
                (Some(_), _) => before,
                (None, 0) => None,
                (None, _) if restored.contains(&stack.id) => None,
                (None, _) => Some(seen()),
            };
            let objects = checked.health.get(&stack.id).map_or(&[][..], Vec::as_slice);
            let units = match &drift {
                Some(_) => review::stack_units(stack),
                None => Vec::new(),
            };
            let (health, look) = match &stack.error {
                Some(_) => (before_health, before_look),
                None => (
                    HealthCounts::from_objects(objects),
                    StackLook::new(run, units, objects).map(Box::new),
                ),
            };
            let check = DriftCheck {
                at: self.now,
                drift,
                health,
                look,
            };
            self.history.stacks.insert(stack.id.clone(), check);
        }
    }

    /// Records the number of the issue of each stack with drift.
    pub(crate) fn note_issues(&mut self, issues: &BTreeMap<String, u64>) {
        for (stack, check) in &mut self.history.stacks {
            let issue = issues.get(stack.as_str()).filter(|_| check.drift.is_some());
            if let (Some(number), Some(look)) = (issue, &mut check.look) {
                look.issue = Some(*number);
            }
        }
    }

    /// Returns the time at which the drift of a stack was first found.
    pub(crate) fn since(&self, stack: &StackId) -> Timestamp {
        let seen = self
            .history
            .stacks
            .get(stack)
            .and_then(|check| check.drift.as_ref());
        seen.map_or(self.now, |seen| seen.since)
    }

    /// Returns how long each present difference has been known.
    pub(crate) fn known_for(&self) -> BTreeMap<StackId, Duration> {
        let seen = |check: &DriftCheck| check.drift.as_ref().map(|seen| self.time_since(seen.since));
        let stacks = self.history.stacks.iter();
        stacks
            .filter_map(|(stack, check)| Some((stack.clone(), seen(check)?)))
            .collect()
    }

    /// Returns the stack that was least recently checked, and how long ago that was; `None` if it was never checked.
    pub(crate) fn least_recently_checked<'a>(
        &self,
        stacks: impl IntoIterator<Item = &'a StackId>,
    ) -> Option<(&'a StackId, Option<Duration>)> {
        let stack = stacks.into_iter().min_by_key(|stack| self.last_checked(stack))?;
        Some((stack, self.last_checked(stack).map(|at| self.time_since(at))))
    }

    /// Saves the history of the stacks that `keep` accepts.
    pub(crate) async fn remember(self, job: &Job, backend: &StateBackend, keep: impl Fn(&StackId) -> bool) {
        if let Err(error) = backend.states.save_drift_history(self.history, keep).await {
            job.run.warn("the drift history could not be written", error);
        }
    }

    fn last_checked(&self, stack: &StackId) -> Option<Timestamp> {
        self.history.stacks.get(stack).map(|check| check.at)
    }

    /// Returns the time since a moment. Clocks of machines may differ, so a moment in the future counts as now.
    fn time_since(&self, then: Timestamp) -> Duration {
        Duration::try_from(self.now.duration_since(then)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        plan::{Action, Basis, Plan, ResourcePlan, StackPlan},
        spec::RuntimeKind,
    };

    fn id(text: &str) -> StackId {
        text.parse().unwrap()
    }

    fn rounds(history: &[(&str, &str)]) -> DriftSchedule {
        let check = |at: &str| DriftCheck {
            at: at.parse().unwrap(),
            drift: None,
            health: None,
            look: None,
        };
        DriftSchedule {
            history: DriftHistory {
                stacks: history.iter().map(|(stack, at)| (id(stack), check(at))).collect(),
                good: Some("2026-11-01T00:00:00Z".parse().unwrap()),
                weeks: BTreeMap::new(),
            },
            now: "2026-11-04T00:00:00Z".parse().unwrap(),
            stale_after: STALE_AFTER.duration(),
        }
    }

    fn plan(stack: &str, action: Action) -> StackPlan {
        let resource = ResourcePlan::new(
            &id(stack),
            "v1:ConfigMap:shop:web".parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            vec![],
        );
        StackPlan::new(RepoPath::root(), id(stack), Basis::Live, vec![resource])
    }

    #[test]
    fn the_oldest_comes_first_and_one_that_was_never_looked_at_before_it() {
        let rounds = rounds(&[
            ("a/dev", "2026-11-03T00:00:00Z"),
            ("b/dev", "2026-11-02T00:00:00Z"),
        ]);
        let target = |stack: &str| Target::forgotten(id(stack), RepoPath::root());
        let all = || ["a/dev", "b/dev", "c/dev"].map(target).to_vec();
        let names = |most| -> Vec<_> {
            let due = rounds.select_due(all(), most);
            due.iter().map(|target| target.id.to_string()).collect()
        };
        assert_eq!(names(None), ["c/dev", "b/dev", "a/dev"]);
        assert_eq!(names(Some(2)), ["c/dev", "b/dev"]);
        assert_eq!(names(Some(0)), ["c/dev"]);
        let day = Duration::from_secs(24 * 3600);
        let (a, b) = (id("a/dev"), id("b/dev"));
        assert_eq!(rounds.least_recently_checked([&a, &b]), Some((&b, Some(day * 2))));
        assert_eq!(rounds.overdue(), Some(day * 3));
    }

    #[test]
    fn a_difference_keeps_its_first_day_and_a_failed_look_proves_nothing() {
        let mut rounds = rounds(&[]);
        let of = |stack: StackPlan| DriftReport {
            plan: Plan {
                version: 1,
                stacks: vec![stack],
            },
            unrestorable: BTreeMap::new(),
            left_to_controller: BTreeSet::new(),
            health: BTreeMap::new(),
        };
        rounds.record_run(&of(plan("a/dev", Action::Update)), &[], "run");
        let first = rounds.since(&id("a/dev"));
        rounds.note_issues(&BTreeMap::from([
            ("a/dev".to_owned(), 12),
            ("b/dev".to_owned(), 13),
        ]));
        let look = |rounds: &DriftSchedule| rounds.history.stacks[&id("a/dev")].look.clone();
        let seen = look(&rounds).unwrap();
        assert_eq!(
            (seen.run.as_str(), seen.issue, seen.units.len()),
            ("run", Some(12), 1)
        );
        assert!(rounds.overdue().is_none());
        rounds.record_run(&of(plan("a/dev", Action::Create)), &[], "run");
        assert_eq!(rounds.since(&id("a/dev")), first);
        let good = rounds.history.good;
        let mut failed = plan("a/dev", Action::Unchanged);
        failed.error = Some(
            konverge_base::error::UserError::new(konverge_base::error::ErrorKind::Kubernetes, "no").body(),
        );
        rounds.record_run(&of(failed), &[], "run");
        assert_eq!(rounds.since(&id("a/dev")), first);
        assert_eq!(rounds.history.good, good);
        assert_eq!(rounds.known_for().len(), 1);
        assert_eq!(look(&rounds).unwrap().units[0].action, Action::Create);
        rounds.record_run(&of(plan("a/dev", Action::Update)), &[id("a/dev")], "run");
        assert!(rounds.known_for().is_empty() && look(&rounds).is_none());
    }
}
