//! The combined status of a preview with shards, which branch protection can require. It combines the statuses of all
//! shards in this run. A shard that died has no status, so the combined status is no success.

use std::{collections::BTreeSet, num::NonZeroU32};

use crate::{
    job::JobResult,
    newer_status::{OVERTAKEN, is_of_later_run, is_of_run, newest_status},
    publisher::Publisher,
    shard_mode::ShardMode,
    trust::authority::{Authority, Caller, Decision, Task},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{CommitId, Shard},
};
use konverge_forge::{CiJob, CommitStatus, Forge, ForgeError, JobEvent, StatusState, preview_of};
use konverge_run::RunContext;

/// Sets the combined status to pending. A status of an earlier run for the same commit is outdated, and no `success`
/// may remain while a shard is running. Any shard may be the first of its run, or be re-run alone, so each shard must
/// do this.
///
/// GitHub allows 80 writes per minute, and a matrix has up to 256 jobs. So a shard does not set `pending` if a shard of
/// this run has set it. In the first attempt of a run, only the final job sets another status for the run, so an
/// outdated response is harmless, and no shard has a status from an earlier attempt. Only a re-run shard also resets
/// its own status.
pub(super) async fn open_status(
    publisher: &Publisher<'_>,
    head: &CommitId,
    part: ShardMode,
    into: Option<&str>,
) {
    let pending = async |context: &str| {
        let looking = "planning";
        publisher
            .own_status(head, context, StatusState::Pending, looking)
            .await;
    };
    let runner = publisher.job.runner.as_ref();
    let again = runner.info().run_attempt > 1;
    let whole = preview_of(None, into);
    let newest = newest_status(publisher.client, head, &whole).await;
    let (is_open, overtaken) = match &newest {
        Ok(Some(newest)) => (
            newest.state == StatusState::Pending && is_of_run(newest, runner),
            is_of_later_run(newest, runner),
        ),
        Ok(None) | Err(_) => (false, false),
    };
    if overtaken {
        publisher.job.run.notes.note(OVERTAKEN);
    } else if part.share().is_none() || again || !is_open {
        pending(&whole).await;
    }
    if part.share().is_some() && again {
        pending(&part.context(into)).await;
    }
}

const NOT_AGAIN: &str = "a result from an earlier attempt of this run counts only if the jobs of all shards succeeded; hint: give this job `shard-result: ${{ needs.JOB.result }}`, or start all jobs again";

fn is_of_attempt(status: &CommitStatus, runner: &dyn CiJob) -> bool {
    status.target_url.as_deref() == Some(&runner.attempt_url())
}

/// Sets the status of a failed run to `error` if the status is pending or missing, so that a required status does not
/// wait for ever. A job on `workflow_run` may have set the status of another base branch instead.
///
/// # Errors
/// GitHub refuses the status.
pub(super) async fn end_open(
    client: &dyn Forge,
    runner: &dyn CiJob,
    head: &CommitId,
    context: &str,
    why: &str,
) -> Result<(), ForgeError> {
    // If the statuses cannot be listed, `error` is set nevertheless, because it permits no merge.
    let statuses = client.newest_statuses(head).await.unwrap_or_default();
    let elsewhere = format!("{} into ", preview_of(None, None));
    let mut seen = BTreeSet::new();
    let mut open = Vec::new();
    let mut has_reported = false;
    for status in &statuses {
        let is_it = status.context == context
            || (context == preview_of(None, None) && status.context.starts_with(&elsewhere));
        // The newest status comes first in the list, so only the first status of each name is in force.
        if !is_it || !seen.insert(&status.context) {
            continue;
        }
        let is_own = is_of_attempt(status, runner);
        let overtaken = status.context == context && is_of_later_run(status, runner);
        has_reported |= is_own || overtaken;
        if is_own && status.state == StatusState::Pending {
            open.push(status.context.as_str());
        }
    }
    // The run failed before it set a status. Without a status, a required one would wait for ever.
    if !has_reported {
        open.push(context);
    }
    for context in open {
        client
            .set_status(
                head,
                context,
                StatusState::Error,
                why,
                Some(&runner.attempt_url()),
            )
            .await?;
    }
    Ok(())
}

