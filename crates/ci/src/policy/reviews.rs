//! The reviews that authorize an apply: the last preview of each pull request that was merged into the applied head.
//! They are deleted when no stack needs them any more; the apply records beside the states keep who reviewed which
//! change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    job::Job,
    policy::active_policies::{Archive, CommitPolicy, ReviewScope, ReviewedPolicies},
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{CommitId, StackId, apply_result::ApplyReport, review::ReviewRecord},
};
use konverge_run::{StateBackend, Target, apply};
use konverge_state::ReviewKey;

/// The maximum number of pages of pull requests that are searched (100 per page), the last updated first.
const PAGES: usize = 10;

/// The review records of merged pull requests, with their authors and policies.
#[derive(Default)]
pub(crate) struct MergedReviews {
    /// The last preview of each pull request that counts. A preview with shards has one record for each shard.
    pub records: Vec<ReviewRecord>,
    /// The author of each pull request.
    pub authors: BTreeMap<u64, String>,
    /// The policy under which each pull request was reviewed.
    pub policies: ReviewedPolicies,
    /// The pull requests whose records are no longer needed once every stack of this head has succeeded.
    done: BTreeSet<u64>,
    /// The pull requests that were merged into the head and that no earlier run has used.
    arrived: BTreeSet<u64>,
    keys: Vec<ReviewKey>,
}

/// Returns the policy under which a head was reviewed: the policy of the trusted commit of its preview.
async fn reviewed_under(
    archive: &Archive,
    trusted: &CommitId,
    head: &CommitId,
) -> Result<Arc<CommitPolicy>, UserError> {
    let policy = archive.policy_at(trusted).await?;
    if !policy.has_freezes() {
        return Ok(policy);
    }
    Ok(match archive.policy_at(head).await {
        Ok(proposal) => Arc::new(policy.without_freezes_of(&proposal)),
        // If the proposal cannot be read, it is unknown which freezes it keeps, so every freeze applies.
        Err(_) => policy,
    })
}

impl MergedReviews {
    /// Loads the last preview of each pull request that was merged into the branch up to this head.
    ///
    /// # Errors
    /// Errors of the store or of GitHub.
    pub(crate) async fn load(
        job: &Job,
        backend: &StateBackend,
        head: &CommitId,
        branch: &str,
    ) -> Result<Self, UserError> {
        let keys = backend.states.reviews().list().await?;
        let mut recorded: BTreeSet<u64> = keys.iter().map(|key| key.pull_request).collect();
        let Some(client) = job.client.as_ref().filter(|_| !recorded.is_empty()) else {
            return Ok(Self::default());
        };
        let pulls = client.recent_pull_requests(&recorded, PAGES).await?;
        // Read after the pull requests, so that a merge between the two requests is among the later commits. In the
        // other order its review could be used before its commit is applied.
        let later = if pulls.iter().any(|pull| pull.merged) {
            let tip = client.branch(branch).await?.tip;
            client.commits_after(head, &tip).await?.ok_or_else(|| {
                UserError::new(
                    ErrorKind::Policy,
                    format!(
                        "{} is no longer on `{}`: nothing of it is applied",
                        head.short(),
                        branch.escape_debug()
                    ),
                )
                .hint("the run for the newest push applies what the branch holds now")
            })?
        } else {
            BTreeSet::new()
        };
        let mut reviews = Self {
            keys,
            ..Self::default()
        };
        for pull in pulls {
            recorded.remove(&pull.number);
            let arrived = pull.merged && pull.base_branch == branch;
            if !arrived {
                if !pull.open {
                    reviews.done.insert(pull.number);
                }
                continue;
            }
            // A pull request that was merged after this head belongs to the next run, so its review must not approve a
            // plan of this run. Without a merge commit, the order is unknown, so it does not count either.
            if pull.merge_commit.is_none_or(|commit| later.contains(&commit)) {
                continue;
            }
            reviews.done.insert(pull.number);
            reviews.arrived.insert(pull.number);
            let records = backend.states.reviews().latest(pull.number, &pull.head).await?;
            if records.is_empty() {
                job.run
                    .notes
                    .note(&format!("the last head of #{} was never previewed", pull.number));
            }
            for record in records {
                let trusted = record.power.as_ref().unwrap_or(&record.base);
                match reviewed_under(&Archive::new(job), trusted, &record.head).await {
                    Ok(policy) => {
                        let stacks = record.stacks.iter().map(|stack| stack.id.clone()).collect();
                        reviews.policies.add(pull.number, ReviewScope::These(stacks), policy);
                        reviews.authors.insert(pull.number, pull.author.clone());
                        reviews.records.push(record);
                    }
                    Err(error) => job.run.warn(
                        &format!(
                            "the review of #{} does not count, since the policy that it was made under ({}) is not known",
                            pull.number,
                            trusted.short()
                        ),
                        error,
                    ),
                }
            }
        }
        if !recorded.is_empty() {
            let numbers: Vec<_> = recorded.iter().map(|number| format!("#{number}")).collect();
            job.run.notes.note(&format!(
                "not among the {} pull requests that were updated last, so their reviews do not count: {}\n  hint: add a comment to a pull request to include it again",
                PAGES * 100,
                numbers.join(", ")
            ));
        }
        Ok(reviews)
    }

