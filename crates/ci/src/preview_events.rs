//! Starts the preview of an event: of a pull request, of a merge group, or of a pull request from outside in a
//! job with write access.

use crate::{
    job::{Job, JobResult},
    open_revisions::PreviewCommits,
    preview::show,
    preview_target::PreviewTarget,
    publisher::Publisher,
    summary::{FailureComment, RunSummary},
    trust::{job_trust::Trust, outside_pull_request::find_pull_request},
};
use konverge_base::{error::UserError, model::CommitId};
use konverge_github::{Client, DefaultBranch, PullRequestEvent, WorkflowRunEvent, other_branch};
use konverge_repo::git::GitError;
use konverge_report::Merging;

/// Previews a pull request.
pub(super) async fn pull_request(job: &Job, event: &PullRequestEvent) -> Result<JobResult, UserError> {
    let (base, content) = sides(job, event).await?;
    let authority = &job.authority;
    let untrusted = authority.trust == Trust::Untrusted;
    let branch = authority.branch.as_ref().map(|branch| &branch.tip);
    let power = power(branch, event, &base, &content).clone();
    if let (Some(into), false) = (authority.elsewhere(), untrusted) {
        job.run.notes.note(&format!(
            "note: this pull request targets `{into}`, not `{}`. Merging it applies nothing, so the preview compares Specs only",
            event.default_branch
        ));
    }
    if untrusted {
        job.run.notes.note("note: this job may not write: the summary holds the preview; the workflow on `workflow_run` posts it");
    }
    let subject = PreviewTarget {
        number: Some(event.number),
        head: event.head.clone(),
        sides: PreviewCommits { power, base, content },
        merging: authority.merging(),
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &subject, &Publisher::new(job)).await
}

/// The commit that grants permissions: the tip of the default branch, or without it that of the base branch. The author
/// chooses the merge base, so it grants nothing.
pub(super) fn power<'c>(
    branch: Option<&'c CommitId>,
    event: &'c PullRequestEvent,
    base: &'c CommitId,
    content: &CommitId,
) -> &'c CommitId {
    match branch {
        Some(tip) => tip,
        // The first parent of the test merge is newer than the event.
        None if event.merge_commit.as_ref() == Some(content) => base,
        None => &event.base,
    }
}

/// The commits to compare: the test merge with its first parent, if it belongs to this head; otherwise the
/// head with the merge base.
pub(super) async fn sides(job: &Job, event: &PullRequestEvent) -> Result<(CommitId, CommitId), UserError> {
    let credentials = job.credentials.as_ref();
    if let Some(merge) = &event.merge_commit {
        job.repository.ensure(merge, credentials).await?;
        // After a change of the base branch the test merge may still belong to the old one, because GitHub
        // updates it with a delay. Permissions must not come from the old branch.
        if let [first, second] = job.repository.parents(merge)?.as_slice()
            && *second == event.head
            && (!event.base_changed || *first == event.base)
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

fn shallow(error: GitError) -> UserError {
    UserError::from(error).hint("or add `fetch-depth: 0` under `with:` of actions/checkout")
}

/// Previews a merge group by comparing Specs; nothing is commented or recorded.
pub(super) async fn merge_group(job: &Job, base: &CommitId, head: &CommitId) -> Result<JobResult, UserError> {
    let authority = &job.authority;
    let power = authority.branch.as_ref().map_or(base, |branch| &branch.tip);
    let subject = PreviewTarget {
        number: None,
        head: head.clone(),
        sides: PreviewCommits {
            power: power.clone(),
            base: base.clone(),
            content: head.clone(),
        },
        merging: Merging::Queued,
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &subject, &Publisher::new(job)).await
}

/// Previews a pull request from a fork or from Dependabot in the job with write access: its commits are
/// fetched as data and compiled in the sandbox. `branch` is the default branch: the checkout grants nothing.
pub(super) async fn preview_outside(
    job: &Job,
    client: &Client,
    branch: &DefaultBranch,
    event: &WorkflowRunEvent,
) -> Result<JobResult, UserError> {
    refuse_untrusted_checkout(job, event).await?;
    let Some(pull) = find_pull_request(client, event, &branch.name).await? else {
        job.run
            .notes
            .note("the pull request is closed or has a newer head: nothing to do");
        return Ok(JobResult::WELL);
    };
    let credentials = job.credentials.as_ref();
    let base = job
        .repository
        .merge_base_fetching(&branch.tip, &event.head, credentials)
        .await
        .map_err(shallow)?;
    let subject = PreviewTarget {
        number: Some(pull.number),
        head: event.head.clone(),
        sides: PreviewCommits {
            power: branch.tip.clone(),
            base,
            content: event.head.clone(),
        },
        merging: job.authority.merging(),
        into: other_branch(&pull.base_branch, &branch.name).map(str::to_owned),
    };
    let result = show(job, &subject, &Publisher::new(job)).await;
    if let Err(failure) = &result {
        let place = FailureComment::preview(pull.number, &event.head, job.options.part);
        let ending = RunSummary::begin(&job.run, &job.runner);
        ending.comment(client, &place, failure).await;
    }
    result
}

/// Returns an error if the working tree contains the commit from outside: that commit, GitHub's test merge of
/// it, or a commit on top of it.
async fn refuse_untrusted_checkout(job: &Job, event: &WorkflowRunEvent) -> Result<(), UserError> {
    let here = job.repository.resolve("HEAD")?;
    if here == job.runner.sha {
        return Ok(());
    }
    let credentials = job.credentials.as_ref();
    let common = job
        .repository
        .merge_base_fetching(&here, &event.head, credentials)
        .await;
    match common {
        Ok(common) => Ok(event.refuse_checkout_on(&common)?),
        Err(GitError::NoMergeBase(..)) => Ok(()),
        Err(error) => Err(shallow(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(digit: char) -> CommitId {
        digit.to_string().repeat(40).parse().unwrap()
    }

    #[test]
    fn the_merge_base_grants_nothing() {
        let (event_base, head, merge, older, tip) =
            (commit('1'), commit('2'), commit('3'), commit('4'), commit('5'));
        let event = PullRequestEvent {
            action: "opened".to_owned(),
            base_changed: false,
            number: 1,
            author: "octocat".to_owned(),
            base: event_base.clone(),
            base_branch: "release".to_owned(),
            default_branch: "main".to_owned(),
            head: head.clone(),
            head_branch: "a".to_owned(),
            merge_commit: Some(merge.clone()),
            from_fork: false,
            dependabot: false,
            merged: false,
        };
        assert_eq!(power(Some(&tip), &event, &older, &head), &tip);
        // Without the test merge `older` is the merge base, which the author chooses.
        assert_eq!(power(None, &event, &older, &head), &event_base);
        assert_eq!(power(None, &event, &older, &merge), &older);
    }
}
