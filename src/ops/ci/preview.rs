//! A pull request's preview: the comment, the status, the summary, the outputs, and the record of what was shown.

use std::collections::BTreeMap;

use super::{
    Ended, Job,
    feedback::Feedback,
    guardrails::{self, Guardrails},
    opening::{Opened, Trust},
};
use crate::{
    error::{ErrorKind, Failure},
    git::GitError,
    github::{self, PullRequestEvent, StatusState, WorkflowRunEvent},
    model::{
        CommitId,
        finding::Finding,
        marker::{Marker, MarkerKind},
        plan::Summary,
        review::ReviewRecord,
    },
    ops::{
        order::Order,
        preview::{self, Preview},
    },
    policy::Stage,
    report::{self, CommentInput, Mode, RunInfo, SUMMARY_BUDGET},
};

/// What a preview is about.
struct Subject {
    /// The pull request; `None` in a merge queue.
    number: Option<u64>,
    /// The head: its identity.
    head: CommitId,
    /// A commit of the protected branch, whose configuration holds.
    protected: CommitId,
    /// What is compared with.
    base: CommitId,
    /// What is compiled: the trial merge, or the head.
    content: CommitId,
    trust: Trust,
    fork: bool,
}

/// Previews a pull request.
pub(super) async fn pull_request(job: &Job, event: &PullRequestEvent) -> Result<Ended, Failure> {
    if event.action == "closed" {
        job.run
            .notes
            .note("the pull request is closed: nothing to preview");
        return Ok(Ended::WELL);
    }
    let (base, content) = sides(job, event).await?;
    let stranger = event.from_fork || event.dependabot;
    let protected = event.base_branch == event.default_branch && !stranger;
    if !protected && !stranger {
        job.run.notes.note(&format!(
            "note: this pull request goes to `{}`, not to `{}`: merging it applies nothing, so Spec is compared with Spec",
            event.base_branch, event.default_branch
        ));
    }
    let trust = if protected { Trust::Protected } else { Trust::None };
    let subject = Subject {
        number: Some(event.number),
        head: event.head.clone(),
        // The tip of the base branch: the trial merge's first parent is newer than the event.
        protected: if event.merge_commit.as_ref() == Some(&content) {
            base.clone()
        } else {
            event.base.clone()
        },
        base,
        content,
        trust,
        fork: event.from_fork,
    };
    if stranger {
        job.run.notes.note("note: this job may not write: the summary holds the preview; the workflow on `workflow_run` posts it");
    }
    show(
        job,
        &subject,
        &if stranger {
            Feedback::unheard(job)
        } else {
            Feedback::new(job)
        },
    )
    .await
}

/// The commits to compare: the trial merge with its first parent, if it is one of this head; else the head with the
/// merge base.
async fn sides(job: &Job, event: &PullRequestEvent) -> Result<(CommitId, CommitId), Failure> {
    let credentials = job.credentials.as_ref();
    if let Some(merge) = &event.merge_commit {
        job.repository.ensure(merge, credentials).await?;
        if let [first, second] = job.repository.parents(merge)?.as_slice()
            && *second == event.head
        {
            return Ok((first.clone(), merge.clone()));
        }
    }
    let base = job
        .repository
        .merge_base_fetching(&event.base, &event.head, credentials)
        .await
        .map_err(shallow)?;
    Ok((base, event.head.clone()))
}

fn shallow(error: GitError) -> Failure {
    Failure::from(error).hint("or add `fetch-depth: 0` under `with:` of actions/checkout")
}

/// Renders a merge group for real, Spec against Spec; nothing is commented or recorded.
pub(super) async fn merge_group(job: &Job, base: &CommitId, head: &CommitId) -> Result<Ended, Failure> {
    let subject = Subject {
        number: None,
        head: head.clone(),
        protected: base.clone(),
        base: base.clone(),
        content: head.clone(),
        trust: Trust::None,
        fork: false,
    };
    show(job, &subject, &Feedback::new(job)).await
}

/// A fork's pull request, from the job that may write: its commits are fetched as data and compiled in the sandbox.
pub(super) async fn fork(job: &Job, event: &WorkflowRunEvent) -> Result<Ended, Failure> {
    if event.event != "pull_request" || !event.from_fork {
        job.run
            .notes
            .note("the workflow run is not of a fork's pull request: nothing to do");
        return Ok(Ended::WELL);
    }
    let client = job.client.as_ref().ok_or_else(|| {
        Failure::new(
            ErrorKind::Github,
            "a fork's preview is posted with a token, and there is none",
        )
        .hint("set the input `github-token`")
    })?;
    let pulls = client.pull_requests_of_commit(&event.head).await?;
    let Some(pull) = pulls
        .into_iter()
        .find(|pull| pull.open && pull.from_fork && pull.head == event.head)
    else {
        job.run
            .notes
            .note("the pull request is closed or has a newer head: nothing to do");
        return Ok(Ended::WELL);
    };
    let credentials = job.credentials.as_ref();
    let tip = job.repository.resolve("HEAD")?;
    let base = job
        .repository
        .merge_base_fetching(&tip, &event.head, credentials)
        .await
        .map_err(shallow)?;
    let subject = Subject {
        number: Some(pull.number),
        head: event.head.clone(),
        protected: tip,
        base,
        content: event.head.clone(),
        trust: Trust::Recorded,
        fork: true,
    };
    show(job, &subject, &Feedback::new(job)).await
}

