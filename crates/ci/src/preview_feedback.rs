//! The feedback of a preview: comment, summary, page, outputs and annotations.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::{
    checks::PullRequestNow,
    job::{self, CommentRule, Job, JobResult},
    open_revisions::{OpenedChange, PreviewTarget},
    policy::review_overrides::comment_digest,
    publisher::{PublishedComment, Publisher},
};
use konverge_base::{
    error::chain,
    model::{
        StackId,
        comment_marker::{CommentMarker, MarkerKind},
        plan::{Plan, StackPlan, Summary},
        policy_finding::{Enforcement, PolicyFinding},
        review::RecordedComment,
        review_difference::ReviewDifference,
    },
};
use konverge_config::DriftPolicy;
use konverge_report::{self as report, CommentInput, Merging, Mode, RunInfo, SUMMARY_BUDGET, StackContext};
use konverge_run::preview;
use konverge_state::ReviewKey;

/// A planned change, with everything that its comment shows.
pub(super) struct PreviewFeedback<'a> {
    pub job: &'a Job,
    pub target: &'a PreviewTarget,
    pub opened: OpenedChange,
    pub plan: Plan,
    pub findings: Vec<PolicyFinding>,
    /// The difference that the last push made to the plan.
    pub last_push: Option<ReviewDifference>,
    /// The infrastructure and the responsible people of each stack.
    pub contexts: BTreeMap<StackId, StackContext>,
    /// The wave of each stack.
    pub waves: BTreeMap<StackId, usize>,
    /// One sentence for each rollout that would apply the change, with its waves.
    pub rollouts: Vec<String>,
    pub marker: CommentMarker,
    pub info: RunInfo,
    pub now: PullRequestNow,
}

/// The URL of the check run of each stack.
type CheckLinks = BTreeMap<StackId, String>;