/// Sets the combined status on the head of the event. Needs no checkout, and fails if the status cannot be published.
pub(super) async fn run(
    run: &RunContext,
    runner: &dyn CiJob,
    event: &JobEvent,
    client: Option<&dyn Forge>,
    of: NonZeroU32,
    shards_succeeded: bool,
) -> Result<JobResult, UserError> {
    let caller = Caller::new(runner, "", None);
    let Some((head, into)) = judged_commit(run, event, caller)? else {
        return Ok(JobResult::SUCCESS);
    };
    let (head, into) = (&head, into.as_deref());
    let client = client.ok_or_else(|| {
        UserError::new(
            ErrorKind::Github,
            "the results of the shards cannot be read without a token",
        )
        .hint(runner.kind().token_hint())
    })?;
    let shares = Shard::all(of).map_err(|error| UserError::from_error(ErrorKind::Usage, error))?;
    let statuses = client.statuses(head).await?;
    let (state, description) = verdict(shares, into, &statuses, runner, shards_succeeded);
    if state == StatusState::Error && runner.info().run_attempt > 1 && !shards_succeeded {
        run.notes.note(NOT_AGAIN);
    }
    let whole = preview_of(None, into);
    // If the base branch has changed, a later run may have set the status of the same commit.
    let newest = statuses.iter().find(|status| status.context == whole);
    if newest.is_some_and(|newest| is_of_later_run(newest, runner)) {
        run.notes.note(OVERTAKEN);
    } else {
        client
            .set_status(head, &whole, state, &description, Some(&runner.attempt_url()))
            .await?;
    }
    Ok(JobResult {
        code: u8::from(state != StatusState::Success),
        text: format!("{description}\n"),
    })
}

/// Returns the head whose shards were previewed, if this job may report their status, and the target branch if it is
/// not the default branch. The job only reads and sets statuses, so it does not ask the forge for the default branch.
fn judged_commit(
    run: &RunContext,
    event: &JobEvent,
    caller: Caller<'_>,
) -> Result<Option<(CommitId, Option<String>)>, UserError> {
    let authority = match Authority::decide(event, caller)? {
        Decision::Granted(authority) => authority,
        Decision::Ask(question) => question.decide(None)?,
        Decision::Nothing(why) => {
            run.notes.info(&why);
            return Ok(None);
        }
    };
    if !authority.trust.grants().publishes {
        run.notes
            .note("this job has no write permission: the workflow on `workflow_run` sets the status");
        return Ok(None);
    }
    let into = authority.elsewhere().map(str::to_owned);
    Ok(match authority.task {
        Task::PullRequest { event, .. } => Some((event.head, into)),
        Task::MergeGroup { head, .. } => Some((head, into)),
        Task::Outside { .. } | Task::Apply(_) | Task::Drift(_) | Task::Restore { .. } => None,
    })
}

