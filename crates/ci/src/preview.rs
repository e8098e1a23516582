//! Publishes a preview: check runs, comment, status, summary, outputs, and the review record.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{
    adoption, aggregate_status,
    checks::PullRequestNow,
    job::{Job, JobResult},
    open_revisions::{OpenedChange, PreviewTarget},
    policy::pull_head::PullHead,
    policy::{
        active_policies::{CommitPolicy, ReviewScope, ReviewedPolicies},
        followed_guards,
        policy_change_preview::PolicyOutlook,
        policy_check::PolicyCheck,
    },
    preview_feedback::{self, PreviewFeedback},
    publisher::Publisher,
    rollout,
    trust::job_trust::Trust,
    unprotected_merge,
};
use konverge_base::{
    error::{UserError, chain},
    model::{
        Digest, Shard, StackId,
        plan::Plan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
        review::ReviewRecord,
        review_difference::ReviewDifference,
    },
    secrets::Secrets,
    spans::Stages,
};
use konverge_forge::StatusState;
use konverge_policy::{Stage, sets::MovedResources};
use konverge_report as report;
use konverge_run::{
    SkippedRemovals, Target,
    overdue_rollouts::overdue_rollouts,
    plan_documents::{DocumentVisitor, PlannedDocument},
    preview::{self, Preview},
    redact::{self, UnreviewableValue},
    stack_contexts,
    stack_order::StackOrder,
};

/// Previews a target and publishes the result.
pub(super) async fn show(
    job: &Job,
    subject: &PreviewTarget,
    publisher: &Publisher<'_>,
) -> Result<JobResult, UserError> {
    let into = subject.into.as_deref();
    let context = job.options.part.context(into);
    aggregate_status::open_status(publisher, &subject.head, job.options.part, into).await;
    let result = plan_and_publish(job, subject, publisher).await;
    let result = result.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    let (state, description) = match &result {
        Ok((JobResult { code: 0, .. }, description)) => (StatusState::Success, description),
        Ok((_, description)) => (StatusState::Failure, description),
        Err(failure) => {
            publisher.publish_failure(failure);
            (StatusState::Error, &failure.message)
        }
    };
    // The status of a shard belongs to its run only: the combined status reads it so.
    match job.options.part.share() {
        Some(_) => {
            publisher
                .own_status(&subject.head, &context, state, description)
                .await;
        }
        None => {
            publisher
                .status(&subject.head, &context, state, description)
                .await
        }
    }
    result.map(|(ended, _)| ended)
}

async fn plan_and_publish(
    job: &Job,
    subject: &PreviewTarget,
    publisher: &Publisher<'_>,
) -> Result<(JobResult, String), UserError> {
    let mut stages = Stages::start("what is affected");
    let mut opened = job.open(&subject.sides).await?;
    note_missing_store(job, &opened);
    if let Some(backend) = &opened.planning.backend {
        for line in overdue_rollouts(&opened.planning.config, backend).await {
            job.run.notes.warning(&line);
        }
    }
    let changed = opened.targets.iter().map(|target| (&target.id, target.folder()));
    let rollouts = rollout::sentences(&opened.planning.config, changed.clone());
    let contexts = stack_contexts(&opened.planning.config, changed);
    let waves = StackOrder::build(&opened.planning.config, &opened.targets)?.waves();
    if let Some(share) = job.options.part.share() {
        opened.select_shard(share);
    }
    stages.next("compile and plan");
    let sets = SetFindings::new(job, subject, &opened)?;
    let (preview, now) = plan_and_record(job, subject, &opened, sets.as_ref(), publisher).await?;
    let last_push = last_push(job, subject, &opened, &preview).await;
    let info = preview_feedback::run_info(job, subject, &opened);
    let findings = all_findings(job, sets, &opened, &preview).await?;
    let links = match subject.number {
        Some(_) => publisher.checks(&subject.head, &preview.plan).await,
        None => BTreeMap::new(),
    };
    let shown = PreviewFeedback {
        job,
        subject,
        opened: &opened,
        plan: &preview.plan,
        findings: &findings,
        last_push: last_push.as_ref(),
        contexts: &contexts,
        waves: &waves,
        rollouts: &rollouts,
        links: &links,
        marker: &preview_feedback::marker(job, subject),
        info: &info,
        now,
    };
    let ended = shown.publish(publisher).await;
    Ok((ended, preview_feedback::description(&preview.plan, &opened)))
}

