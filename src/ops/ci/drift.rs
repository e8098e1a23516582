//! The scheduled look: what differs from what was applied, one issue a stack, closed when it is gone.

use super::{Ended, Job, feedback::Feedback, notices::Notices, opening::Trust, stopwatch::Stopwatch};
use crate::{
    config::Config,
    error::{ErrorKind, Failure},
    model::{
        CommitId,
        marker::{Marker, MarkerKind},
        plan::{Plan, Summary},
    },
    ops::{At, KeyUse, Target, Workspace, clusters::Live, drift},
    report::{self, RunInfo, SUMMARY_BUDGET},
};

/// Looks at every stack that was applied, the default branch's code at hand.
pub(super) async fn run(job: &Job) -> Result<Ended, Failure> {
    let feedback = Feedback::new(job);
    let result = looked(job, &feedback).await;
    if let Err(failure) = &result {
        feedback.failed(failure);
    }
    result
}

async fn looked(job: &Job, feedback: &Feedback<'_>) -> Result<Ended, Failure> {
    let mut watch = Stopwatch::start();
    let head = job.runner.sha.clone();
    job.repository.ensure(&head, job.credentials.as_ref()).await?;
    let config = Config::of(job.repository.revision(&head)?.as_ref())?;
    let memory = job.memory(&config, KeyUse::Look).await?.ok_or_else(|| {
        Failure::new(
            ErrorKind::Config,
            "there is nothing to compare with: no store is configured",
        )
        .hint("set `state.url` in konverge.yaml")
    })?;
    let side = Workspace::open_under(&job.repository, &At::Commit(head.clone()), &config)?;
    let known = memory.states.known().await?;
    let applied = known.entries.iter().filter(|(_, entry)| entry.is_known());
    let targets: Vec<_> = applied
        .map(|(id, entry)| match side.layout.stack(id) {
            Some(stack) => Target::of(stack, None),
            None => Target::forgotten(id.clone(), entry.folder.clone()),
        })
        .collect();
    let behind: Vec<_> = side
        .layout
        .stacks
        .iter()
        .filter(|stack| {
            let recorded = known
                .entries
                .get(&stack.id)
                .and_then(|entry| entry.settled_digest());
            side.analysis.input_digest(stack).ok() != recorded
        })
        .map(|stack| stack.id.to_string())
        .collect();
    if !behind.is_empty() {
        job.run.notes.note(&format!(
            "warning: the default branch is ahead of what is applied for {} stacks: {}",
            behind.len(),
            behind.join(", ")
        ));
    }
    let label = config
        .drift
        .label
        .clone()
        .unwrap_or_else(|| "konverge-drift".to_owned());
    let live = job.options.live.unwrap_or(Live::Required);
    let notices = Notices::of(job, &config);
    watch.ends("open");
    let planning = job
        .planning(config, Trust::Protected, side, None, Some(memory), live)
        .await?;
    let plan = drift::run(&planning, &targets).await?;
    watch.ends("look");
    let info = RunInfo {
        head: Some(head.clone()),
        timings: watch.stages(),
        ..job.info()
    };
    tell(job, &head, &plan, &info, &label, feedback).await;
    notices.looked(&plan).await;
    let failed = plan.stacks.iter().any(|stack| stack.error.is_some());
    Ok(Ended {
        code: u8::from(failed),
        text: report::terminal::plan(&plan, report::terminal::Style::default()),
    })
}

async fn tell(job: &Job, head: &CommitId, plan: &Plan, info: &RunInfo, label: &str, feedback: &Feedback<'_>) {
    let drifted: Vec<_> = plan
        .stacks
        .iter()
        .filter(|stack| stack.summary.changed() > 0)
        .collect();
    let calm: Vec<_> = plan
        .stacks
        .iter()
        .filter(|stack| stack.summary.changed() == 0 && stack.error.is_none())
        .map(|stack| stack.id.clone())
        .collect();
    let mut summary = format!(
        "### Konverge drift: {} of {} stacks differ\n\n",
        drifted.len(),
        plan.stacks.len()
    );
    let issues = drifted
        .iter()
        .map(|stack| {
            let marker = Marker {
                head: head.to_string(),
                run: job.runner.run_id,
                attempt: job.runner.run_attempt,
                digest: stack.digest.to_string(),
                ..Marker::new(MarkerKind::Drift, stack.id.as_str())
            };
            let body = report::markdown::drift_issue(stack, info, &marker, "now", report::COMMENT_BUDGET);
            (
                marker,
                format!("{} differs from what was applied", stack.id),
                body,
            )
        })
        .collect();
    for stack in &drifted {
        summary.push_str(&report::markdown::stack_text(
            stack,
            SUMMARY_BUDGET / drifted.len().max(1),
        ));
    }
    feedback.summary(&summary);
    feedback.plan_outputs(
        plan,
        &plan
            .stacks
            .iter()
            .fold(Summary::default(), |sum, stack| sum.plus(stack.summary)),
    );
    feedback.outputs(&[("has-drift", (!drifted.is_empty()).to_string())]);
    feedback.annotate(plan);
    feedback.issues(label, MarkerKind::Drift, &calm, issues).await;
}
