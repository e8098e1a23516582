//! The authority of a job: its task and its permissions. This value is computed only here, from the event, the user who
//! started the run, and the forge's response about the default branch. This file sends no requests, and its tests cover
//! the decisions as a table.
//!
//! No ref of an event grants anything. Everything that grants permissions (store, clusters, sandbox, policy…) is read
//! from the commit that the forge names as the tip of the default branch *now*, also in a re-run. A tag is not a
//! branch.

use crate::trust::{approve_input::Approved, job_trust::Trust};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::CommitId,
};
use konverge_forge::{
    CiJob, DefaultBranch, ForgeKind, JobEvent, PullRequestEvent, PushEvent, WorkflowRunEvent, other_branch,
};
use konverge_report::Merging;

/// The start of a run: its user, its ref, and its inputs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    /// The forge that runs the job.
    pub forge: ForgeKind,
    /// The full ref of the run, for example `refs/heads/main`.
    pub ref_name: &'a str,
    /// The actor: the user who started the run, or re-ran it.
    pub actor: &'a str,
    /// The user who started the first attempt, and so chose its inputs.
    pub starter: &'a str,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The approved digests from the job inputs.
    pub approve: &'a str,
    /// The environment of the job, if the job names it.
    pub environment: Option<&'a str>,
    /// The only environment whose stacks the job applies.
    pub for_environment: Option<&'a str>,
    /// The task of the job on a schedule.
    pub on_schedule: ScheduledTask,
}

impl<'a> Caller<'a> {
    /// Creates the caller of a run.
    pub(crate) fn new(runner: &'a dyn CiJob, approve: &'a str, environment: Option<&'a str>) -> Self {
        let job = runner.info();
        Self {
            forge: runner.kind(),
            ref_name: &job.ref_name,
            actor: &job.actor,
            starter: &job.starter,
            attempt: job.run_attempt,
            approve,
            environment,
            for_environment: None,
            on_schedule: ScheduledTask::Drift,
        }
    }
}

/// The default branch at the forge, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DefaultBranchLookup<'a> {
    /// The forge was not asked yet.
    NotYet,
    /// The forge cannot be asked: there is no token, or the job needs no permissions.
    Never,
    /// The default branch; the flag is true if it contains the commit of the event.
    Is(&'a DefaultBranch, bool),
}

/// The decision for an event.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a job makes one of them")]
pub(crate) enum Decision {
    /// The event needs no action, for this reason.
    Nothing(String),
    /// The decision depends on the default branch, so the caller must ask the forge and decide again.
    Ask,
    /// The job has this authority.
    Granted(Authority),
}

/// The task of a job, with its permissions.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    pub task: Task,
    /// The trust in the code that the job processes. [`Trust::grants`] returns the permissions.
    pub trust: Trust,
    /// The default branch, whose tip grants permissions; `None` grants none.
    pub branch: Option<DefaultBranch>,
    /// The actor, whom `policy.actors` checks.
    pub actor: String,
    /// True if the actor pushed or merged the applied commit in this attempt, so that GitHub has checked the
    /// permission.
    pub pushed: bool,
    /// The only environment whose stacks the job applies; `None` for all stacks.
    pub environment: Option<String>,
}

/// The task of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    PullRequest(Box<PullRequestEvent>),
    /// Preview the group of a merge queue.
    MergeGroup {
        /// The commit on which the merge group is based.
        base: CommitId,
        head: CommitId,
        /// The target branch.
        base_branch: String,
        /// The default branch that the event names.
        default_branch: String,
    },
    /// Preview a pull request from outside in a job of this repository.
    Outside(Box<WorkflowRunEvent>),
    /// Apply a commit of the default branch.
    Apply {
        head: CommitId,
        /// The manual approvals.
        approved: Approved,
        /// The people whose approvals of digests count.
        agreeing: DispatchApprovers,
    },
    /// Check for drift at the tip of the default branch.
    Drift {
        head: CommitId,
    },
    /// Restore drift that the reviewers of the job's environment approved.
    Restore {
        approved: Approved,
    },
}

/// The people whose approvals of digests count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DispatchApprovers {
    /// The user who started the first attempt with these digests and, if rules require more people, the users who
    /// approved the job in its environment.
    Starter {
        login: String,
        /// The reason that the user entered.
        reason: String,
    },
    /// Only the users who approved the job in its environment, because the run found the digests itself after its
    /// start.
    Environment,
}

