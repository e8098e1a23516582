//! Runs and publishes a preview: check runs, comment, status, summary, outputs, and the review record.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{
    adoption, aggregate_status,
    checks::PullRequestNow,
    job::{Job, JobResult},
    open_revisions::{OpenedChange, PreviewTarget},
    policy::{
        active_policies::{CommitPolicy, ReviewScope, ReviewedPolicies},
        followed_guards,
        plan_approvals::PlanApprovals,
        policy_change_preview::PolicyOutlook,
        policy_check::PolicyCheck,
        pull_head::PullHead,
    },
    preview_feedback::{self, PreviewFeedback},
    publisher::Publisher,
    trust::job_trust::Trust,
    unprotected_merge,
};
use konverge_base::{
    error::{UserError, chain},
    model::{
        Digest, StackId,
        plan::Plan,
        policy_finding::{Enforcement, PolicyFinding},
        review::ReviewRecord,
        review_difference::ReviewDifference,
    },
    spans::Stages,
    sync::lock,
};
use konverge_forge::StatusState;
use konverge_policy::Stage;
use konverge_policy_sets::MovedResources;
use konverge_report as report;
use konverge_rollout_driver::overdue_rollouts;
use konverge_run::{
    SkippedRemovals, Target,
    plan_documents::{DocumentVisitor, PlannedDocument},
    preview::{self, Preview},
    stack_contexts,
    stack_order::StackOrder,
};
use konverge_secrets::{
    Secrets,
    redact::{self, UnreviewableValue},
};

/// Previews a pull request or a merge group, and publishes the result.
pub(super) async fn show(
    job: &Job,
    target: &PreviewTarget,
    publisher: &Publisher<'_>,
) -> Result<JobResult, UserError> {
    let into = target.into.as_deref();
    let context = job.options.part.context(into);
    // The status becomes pending first, so that the status of an earlier run for the same commit is no longer valid.
    aggregate_status::open_status(publisher, &target.head, job.options.part, into).await;
    let result = {
        let mut stages = Stages::start("what is affected");
        match plan_change(job, target, publisher, &mut stages).await {
            Ok(feedback) => Ok((feedback.publish(publisher).await, feedback.description())),
            Err(failure) => Err(redact::failure(&failure, &job.run.secrets)),
        }
    };
    let (state, description) = match &result {
        Ok((JobResult { code: 0, .. }, description)) => (StatusState::Success, description),
        Ok((_, description)) => (StatusState::Failure, description),
        Err(failure) => {
            publisher.publish_failure(failure);
            (StatusState::Error, &failure.message)
        }
    };
    // The combined status uses only statuses of its own run, so a shard does not look for a newer run.
    match job.options.part.share() {
        Some(_) => {
            publisher
                .own_status(&target.head, &context, state, description)
                .await;
        }
        None => publisher.status(&target.head, &context, state, description).await,
    }
    result.map(|(ended, _)| ended)
}

/// Plans a change, and returns everything that its feedback shows.
async fn plan_change<'a>(
    job: &'a Job,
    target: &'a PreviewTarget,
    publisher: &Publisher<'_>,
    stages: &mut Stages,
) -> Result<PreviewFeedback<'a>, UserError> {
    let mut opened = job.open(&target.commits).await?;
    note_missing_store(job, &opened);
    if let Some(backend) = &opened.planning.backend {
        for line in overdue_rollouts(&opened.planning.config, backend).await {
            job.run.notes.warning(&line);
        }
    }
    // Waves and rollouts are computed for the whole change, before the shard is selected, so that each comment shows
    // the same numbers.
    let changed = opened.targets.iter().map(|stack| (&stack.id, stack.folder()));
    let rollouts = konverge_rollout::preview_sentences(&opened.planning.config, changed.clone());
    let contexts = stack_contexts(&opened.planning.config, changed);
    let waves = StackOrder::build(&opened.planning.config, &opened.targets)?.waves();
    if let Some(share) = job.options.part.share() {
        opened.select_shard(share);
    }
    stages.next("compile and plan");
    let sets = SetFindings::new(job, target, &opened)?;
    // The review is recorded before the comment is written: if the record fails, the preview fails, and nobody reads a
    // plan without a record.
    let (preview, now) = plan_and_record(job, target, &opened, sets.as_ref(), publisher).await?;
    let last_push = last_push(job, target, &opened, &preview).await;
    let info = preview_feedback::run_info(job, target, &opened);
    let findings = all_findings(job, sets, &opened, &preview).await?;
    Ok(PreviewFeedback {
        job,
        target,
        opened,
        plan: preview.plan,
        findings,
        last_push,
        contexts,
        waves,
        rollouts,
        marker: preview_feedback::marker(job, target),
        info,
        now,
    })
}

fn note_missing_store(job: &Job, opened: &OpenedChange) {
    if opened.planning.backend.is_none() && opened.can_mark && opened.trust.grants().store {
        job.run
            .notes
            .note("no store is configured (`state.url` in konverge.yaml): merging will apply nothing");
    }
}

