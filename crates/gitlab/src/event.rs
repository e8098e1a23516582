//! The event that started a pipeline, from GitLab's predefined variables.

use std::collections::BTreeMap;

use konverge_base::{model::CommitId, variables};
use konverge_forge::{ForgeError, JobEvent, JobInfo, PullRequestEvent, PushEvent, Result};

use crate::environment::Environment;

const ZERO: &str = "0000000000000000000000000000000000000000";

/// The variables of the event. Reading a missing one gives an error.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variables<'a>(pub(super) Environment<'a>);

impl<'a> Variables<'a> {
    pub(super) fn text(self, name: &str) -> Result<&'a str> {
        self.0.var(name).ok_or_else(|| ForgeError::Runner {
            message: format!("{name} is not set: not running in a pipeline of GitLab"),
            hint: "run `konverge preview` or `konverge apply` outside of a job; in a container of its own pass the CI_ variables on"
                .to_owned(),
        })
    }

    pub(super) fn number(self, name: &str) -> Result<u64> {
        let text = self.text(name)?;
        text.parse().map_err(|_| unusable(name, text))
    }

    pub(super) fn commit(self, name: &str) -> Result<CommitId> {
        let text = self.text(name)?;
        text.parse().map_err(|_| unusable(name, text))
    }

    /// Returns the full ref of the pipeline.
    pub(super) fn full_ref(self) -> Result<String> {
        if self.0.var(variables::CI_MERGE_REQUEST_IID).is_some() {
            let number = self.number(variables::CI_MERGE_REQUEST_IID)?;
            return Ok(format!("refs/merge-requests/{number}/head"));
        }
        if let Some(tag) = self.0.var(variables::CI_COMMIT_TAG) {
            return Ok(format!("refs/tags/{tag}"));
        }
        Ok(format!("refs/heads/{}", self.text(variables::CI_COMMIT_BRANCH)?))
    }
}

/// Creates the error for a variable with an unexpected value.
pub(super) fn unusable(name: &str, value: &str) -> ForgeError {
    ForgeError::Runner {
        message: format!("{name} has the invalid value `{}`", value.escape_debug()),
        hint: "remove the variable from `variables:` of the pipeline: GitLab sets it".to_owned(),
    }
}

/// Reads the event of a pipeline.
///
/// # Errors
/// A missing or invalid variable; an event that Konverge does not support or refuses.
pub(super) fn read(vars: Variables<'_>, job: &JobInfo) -> Result<JobEvent> {
    let default_branch = vars.text(variables::CI_DEFAULT_BRANCH)?.to_owned();
    match job.event_name.as_str() {
        "merge_request_event" => merge_request(vars, job, default_branch),
        "push" => Ok(JobEvent::Push(PushEvent {
            ref_name: job.ref_name.clone(),
            before: match vars.0.var(variables::CI_COMMIT_BEFORE_SHA) {
                None | Some(ZERO) => None,
                Some(_) => Some(vars.commit(variables::CI_COMMIT_BEFORE_SHA)?),
            },
            after: Some(job.sha.clone()),
            // GitLab does not tell a job if a push was forced.
            forced: false,
            default_branch,
        })),
        "schedule" => Ok(JobEvent::Schedule { cron: String::new() }),
        // Somebody started the pipeline by hand, on any branch: in the browser, or with a token.
        "web" | "api" | "trigger" => Ok(JobEvent::WorkflowDispatch {
            inputs: inputs(vars),
            ref_name: job.ref_name.clone(),
            default_branch,
        }),
        other => Err(ForgeError::Runner {
            message: format!("Konverge does not handle pipelines of the source `{}`", other.escape_debug()),
            hint: "Konverge handles merge_request_event, push, schedule, web, api and trigger: a pipeline that another pipeline started does not name its change"
                .to_owned(),
        }),
    }
}

/// Returns the inputs of a manually started pipeline, from the variables that the CI file sets to them.
fn inputs(vars: Variables<'_>) -> BTreeMap<String, String> {
    let input = |key: &str, variable: &str| Some((key.to_owned(), vars.0.var(variable)?.to_owned()));
    [
        input("approve", variables::KONVERGE_APPROVE),
        input("reason", variables::KONVERGE_REASON),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn merge_request(vars: Variables<'_>, job: &JobInfo, default_branch: String) -> Result<JobEvent> {
    let number = vars.number(variables::CI_MERGE_REQUEST_IID)?;
    let base_branch = vars
        .text(variables::CI_MERGE_REQUEST_TARGET_BRANCH_NAME)?
        .to_owned();
    let kind = vars
        .0
        .var(variables::CI_MERGE_REQUEST_EVENT_TYPE)
        .unwrap_or("detached");
    let (base, head, merge_commit) = match kind {
        // In a detached pipeline the commit is the head itself.
        "detached" => (
            vars.commit(variables::CI_MERGE_REQUEST_DIFF_BASE_SHA)?,
            job.sha.clone(),
            None,
        ),
        // In a merged results pipeline the commit is the merge of the head into the target.
        "merged_result" => (
            vars.commit(variables::CI_MERGE_REQUEST_TARGET_BRANCH_SHA)?,
            vars.commit(variables::CI_MERGE_REQUEST_SOURCE_BRANCH_SHA)?,
            Some(job.sha.clone()),
        ),
        "merge_train" => {
            return Ok(JobEvent::MergeGroup {
                // The base is the end of the train before this merge request.
                base: vars.commit(variables::CI_MERGE_REQUEST_TARGET_BRANCH_SHA)?,
                head: job.sha.clone(),
                base_branch,
                default_branch,
                pull_request: Some(number),
            });
        }
        other => return Err(unusable(variables::CI_MERGE_REQUEST_EVENT_TYPE, other)),
    };
    let target = vars.number(variables::CI_MERGE_REQUEST_PROJECT_ID)?;
    let is_home = |name: &str| Ok::<_, ForgeError>(vars.number(name)? == target);
    Ok(JobEvent::PullRequest(PullRequestEvent {
        // GitLab starts no pipeline for a new title, a new target or a closed merge request. So every event is like
        // a push.
        action: "synchronize".to_owned(),
        base_changed: false,
        number,
        // No variable contains the author.
        author: String::new(),
        base,
        base_branch,
        default_branch,
        head,
        head_branch: vars
            .text(variables::CI_MERGE_REQUEST_SOURCE_BRANCH_NAME)?
            .to_owned(),
        merge_commit,
        // The pipeline either runs in the fork, or a member of this project has started it here, with the project's
        // secrets.
        from_fork: !is_home(variables::CI_MERGE_REQUEST_SOURCE_PROJECT_ID)?
            || !is_home(variables::CI_PROJECT_ID)?,
        dependabot: false,
        merged: false,
    }))
}

#[cfg(test)]
#[path = "event_tests.rs"]
pub(super) mod tests;
