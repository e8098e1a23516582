//! What a preview is about: a pull request, a merge group, a fork's pull request seen from a job that may write.

use super::{
    Job, JobResult,
    authority::Trust,
    open::Sides,
    preview::show,
    publisher::Publisher,
    summary::{Place, RunSummary},
};
use crate::{
    error::UserError,
    git::GitError,
    github::{Client, DefaultBranch, PullRequest, PullRequestEvent, WorkflowRunEvent, other_branch},
    model::CommitId,
    report::Merging,
};

/// What a preview is about.
pub(super) struct PreviewTarget {
    /// The pull request; `None` in a merge queue.
    pub number: Option<u64>,
    /// The head: its identity.
    pub head: CommitId,
    /// The commits that it is made of.
    pub sides: Sides,
    /// What merging it does.
    pub merging: Merging,
    /// The branch it goes to, where that is not the default one.
    pub into: Option<String>,
}

/// Previews a pull request.
pub(super) async fn pull_request(job: &Job, event: &PullRequestEvent) -> Result<JobResult, UserError> {
    let (base, content) = sides(job, event).await?;
    let authority = &job.authority;
    let stranger = authority.trust == Trust::Stranger;
    let power = match &authority.branch {
        Some(branch) => branch.tip.clone(),
        // The tip of the base branch: the trial merge's first parent is newer than the event.
        None if event.merge_commit.as_ref() == Some(&content) => base.clone(),
        None => event.base.clone(),
    };
    if let (Some(into), false) = (authority.elsewhere(), stranger) {
        job.run.notes.note(&format!(
            "note: this pull request goes to `{into}`, not to `{}`: merging it applies nothing, so Spec is compared with Spec",
            event.default_branch
        ));
    }
    if stranger {
        job.run.notes.note("note: this job may not write: the summary holds the preview; the workflow on `workflow_run` posts it");
    }
    let subject = PreviewTarget {
        number: Some(event.number),
        head: event.head.clone(),
        sides: Sides { power, base, content },
        merging: authority.merging(),
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &subject, &Publisher::new(job)).await
}

/// The commits to compare: the trial merge with its first parent, if it is one of this head; else the head with the
/// merge base.
async fn sides(job: &Job, event: &PullRequestEvent) -> Result<(CommitId, CommitId), UserError> {
    let credentials = job.credentials.as_ref();
    if let Some(merge) = &event.merge_commit {
        job.repository.ensure(merge, credentials).await?;
        // Where the base has just become another branch, the trial merge may still be one with the old: GitHub makes it
        // anew in its own time, and what grants power must not come from there.
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

/// Renders a merge group for real, Spec against Spec; nothing is commented or recorded.
pub(super) async fn merge_group(job: &Job, base: &CommitId, head: &CommitId) -> Result<JobResult, UserError> {
    let authority = &job.authority;
    let power = authority.branch.as_ref().map_or(base, |branch| &branch.tip);
    let subject = PreviewTarget {
        number: None,
        head: head.clone(),
        sides: Sides {
            power: power.clone(),
            base: base.clone(),
            content: head.clone(),
        },
        merging: Merging::Queued,
        into: authority.elsewhere().map(str::to_owned),
    };
    show(job, &subject, &Publisher::new(job)).await
}

/// A pull request of a fork or of Dependabot, from the job that may write: its commits are fetched as data and compiled
/// in the sandbox. `branch` is the default branch: whatever is checked out grants nothing.
pub(super) async fn preview_outside(
    job: &Job,
    client: &Client,
    branch: &DefaultBranch,
    event: &WorkflowRunEvent,
) -> Result<JobResult, UserError> {
    refuse_strangers_tree(job, event).await?;
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
        sides: Sides {
            power: branch.tip.clone(),
            base,
            content: event.head.clone(),
        },
        merging: job.authority.merging(),
        into: other_branch(&pull.base_branch, &branch.name).map(str::to_owned),
    };
    let result = show(job, &subject, &Publisher::new(job)).await;
    if let Err(failure) = &result {
        let place = Place::preview(pull.number, &event.head, job.options.part);
        let ending = RunSummary::begin(&job.run, &job.runner);
        ending.comment(client, &place, failure).await;
    }
    result
}

/// The open pull request whose head a run was of. It is found by its branch: of a commit that only a fork holds GitHub
/// knows no pull request. Of several the one into the default branch is meant, which is what is applied.
async fn find_pull_request(
    client: &Client,
    event: &WorkflowRunEvent,
    default_branch: &str,
) -> Result<Option<PullRequest>, UserError> {
    let Some((owner, _)) = event.head_repository.split_once('/') else {
        return Ok(None);
    };
    let pulls = client.open_pull_requests_from(owner, &event.head_branch).await?;
    let of_head = pulls
        .into_iter()
        .filter(|pull| pull.from_fork == event.from_fork && pull.head == event.head);
    Ok(of_head.min_by_key(|pull| (pull.base_branch != default_branch, pull.number)))
}

/// Refuses a working tree with the stranger's commit in it: that commit, GitHub's trial merge of it, one on top of it.
async fn refuse_strangers_tree(job: &Job, event: &WorkflowRunEvent) -> Result<(), UserError> {
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