impl PreviewFeedback<'_> {
    /// Publishes the feedback, and returns the result of the job.
    pub(crate) async fn publish(&self, publisher: &Publisher<'_>) -> JobResult {
        // The check runs first: the comment links to them.
        let links = match self.target.number {
            Some(_) => publisher.checks(&self.target.head, &self.plan).await,
            None => CheckLinks::new(),
        };
        self.publish_comment(publisher, &links).await;
        let input = self.input(&links, SUMMARY_BUDGET);
        let mut summary = report::markdown::summary(&input, SUMMARY_BUDGET).body;
        publisher.markdown(&summary);
        if let Some(path) = publisher.page(&report::html::report(&input)) {
            summary.push_str(&report::markdown::page_note(&path));
        }
        publisher.summary(&summary);
        let models = &self.opened.models;
        let result = report::json::preview(&self.plan, &self.findings, models, &self.opened.settings);
        publisher.plan_outputs(&self.plan, report::diff::own_summary, &result);
        publisher.annotate(&self.plan, &self.findings);
        let style = report::terminal::Style::default();
        JobResult {
            code: u8::from(self.failed_stacks() > 0),
            text: report::terminal::plan(&self.plan, style)
                + &report::setting_changes::terminal(&self.opened.settings, style)
                + &report::model_changes::terminal(models, style),
        }
    }

    async fn publish_comment(&self, publisher: &Publisher<'_>, links: &CheckLinks) {
        let Some(number) = self.target.number else {
            return;
        };
        if self.is_mute() {
            publisher.no_comment(number, &self.marker).await;
            return;
        }
        let render = |budget| report::markdown::comment(&self.input(links, budget)).body;
        let published = publisher.comment(number, &self.marker, render).await;
        let url = match published {
            Some(PublishedComment { url, written }) => {
                if let Some((text, written)) = written {
                    self.record_comment(number, &text, written).await;
                }
                url
            }
            None => String::new(),
        };
        publisher.outputs(&[("comment-url", url)]);
    }

    /// Records the text of the comment, so that a later edit of it is noticed. Without this record, no review can
    /// override a finding.
    async fn record_comment(&self, number: u64, text: &str, written: Timestamp) {
        let backend = self.opened.planning.backend.as_ref();
        let Some(backend) = backend.filter(|_| self.now.unmerged && self.may_be_overridden()) else {
            return;
        };
        let runner = &self.job.runner;
        let key = ReviewKey {
            pull_request: number,
            head: self.target.head.clone(),
            run: runner.info().run_id,
            attempt: runner.info().run_attempt,
            share: self.job.options.part.share(),
        };
        let comment = RecordedComment {
            digest: comment_digest(text, &runner.run_url()),
            written,
        };
        if let Err(error) = backend.states.reviews().save_comment(&key, &comment).await {
            self.job.run.notes.warning(&format!(
                "the text of the comment could not be recorded, so no review of #{number} overrides a finding: {}",
                chain(&error)
            ));
        }
    }

    /// Returns true if a policy set denies something. A denial by a setting has no digest, so it cannot be overridden.
    fn may_be_overridden(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.verdict == Enforcement::Deny && finding.place.is_some())
    }

    /// Returns true if no comment is written.
    fn is_mute(&self) -> bool {
        let share = self.job.options.part.share();
        // If a change affects no stack, all shards are empty, and only the first one writes a comment.
        let of_no_stack = self.opened.targets.is_empty() && share.is_some_and(|share| !share.is_first());
        let denied = self
            .findings
            .iter()
            .any(|finding| finding.verdict == Enforcement::Deny);
        let stacks = self.plan.stacks.iter();
        let total = stacks.fold(Summary::default(), |sum, stack| {
            sum + report::diff::own_summary(stack)
        });
        let nothing = total.changed() == 0
            && self.failed_stacks() == 0
            && !denied
            && self.opened.permission_changes.is_empty()
            && self.opened.settings.is_empty()
            && self.opened.models.is_empty();
        of_no_stack || (nothing && self.job.options.comment == CommentRule::Changes)
    }

    fn input<'i>(&'i self, links: &'i CheckLinks, budget: usize) -> CommentInput<'i> {
        CommentInput {
            run: &self.info,
            affected: &self.opened.affected,
            plan: &self.plan,
            findings: &self.findings,
            power: &self.opened.permission_changes,
            settings: &self.opened.settings,
            models: &self.opened.models,
            last_push: self.last_push.as_ref(),
            contexts: &self.contexts,
            waves: &self.waves,
            rollouts: &self.rollouts,
            links,
            marker: &self.marker,
            mode: Mode {
                merging: self.merging(),
                superseded: self.now.superseded,
                introduces: self.opened.introduces,
                stops_at_drift: self.opened.planning.config.policy.drift == DriftPolicy::Stop,
            },
            budget,
        }
    }

    /// Returns the effect of the merge. Without a review record or without a store, the merge applies nothing.
    fn merging(&self) -> Merging {
        let is_recorded = self.opened.trust == self.job.authority.trust && self.now.unmerged;
        match self.target.merging {
            Merging::Applies | Merging::Outside if !self.opened.can_mark => Merging::Unreviewed,
            Merging::Applies if !is_recorded => Merging::Unreviewed,
            Merging::Applies if self.opened.planning.backend.is_none() => Merging::NoStore,
            merging => merging,
        }
    }

    /// Returns the number of stacks that make the preview fail. A change that adds `konverge.yaml` also fails for
    /// stacks that failed before.
    fn failed_stacks(&self) -> usize {
        let config = &self.opened.planning.config;
        let fails = |stack: &&StackPlan| {
            if self.opened.introduces {
                stack.error.is_some()
            } else {
                preview::is_failure(stack, config)
            }
        };
        self.plan.stacks.iter().filter(fails).count()
    }

    /// Describes the result for the status: the changes of this pull request, and differences that exist already.
    pub(super) fn description(&self) -> String {
        let plan = &self.plan;
        let stacks = |n: usize| report::plural(n, "stack");
        let own: Vec<_> = plan.stacks.iter().map(report::diff::own_summary).collect();
        let changed = own.iter().filter(|summary| summary.changed() > 0).count();
        let total = own.into_iter().fold(Summary::default(), |sum, own| sum + own);
        let drifted: usize = plan.stacks.iter().map(report::diff::drifted).sum();
        let already = match drifted {
            0 => String::new(),
            n => format!("; already different: {}", report::plural(n, "resource")),
        };
        let failed = self.failed_stacks();
        if self.opened.introduces {
            let all = plan.stacks.len();
            return report::compiling_stacks(all - failed, all);
        }
        let before = plan.stacks.iter().filter(|stack| stack.fails_as_before).count();
        let already = match before.saturating_sub(failed) {
            0 => already,
            n => format!("{already}; {} cannot be planned on the base either", stacks(n)),
        };
        match (changed, failed) {
            (0, 0) => format!("no changes{already}"),
            (_, 0) => format!("{} in {}{already}", report::counts(&total), stacks(changed)),
            (_, failed) => format!(
                "{} could not be planned; {} changed",
                stacks(failed),
                stacks(changed)
            ),
        }
    }
}

/// Returns the marker that identifies the comment of the preview.
pub(super) fn marker(job: &Job, target: &PreviewTarget) -> CommentMarker {
    let share = job.options.part.share();
    let key = share.map(|share| share.to_string()).unwrap_or_default();
    CommentMarker {
        head: target.head.to_string(),
        ..job::marker(job.runner.as_ref(), MarkerKind::Preview, key)
    }
}

/// Returns the data about the run that the comment shows.
pub(super) fn run_info(job: &Job, target: &PreviewTarget, opened: &OpenedChange) -> RunInfo {
    let counted = opened.planning.counts();
    RunInfo {
        compiled: counted.compiled,
        cached: counted.cached,
        pr: target.number,
        base: Some(target.commits.base.clone()),
        stacks_in_repository: opened.stacks_in_repository,
        page_url: (job.options.page_artifact).then(|| job.runner.artifacts_url()),
        ..job.info(&target.head)
    }
}
