//! Publishes results at the forge. A failure is a warning and never fails the run, because the plan and the apply
//! matter more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::json;

use crate::{
    job::{CommentRule, Job, marker},
    newer_status,
    trust::approve_input::Approved,
};
use konverge_base::{
    error::{ErrorBody, UserError},
    model::{
        CommitId, Digest, StackId,
        apply_result::ApplyReport,
        check_run::{Annotation, Level},
        comment_marker::{CommentMarker, MarkerKind},
        plan::{Plan, StackPlan, Summary},
        policy_finding::PolicyFinding,
        text::json_name,
    },
};
use konverge_forge::{
    APPLY, FittedComment, Forge, ForgeError, Issue, IssueChange, KeptIssues as _, StatusState,
    StickyComments as _, Upsert, duplicate_issues,
};
use konverge_report::{self as report, RunInfo};

/// The maximum number of issues that a run opens or changes: GitHub allows 80 writes of content per minute, and nobody
/// reads more issues.
const MOST_ISSUES: usize = 50;

/// The maximum number of pull requests that get a comment with the result of one apply, also because of GitHub's limit.
const MOST_COMMENTED: usize = 50;

/// A sticky comment that was written to the forge.
pub(super) struct PublishedComment {
    pub url: String,
    /// The text that this run wrote, and the forge's time of the write; `None` if a newer run wrote the comment.
    pub written: Option<(String, Timestamp)>,
}

/// Publishes the results of one job.
pub(super) struct Publisher<'a> {
    pub(super) job: &'a Job,
    pub(super) client: Option<&'a dyn Forge>,
}

impl<'a> Publisher<'a> {
    /// Creates the publisher. In a job that may not publish at the forge, it writes summary, outputs and annotations,
    /// but no comment and no status.
    pub(crate) fn new(job: &'a Job) -> Self {
        let publishes = job.authority.trust.grants().publishes;
        Self {
            job,
            client: job.client.as_deref().filter(|_| publishes),
        }
    }

    pub(super) fn warn(&self, what: &str, error: ForgeError) {
        self.job.run.warn(what, error);
    }

    /// Sets a commit status, unless a newer run has set it on the same commit.
    pub(crate) async fn status(
        &self,
        commit: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
    ) {
        match newer_status::has_newer_status(self.job, self.client, commit, context).await {
            Ok(true) => {}
            Ok(false) => self.own_status(commit, context, state, description).await,
            // If the statuses cannot be listed, a `success` could replace the `failure` of a newer run and permit a
            // merge. The status of an apply is not required by a merge, so it is always set.
            Err(error) if state == StatusState::Success && !context.starts_with(APPLY) => {
                self.warn("failed to find out whether a newer run has set the status", error);
                let forge = self.job.runner.kind();
                let unknown = format!(
                    "previewed, but {forge} did not list the statuses of newer runs: run the job again"
                );
                self.own_status(commit, context, StatusState::Error, &unknown)
                    .await;
            }
            Err(_) => self.own_status(commit, context, state, description).await,
        }
    }

    /// Sets a commit status without looking for a newer run. Used for a shard, whose status is only read together with
    /// its run.
    pub(crate) async fn own_status(
        &self,
        commit: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
    ) {
        let Some(client) = self.client else { return };
        let description = self.job.run.secrets.mask_finished(description);
        let url = self.job.runner.attempt_url();
        if let Err(error) = client
            .set_status(commit, context, state, &description, Some(&url))
            .await
        {
            self.warn(&format!("the status {context} could not be set"), error);
        }
    }

    /// Writes the sticky comment, shortened to GitHub's limit.
    pub(crate) async fn comment(
        &self,
        number: u64,
        marker: &CommentMarker,
        render: impl Fn(usize) -> String,
    ) -> Option<PublishedComment> {
        let client = self.client?;
        if self.job.options.comment == CommentRule::Never {
            return None;
        }
        let masked = |budget| self.job.run.secrets.mask_finished(&render(budget));
        let FittedComment { text, result } = match client.upsert_packed(number, marker, masked).await {
            Ok(fitted) => fitted,
            Err(error) => {
                self.warn("the comment could not be written", error);
                return None;
            }
        };
        match result {
            Upsert::NewerRunWrote { url } => {
                self.job
                    .run
                    .notes
                    .note("a newer run has already written the comment; it is not changed");
                Some(PublishedComment { url, written: None })
            }
            Upsert::Created { url, written }
            | Upsert::Updated { url, written }
            | Upsert::Unchanged { url, written } => Some(PublishedComment {
                url,
                written: written.map(|at| (text, at)),
            }),
        }
    }

    /// Deletes the sticky comment, if there is one.
    pub(crate) async fn no_comment(&self, number: u64, marker: &CommentMarker) {
        let Some(client) = self.client else { return };
        if let Err(error) = client.remove_comment(number, marker).await {
            self.warn("the comment could not be deleted", error);
        }
    }

