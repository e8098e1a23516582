//! Publishes an apply: summary, outputs, comments, issues, deployments, the status and the notifications.

use crate::{
    adoption,
    apply_stages::{AppliedCommit, without},
    job::{Job, marker},
    news::{self, News},
    notifications,
    publisher::Publisher,
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId,
        apply_result::{StackOutcome, StackResult},
        comment_marker::{CommentMarker, MarkerKind},
    },
};
use konverge_config::Config;
use konverge_forge::StatusState;
use konverge_report::{self as report, RunInfo, SUMMARY_BUDGET};
use konverge_run::apply::{self, StoppedPlan};

/// The label of issues about unreviewed changes.
const UNREVIEWED_LABEL: &str = "konverge-unreviewed";

impl AppliedCommit {
    /// Returns the status of the commit.
    fn status(&self) -> StatusState {
        match &self.report {
            report if apply::ended_well(report) && !self.waits_for_others => StatusState::Success,
            report if apply::only_waits(report) => StatusState::Pending,
            report if self.waits_for_others && apply::is_unbroken(report) => StatusState::Pending,
            _ => StatusState::Failure,
        }
    }

    fn description(&self) -> String {
        let left = match self.left_alone.len() {
            0 => None,
            count => Some(format!("{} not taken over yet", report::plural(count, "stack"))),
        };
        let applied = match (self.report.stacks.is_empty(), self.newer.is_empty()) {
            (true, false) => Some("a newer commit is applied already".to_owned()),
            (true, true) if left.is_none() => Some("everything is applied already".to_owned()),
            (true, true) => None,
            (false, _) => Some(report::markdown::result_counts(&self.report).join(", ")),
        };
        applied.into_iter().chain(left).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if the issue of a stack may be closed. A stack that was not pending has no differences, so its
    /// issue may be closed. But a stack of another environment was not planned, and a stack with a newer commit belongs
    /// to a newer run.
    fn is_settled(&self, stack: &str) -> bool {
        let not_well = |outcome: &StackOutcome| outcome.id.as_str() == stack && !was_approved(outcome);
        let is_elsewhere = self.elsewhere.iter().any(|target| target.id.as_str() == stack);
        !self.report.stacks.iter().any(not_well)
            && !self.newer.keys().any(|id| id.as_str() == stack)
            && !is_elsewhere
    }
}

impl Publisher<'_> {
    /// Publishes what was applied: reports to each applied pull request, keeps one issue for each unreviewed stack, and
    /// ends the deployments.
    pub(super) async fn applied(&self, head: &CommitId, applied: &AppliedCommit) {
        let AppliedCommit {
            report,
            info,
            decisions,
            rollouts,
            ..
        } = applied;
        let mut summary = report::markdown::outcome(report, info, None, SUMMARY_BUDGET);
        summary.push_str(&report::markdown::newer(&applied.newer));
        summary.push_str(&adoption::left_alone_text(applied.left_alone.len()));
        self.summary(&summary);
        self.apply_outputs(report, &applied.findings);
        let stopped = decisions.stopped.iter();
        let unreviewed: Vec<_> = stopped.map(|stopped| stopped.plan.digest.to_string()).collect();
        if !report.stacks.is_empty() {
            self.outputs(&[("unreviewed", unreviewed.join(","))]);
            self.merged_outcome(head, &applied.arrived, &applied.pulls, report, info)
                .await;
        }
        let issues = decisions.stopped.iter();
        let issues = issues.map(|stopped| unreviewed_issue(self.job, info, stopped));
        let settled = |stack: &str| applied.is_settled(stack);
        self.issues(
            UNREVIEWED_LABEL,
            MarkerKind::Unreviewed,
            settled,
            issues.collect(),
        )
        .await;
        if let Some(deployments) = &applied.deployments {
            // The rollout has already ended the deployment of an older commit.
            let of_head = without(report, &rollouts.deployed_before);
            deployments.end(&of_head, Some(&rollouts.carried)).await;
        }
    }

    /// Publishes the end of an apply: the status of the commit, and the notifications.
    pub(super) async fn apply_ended(
        &self,
        head: &CommitId,
        config: Option<&Config>,
        result: &Result<AppliedCommit, UserError>,
    ) {
        let (state, description) = match result {
            Ok(applied) => (applied.status(), applied.description()),
            Err(failure) => {
                self.publish_failure(failure);
                (StatusState::Error, failure.message.clone())
            }
        };
        self.status(head, &self.job.apply_status(), state, &description)
            .await;
        // Notifications are sent last, because a receiver that does not respond must not delay the status.
        let Some(config) = config else { return };
        let news = match result {
            Ok(AppliedCommit {
                report,
                decisions,
                rollouts,
                ..
            }) => news::of_apply(report, decisions, rollouts),
            Err(failure) => vec![News::not_started(failure)],
        };
        notifications::send(self.job, config, &news).await;
    }
}

/// Returns the marker, title and body of the issue for a stopped stack.
fn unreviewed_issue(
    job: &Job,
    info: &RunInfo,
    StoppedPlan { plan, units }: &StoppedPlan,
) -> (CommentMarker, String, String) {
    let marker = CommentMarker {
        head: info.head.as_ref().map(CommitId::to_string).unwrap_or_default(),
        digest: plan.digest.to_string(),
        ..marker(job.runner.as_ref(), MarkerKind::Unreviewed, plan.id.as_str())
    };
    let title = format!("{}: blocked: unreviewed change", plan.id);
    let body = report::markdown::unreviewed(plan, units, info, &marker, report::COMMENT_BUDGET);
    (marker, title, body)
}

/// Returns true if nothing of the stack still needs an approval. A stack that waits for its rollout was not planned, so
/// it has no serial and does not count.
fn was_approved(stack: &StackOutcome) -> bool {
    apply::has_succeeded(stack.result) || (stack.result == StackResult::Waiting && stack.serial.is_some())
}
