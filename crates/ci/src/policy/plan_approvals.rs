//! What approves the plan of a stack: reviews of pull requests, and digests that were given to the run.

use std::collections::BTreeSet;

use konverge_base::model::{
    CommitId, Digest, StackId, authorization::PolicyOverride, plan::StackPlan, review::ReviewRecord,
};

use crate::policy::pull_head::PullHead;

/// The range of commits that an approved digest of a plan covers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoveredCommits<'a> {
    /// The commit before the range: the last commit that was applied to the stack, if it is recorded.
    pub since: Option<&'a CommitId>,
    /// The last commit of the range. For restored drift this is the applied commit; `None` for a plan of the head.
    pub until: Option<&'a CommitId>,
}

/// The reviews and approvals of the plan of a stack. The default approves nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct PlanApprovals<'a> {
    /// The pull requests whose changes the plan contains, at their last heads. Each must satisfy the rules.
    pub pulls: Vec<PullHead>,
    /// The records of the previews that reviewers saw.
    pub records: Vec<&'a ReviewRecord>,
    /// The digests that were given to the run.
    pub digests: BTreeSet<Digest>,
    /// The commits that an approved digest of the plan covers.
    pub covered: CoveredCommits<'a>,
    /// The overrides of an earlier apply of the same resources.
    pub earlier: &'a [PolicyOverride],
}

impl<'a> PlanApprovals<'a> {
    /// Collects the approvals of the plan of a stack: the pull requests are those whose records have a unit of it.
    pub(crate) fn new(
        stack: &StackId,
        records: Vec<&'a ReviewRecord>,
        digests: &BTreeSet<Digest>,
        covered: CoveredCommits<'a>,
    ) -> Self {
        let has_it = |record: &&&ReviewRecord| {
            let mut stacks = record.stacks.iter();
            stacks.any(|reviewed| reviewed.id == *stack && !reviewed.units.is_empty())
        };
        let pulls = records.iter().filter(has_it);
        let pulls: BTreeSet<_> = pulls.map(|record| PullHead::from_record(record)).collect();
        Self {
            pulls: pulls.into_iter().collect(),
            records,
            digests: digests.clone(),
            covered,
            earlier: &[],
        }
    }

    /// Returns the commits that the digest of a plan covers; `None` if that digest was not given.
    pub(crate) fn agreed(&self, plan: &StackPlan) -> Option<CoveredCommits<'a>> {
        self.digests.contains(&plan.digest).then_some(self.covered)
    }
}
