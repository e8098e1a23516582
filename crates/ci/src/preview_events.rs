//! Starts the preview for an event: a pull request, a merge group, or a pull request from outside in a job with write
//! access.

use crate::{
    job::{Job, JobResult},
    open_revisions::{PreviewCommits, PreviewTarget},
    preview::show,
    publisher::Publisher,
    summary::{FailureComment, RunSummary},
    trust::job_trust::Trust,
};
use konverge_base::{error::UserError, model::CommitId};
use konverge_forge::{
    DefaultBranch, Forge, ForgeKind, PullRequest, PullRequestEvent, WorkflowRunEvent, other_branch,
};
use konverge_repo::git::GitError;
use konverge_report::Merging;

/// Previews a pull request of this repository, or one from outside in a job without write access.
pub(super) async fn pull_request(job: &Job, event: &PullRequestEvent) -> Result<JobResult, UserError> {
    let (base, content) = compared_commits(job, event).await?;
    let authority = &job.authority;
    let untrusted = authority.trust == Trust::Untrusted;
    let branch = authority.branch.as_ref().map(|branch| &branch.tip);
    let trusted = trusted_commit(branch, event, &base, &content).clone();
    if let (Some(into), false) = (authority.elsewhere(), untrusted) {
        job.run.notes.note(&format!(
            "this pull request targets `{into}`, not `{}`. Merging it applies nothing, so the preview compares Specs only",
            event.default_branch
        ));
    }
    if untrusted {
        job.run.notes.note(match job.runner.kind() {
            ForgeKind::Github | ForgeKind::Gitea => {
                "this job has no write permission: the summary has the preview; the workflow on `workflow_run` posts it"
            }
            ForgeKind::Gitlab => "this job has no write permission: the summary has the preview",
        });
    }
    let target = PreviewTarget {
        number: Some(event.number),
        head: event.head.clone(),
        commits: PreviewCommits {
            trusted,
            base,
            content,
        },
        merging: authority.merging(),
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &target, &Publisher::new(job)).await
}

/// Returns the commit that grants permissions: the tip of the default branch, or else the tip of the base branch. The
/// merge base grants nothing, because the author of a change chooses it.
pub(super) fn trusted_commit<'c>(
    branch: Option<&'c CommitId>,
    event: &'c PullRequestEvent,
    base: &'c CommitId,
    content: &CommitId,
) -> &'c CommitId {
    match branch {
        Some(tip) => tip,
        // The first parent of the test merge is a newer base than that of the event.
        None if event.merge_commit.as_ref() == Some(content) => base,
        None => &event.base,
    }
}

/// Returns the base and the commit to compile: the test merge with its first parent if it belongs to this head,
/// otherwise the head with the merge base.
pub(super) async fn compared_commits(
    job: &Job,
    event: &PullRequestEvent,
) -> Result<(CommitId, CommitId), UserError> {
    let credentials = job.credentials.as_ref();
    if let Some(merge) = &event.merge_commit {
        job.repository.ensure(merge, credentials).await?;
        // GitHub updates the test merge with a delay. After a change of the base branch it may still belong to the old
        // branch, which must not grant permissions.
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
    UserError::from(error)
        .hint("or add `fetch-depth: 0` under `with:` of actions/checkout, `GIT_DEPTH: \"0\"` at GitLab")
}

/// Previews a merge group by comparing Specs, without a comment and a review record.
pub(super) async fn merge_group(job: &Job, base: &CommitId, head: &CommitId) -> Result<JobResult, UserError> {
    let authority = &job.authority;
    let trusted = authority.branch.as_ref().map_or(base, |branch| &branch.tip);
    let target = PreviewTarget {
        number: None,
        head: head.clone(),
        commits: PreviewCommits {
            trusted: trusted.clone(),
            base: base.clone(),
            content: head.clone(),
        },
        merging: Merging::Queued,
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &target, &Publisher::new(job)).await
}

/// Previews a pull request from a fork or from Dependabot in the job with write access. The commits are fetched as data
/// and compiled in the sandbox. Permissions come from the default branch `branch`, and none from the checkout.
pub(super) async fn preview_outside(
    job: &Job,
    client: &dyn Forge,
    branch: &DefaultBranch,
    event: &WorkflowRunEvent,
) -> Result<JobResult, UserError> {
    refuse_untrusted_checkout(job, event).await?;
    let Some(pull) = find_pull_request(client, event, &branch.name).await? else {
        job.run
            .notes
            .info("the pull request is closed or has a newer head: nothing to do");
        return Ok(JobResult::SUCCESS);
    };
    let credentials = job.credentials.as_ref();
    let base = job
        .repository
        .merge_base_fetching(&branch.tip, &event.head, credentials)
        .await
        .map_err(shallow)?;
    let target = PreviewTarget {
        number: Some(pull.number),
        head: event.head.clone(),
        commits: PreviewCommits {
            trusted: branch.tip.clone(),
            base,
            content: event.head.clone(),
        },
        merging: job.authority.merging(),
        into: other_branch(&pull.base_branch, &branch.name).map(str::to_owned),
    };
    let result = show(job, &target, &Publisher::new(job)).await;
    if let Err(failure) = &result {
        let comment = FailureComment::preview(pull.number, &event.head, job.options.part);
        let runner = job.runner.as_ref();
        let ending = RunSummary::new(&job.run, runner, runner.summary_length());
        ending.comment(client, &comment, failure).await;
    }
    result
}

/// Returns an error if the working tree contains code from outside: the commit of the event, GitHub's test merge of
/// this commit, or a commit on top of one of them.
async fn refuse_untrusted_checkout(job: &Job, event: &WorkflowRunEvent) -> Result<(), UserError> {
    let here = job.repository.resolve("HEAD")?;
    if here == job.runner.info().sha {
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

/// Finds the open pull request of a run's head, by its number if the run has it, or else by its branch: GitHub lists no
/// pull request for a commit that only a fork has. Of several, the one into the default branch is used, because only
/// its merge is applied.
pub(crate) async fn find_pull_request(
    client: &dyn Forge,
    event: &WorkflowRunEvent,
    default_branch: &str,
) -> Result<Option<PullRequest>, UserError> {
    let pulls = match (event.pull_request, event.head_repository.split_once('/')) {
        (Some(number), _) => vec![client.pull_request(number).await?],
        (None, Some((owner, _))) => client.open_pull_requests_from(owner, &event.head_branch).await?,
        (None, None) => return Ok(None),
    };
    let of_head = pulls
        .into_iter()
        .filter(|pull| pull.open && pull.from_fork == event.from_fork && pull.head == event.head);
    Ok(of_head.min_by_key(|pull| (pull.base_branch != default_branch, pull.number)))
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
        assert_eq!(trusted_commit(Some(&tip), &event, &older, &head), &tip);
        // Without the test merge `older` is the merge base, which the author chooses.
        assert_eq!(trusted_commit(None, &event, &older, &head), &event_base);
        assert_eq!(trusted_commit(None, &event, &older, &merge), &older);
    }
}