    /// Writes the result as a comment on the pull requests of these commits, and on the others that a run applied.
    pub(crate) async fn merged_outcome(
        &self,
        head: &CommitId,
        commits: &[CommitId],
        others: &BTreeSet<u64>,
        report: &ApplyReport,
        info: &RunInfo,
    ) {
        let Some(client) = self.client else { return };
        // Found by commit, because a pull request that was never previewed has no record. Each number is used once,
        // even if a pull request has several commits.
        let mut pulls = others.clone();
        for commit in commits {
            match client.pull_requests_of_commit(commit).await {
                Ok(found) => {
                    let merged = found.into_iter().filter(|pull| pull.merged);
                    pulls.extend(merged.map(|pull| pull.number));
                }
                Err(error) => {
                    self.warn("the merged pull request could not be found", error);
                    break;
                }
            }
        }
        if pulls.len() > MOST_COMMENTED {
            self.job.run.notes.note(&format!(
                "{} pull requests were applied; only the newest {MOST_COMMENTED} get a comment",
                pulls.len()
            ));
        }
        for number in pulls.into_iter().rev().take(MOST_COMMENTED) {
            let marker = CommentMarker {
                head: head.to_string(),
                ..marker(self.job.runner.as_ref(), MarkerKind::Apply, self.job.scope())
            };
            let render = |budget| report::markdown::outcome(report, info, Some(&marker), budget);
            self.comment(number, &marker, render).await;
        }
    }

    /// Keeps one issue for each of these (marker, title, body), and closes those of settled stacks. An issue that a
    /// newer run wrote stays unchanged.
    pub(crate) async fn issues(
        &self,
        label: &str,
        kind: MarkerKind,
        settled: impl Fn(&str) -> bool,
        mut issues: Vec<(CommentMarker, String, String)>,
    ) -> BTreeMap<String, u64> {
        // The issues arrive in the order in which stacks ended, which differs in each run, so they are sorted.
        issues.sort_by(|(a, ..), (b, ..)| a.scope.cmp(&b.scope));
        let Some(client) = self.client else {
            return BTreeMap::new();
        };
        let mut known = match client.kept_issues(label).await {
            Ok(known) => known,
            Err(error) => {
                self.warn("the issues could not be listed", error);
                return BTreeMap::new();
            }
        };
        let (mut written, mut opened) = (0, false);
        let all = issues.len();
        for (at, (marker, title, body)) in issues.into_iter().enumerate() {
            if written >= MOST_ISSUES {
                self.job.run.notes.note(&format!(
                    "{MOST_ISSUES} issues are written in one run; {} are left for the next run",
                    all - at
                ));
                break;
            }
            let (title, body) = (
                self.job.run.secrets.mask_finished(&title),
                self.job.run.secrets.mask_finished(&body),
            );
            match client.keep_issue(&known, label, &marker, &title, &body).await {
                Ok(IssueChange::Unchanged) => {}
                Ok(change) => {
                    written += 1;
                    opened |= change == IssueChange::Opened;
                }
                Err(error) => self.warn("an issue could not be written", error),
            }
        }
        let this = marker(self.job.runner.as_ref(), kind, "");
        // Another run may have opened an issue for the same stack after the list was read. A second list shows both
        // issues, and each of the runs closes the newer one.
        if opened {
            match client.kept_issues(label).await {
                Ok(now) => known = now,
                Err(error) => self.warn("the issues could not be listed again", error),
            }
        }
        let over = |issue: &&Issue| {
            let marker = &issue.marker;
            marker.kind == kind && settled(&marker.scope) && !marker.is_newer_than(&this)
        };
        let double = duplicate_issues(&known, kind);
        for issue in known.iter().filter(over).chain(double) {
            if let Err(error) = client.close_issue(issue).await {
                self.warn("an issue could not be closed", error);
            }
        }
        // The oldest issue of a stack stays open.
        let ours = known.iter().filter(|issue| issue.marker.kind == kind);
        let ours = ours.map(|issue| (issue.marker.scope.clone(), issue.number));
        let mut numbers = BTreeMap::new();
        for (scope, number) in ours {
            let oldest = numbers.entry(scope).or_insert(number);
            *oldest = number.min(*oldest);
        }
        numbers
    }

    /// Writes one comment on the drift issue of each of these stacks.
    pub(crate) async fn comment_on_drift(&self, label: &str, texts: &BTreeMap<String, String>) {
        let Some(client) = self.client.filter(|_| !texts.is_empty()) else {
            return;
        };
        let known = match client.kept_issues(label).await {
            Ok(known) => known,
            Err(error) => return self.warn("the issues could not be listed", error),
        };
        let runner = self.job.runner.as_ref();
        let marker = marker(runner, MarkerKind::Apply, runner.info().run_id.to_string());
        for issue in known
            .iter()
            .filter(|issue| issue.marker.kind == MarkerKind::Drift)
        {
            let Some(text) = texts.get(&issue.marker.scope) else {
                continue;
            };
            let text = format!("{}\n{text}", marker.line());
            let text = self.job.run.secrets.mask_finished(&text);
            if let Err(error) = client
                .on_issues()
                .upsert_comment(issue.number, &marker, &text)
                .await
            {
                self.warn("failed to write on the issue who approved the restoration", error);
            }
        }
    }

