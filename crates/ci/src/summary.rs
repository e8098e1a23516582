//! Publishes the end of a run. Each run writes a summary. A failed run also replaces the comment of an earlier run,
//! which would otherwise look current.

use super::{
    aggregate_status,
    job::{CiOptions, CommentRule, JobResult, marker},
    shard_mode::ShardMode,
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId,
        comment_marker::{CommentMarker, MarkerKind},
    },
};
use konverge_forge::{
    CiJob, Forge, JobEvent, StickyComments as _, Upsert, apply_of, other_branch, preview_of,
};
use konverge_report::{
    RunInfo,
    markdown::{self, Failed},
    timeline,
};
use konverge_run::RunContext;
use konverge_secrets::redact;

/// Publishes the end of a run.
pub(super) struct RunSummary<'a> {
    run: &'a RunContext,
    runner: &'a dyn CiJob,
    /// The size of the summary at the start of the run, in bytes.
    summary: u64,
}

/// The comment in which a failure is reported.
pub(super) struct FailureComment {
    number: u64,
    head: CommitId,
    kind: MarkerKind,
    scope: String,
}

impl FailureComment {
    /// Returns the comment of a preview, or of one of its shards.
    pub(crate) fn preview(number: u64, head: &CommitId, part: ShardMode) -> Self {
        Self {
            number,
            head: head.clone(),
            kind: MarkerKind::Preview,
            scope: part.share().map(|share| share.to_string()).unwrap_or_default(),
        }
    }

    fn failed_task(&self) -> Failed {
        match self.kind {
            MarkerKind::Preview => Failed::Preview,
            MarkerKind::Apply => Failed::Apply,
            MarkerKind::Drift | MarkerKind::Unreviewed | MarkerKind::Tests => Failed::Run,
        }
    }
}

impl<'a> RunSummary<'a> {
    /// Creates the publisher. `summary` is the size of the job summary in bytes before the run published anything.
    pub(crate) fn new(run: &'a RunContext, runner: &'a dyn CiJob, summary: u64) -> Self {
        Self { run, runner, summary }
    }

    /// Writes a summary if the run has not written one. After a failure, also writes the comments and sets the status.
    pub(crate) async fn write(
        &self,
        client: Option<&dyn Forge>,
        options: &CiOptions,
        result: &Result<JobResult, UserError>,
    ) {
        self.write_result(client, options, result).await;
        self.summarize(&timeline::markdown(&self.run.timeline()));
    }

    async fn write_result(
        &self,
        client: Option<&dyn Forge>,
        options: &CiOptions,
        result: &Result<JobResult, UserError>,
    ) {
        let part = options.part;
        match result {
            // The length is unchanged, so the run has not written a summary of its own.
            Ok(ended) if self.runner.summary_length() == self.summary => {
                self.summarize(&markdown::nothing_to_do(&ended.text));
            }
            Ok(_) => {}
            Err(failure) => {
                let comments = self.comments(client, part).await;
                let what = comments.first().map_or(Failed::Run, FailureComment::failed_task);
                let masked = redact::failure(failure, &self.run.secrets);
                let head = comments.first().map(|comment| comment.head.clone());
                self.summarize(&markdown::failure(what, &masked, &self.info(head), None));
                for comment in comments {
                    if let Some(client) = client.filter(|_| options.comment != CommentRule::Never) {
                        self.comment(client, &comment, failure).await;
                    }
                }
                if let (Some(client), Some((head, context))) = (client, self.status(options)) {
                    let why = &masked.message;
                    let ended = aggregate_status::end_open(client, self.runner, &head, &context, why).await;
                    if let Err(error) = ended {
                        self.run
                            .warn(&format!("the status {context} could not be set"), error);
                    }
                }
            }
        }
    }

    /// Replaces a comment by the error, unless a newer run has written the comment.
    pub(crate) async fn comment(&self, client: &dyn Forge, target: &FailureComment, failure: &UserError) {
        let failure = redact::failure(failure, &self.run.secrets);
        let marker = CommentMarker {
            head: target.head.to_string(),
            ..marker(self.runner, target.kind, target.scope.clone())
        };
        let info = self.info(Some(target.head.clone()));
        let text = markdown::failure(target.failed_task(), &failure, &info, Some(&marker));
        let text = self.run.secrets.mask_finished(&text);
        match client.upsert_comment(target.number, &marker, &text).await {
            Ok(Upsert::NewerRunWrote { .. }) => self
                .run
                .notes
                .note("a newer run has already written the comment; it is not changed"),
            Ok(_) => {}
            Err(error) => self.run.warn("the comment could not be written", error),
        }
    }

    /// Returns the commit and the name of the status that a run for this event sets, if it may set one.
    fn status(&self, options: &CiOptions) -> Option<(CommitId, String)> {
        let part = options.part;
        let of = |head: CommitId, base: &str, default: &str| {
            (head, preview_of(part.share(), other_branch(base, default)))
        };
        match self.runner.event().ok()? {
            JobEvent::PullRequest(event)
                if !event.is_from_outside() && event.nothing_to_preview().is_none() =>
            {
                Some(of(event.head, &event.base_branch, &event.default_branch))
            }
            JobEvent::MergeGroup {
                head,
                base_branch,
                default_branch,
                ..
            } => Some(of(head, &base_branch, &default_branch)),
            // The event does not name the base branch, but most pull requests are for the default branch.
            JobEvent::WorkflowRun(event) if event.event == "pull_request" && event.from_outside() => {
                Some((event.head, preview_of(None, None)))
            }
            JobEvent::Push(event) if event.is_default_branch() && part == ShardMode::Whole => {
                Some((event.after?, apply_of(options.for_environment.as_deref())))
            }
            _ => None,
        }
    }

    /// Returns the comments that a run for this event writes. A run for code from outside has none: it may not write,
    /// and the job on `workflow_run` finds the pull request later.
    async fn comments(&self, client: Option<&dyn Forge>, part: ShardMode) -> Vec<FailureComment> {
        match self.runner.event() {
            Ok(JobEvent::PullRequest(event))
                if !event.is_from_outside()
                    && event.nothing_to_preview().is_none()
                    && !matches!(part, ShardMode::Verdict(_)) =>
            {
                vec![FailureComment::preview(event.number, &event.head, part)]
            }
            Ok(JobEvent::Push(event)) if event.is_default_branch() && part == ShardMode::Whole => {
                let (Some(head), Some(client)) = (event.after, client) else {
                    return Vec::new();
                };
                let pulls = match client.pull_requests_of_commit(&head).await {
                    Ok(pulls) => pulls,
                    Err(error) => {
                        self.run.warn("the merged pull request could not be found", error);
                        return Vec::new();
                    }
                };
                let merged = pulls.into_iter().filter(|pull| pull.merged);
                let comment = |number| FailureComment {
                    number,
                    head: head.clone(),
                    kind: MarkerKind::Apply,
                    scope: String::new(),
                };
                merged.map(|pull| comment(pull.number)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn summarize(&self, markdown: &str) {
        let text = self.run.secrets.mask_finished(markdown);
        if let Err(error) = self.runner.add_summary(&text) {
            self.run.warn("the job summary could not be written", error);
        }
    }

    fn info(&self, head: Option<CommitId>) -> RunInfo {
        RunInfo {
            head,
            run_url: Some(self.runner.run_url()),
            ..RunInfo::default()
        }
    }
}