/// Plans the stacks, and records what can be reviewed if the pull request is not merged yet.
async fn plan_and_record(
    job: &Job,
    target: &PreviewTarget,
    opened: &OpenedChange,
    sets: Option<&SetFindings>,
    publisher: &Publisher<'_>,
) -> Result<(Preview, PullRequestNow), UserError> {
    let visitor = sets.map(|sets| sets as &dyn DocumentVisitor);
    let mut preview = preview::run(&opened.planning, &opened.targets, visitor).await?;
    if opened.introduces {
        preview.count_every_failure();
    }
    adoption::refuse_changes(&mut preview, &opened.adopts);
    // Read after the plan: a preview that ends after the merge was not seen by any reviewer, so it must not count as a
    // review.
    let now = match target.number {
        Some(number) => publisher.fetch_pull_request(number, &target.head).await,
        None => PullRequestNow::default(),
    };
    if now.unmerged {
        let shown = sets.map(|sets| sets.shown(opened.planning.secrets()));
        record(job, target, opened, &preview, shown.unwrap_or_default()).await?;
        compare_with_other_shares(job, target, opened, &mut preview).await?;
    }
    Ok((preview, now))
}

/// Returns the findings of the policies, and findings for values that nobody can review and for skipped removals.
async fn all_findings(
    job: &Job,
    sets: Option<SetFindings>,
    opened: &OpenedChange,
    preview: &Preview,
) -> Result<Vec<PolicyFinding>, UserError> {
    let mut findings = match sets {
        Some(sets) => {
            // The old and the new policy sets are also compared on the stacks that the pull request does not change.
            if let Some(outlook) = &sets.outlook {
                let (evaluator, share) = (&sets.policy_check.evaluator, job.options.part.share());
                outlook.compare_others(evaluator, &opened.planning, share).await?;
            }
            let mut findings = sets
                .with_settings_findings(&preview.plan, &opened.targets)
                .await?;
            findings.extend(unprotected_merge::finding(opened, &preview.plan).await?);
            findings
        }
        None => Vec::new(),
    };
    // Rules see true values, so their findings are masked before they are shown.
    redact::findings(&mut findings, opened.planning.secrets());
    findings.extend(preview.hidden.iter().map(unreviewable_finding));
    if let Some(skipped) = SkippedRemovals::in_targets(&opened.planning, &opened.targets) {
        let finding = |stack: &StackId| removal_held_back(stack.clone(), &skipped.reason);
        findings.extend(skipped.stacks().map(finding));
    }
    findings.sort();
    Ok(findings)
}

/// Collects the policy findings as if the change were merged now. The policy sets check each plan as soon as it is
/// made.
struct SetFindings {
    policy_check: PolicyCheck,
    approvals: PlanApprovals<'static>,
    /// The comparison of the old and the new policy sets, if the pull request edits them.
    outlook: Option<PolicyOutlook>,
    found: Mutex<Vec<PolicyFinding>>,
    moved: Mutex<MovedResources>,
}

impl SetFindings {
    /// Creates the collector; `None` in a job for code from outside, which cannot read facts and shows no findings.
    fn new(job: &Job, target: &PreviewTarget, opened: &OpenedChange) -> Result<Option<Self>, UserError> {
        if !job.authority.trust.grants().people {
            return Ok(None);
        }
        let trusted = job.repository.revision(&target.commits.trusted)?;
        let content = job.repository.revision(&target.commits.content)?;
        let now = CommitPolicy::from_config(&opened.planning.config, Some(trusted.as_ref()));
        let mut policy_check = PolicyCheck::new(job, now, Stage::Preview, opened.planning.secrets());
        let mut outlook = None;
        let pulls = target.number.map(|number| PullHead {
            number,
            head: target.head.clone(),
        });
        // After the merge the plan must satisfy two policies: the current one, and the one under which it was reviewed.
        if let Some(number) = target.number.filter(|_| opened.trust == Trust::Proposed) {
            let then = CommitPolicy::from_config(&opened.proposed, Some(content.as_ref()));
            outlook = PolicyOutlook::new(&policy_check.own.sets, &then.sets);
            let mut policies = ReviewedPolicies::default();
            policies.add(number, ReviewScope::All, Arc::new(then));
            policy_check.reviewed = policies;
        }
        Ok(Some(Self {
            policy_check,
            approvals: PlanApprovals {
                pulls: pulls.into_iter().collect(),
                ..PlanApprovals::default()
            },
            outlook,
            found: Mutex::default(),
            moved: Mutex::default(),
        }))
    }

    /// Returns the digests of the denials that the comment shows.
    fn shown(&self, secrets: &Secrets) -> BTreeSet<Digest> {
        let mut findings = lock(&self.found).clone();
        redact::findings(&mut findings, secrets);
        findings.sort();
        report::markdown::shown_denials(&findings)
    }

