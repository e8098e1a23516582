//! After a merge: applies what the head wants and the states do not have yet, if it was reviewed.
//!
//! What to apply comes from the input digests in the index, never from `before..after`: a run that was cancelled, failed
//! or skipped is caught up by the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Ended, Job,
    consent::ByReview,
    deployments::{Announced, Deployments},
    feedback::Feedback,
    guardrails::{self, Agreeing, Guardrails},
    notices::Notices,
    reviews::Reviews,
    rounds::Rounds,
    stopwatch::Stopwatch,
};
use crate::{
    config::Config,
    error::{ErrorKind, Failure},
    github::{self, PushEvent, StatusState},
    model::{
        CommitId, Digest, RepoPath, StackId,
        marker::{Marker, MarkerKind},
        outcome::{ApplyReport, StackResult},
        plan::StackPlan,
        review::Unit,
    },
    ops::{
        At, KeyUse, Target, Workspace,
        apply::{self, ApplyOptions},
        held_removals, masked, renamed_stacks,
    },
    policy::Stage,
    report::{self, RunInfo, SUMMARY_BUDGET},
};

/// The label of issues about merges that nobody reviewed.
const UNREVIEWED_LABEL: &str = "konverge-unreviewed";

/// Commits arrived on a branch. With digests the job stands behind an environment, whose reviewers were shown them.
pub(super) async fn push(job: &Job, event: &PushEvent, digests: &str) -> Result<Ended, Failure> {
    if !event.is_default_branch() {
        job.run.notes.note(&format!(
            "a push to `{}`: only `{}` is applied",
            event.ref_name, event.default_branch
        ));
        return Ok(Ended::WELL);
    }
    let Some(after) = &event.after else {
        return Err(Failure::new(
            ErrorKind::Github,
            "the default branch was deleted: nothing is applied",
        )
        .hint("restore it on GitHub (Branches, Restore); the next push to it applies what is missing"));
    };
    let tip = Tip {
        head: after,
        branch: &event.default_branch,
        approvals: read_digests(digests)?,
        agreeing: Agreeing::Environment,
    };
    if !tip.approvals.is_empty() {
        someone_let_it_go_on(job).await?;
    }
    told(job, tip).await
}

/// Who agrees by letting a job go on has to be known. GitHub does not say when they did: after the run was started
/// again, what they saw may have been other digests.
async fn someone_let_it_go_on(job: &Job) -> Result<(), Failure> {
    const BY_HAND: &str = "or start the workflow by hand with `approve`: whoever does so agrees";
    if job.runner.run_attempt > 1 {
        return Err(Failure::new(
            ErrorKind::Policy,
            "the run was started again: what its environment's reviewers were shown may have been other digests",
        )
        .hint("start it by a push, so that they are asked anew")
        .hint(BY_HAND));
    }
    let Some(environment) = &job.options.environment else {
        return Err(Failure::new(
            ErrorKind::Policy,
            "it is not known in which environment this job waited, so nobody agrees to these digests",
        )
        .hint(
            "set the input `environment` to the name of the job's `environment:`, which GitHub tells no job",
        )
        .hint(BY_HAND));
    };
    let approvers = match &job.client {
        Some(client) => client.run_approvers(job.runner.run_id, environment).await?,
        None => Vec::new(),
    };
    if approvers.is_empty() {
        return Err(Failure::new(
            ErrorKind::Policy,
            format!(
                "nobody let this run go on in `{}`, so nobody agrees to these digests",
                environment.escape_debug()
            ),
        )
        .hint("give the job that `environment:`, with required reviewers")
        .hint(BY_HAND));
    }
    Ok(())
}

/// Somebody agreed to plans by their digest.
pub(super) async fn approved(job: &Job, text: &str) -> Result<Ended, Failure> {
    let tip = Tip {
        head: &job.runner.sha,
        branch: job.runner.ref_name.trim_start_matches("refs/heads/"),
        approvals: read_digests(text)?,
        agreeing: Agreeing::Starter,
    };
    told(job, tip).await
}

fn read_digests(text: &str) -> Result<BTreeSet<Digest>, Failure> {
    let parts = text.split([',', ' ', '\n']).filter(|part| !part.is_empty());
    let digest = |part: &str| {
        part.parse::<Digest>().map_err(|error| {
            Failure::new(ErrorKind::Usage, error.to_string())
                .hint("copy the whole digest from the issue or the summary")
        })
    };
    parts.map(digest).collect()
}

/// What is to be applied.
struct Tip<'a> {
    head: &'a CommitId,
    branch: &'a str,
    /// The plans that somebody agreed to.
    approvals: BTreeSet<Digest>,
    /// Who that is.
    agreeing: Agreeing,
}