fn note_missing_store(job: &Job, opened: &OpenedChange) {
    if opened.planning.backend.is_none() && opened.can_mark && opened.trust.grants().store {
        job.run
            .notes
            .note("no store is configured (`state.url` in konverge.yaml): merging will apply nothing");
    }
}

/// Plans the stacks, and records what can be reviewed while the pull request is not merged.
async fn plan_and_record(
    job: &Job,
    subject: &PreviewTarget,
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
    let now = match subject.number {
        Some(number) => publisher.fetch_pull_request(number, &subject.head).await,
        None => PullRequestNow::default(),
    };
    if now.unmerged {
        let shown = sets.map(|sets| sets.shown(opened.planning.secrets()));
        record(job, subject, opened, &preview, shown.unwrap_or_default()).await?;
        compare_with_other_shares(job, subject, opened, &mut preview).await?;
    }
    Ok((preview, now))
}

/// The findings of the policies, of values that nobody can review, and of removals that are skipped.
async fn all_findings(
    job: &Job,
    sets: Option<SetFindings>,
    opened: &OpenedChange,
    preview: &Preview,
) -> Result<Vec<PolicyFinding>, UserError> {
    let mut findings = match sets {
        Some(sets) => {
            sets.compare_others(opened, job.options.part.share()).await?;
            let mut findings = sets
                .with_settings_findings(&preview.plan, &opened.targets)
                .await?;
            findings.extend(unprotected_merge::finding(opened, &preview.plan).await?);
            findings
        }
        None => Vec::new(),
    };
    redact::findings(&mut findings, opened.planning.secrets());
    findings.extend(preview.hidden.iter().map(unreviewable_finding));
    if let Some(skipped) = SkippedRemovals::in_targets(&opened.planning, &opened.targets) {
        let finding = |stack: &StackId| removal_held_back(stack.clone(), &skipped.reason);
        findings.extend(skipped.stacks().map(finding));
    }
    findings.sort();
    Ok(findings)
}

/// The findings of the policies if it were merged now. The policy sets see each plan as soon as it is there.
struct SetFindings {
    policy_check: PolicyCheck,
    pulls: Vec<PullHead>,
    /// What the rules of the pull request would deny, if it edits them.
    outlook: Option<PolicyOutlook>,
    found: Mutex<Vec<PolicyFinding>>,
    moved: Mutex<MovedResources>,
}

impl SetFindings {
    /// `None` in a job for code from outside: it cannot look up facts, and shows no findings.
    fn new(job: &Job, subject: &PreviewTarget, opened: &OpenedChange) -> Result<Option<Self>, UserError> {
        if !job.authority.trust.grants().people {
            return Ok(None);
        }
        let power = job.repository.revision(&subject.sides.power)?;
        let content = job.repository.revision(&subject.sides.content)?;
        let now = CommitPolicy::from_config(&opened.planning.config, Some(power.as_ref()));
        let mut policy_check = PolicyCheck::new(job, now, Stage::Preview, opened.planning.secrets());
        let mut outlook = None;
        let pulls = subject.number.map(|number| PullHead {
            number,
            head: subject.head.clone(),
        });
        // The policy that the merge creates applies too.
        if let Some(number) = subject.number.filter(|_| opened.trust == Trust::Proposed) {
            let then = CommitPolicy::from_config(&opened.proposed, Some(content.as_ref()));
            outlook = PolicyOutlook::new(policy_check.own_sets(), &then.sets);
            let mut policies = ReviewedPolicies::default();
            policies.add(number, ReviewScope::All, Arc::new(then));
            policy_check = policy_check.with_reviewed(policies);
        }
        Ok(Some(Self {
            policy_check,
            pulls: pulls.into_iter().collect(),
            outlook,
            found: Mutex::default(),
            moved: Mutex::default(),
        }))
    }

