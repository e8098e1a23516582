//! The authority of a job: its task and its permissions. This value is computed only here, from the event, the user who
//! started the run, and the forge's response about the default branch. This file sends no requests, and its tests cover
//! the decisions as a table.
//!
//! No ref of an event grants anything. Everything that grants permissions (store, clusters, sandbox, policy…) is read
//! from the commit that the forge names as the tip of the default branch *now*, also in a re-run. A tag is not a
//! branch.

use std::sync::Arc;

use crate::trust::{approve_input::Approved, job_trust::Trust};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::CommitId,
};
use konverge_forge::{
    CiJob, DefaultBranch, Forge, ForgeKind, JobEvent, PullRequestEvent, PushEvent, WorkflowRunEvent,
    other_branch,
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

/// The default branch, and the client of the forge that named it.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub branch: DefaultBranch,
    pub client: Arc<dyn Forge>,
}

/// The answer of the forge about the default branch.
#[derive(Debug, Clone)]
pub(crate) struct BranchAnswer {
    pub upstream: Upstream,
    /// True if the branch contains the commit of the event.
    pub holds: bool,
}

/// The decision for an event.
#[expect(clippy::large_enum_variant, reason = "a job makes one of them")]
pub(crate) enum Decision<'a> {
    /// The event needs no action, for this reason.
    Nothing(String),
    /// The decision depends on the default branch: ask the forge, then decide.
    Ask(Question<'a>),
    /// The job has this authority, whatever the default branch is.
    Granted(Authority),
}

impl<'a> Decision<'a> {
    fn ask(decide: impl FnOnce(Option<BranchAnswer>) -> Result<Authority, UserError> + Send + 'a) -> Self {
        Self::Ask(Question(Box::new(decide)))
    }

    /// Refuses a run whose event names another ref than the default branch.
    fn only_on(self, full_ref: &'a str) -> Self {
        match self {
            Self::Ask(question) => Self::ask(move |answer| {
                if let Some(BranchAnswer { upstream, .. }) = &answer {
                    only_on(&upstream.branch, full_ref)?;
                }
                question.decide(answer)
            }),
            other => other,
        }
    }
}

/// A decision that waits for the answer of the forge about the default branch.
pub(crate) struct Question<'a>(
    Box<dyn FnOnce(Option<BranchAnswer>) -> Result<Authority, UserError> + Send + 'a>,
);

impl Question<'_> {
    /// Decides with the answer; `None` if the forge cannot be asked, because there is no token, or need not be.
    ///
    /// # Errors
    /// See [`Authority::decide`].
    pub(crate) fn decide(self, answer: Option<BranchAnswer>) -> Result<Authority, UserError> {
        (self.0)(answer)
    }
}

/// The task of a job, with its permissions.
#[derive(Debug, Clone)]
pub(crate) struct Authority {
    pub task: Task,
    /// The trust in the code that the job processes. [`Trust::grants`] returns the permissions.
    pub trust: Trust,
    /// The actor, whom `policy.actors` checks.
    pub actor: String,
    /// True if the actor pushed or merged the applied commit in this attempt, so that GitHub has checked the
    /// permission.
    pub pushed: bool,
    /// The only environment whose stacks the job applies; `None` for all stacks.
    pub environment: Option<String>,
}

/// The task of a job. A preview may be made without the default branch; every other task has the answer of the forge.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    PullRequest {
        event: Box<PullRequestEvent>,
        branch: Option<DefaultBranch>,
    },
    /// Preview the group of a merge queue.
    MergeGroup {
        /// The commit on which the merge group is based.
        base: CommitId,
        head: CommitId,
        /// The target branch.
        base_branch: String,
        /// The default branch that the event names.
        default_branch: String,
        branch: Option<DefaultBranch>,
    },
    /// Preview a pull request from outside in a job of this repository.
    Outside {
        event: Box<WorkflowRunEvent>,
        upstream: Upstream,
    },
    /// Apply a commit of the default branch.
    Apply(ApplyTarget),
    /// Check for drift at the tip of the default branch.
    Drift(Upstream),
    /// Restore drift that the reviewers of the job's environment approved.
    Restore { upstream: Upstream, approved: Approved },
}