    /// Returns the findings of the policy sets so far, and those of the settings in `policy`.
    async fn with_settings_findings(
        self,
        plan: &Plan,
        targets: &[Target],
    ) -> Result<Vec<PolicyFinding>, UserError> {
        let mut findings = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let moved = self.moved.into_inner().unwrap_or_else(PoisonError::into_inner);
        findings.extend(moved.findings(&self.policy_check.own.sets));
        findings.extend(self.outlook.iter().map(PolicyOutlook::finding));
        let own = &self.policy_check.own;
        findings.extend(followed_guards::findings(own, plan, targets));
        for stack in &plan.stacks {
            findings.extend(self.policy_check.findings(stack, &self.approvals).await?);
        }
        Ok(findings)
    }
}

#[async_trait]
impl DocumentVisitor for SetFindings {
    async fn visit(&self, planned: PlannedDocument<'_>) {
        let document = Arc::new(planned.for_rules());
        lock(&self.moved).add(&document);
        if let Some(outlook) = &self.outlook {
            outlook.compare(&self.policy_check.evaluator, &document).await;
        }
        let pulls = &self.approvals.pulls;
        let findings = self.policy_check.preview_sets(&document, pulls).await;
        let mut found = lock(&self.found);
        found.extend(findings);
    }
}

/// Returns the finding for a removed stack that an apply would skip.
fn removal_held_back(stack: StackId, reason: &UserError) -> PolicyFinding {
    PolicyFinding {
        verdict: Enforcement::Warn,
        rule: "removals".to_owned(),
        stack: Some(stack),
        message: format!("the apply will skip this removal: {}", reason.message),
        hint: reason.hints.first().cloned(),
        place: None,
    }
}

/// Returns the denial for a desired value that the comment masks. The review record does not contain the value either.
fn unreviewable_finding(hidden: &UnreviewableValue) -> PolicyFinding {
    PolicyFinding {
        verdict: Enforcement::Deny,
        rule: "secrets".to_owned(),
        stack: Some(hidden.stack.clone()),
        message: format!(
            "{} in {} contains the value of a Secret in clear text. It is masked, so nobody can review it",
            hidden.path, hidden.resource
        ),
        hint: Some("use a secret reference instead; or check the value in the code, and approve the plan by its digest after the merge".to_owned()),
        place: None,
    }
}

/// Compares the plan with that of the pull request's earlier head. Shards have no such comparison, because their stacks
/// may be distributed differently. An error of the store means no comparison.
async fn last_push(
    job: &Job,
    target: &PreviewTarget,
    opened: &OpenedChange,
    preview: &Preview,
) -> Option<ReviewDifference> {
    let (number, backend) = (target.number?, opened.planning.backend.as_ref()?);
    if job.options.part.share().is_some() {
        return None;
    }
    let reviews = backend.states.reviews();
    let earlier = reviews
        .earlier(number, &target.head, job.runner.info().run_id)
        .await
        .inspect_err(|error| {
            job.run.notes.warning(&format!(
                "the earlier preview could not be read, so the comment does not say what the last push changed: {}",
                chain(error)
            ));
        })
        .ok()?;
    let failed = preview.plan.stacks.iter().filter(|stack| stack.error.is_some());
    let failed = failed.map(|stack| stack.id.clone()).collect();
    ReviewDifference::between(&earlier, &preview.reviewed, &failed)
}

/// Records the shown plan, so that an apply can compare the merge with it. The record of a fork contains only Specs.
async fn record(
    job: &Job,
    target: &PreviewTarget,
    opened: &OpenedChange,
    preview: &Preview,
    findings: BTreeSet<Digest>,
) -> Result<(), UserError> {
    let (Some(number), Some(backend)) = (target.number, &opened.planning.backend) else {
        return Ok(());
    };
    let record = ReviewRecord {
        version: 1,
        pull_request: number,
        head: target.head.clone(),
        base: target.commits.base.clone(),
        power: Some(target.commits.trusted.clone()),
        run: job.runner.run_url(),
        findings,
        stacks: preview.reviewed.clone(),
        comment: None,
    };
    backend
        .states
        .reviews()
        .save(
            &record,
            job.runner.info().run_id,
            job.runner.info().run_attempt,
            job.options.part.share(),
        )
        .await?;
    Ok(())
}

/// Sets an error on stacks that would create or adopt the same object as another shard of this run. The review record
/// is written before, so of two shards that end at the same time at least one sees the other, and one failure is enough
/// for the combined status.
async fn compare_with_other_shares(
    job: &Job,
    target: &PreviewTarget,
    opened: &OpenedChange,
    preview: &mut Preview,
) -> Result<(), UserError> {
    let (Some(number), Some(backend), Some(share)) =
        (target.number, &opened.planning.backend, job.options.part.share())
    else {
        return Ok(());
    };
    let reviews = backend.states.reviews();
    let others = reviews
        .other_shares(number, &target.head, job.runner.info().run_id, share)
        .await?;
    preview.refuse_elsewhere(&others, opened.planning.secrets());
    Ok(())
}