async fn told(job: &Job, tip: Tip<'_>) -> Result<Ended, Failure> {
    let head = tip.head;
    let feedback = Feedback::new(job);
    feedback
        .status(
            head,
            github::APPLY,
            StatusState::Pending,
            "applying what was reviewed",
        )
        .await;
    let (notices, result) = match configured(job, head).await {
        Ok(config) => (
            Some(Notices::of(job, &config)),
            caught_up(job, tip, config, &feedback).await,
        ),
        Err(failure) => (None, Err(failure)),
    };
    let result = result.map_err(|failure| masked::failure(&failure, &job.run.secrets));
    let (state, description) = match &result {
        Ok((report, _)) if apply::ended_well(report) => (StatusState::Success, description(report)),
        Ok((report, _)) => (StatusState::Failure, description(report)),
        Err(failure) => {
            feedback.failed(failure);
            (StatusState::Error, failure.message.clone())
        }
    };
    feedback.status(head, github::APPLY, state, &description).await;
    // They come last: a receiver that does not answer keeps nothing else waiting.
    match (&notices, &result) {
        (Some(notices), Ok((report, consent))) => {
            let stopped: Vec<_> = consent.stopped().into_iter().map(|(plan, _)| plan.id).collect();
            notices.applied(report, &stopped).await;
        }
        (Some(notices), Err(failure)) => notices.not_applied(failure).await,
        (None, _) => {}
    }
    let (report, _) = result?;
    Ok(Ended {
        code: apply::exit_code(&report, job.run.cancel.is_cancelled()),
        text: report::terminal::outcome(&report, report::terminal::Style::default()),
    })
}

async fn configured(job: &Job, head: &CommitId) -> Result<Config, Failure> {
    job.repository.ensure(head, job.credentials.as_ref()).await?;
    Ok(Config::of(job.repository.revision(head)?.as_ref())?)
}

async fn caught_up(
    job: &Job,
    tip: Tip<'_>,
    config: Config,
    feedback: &Feedback<'_>,
) -> Result<(ApplyReport, Arc<ByReview>), Failure> {
    let Tip {
        head,
        branch,
        approvals,
        agreeing,
    } = tip;
    let mut watch = Stopwatch::start();
    let memory = job.memory(&config, KeyUse::Make).await?.ok_or_else(|| {
        Failure::new(
            ErrorKind::Config,
            "nothing is applied: no store is configured to keep the state in",
        )
        .hint("set `state.url` in konverge.yaml, for example `s3://my-bucket/konverge`")
    })?;
    let side = Workspace::open_under(&job.run, &job.repository, &At::Commit(head.clone()), &config)?;
    side.layout.require_module()?;
    // A schedule that does not run tells nobody so: whoever applies does.
    if let Some(since) = Rounds::of(job, &memory, &config).await.overdue() {
        job.run.notes.note(&format!(
            "warning: no look for drift has ended well for {}; does the scheduled job still run?",
            report::age(since)
        ));
    }
    let known = memory.states.known().await?;
    memory.states.maintain_index(&known).await?;
    side.note_layout(&job.run);
    let renamed = renamed_stacks(&memory, &side.layout, &known).await?;
    let Behind { targets, held } = behind(&side, &known, &renamed)?;
    let ids: Vec<_> = targets.iter().map(|target| target.id.clone()).collect();
    memory.states.announce_run(&known, &ids).await?;

    let reviews = if targets.is_empty() {
        Reviews::default()
    } else {
        Reviews::of(job, &memory, head, branch).await?
    };
    let owners = guardrails::owners(job, head);
    let guardrails = Guardrails::of(job, &config, Stage::Apply, branch, owners.as_deref())
        .with_authors(reviews.authors.clone())
        .agreed_to_by(agreeing);
    let consent = Arc::new(ByReview::new(
        guardrails,
        reviews.records.clone(),
        approvals,
        config.policy.drift,
    ));
    let deployments = Deployments::of(job, &config, &targets, head);
    let options = ApplyOptions {
        consent: match &deployments {
            Some(deployments) => Arc::new(Announced {
                consent: Arc::clone(&consent),
                deployments: Arc::clone(deployments),
            }),
            None => consent.clone(),
        },
        commit: Some(head.clone()),
        pull_requests: consent.pull_requests().into_iter().collect(),
        restore: false,
        allow_empty: true,
        rolled_back_to: None,
    };
    let unseen = held_removals::reason(&side.layout);
    let planning = job.protected_planning(config, side, memory.clone()).await?;
    watch.ends("what to apply");
    let mut report = apply::run(&planning, &targets, &options).await?;
    if let Some(unseen) = &unseen {
        let untold = held
            .iter()
            .map(|target| apply::stopped(target, StackResult::Failed, unseen));
        report.stacks.extend(untold);
    }
    watch.ends("plan and apply");
    // A stack that can not be seen may be one that was removed, which takes its review.
    if unseen.is_none() {
        reviews.forget_used(job, &memory, &targets, &report).await;
    }
    // The index only serves speed: what it is not told is looked up by the next run.
    if let Err(error) = memory.states.settle().await {
        job.run
            .notes
            .note(&format!("warning: the index was not told: {error}"));
    }
    let counted = planning.counted();
    let info = RunInfo {
        head: Some(head.clone()),
        timings: watch.stages(),
        compiled: counted.compiled,
        cached: counted.cached,
        ..job.info()
    };
    let mut stopped = consent.stopped();
    for (plan, _) in &mut stopped {
        masked::stack(plan, planning.secrets());
    }
    tell(job, head, &report, &stopped, &info, feedback).await;
    if let Some(deployments) = deployments {
        deployments.end(&report).await;
    }
    Ok((report, consent))
}