    /// Returns the merged pull requests that a run applied: those that showed one of its stacks, and those whose last
    /// head was never previewed.
    pub(crate) fn pull_requests_of(&self, report: &ApplyReport) -> BTreeSet<u64> {
        let touched = |id: &StackId| report.stacks.iter().any(|outcome| outcome.id == *id);
        let shown: BTreeSet<u64> = self.records.iter().map(|record| record.pull_request).collect();
        let shows = |record: &&ReviewRecord| record.stacks.iter().any(|stack| touched(&stack.id));
        let applied = self
            .records
            .iter()
            .filter(shows)
            .map(|record| record.pull_request);
        self.arrived.difference(&shown).copied().chain(applied).collect()
    }

    /// Returns the merged pull requests whose review shows a change of a stack.
    pub(crate) fn pull_requests_with(&self, stack: &StackId) -> impl Iterator<Item = u64> {
        let has_it = |record: &&ReviewRecord| {
            let mut stacks = record.stacks.iter();
            stacks.any(|reviewed| reviewed.id == *stack && !reviewed.units.is_empty())
        };
        let records = self.records.iter().filter(has_it);
        records.map(|record| record.pull_request)
    }

    /// Deletes the records that no stack needs any more: those of pull requests that were closed without a merge, and
    /// those of pull requests whose pending stacks have all succeeded.
    ///
    /// Only records that existed at the start of the run are deleted, so a preview that was saved in the meantime
    /// stays.
    pub(crate) async fn forget_used(
        &self,
        job: &Job,
        backend: &StateBackend,
        behind: &[Target],
        report: &ApplyReport,
    ) {
        for key in self.used_up(behind, report) {
            if let Err(error) = backend.states.reviews().forget(key).await {
                // A record that could not be deleted does no harm: the next run lists it again and retries.
                job.run.notes.warning(&format!(
                    "a review record that is no longer needed could not be deleted: {}",
                    chain(&error)
                ));
                return;
            }
        }
    }