/// Combines the statuses of all shards in this run: success if the newest status of every shard is a success.
///
/// After a re-run of failed jobs, the other shards still have statuses from an earlier attempt. These count only if
/// GitHub reports that all jobs of the shards `succeeded`, because a re-run job that died leaves its earlier success
/// behind.
fn verdict(
    shares: impl Iterator<Item = Shard>,
    into: Option<&str>,
    statuses: &[CommitStatus],
    runner: &dyn CiJob,
    succeeded: bool,
) -> (StatusState, String) {
    let (mut seen, mut failed, mut silent, mut earlier) = (0, Vec::new(), Vec::new(), Vec::new());
    for share in shares {
        let context = preview_of(Some(share), into);
        let of_this = |status: &&CommitStatus| status.context == context && is_of_run(status, runner);
        let said = statuses.iter().find(of_this);
        match said.map(|status| (status.state, is_of_attempt(status, runner) || succeeded)) {
            Some((StatusState::Success, true)) => seen += 1,
            Some((StatusState::Success, false)) => earlier.push(share.to_string()),
            Some((StatusState::Failure | StatusState::Error, _)) => failed.push(share.to_string()),
            Some((StatusState::Pending, _)) | None => silent.push(share.to_string()),
        }
    }
    let attempt = runner.info().run_attempt;
    let listed = |words: &str, shares: &[String]| format!("{words} shards {}", shares.join(", "));
    // The worst result wins: a failure, then a shard without a result, then a result that may be outdated.
    if !failed.is_empty() {
        return (StatusState::Failure, listed("could not be previewed:", &failed));
    }
    if !silent.is_empty() {
        return (StatusState::Error, listed("no result from", &silent));
    }
    if !earlier.is_empty() {
        let words = format!("no result in attempt {attempt} from");
        return (StatusState::Error, listed(&words, &earlier));
    }
    let all = match seen {
        1 => "the only shard was previewed".to_owned(),
        seen => format!("all {seen} shards were previewed"),
    };
    (StatusState::Success, all)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use konverge_run::forge;

    use super::*;

    const PAGE: &str = "https://github.com/acme/konfig/actions/runs/7";

    fn runner() -> Arc<dyn CiJob> {
        let sha = "a".repeat(40);
        let variables = [
            ("GITHUB_EVENT_NAME", "pull_request"),
            ("GITHUB_EVENT_PATH", "/event.json"),
            ("GITHUB_REPOSITORY", "acme/konfig"),
            ("GITHUB_SHA", sha.as_str()),
            ("GITHUB_REF", "refs/pull/7/merge"),
            ("GITHUB_RUN_ID", "7"),
            ("GITHUB_RUN_ATTEMPT", "2"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        forge::open_job(&variables.into()).unwrap()
    }

    fn status(share: &str, state: StatusState, page: &str) -> CommitStatus {
        CommitStatus {
            context: format!("konverge/preview {share}"),
            state,
            description: None,
            target_url: Some(page.to_owned()),
        }
    }

    fn combine(statuses: &[CommitStatus]) -> (StatusState, String) {
        combine_with(statuses, true)
    }

    fn combine_with(statuses: &[CommitStatus], succeeded: bool) -> (StatusState, String) {
        let shares = Shard::all(NonZeroU32::new(2).unwrap()).unwrap();
        verdict(shares, None, statuses, runner().as_ref(), succeeded)
    }

    #[test]
    fn every_share_has_to_have_said_yes_in_this_run() {
        use StatusState::{Error, Failure, Pending, Success};
        let yes = status("2/2", Success, PAGE);
        let (state, said) = combine(&[status("1/2", Success, PAGE), yes.clone()]);
        assert_eq!((state, said.as_str()), (Success, "all 2 shards were previewed"));
        // The newest status counts, which is the first.
        let late = [
            status("1/2", Success, PAGE),
            status("1/2", Pending, PAGE),
            yes.clone(),
        ];
        assert_eq!(combine(&late).0, Success);
        for (first, expected) in [(Failure, Failure), (Error, Failure), (Pending, Error)] {
            let (state, said) = combine(&[status("1/2", first, PAGE), yes.clone()]);
            assert_eq!(state, expected);
            assert!(said.ends_with("shards 1/2"), "{said}");
        }
        assert_eq!(combine(std::slice::from_ref(&yes)).0, Error);
        // The status of another run does not belong to this one and does not affect it.
        let other = |state| status("1/2", state, "https://github.com/acme/konfig/actions/runs/6");
        assert_eq!(combine(&[other(Success), yes.clone()]).0, Error);
        let own = status("1/2", Success, PAGE);
        assert_eq!(combine(&[other(Failure), own, yes.clone()]).0, Success);
        // The job that did not fail was not started again.
        for attempt in ["1", "2"] {
            let own = status("1/2", Success, &format!("{PAGE}/attempts/{attempt}"));
            assert_eq!(combine(&[own, yes.clone()]).0, Success);
        }
    }

    #[test]
    fn an_earlier_attempt_counts_only_if_all_jobs_succeeded() {
        use StatusState::{Error, Failure, Success};
        let of =
            |share: &str, state, attempt: u32| status(share, state, &format!("{PAGE}/attempts/{attempt}"));
        let both = [of("1/2", Success, 1), of("2/2", Success, 2)];
        assert_eq!(combine_with(&both, true).0, Success);
        let (state, said) = combine_with(&both, false);
        assert_eq!(
            (state, said.as_str()),
            (Error, "no result in attempt 2 from shards 1/2")
        );
        // A page without an attempt is not known to be of this one.
        assert_eq!(
            combine_with(&[status("1/2", Success, PAGE), both[1].clone()], false).0,
            Error
        );
        let now = [of("1/2", Success, 2), of("2/2", Success, 2)];
        assert_eq!(combine_with(&now, false).0, Success);
        // A failure stays one, whatever the jobs' result is.
        assert_eq!(
            combine_with(&[of("1/2", Failure, 1), both[1].clone()], true).0,
            Failure
        );
    }
}