/// What the states do not have yet.
struct Behind {
    targets: Vec<Target>,
    /// Stacks that something is known of and that are not to be seen: whether they were removed can not be told.
    held: Vec<Target>,
}

/// The stacks whose recorded digest is not the head's, and those that the head lacks but something is known of.
///
/// What is recorded of a folder that makes no stack any more stays: only what was taken out of the repository is removed.
fn behind(
    side: &Workspace,
    known: &crate::state::Known,
    renamed: &BTreeMap<StackId, StackId>,
) -> Result<Behind, Failure> {
    let goes_on: BTreeSet<&StackId> = renamed.values().collect();
    let mut targets = Vec::new();
    for stack in &side.layout.stacks {
        let recorded = known
            .entries
            .get(&stack.id)
            .and_then(|entry| entry.settled_digest());
        if recorded != Some(side.analysis.input_digest(stack)?) {
            targets.push(Target::of(stack, None));
        }
    }
    let gone = known
        .entries
        .iter()
        .filter(|(id, entry)| entry.is_known() && side.layout.stack(id).is_none())
        .filter(|(id, entry)| !goes_on.contains(id) && !side.layout.leaves_out(&entry.folder))
        .map(|(id, entry)| Target::forgotten(id.clone(), folder(entry)));
    let mut held = Vec::new();
    match side.layout.identities_certain() {
        true => targets.extend(gone),
        false => held.extend(gone),
    }
    Ok(Behind { targets, held })
}

fn folder(entry: &crate::state::Entry) -> RepoPath {
    entry.folder.clone()
}

/// Tells the pull requests that came with this head, and opens an issue for what nobody reviewed.
async fn tell(
    job: &Job,
    head: &CommitId,
    report: &ApplyReport,
    stopped: &[(StackPlan, Vec<Unit>)],
    info: &RunInfo,
    feedback: &Feedback<'_>,
) {
    feedback.summary(&report::markdown::outcome(report, info, None, SUMMARY_BUDGET));
    feedback.apply_outputs(report);
    if report.stacks.is_empty() {
        return;
    }
    let unreviewed: Vec<_> = stopped.iter().map(|(plan, _)| plan.digest.to_string()).collect();
    feedback.outputs(&[("unreviewed", unreviewed.join(","))]);
    feedback.merged_outcome(head, report, info).await;
    let settled: Vec<_> = report
        .stacks
        .iter()
        .filter(|stack| apply::is_well(stack.result))
        .map(|stack| stack.id.clone())
        .collect();
    feedback
        .issues(
            UNREVIEWED_LABEL,
            MarkerKind::Unreviewed,
            &settled,
            stopped
                .iter()
                .map(|(plan, units)| {
                    let marker = Marker {
                        head: head.to_string(),
                        run: job.runner.run_id,
                        attempt: job.runner.run_attempt,
                        digest: plan.digest.to_string(),
                        ..Marker::new(MarkerKind::Unreviewed, plan.id.as_str())
                    };
                    let title = format!("{}: a change that nobody reviewed was stopped", plan.id);
                    let body =
                        report::markdown::unreviewed(plan, units, info, &marker, report::COMMENT_BUDGET);
                    (marker, title, body)
                })
                .collect(),
        )
        .await;
}

fn description(report: &ApplyReport) -> String {
    if report.stacks.is_empty() {
        return "everything is applied already".to_owned();
    }
    let count = |result| {
        report
            .stacks
            .iter()
            .filter(|stack| stack.result == result)
            .count()
    };
    let words = [
        (StackResult::Applied, "applied"),
        (StackResult::Unchanged, "unchanged"),
        (StackResult::Failed, "failed"),
        (StackResult::Stopped, "stopped"),
        (StackResult::HeldBack, "held back"),
    ];
    let words: Vec<_> = words
        .iter()
        .filter(|(result, _)| count(*result) > 0)
        .map(|(result, word)| format!("{} {word}", count(*result)))
        .collect();
    words.join(", ")
}