    /// Returns the records that no stack needs any more. `behind` are the stacks that were pending.
    fn used_up<'r>(&'r self, behind: &[Target], report: &ApplyReport) -> Vec<&'r ReviewKey> {
        let well = |id: &StackId| {
            let mut outcomes = report.stacks.iter();
            outcomes.any(|outcome| outcome.id == *id && apply::has_succeeded(outcome.result))
        };
        let unsettled: BTreeSet<&StackId> = behind
            .iter()
            .map(|target| &target.id)
            .filter(|id| !well(id))
            .collect();
        let needed = |number: u64| {
            let mut records = self.records.iter().filter(|record| record.pull_request == number);
            records.any(|record| record.stacks.iter().any(|stack| unsettled.contains(&stack.id)))
        };
        let used = |key: &&ReviewKey| self.done.contains(&key.pull_request) && !needed(key.pull_request);
        self.keys.iter().filter(used).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::policy_fixture::archive;
    use konverge_base::model::{
        Digest, RepoPath,
        apply_result::{StackOutcome, StackResult},
        authorization::Authorization,
        plan::Basis,
        review::ReviewedStack,
    };

    fn outcome(id: &str, result: StackResult) -> StackOutcome {
        StackOutcome {
            stack: RepoPath::root(),
            id: id.parse().unwrap(),
            result,
            digest: Digest::of_bytes(b"plan"),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn a_record_is_kept_until_every_stack_of_it_ended_well() {
        let key = |pull_request| ReviewKey {
            pull_request,
            head: "a".repeat(40).parse().unwrap(),
            run: 1,
            attempt: 1,
            share: None,
        };
        let reviews = MergedReviews {
            records: vec![record(1, &["a/dev"]), record(2, &["a/dev", "b/dev"])],
            // The third was closed without a merge, the fourth is still open.
            done: BTreeSet::from([1, 2, 3]),
            keys: [1, 2, 3, 4].map(key).into(),
            ..MergedReviews::default()
        };
        let target = |id: &str| Target {
            id: id.parse().unwrap(),
            stack_folder: RepoPath::root().into(),
            head: None,
            base: None,
            recorded: None,
        };
        let used = |behind: &[&str], ended: &[(&str, StackResult)]| {
            let behind: Vec<_> = behind.iter().map(|id| target(id)).collect();
            let report = ApplyReport {
                version: 1,
                stacks: ended.iter().map(|(id, result)| outcome(id, *result)).collect(),
            };
            let used = reviews.used_up(&behind, &report);
            used.into_iter().map(|key| key.pull_request).collect::<Vec<_>>()
        };
        assert_eq!(used(&["a/dev", "b/dev"], &[]), [3]);
        assert_eq!(
            used(&["a/dev", "b/dev"], &[("a/dev", StackResult::Applied)]),
            [1, 3]
        );
        let both = [("a/dev", StackResult::Unchanged), ("b/dev", StackResult::Applied)];
        assert_eq!(used(&["a/dev", "b/dev"], &both), [1, 2, 3]);
        for result in [
            StackResult::Waiting,
            StackResult::Failed,
            StackResult::Stopped,
            StackResult::HeldBack,
        ] {
            assert_eq!(used(&["a/dev"], &[("a/dev", result)]), [3], "{result:?}");
        }
        // What was not pending needs no review.
        assert_eq!(used(&[], &[]), [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_freeze_that_the_proposal_keeps_counts_as_it_is_now() {
        let freeze = "policy: {freeze: [{from: '2026-12-01T00:00:00Z', until: '2026-12-02T00:00:00Z', reason: sale}]}\n";
        let strict = "policy: {max_destructive: 1}\n";
        let of = |text: &str| vec![("konverge.yaml", format!("version: 1\n{text}"))];
        let (_folder, archive, commits) = archive(&[of(freeze), of(""), of(strict)]);
        let (frozen, free, small) = (&commits[0], &commits[1], &commits[2]);
        let under = async |trusted, head| reviewed_under(&archive, trusted, head).await;
        // The proposal keeps the freeze: the present version of it counts. One that it removes holds for it.
        assert!(!under(frozen, frozen).await.unwrap().has_freezes());
        assert!(under(frozen, free).await.unwrap().has_freezes());
        // Its proposal is unknown: every freeze holds.
        let unknown = "9".repeat(40).parse().unwrap();
        assert!(under(frozen, &unknown).await.unwrap().has_freezes());
        let policy = under(small, &unknown).await.unwrap();
        assert_eq!(policy.config.policy.max_destructive, Some(1));
        assert!(under(&unknown, small).await.is_err());
    }

    fn record(pull_request: u64, stacks: &[&str]) -> ReviewRecord {
        let stacks = stacks.iter().map(|id| ReviewedStack {
            id: id.parse().unwrap(),
            basis: Basis::Live,
            digest: Digest::of_bytes(b"plan"),
            spec_digest: None,
            claims: Default::default(),
            units: Vec::new(),
        });
        ReviewRecord {
            version: 1,
            pull_request,
            head: "a".repeat(40).parse().unwrap(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: String::new(),
            findings: BTreeSet::new(),
            stacks: stacks.collect(),
            comment: None,
        }
    }

    #[test]
    fn an_apply_is_of_the_pull_requests_that_showed_its_stacks_or_nothing_at_all() {
        let reviews = MergedReviews {
            records: vec![
                record(1, &["a/dev"]),
                record(2, &["b/dev"]),
                record(3, &["c/dev"]),
                record(3, &["a/dev"]),
            ],
            arrived: BTreeSet::from([1, 2, 3, 4]),
            ..MergedReviews::default()
        };
        let report = |ids: &[&str]| ApplyReport {
            version: 1,
            stacks: ids.iter().map(|id| outcome(id, StackResult::Applied)).collect(),
        };
        // The fourth was never previewed: what it brought is unknown.
        assert_eq!(
            reviews.pull_requests_of(&report(&["a/dev"])),
            BTreeSet::from([1, 3, 4])
        );
        assert_eq!(
            reviews.pull_requests_of(&report(&["b/dev", "d/dev"])),
            BTreeSet::from([2, 4])
        );
        assert_eq!(reviews.pull_requests_of(&report(&[])), BTreeSet::from([4]));
    }
}