async fn show(job: &Job, subject: &Subject, feedback: &Feedback<'_>) -> Result<Ended, Failure> {
    feedback
        .status(
            &subject.head,
            github::PREVIEW,
            StatusState::Pending,
            "looking at what would change",
        )
        .await;
    let result = previewed(job, subject, feedback).await;
    match &result {
        Ok((ended, description)) => {
            let state = if ended.code == 0 {
                StatusState::Success
            } else {
                StatusState::Failure
            };
            feedback
                .status(&subject.head, github::PREVIEW, state, description)
                .await;
        }
        Err(failure) => {
            feedback.failed(failure);
            feedback
                .status(
                    &subject.head,
                    github::PREVIEW,
                    StatusState::Error,
                    &failure.message,
                )
                .await;
        }
    }
    result.map(|(ended, _)| ended)
}

async fn previewed(
    job: &Job,
    subject: &Subject,
    feedback: &Feedback<'_>,
) -> Result<(Ended, String), Failure> {
    let opened = job
        .open(&subject.protected, &subject.base, &subject.content, subject.trust)
        .await?;
    if opened.planning.memory.is_none() && subject.trust == Trust::Protected {
        job.run
            .notes
            .note("note: no store is configured (`state.url` in konverge.yaml): merging will apply nothing");
    }
    let preview = preview::run(&opened.planning, &opened.targets).await?;
    record(job, subject, &opened, &preview).await?;
    let total = preview
        .plan
        .stacks
        .iter()
        .fold(Summary::default(), |sum, stack| sum.plus(stack.summary));
    let failed = preview
        .plan
        .stacks
        .iter()
        .filter(|stack| stack.error.is_some())
        .count();
    let changed = preview
        .plan
        .stacks
        .iter()
        .filter(|stack| stack.summary.changed() > 0)
        .count();
    let description = description(changed, failed, &total);

    let info = RunInfo {
        pr: subject.number,
        head: Some(subject.head.clone()),
        base: Some(subject.base.clone()),
        stacks_in_repository: opened.stacks_in_repository,
        ..job.info()
    };
    let marker = Marker {
        head: subject.head.to_string(),
        run: job.runner.run_id,
        attempt: job.runner.run_attempt,
        ..Marker::new(MarkerKind::Preview, "")
    };
    let stacks: Vec<_> = opened
        .targets
        .iter()
        .filter_map(|target| target.rules().cloned())
        .collect();
    let waves = Order::of(&opened.planning.config, &stacks)?.waves();
    let findings = findings(job, subject, &opened, &stacks, &preview.plan).await?;
    let input = |budget| CommentInput {
        run: &info,
        affected: &opened.affected,
        plan: &preview.plan,
        findings: &findings,
        waves: &waves,
        links: NO_LINKS,
        marker: &marker,
        mode: Mode {
            applies: opened.planning.memory.is_some(),
            fork: subject.fork,
            superseded: false,
        },
        budget,
    };
    if let Some(number) = subject.number {
        feedback
            .comment(number, &marker, |budget| {
                report::markdown::comment(&input(budget)).body
            })
            .await;
    }
    feedback.summary(&report::markdown::summary(&input(SUMMARY_BUDGET), SUMMARY_BUDGET).body);
    feedback.plan_outputs(&preview.plan, &total);
    feedback.annotate(&preview.plan);
    let text = report::terminal::plan(&preview.plan, report::terminal::Style::default());
    Ok((
        Ended {
            code: u8::from(failed > 0),
            text,
        },
        description,
    ))
}

/// What the guardrails would say of a merge now. A fork's job can not ask, and says nothing.
async fn findings(
    job: &Job,
    subject: &Subject,
    opened: &Opened,
    stacks: &[crate::model::stack::Stack],
    plan: &crate::model::plan::Plan,
) -> Result<Vec<Finding>, Failure> {
    if subject.fork {
        return Ok(Vec::new());
    }
    let owners = guardrails::owners(job, &subject.protected);
    let config = &opened.planning.config;
    let guardrails = Guardrails::of(job, config, stacks, Stage::Preview, "", owners.as_deref())?;
    let pulls: Vec<_> = subject
        .number
        .map(|number| (number, subject.head.clone()))
        .into_iter()
        .collect();
    let mut findings = Vec::new();
    for stack in &plan.stacks {
        findings.extend(guardrails.findings(stack, &pulls, false).await?);
    }
    findings.sort();
    Ok(findings)
}

const NO_LINKS: &BTreeMap<crate::model::StackId, String> = &BTreeMap::new();

/// Writes down what was shown, so that apply can hold the merge against it. A fork's record holds Specs only.
async fn record(job: &Job, subject: &Subject, opened: &Opened, preview: &Preview) -> Result<(), Failure> {
    let (Some(number), Some(memory)) = (subject.number, &opened.planning.memory) else {
        return Ok(());
    };
    let record = ReviewRecord {
        version: 1,
        pull_request: number,
        head: subject.head.clone(),
        base: subject.base.clone(),
        run: job.runner.run_url(),
        stacks: preview.reviewed.clone(),
    };
    memory
        .states
        .reviews()
        .save(&record, job.runner.run_id, job.runner.run_attempt)
        .await?;
    Ok(())
}

fn description(changed: usize, failed: usize, total: &Summary) -> String {
    let stacks = |n: usize| {
        if n == 1 {
            "1 stack".to_owned()
        } else {
            format!("{n} stacks")
        }
    };
    let counts = [
        ("+", total.create + total.adopt),
        ("~", total.update + total.unknown),
        ("±", total.replace),
        ("-", total.delete + total.forget),
    ];
    let counts: Vec<_> = counts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(sign, n)| format!("{sign}{n}"))
        .collect();
    match (changed, failed) {
        (0, 0) => "nothing changes".to_owned(),
        (_, 0) => format!("{} would change: {}", stacks(changed), counts.join(" ")),
        (_, _) => format!(
            "{} could not be previewed; {} would change",
            stacks(failed),
            stacks(changed)
        ),
    }
}