    fn note_moves(&self, document: &StackDocument) {
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        moved.add(document);
    }

    /// The digests of the denials that the comment shows.
    fn shown(&self, secrets: &Secrets) -> BTreeSet<Digest> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut findings = found.clone();
        drop(found);
        redact::findings(&mut findings, secrets);
        findings.sort();
        report::markdown::shown_denials(&findings)
    }

    /// Compares the two versions of the sets on the stacks that the pull request does not change.
    async fn compare_others(&self, opened: &OpenedChange, share: Option<Shard>) -> Result<(), UserError> {
        match &self.outlook {
            Some(outlook) => {
                let evaluator = self.policy_check.evaluator();
                outlook.compare_others(evaluator, &opened.planning, share).await
            }
            None => Ok(()),
        }
    }

    /// The findings of the sets so far, and those of the settings in `policy`.
    async fn with_settings_findings(
        self,
        plan: &Plan,
        targets: &[Target],
    ) -> Result<Vec<PolicyFinding>, UserError> {
        let mut findings = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        let moved = self.moved.into_inner().unwrap_or_else(PoisonError::into_inner);
        findings.extend(moved.findings(self.policy_check.own_sets()));
        findings.extend(self.outlook.iter().map(PolicyOutlook::finding));
        let own = self.policy_check.own_policy();
        findings.extend(followed_guards::findings(own, plan, targets));
        for stack in &plan.stacks {
            findings.extend(self.policy_check.findings(stack, &self.pulls, None).await?);
        }
        Ok(findings)
    }
}

#[async_trait]
impl DocumentVisitor for SetFindings {
    async fn visit(&self, planned: PlannedDocument<'_>) {
        let document = Arc::new(planned.for_rules());
        self.note_moves(&document);
        if let Some(outlook) = &self.outlook {
            outlook.compare(self.policy_check.evaluator(), &document).await;
        }
        let findings = self.policy_check.preview_sets(&document, &self.pulls).await;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(findings);
    }
}

/// A removed stack that an apply would skip.
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

/// A desired value that the comment does not show is not in the review record either.
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

/// What this head changes in the plan of the pull request's earlier head. Shards have no such comparison: their
/// stacks may be distributed in another way. Without an answer from the store there is none either.
async fn last_push(
    job: &Job,
    subject: &PreviewTarget,
    opened: &OpenedChange,
    preview: &Preview,
) -> Option<ReviewDifference> {
    let (number, backend) = (subject.number?, opened.planning.backend.as_ref()?);
    if job.options.part.share().is_some() {
        return None;
    }
    let reviews = backend.states.reviews();
    let earlier = reviews
        .earlier(number, &subject.head, job.runner.info().run_id)
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

/// Records what was shown, so that an apply can compare the merge with it. The record of a fork contains only
/// Specs.
async fn record(
    job: &Job,
    subject: &PreviewTarget,
    opened: &OpenedChange,
    preview: &Preview,
    findings: BTreeSet<Digest>,
) -> Result<(), UserError> {
    let (Some(number), Some(backend)) = (subject.number, &opened.planning.backend) else {
        return Ok(());
    };
    let record = ReviewRecord {
        version: 1,
        pull_request: number,
        head: subject.head.clone(),
        base: subject.sides.base.clone(),
        power: Some(subject.sides.power.clone()),
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

/// Sets an error on stacks that would create or adopt what another shard of the same run would too. The
/// record is written before: of two shards that end at once at least one sees the other, and the combined
/// status is as bad as the worst.
async fn compare_with_other_shares(
    job: &Job,
    subject: &PreviewTarget,
    opened: &OpenedChange,
    preview: &mut Preview,
) -> Result<(), UserError> {
    let (Some(number), Some(backend), Some(share)) =
        (subject.number, &opened.planning.backend, job.options.part.share())
    else {
        return Ok(());
    };
    let reviews = backend.states.reviews();
    let others = reviews
        .other_shares(number, &subject.head, job.runner.info().run_id, share)
        .await?;
    preview.refuse_elsewhere(&others, opened.planning.secrets());
    Ok(())
}