    /// Prints a note, and adds it to the job summary.
    pub(crate) fn note(&self, text: &str) {
        self.job.run.notes.note(text);
        self.summary(&format!("\n{}\n", report::escape::line(text)));
    }

    /// Prints a note about given digests that matched nothing.
    pub(crate) fn note_unmatched(&self, digests: &BTreeSet<Digest>) {
        if let Some(text) = Approved::explain_unmatched(digests) {
            self.note(&text);
        }
    }

    /// Appends a text to the job summary.
    pub(crate) fn summary(&self, markdown: &str) {
        if let Err(error) = self
            .job
            .runner
            .add_summary(&self.job.run.secrets.mask_finished(markdown))
        {
            self.warn("the job summary could not be written", error);
        }
    }

    /// Sets the outputs of the step for a preview or a drift check. `count` returns the changes of a stack that are
    /// counted.
    pub(crate) fn plan_outputs(&self, plan: &Plan, count: impl Fn(&StackPlan) -> Summary, result: &str) {
        let counted = plan.stacks.iter().map(&count);
        let total = counted.fold(Summary::default(), |sum, stack| sum + stack);
        let changed: Vec<_> = plan
            .stacks
            .iter()
            .filter(|stack| count(stack).changed() > 0)
            .map(|s| s.id.as_str())
            .collect();
        let failed = plan.stacks.iter().map(|stack| (&stack.id, stack.error.as_ref()));
        let (failed, reason) = failures(failed);
        let digest = Digest::of_set(plan.stacks.iter().map(|stack| stack.digest));
        self.outputs(&[
            ("has-changes", (!changed.is_empty()).to_string()),
            ("stack-count", plan.stacks.len().to_string()),
            ("changed-stacks", json!(changed).to_string()),
            ("failed-stacks", json!(failed).to_string()),
            ("create-count", (total.create + total.adopt).to_string()),
            ("update-count", total.update.to_string()),
            ("replace-count", total.replace.to_string()),
            ("delete-count", (total.delete + total.forget).to_string()),
            ("plan-digest", digest.to_string()),
            ("failure-reason", reason),
        ]);
        self.result_file(result);
    }

    /// Sets the outputs of the step for an apply.
    pub(crate) fn apply_outputs(&self, report: &ApplyReport, findings: &[PolicyFinding]) {
        let touched: Vec<_> = report
            .stacks
            .iter()
            .filter(|s| !s.resources.is_empty())
            .map(|s| s.id.as_str())
            .collect();
        let outcomes = report.stacks.iter();
        let (failed, reason) = failures(outcomes.map(|stack| (&stack.id, stack.error.as_ref())));
        self.outputs(&[
            ("has-changes", (!touched.is_empty()).to_string()),
            ("stack-count", report.stacks.len().to_string()),
            ("changed-stacks", json!(touched).to_string()),
            ("failed-stacks", json!(failed).to_string()),
            ("failure-reason", reason),
        ]);
        self.result_file(&report::json::with_findings(report, findings));
    }

    /// Sets outputs of the step, for later steps of the job.
    pub(crate) fn outputs(&self, outputs: &[(&str, String)]) {
        if let Err(error) = self.job.runner.set_outputs(outputs) {
            self.warn("the step's outputs could not be set", error);
        }
    }

    /// Shows the failures of a plan as annotations at their lines.
    pub(crate) fn annotate(&self, plan: &Plan, findings: &[PolicyFinding]) {
        let mut notes = report::checks::annotations(plan);
        notes.extend(report::checks::finding_annotations(findings));
        self.annotate_lines(notes);
    }

    /// Shows annotations at lines of files.
    pub(crate) fn annotate_lines(&self, mut notes: Vec<Annotation>) {
        for note in &mut notes {
            note.message = self.job.run.secrets.mask_finished(&note.message);
        }
        for line in self.job.runner.annotations(&notes) {
            self.job.run.notes.command(&line);
        }
    }

    /// Shows the failure of the whole run.
    pub(crate) fn publish_failure(&self, failure: &UserError) {
        let location = failure.location.as_ref();
        self.annotate_lines(vec![Annotation {
            level: Level::Error,
            file: location.map(|l| l.file.clone()).unwrap_or_default(),
            line: location.and_then(|l| l.line),
            column: location.and_then(|l| l.column),
            title: "konverge".to_owned(),
            message: self.job.run.secrets.mask(&failure.message),
        }]);
        self.outputs(&[("failure-reason", json_name(failure.kind))]);
    }
}

/// Returns the stacks that failed, and the reason of the first failure.
fn failures<'a>(
    stacks: impl Iterator<Item = (&'a StackId, Option<&'a ErrorBody>)>,
) -> (Vec<&'a str>, String) {
    let failed = stacks.filter_map(|(id, error)| Some((id.as_str(), error?.kind)));
    let (failed, kinds): (Vec<_>, Vec<_>) = failed.unzip();
    (failed, kinds.first().map(json_name).unwrap_or_default())
}