/// The commit to apply, with what approves its plans.
#[derive(Debug, Clone)]
pub(crate) struct ApplyTarget {
    /// The commit to apply.
    pub head: CommitId,
    pub upstream: Upstream,
    /// The digests that were approved by hand.
    pub approved: Approved,
    /// The people whose approvals of digests count.
    pub agreeing: DispatchApprovers,
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
    pub(crate) fn decide<'a>(event: &'a JobEvent, caller: Caller<'a>) -> Result<Decision<'a>, UserError> {
        Ok(match Self::decide_event(event, caller)? {
            Decision::Nothing(why) => Decision::Nothing(why),
            Decision::Granted(authority) => Decision::Granted(authority.limited(caller)?),
            Decision::Ask(question) => Decision::ask(move |answer| question.decide(answer)?.limited(caller)),
        })
    }

    fn decide_event<'a>(event: &'a JobEvent, caller: Caller<'a>) -> Result<Decision<'a>, UserError> {
        match event {
            JobEvent::PullRequest(event) => Ok(Self::pull_request(event, caller)),
            JobEvent::MergeGroup {
                base,
                head,
                base_branch,
                default_branch,
                ..
            } => Ok(Decision::ask(move |answer| {
                let task = Task::MergeGroup {
                    base: base.clone(),
                    head: head.clone(),
                    base_branch: base_branch.clone(),
                    default_branch: default_branch.clone(),
                    branch: answer.map(|answer| answer.upstream.branch),
                };
                Ok(Self::new(task, Trust::Own, caller))
            })),
            JobEvent::WorkflowRun(event) => Ok(Self::outside(event, caller)),
            JobEvent::Push(event) => Self::push(event, caller),
            JobEvent::Schedule { .. } => match caller.on_schedule {
                ScheduledTask::Drift => Self::drift(caller),
                // A schedule has no digests, so it approves nothing.
                ScheduledTask::Apply => Self::dispatch("", "", caller),
            },
            JobEvent::WorkflowDispatch { inputs, ref_name, .. } => {
                let digests = inputs.get("approve").map_or("", |text| text.trim());
                let decision = if digests.is_empty() {
                    Self::drift(caller)?
                } else {
                    let reason = inputs.get("reason").map_or("", String::as_str);
                    Self::dispatch(digests, reason, caller)?
                };
                Ok(decision.only_on(ref_name))
            }
            JobEvent::RepositoryDispatch { action, payload } => match action.as_str() {
                "konverge-drift" => Self::drift(caller),
                "konverge-apply" => {
                    let text = |key: &str| payload[key].as_str().unwrap_or_default();
                    Self::dispatch(text("approve"), text("reason"), caller)
                }
                // The event has no digests. It only continues rollouts, and applies pending changes that were reviewed.
                "konverge-continue" => Self::dispatch("", "", caller),
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

    fn new(task: Task, trust: Trust, caller: Caller<'_>) -> Self {
        Self {
            task,
            trust,
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
        if !matches!(self.task, Task::Apply(_) | Task::Restore { .. }) {
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

    fn pull_request<'a>(event: &'a PullRequestEvent, caller: Caller<'a>) -> Decision<'a> {
        if let Some(why) = event.nothing_to_preview() {
            return Decision::Nothing(why.to_owned());
        }
        let task = move |branch| Task::PullRequest {
            event: Box::new(event.clone()),
            branch,
        };
        // A job for code from outside gets no permissions, so the default branch need not be known.
        if event.is_from_outside() {
            return Decision::Granted(Self::new(task(None), Trust::Untrusted, caller));
        }
        Decision::ask(move |answer| {
            let branch = answer.map(|answer| answer.upstream.branch);
            let is_default = |branch: &DefaultBranch| event.base_branch == branch.name;
            let trust = if branch.as_ref().is_some_and(is_default) {
                Trust::Proposed
            } else {
                Trust::Own
            };
            Ok(Self::new(task(branch), trust, caller))
        })
    }

    fn outside<'a>(event: &'a WorkflowRunEvent, caller: Caller<'a>) -> Decision<'a> {
        if event.event != "pull_request" || !event.from_outside() {
            return Decision::Nothing(
                "the workflow run is not of a fork's pull request, nor of Dependabot's: nothing to do"
                    .to_owned(),
            );
        }
        Decision::ask(move |answer| {
            let what = "post the preview of a pull request from outside";
            let BranchAnswer { upstream, .. } = answer.ok_or_else(|| no_token(what, caller))?;
            only_on(&upstream.branch, caller.ref_name)?;
            let task = Task::Outside {
                event: Box::new(event.clone()),
                upstream,
            };
            Ok(Self::new(task, Trust::Recorded, caller))
        })
    }

    fn push<'a>(event: &'a PushEvent, caller: Caller<'a>) -> Result<Decision<'a>, UserError> {
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
                "restore the branch on {} (Branches, Restore); the next push to the branch applies the pending changes",
                caller.forge
            )));
        };
        let approved: Approved = caller.approve.parse()?;
        if !approved.is_empty() {
            only_in_an_environment(caller)?;
        }
        Ok(Decision::ask(move |answer| {
            let BranchAnswer { upstream, holds } = answer.ok_or_else(|| no_token_to_apply(caller))?;
            // The event names a default branch itself, but only the forge's response counts, also in a re-run.
            only_on(&upstream.branch, &event.ref_name)?;
            if !holds {
                return Err(UserError::new(
                    ErrorKind::Policy,
                    format!(
                        "{} is no longer on `{}`: its history was rewritten since the push",
                        after.short(),
                        upstream.branch.name.escape_debug()
                    ),
                )
                .hint("nothing is lost: the run for the newest push applies what the branch holds now"));
            }
            let task = Task::Apply(ApplyTarget {
                head: after.clone(),
                upstream,
                approved,
                agreeing: DispatchApprovers::Environment,
            });
            Ok(Self {
                // The actor of a later attempt is the user who re-ran the job, perhaps not the one who pushed.
                pushed: caller.attempt == 1,
                ..Self::new(task, Trust::Merged, caller)
            })
        }))
    }

    /// Decides about an apply of the default branch that a person or another system requests.
    fn dispatch<'a>(text: &str, reason: &'a str, caller: Caller<'a>) -> Result<Decision<'a>, UserError> {
        let approved = text.parse()?;
        Ok(Decision::ask(move |answer| {
            let BranchAnswer { upstream, .. } = answer.ok_or_else(|| no_token_to_apply(caller))?;
            only_on(&upstream.branch, caller.ref_name)?;
            let task = Task::Apply(ApplyTarget {
                head: upstream.branch.tip.clone(),
                upstream,
                approved,
                // The actor does not count here, because a user who only re-runs the job did not enter the digests.
                agreeing: DispatchApprovers::Starter {
                    login: caller.starter.to_owned(),
                    reason: reason.to_owned(),
                },
            });
            Ok(Self::new(task, Trust::Merged, caller))
        }))
    }

    /// Decides about a drift check, or about a later job of the same run that restores the drift which the check found.
    fn drift(caller: Caller<'_>) -> Result<Decision<'_>, UserError> {
        let approved: Approved = caller.approve.parse()?;
        if !approved.is_empty() {
            only_in_an_environment(caller)?;
        }
        Ok(Decision::ask(move |answer| {
            let what = || format!("ask {} which commit is applied", caller.forge);
            let BranchAnswer { upstream, .. } = answer.ok_or_else(|| no_token(&what(), caller))?;
            only_on(&upstream.branch, caller.ref_name)?;
            let task = if approved.is_empty() {
                Task::Drift(upstream)
            } else {
                Task::Restore { upstream, approved }
            };
            Ok(Self::new(task, Trust::Merged, caller))
        }))
    }

    /// Returns the default branch, whose tip grants permissions; `None` grants none.
    pub(crate) fn branch(&self) -> Option<&DefaultBranch> {
        match &self.task {
            Task::PullRequest { branch, .. } | Task::MergeGroup { branch, .. } => branch.as_ref(),
            Task::Apply(ApplyTarget { upstream, .. })
            | Task::Outside { upstream, .. }
            | Task::Drift(upstream)
            | Task::Restore { upstream, .. } => Some(&upstream.branch),
        }
    }

    /// Returns the target branch of a previewed pull request or merge group, if it is not the default branch.
    pub(crate) fn elsewhere(&self) -> Option<&str> {
        let (base, named) = match &self.task {
            Task::PullRequest { event, .. } => (&event.base_branch, &event.default_branch),
            Task::MergeGroup {
                base_branch,
                default_branch,
                ..
            } => (base_branch, default_branch),
            Task::Outside { .. } | Task::Apply(_) | Task::Drift(_) | Task::Restore { .. } => return None,
        };
        let default = self.branch().map_or(named, |branch| &branch.name);
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
        "start the workflow on the branch `{name}`: only merged commits are applied or checked"
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

fn no_token_to_apply(caller: Caller<'_>) -> UserError {
    no_token(
        &format!("ask {} which commits may be applied", caller.forge),
        caller,
    )
}

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