impl Authority {
    /// Decides what a job may do.
    ///
    /// # Errors
    /// The event is refused: it is for another branch, there is no token, or nobody can have approved the digests.
    pub(crate) fn decide(
        event: &JobEvent,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Result<Decision, UserError> {
        match Self::decide_event(event, caller, answer)? {
            Decision::Granted(authority) => authority.limited(caller).map(Decision::Granted),
            other => Ok(other),
        }
    }

    fn decide_event(
        event: &JobEvent,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Result<Decision, UserError> {
        match event {
            JobEvent::PullRequest(event) => Ok(Self::pull_request(event, caller, answer)),
            JobEvent::MergeGroup {
                base,
                head,
                base_branch,
                default_branch,
                ..
            } => {
                let task = Task::MergeGroup {
                    base: base.clone(),
                    head: head.clone(),
                    base_branch: base_branch.clone(),
                    default_branch: default_branch.clone(),
                };
                Ok(Self::merge_group(task, caller, answer))
            }
            JobEvent::WorkflowRun(event) => Self::decide_outside(event, caller, answer),
            JobEvent::Push(event) => Self::push(event, caller, answer),
            JobEvent::Schedule { .. } => match caller.on_schedule {
                ScheduledTask::Drift => Self::drift(caller, answer),
                // A schedule has no digests, so it approves nothing.
                ScheduledTask::Apply => Self::decide_dispatch("", "", caller, answer),
            },
            JobEvent::WorkflowDispatch { inputs, ref_name, .. } => {
                let digests = inputs.get("approve").map_or("", |text| text.trim());
                if let DefaultBranchLookup::Is(branch, _) = answer {
                    only_on(branch, ref_name)?;
                }
                if digests.is_empty() {
Self::drift(caller, answer)
                } else {
let reason = inputs.get("reason").map_or("", String::as_str);
                        Self::decide_dispatch(digests, reason, caller, answer)
                }
            }
            JobEvent::RepositoryDispatch { action, payload } => match action.as_str() {
                "konverge-drift" => Self::drift(caller, answer),
                "konverge-apply" => {
                    let text = |key: &str| payload[key].as_str().unwrap_or_default();
                    Self::decide_dispatch(text("approve"), text("reason"), caller, answer)
                }
                // The event has no digests. It only continues rollouts, and applies pending changes that were reviewed.
                "konverge-continue" => Self::decide_dispatch("", "", caller, answer),
                other => Err(UserError::new(
                    ErrorKind::Github,
                    format!("unknown repository_dispatch event `{}`", other.escape_debug()),
                )
                .hint(
                    "send `konverge-apply` (which may give digests as `approve`), `konverge-continue` or `konverge-drift`",
                )),
            },
        }
    }

    fn grant(task: Task, trust: Trust, caller: Caller<'_>, answer: DefaultBranchLookup<'_>) -> Self {
        Self {
            task,
            trust,
            branch: match answer {
                DefaultBranchLookup::Is(branch, _) => Some(branch.clone()),
                DefaultBranchLookup::NotYet | DefaultBranchLookup::Never => None,
            },
            actor: caller.actor.to_owned(),
            pushed: false,
            environment: None,
        }
    }

    /// Limits an apply to the stacks of one environment, if the job names one.
    fn limited(self, caller: Caller<'_>) -> Result<Self, UserError> {
        let Some(name) = caller.for_environment else {
            return Ok(self);
        };
        let shown = name.escape_debug();
        if !matches!(self.task, Task::Apply { .. } | Task::Restore { .. }) {
            return Err(UserError::new(
                ErrorKind::Policy,
                format!("`for-environment` (`{shown}`) limits an apply, and this job previews or checks for drift"),
            )
            .hint("remove the input from this job: previews and drift checks have identities of their own and look at all stacks"));
        }
        match caller.environment {
            Some(other) if other != name => Err(UserError::new(
                ErrorKind::Policy,
                format!(
                    "the job runs in the environment `{}` and would apply the stacks of `{shown}`",
                    other.escape_debug()
                ),
            )
            .hint("give `environment` and `for-environment` the same name as the job's `environment:`")),
            _ => Ok(Self {
                environment: Some(name.to_owned()),
                ..self
            }),
        }
    }

    fn pull_request(
        event: &PullRequestEvent,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Decision {
        if let Some(why) = event.nothing_to_preview() {
            return Decision::Nothing(why.to_owned());
        }
        // A job for code from outside gets no permissions, so the default branch need not be known.
        let trust = match (event.is_from_outside(), answer) {
            (true, _) => Trust::Untrusted,
            (false, DefaultBranchLookup::NotYet) => return Decision::Ask,
            (false, DefaultBranchLookup::Is(branch, _)) if event.base_branch == branch.name => {
                Trust::Proposed
            }
            (false, DefaultBranchLookup::Is(..) | DefaultBranchLookup::Never) => Trust::Own,
        };
        let task = Task::PullRequest(Box::new(event.clone()));
        Decision::Granted(Self::grant(task, trust, caller, answer))
    }

    fn merge_group(task: Task, caller: Caller<'_>, answer: DefaultBranchLookup<'_>) -> Decision {
        match answer {
            DefaultBranchLookup::NotYet => Decision::Ask,
            DefaultBranchLookup::Is(..) | DefaultBranchLookup::Never => {
                Decision::Granted(Self::grant(task, Trust::Own, caller, answer))
            }
        }
    }

    fn decide_outside(
        event: &WorkflowRunEvent,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Result<Decision, UserError> {
        if event.event != "pull_request" || !event.from_outside() {
            return Ok(Decision::Nothing(
                "the workflow run is not of a fork's pull request, nor of Dependabot's: nothing to do"
                    .to_owned(),
            ));
        }
        match answer {
            DefaultBranchLookup::NotYet => Ok(Decision::Ask),
            DefaultBranchLookup::Never => Err(no_token(
                "post the preview of a pull request from outside",
                caller,
            )),
            DefaultBranchLookup::Is(branch, _) => {
                only_on(branch, caller.ref_name)?;
                let task = Task::Outside(Box::new(event.clone()));
                Ok(Decision::Granted(Self::grant(
                    task,
                    Trust::Recorded,
                    caller,
                    answer,
                )))
            }
        }
    }

    fn push(
        event: &PushEvent,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Result<Decision, UserError> {
        if !event.is_default_branch() {
            return Ok(Decision::Nothing(format!(
                "a push to `{}`: only `{}` is applied",
                event.ref_name.escape_debug(),
                event.default_branch
            )));
        }
        // First refuse events that need no request to the forge.
        let Some(after) = &event.after else {
            return Err(UserError::new(
                ErrorKind::Github,
                "the default branch was deleted: nothing is applied",
            )
            .hint(format!(
                "restore it on {} (Branches, Restore); the next push to the branch applies the pending changes",
                caller.forge
            )));
        };
        let approved: Approved = caller.approve.parse()?;
        if !approved.is_empty() {
            only_in_an_environment(caller)?;
        }
        let (branch, holds) = match answer {
            DefaultBranchLookup::NotYet => return Ok(Decision::Ask),
            DefaultBranchLookup::Never => {
                return Err(no_token(
                    &format!("ask {} which commits may be applied", caller.forge),
                    caller,
                ));
            }
            DefaultBranchLookup::Is(branch, holds) => (branch, holds),
        };
        // The event names a default branch itself, but only the forge's response counts, also in a re-run.
        only_on(branch, &event.ref_name)?;
        if !holds {
            return Err(UserError::new(
                ErrorKind::Policy,
                format!(
                    "{} is no longer on `{}`: its history was rewritten since the push",
                    after.short(),
                    branch.name.escape_debug()
                ),
            )
            .hint("nothing is lost: the run for the newest push applies what the branch holds now"));
        }
        let task = Task::Apply {
            head: after.clone(),
            approved,
            agreeing: DispatchApprovers::Environment,
        };
        Ok(Decision::Granted(Self {
            // The actor of a later attempt is the user who re-ran the job, perhaps not the one who pushed.
            pushed: caller.attempt == 1,
            ..Self::grant(task, Trust::Merged, caller, answer)
        }))
    }

    /// Decides about an apply of the default branch that a person or another system requests.
    fn decide_dispatch(
        text: &str,
        reason: &str,
        caller: Caller<'_>,
        answer: DefaultBranchLookup<'_>,
    ) -> Result<Decision, UserError> {
        let approved = text.parse()?;
        let branch = match answer {
            DefaultBranchLookup::NotYet => return Ok(Decision::Ask),
            DefaultBranchLookup::Never => {
                return Err(no_token(
                    &format!("ask {} which commits may be applied", caller.forge),
                    caller,
                ));
            }
            DefaultBranchLookup::Is(branch, _) => branch,
        };
        only_on(branch, caller.ref_name)?;
        let task = Task::Apply {
            head: branch.tip.clone(),
            approved,
            // The actor does not count here, because a user who only re-runs the job did not enter the digests.
            agreeing: DispatchApprovers::Starter {
                login: caller.starter.to_owned(),
                reason: reason.to_owned(),
            },
        };
        Ok(Decision::Granted(Self::grant(
            task,
            Trust::Merged,
            caller,
            answer,
        )))
    }

    /// Decides about a drift check, or about a later job of the same run that restores the drift which the check found.
    fn drift(caller: Caller<'_>, answer: DefaultBranchLookup<'_>) -> Result<Decision, UserError> {
        let approved: Approved = caller.approve.parse()?;
        if !approved.is_empty() {
            only_in_an_environment(caller)?;
        }
        let branch = match answer {
            DefaultBranchLookup::NotYet => return Ok(Decision::Ask),
            DefaultBranchLookup::Never => {
                return Err(no_token(
                    &format!("ask {} which commit is applied", caller.forge),
                    caller,
                ));
            }
            DefaultBranchLookup::Is(branch, _) => branch,
        };
        only_on(branch, caller.ref_name)?;
        let task = if approved.is_empty() {
            Task::Drift {
                head: branch.tip.clone(),
            }
        } else {
            Task::Restore { approved }
        };
        Ok(Decision::Granted(Self::grant(
            task,
            Trust::Merged,
            caller,
            answer,
        )))
    }

    /// Returns the target branch of a previewed pull request or merge group, if it is not the default branch.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let (base, named) = match &self.task {
            Task::PullRequest(event) => (&event.base_branch, &event.default_branch),
            Task::MergeGroup {
                base_branch,
                default_branch,
                ..
            } => (base_branch, default_branch),
            Task::Outside(_) | Task::Apply { .. } | Task::Drift { .. } | Task::Restore { .. } => {
                return None;
            }
        };
        let default = self.branch.as_ref().map_or(named, |branch| &branch.name);
        other_branch(base, default)
    }

    /// Returns the effect of merging a pull request, for its preview.
    pub(crate) fn merging(&self) -> Merging {
        match (self.trust, self.elsewhere()) {
            (Trust::Recorded | Trust::Untrusted, _) => Merging::Outside,
            (_, Some(_)) => Merging::OtherBranch,
            (Trust::Merged | Trust::Proposed, None) => Merging::Applies,
            (Trust::Own, None) => Merging::Unreviewed,
        }
    }

    /// Returns the commit that an event applies, which the default branch must contain; `None` if the tip of the branch
    /// is applied.
    pub(crate) fn commit_of(event: &JobEvent) -> Option<&CommitId> {
        match event {
            JobEvent::Push(event) => event.after.as_ref(),
            _ => None,
        }
    }
}

/// Returns an error for a run on another ref. Users can start a workflow on any branch or tag, but only the default
/// branch may change states.
fn only_on(branch: &DefaultBranch, full_ref: &str) -> Result<(), UserError> {
    if branch.is(full_ref) {
        return Ok(());
    }
    let name = branch.name.escape_debug();
    Err(UserError::new(
        ErrorKind::Policy,
        format!("the workflow was started on `{}`", full_ref.escape_debug()),
    )
    .hint(format!(
        "start it on the branch `{name}`: only merged commits are applied or checked"
    )))
}

/// Returns an error unless the job names an environment, so that its approvers are known. GitHub does not return when
/// they approved: after a re-run, they may have seen other digests.
fn only_in_an_environment(caller: Caller<'_>) -> Result<(), UserError> {
    if caller.attempt > 1 {
        return Err(UserError::new(
            ErrorKind::Policy,
            "the run was restarted: the reviewers of its environment may have approved other digests",
        )
        .hint("start a new run, so that they are asked again")
        .hint(BY_HAND));
    }
    if caller.environment.is_none() {
        return Err(UserError::new(
            ErrorKind::Policy,
            "the environment of this job is unknown, so these digests are not approved",
        )
        .hint(
            "set the input `environment` to the name of the job's `environment:`, which GitHub does not expose to jobs",
        )
        .hint(BY_HAND));
    }
    Ok(())
}

/// The hint for digests that nobody is known to have approved.
pub(crate) const BY_HAND: &str =
    "or start the workflow by hand with `approve`: that is the approval of the person who starts it";

fn no_token(purpose: &str, caller: Caller<'_>) -> UserError {
    let message = format!("a token is needed to {purpose}, and there is none");
    UserError::new(ErrorKind::Github, message).hint(caller.forge.token_hint())
}

/// The task of a job on a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScheduledTask {
    /// Check for drift.
    #[default]
    Drift,
    /// Apply pending changes that were reviewed, and continue rollouts. Nothing else is approved.
    Apply,
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
