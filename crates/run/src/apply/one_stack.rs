//! Applies one stack: acquires its lease, plans again under the lease, asks for approval, applies and records the
//! result.

use std::sync::Arc;

use tracing::Instrument as _;

use super::{
    consent::{ApprovedPlan, Decisions, LateReview, PriorState, ProposedPlan, Refusal},
    ended_apply::EndedApply,
    journal::ApplyJournal,
    options::ApplyOptions,
    outcome::{has_succeeded, not_started, stopped_outcome},
    rounds::{ApplyRounds, nothing_applied, plan_live},
    workflow_hooks::{self, WorkflowCall, WorkflowHooks},
};
use crate::{
    PlanStart, Planner, StackSecrets, Target, apply_freeze,
    kusion_releases::{self, ReleaseTurn},
    lease_wait::HolderWatch,
    plan_documents,
    plan_error::PlanError,
    rescue_file::Unstored,
    state,
};
use konverge_base::{
    error::{ErrorKind, UserError, chain},
    model::{
        Digest, StackId,
        apply_result::{StackOutcome, StackResult},
        authorization::Authorization,
        plan::StackPlan,
        spec::Spec,
        state::{JournalEntry, StackState},
    },
    spans,
};
use konverge_config::WorkflowTime;
use konverge_delivery as delivery;
use konverge_engine::{Applied, EnginePlan};
use konverge_policy::LastWrites;
use konverge_state::{Lease, LeaseOptions, Versioned};

/// Applies one stack, and returns its outcome with the decisions about its plan. Errors are part of the outcome.
pub(super) async fn apply(
    planning: &Planner,
    target: &Target,
    options: &ApplyOptions,
) -> (StackOutcome, Decisions) {
    let mut decisions = Decisions::default();
    let applied = apply_stack(planning, target, options, &mut decisions);
    let outcome = match applied.instrument(spans::stack(&target.id, "apply")).await {
        Ok(outcome) => outcome,
        Err(PlanError {
            error,
            waits_for,
            is_held_back,
        }) => {
            decisions.waits_for.extend(waits_for);
            if is_held_back {
                stopped_outcome(target, StackResult::HeldBack, &error)
            } else {
                not_started(target, &error)
            }
        }
    };
    (outcome, decisions)
}

async fn apply_stack(
    planning: &Planner,
    target: &Target,
    options: &ApplyOptions,
    decisions: &mut Decisions,
) -> Result<StackOutcome, PlanError> {
    planning.run.check_interrupted()?;
    let wanted = planning.spec(target).await?;
    let input_digest = planning.input_digest(target)?;
    // Secrets are read first, so that one that cannot be read stops the stack before any write.
    let secrets = StackSecrets::new(Arc::clone(&planning.references), target);
    let held = tokio::select! {
        biased;
        () = planning.run.cancel.cancelled() => {
            planning.run.check_interrupted()?;
            None
        }
        held = secrets.with_values(&wanted) => Some(held?),
    };
    // From here on an interrupted run must end in order. A run that is just dropped would hold its lease until the
    // lease expires.
    planning.run.begin_writes()?;
    let backend = planning.backend.as_ref().ok_or_else(|| {
        UserError::new(ErrorKind::Config, "there is no store to keep the state in")
            .hint("set `state.url` in konverge.yaml")
    })?;
    let config = &planning.config.state.lease;
    let lease_options = LeaseOptions {
        term: config.term.duration(),
        wait: config.wait.duration(),
        folder: target.stack_folder.clone(),
        watch: Some(Arc::new(HolderWatch::new(&planning.run, &target.id))),
        ..LeaseOptions::default()
    };
    // States and leases are stored by identity, so the state moves to the new identity before its lease is acquired.
    if let Some(earlier) = planning.earlier_identity(&target.id).await? {
        state::move_waiting(backend, &earlier, &target.id, lease_options.clone()).await?;
        planning.run.notes.note(&format!(
            "the state of `{earlier}` was moved: the stack in `{}` is now called `{}`",
            target.folder(),
            target.id
        ));
    }
    let lease = backend.states.acquire(&target.id, lease_options).await?;
    let leased = LeasedStack {
        planning,
        target,
        options,
        lease: &lease,
        secrets: held.as_ref(),
    };
    // The freeze is checked under the lease, so that it also stops a run that was waiting for the lease when the freeze
    // began.
    let result = match apply_freeze::check(backend).await {
        Ok(()) => leased.apply(wanted, input_digest, decisions).await,
        Err(frozen) => {
            if frozen.kind.is_stop() {
                decisions.denied.insert(target.id.clone());
            }
            Err(frozen.into())
        }
    };
    // A lease that is not released expires by itself, so this error must not hide the result of the apply.
    if let Err(error) = lease.release().await {
        planning.run.notes.warning(&format!(
            "could not release the lease of {}: {}",
            target.id,
            chain(&error)
        ));
    }
    result
}

/// A stack whose lease this run holds.
struct LeasedStack<'a> {
    planning: &'a Planner,
    target: &'a Target,
    options: &'a ApplyOptions,
    lease: &'a Lease,
    /// The secrets of the stack, with their values.
    secrets: Option<&'a StackSecrets>,
}

/// The state of a stack under its lease, before its apply.
struct LoadedStack {
    /// The state as it is recorded.
    recorded: StackState,
    /// The same with what an earlier run could not store.
    prior: StackState,
    /// True if an earlier run left a rescue file, whose data this run took over.
    taken_up: bool,
}

/// A stack that was planned under its lease.
struct PlannedStack {
    loaded: LoadedStack,
    plan: Box<EnginePlan>,
    /// The release in Kusion's format that the apply begins and ends.
    release: Option<StackRelease>,
    spec_digest: Digest,
    /// True if Argo CD or Flux delivered the stack before, and no longer does.
    ends_delivery: bool,
}

struct StackRelease {
    turn: ReleaseTurn,
    wanted: Spec,
}

impl LeasedStack<'_> {
    /// Loads, plans, asks for approval, applies and records.
    async fn apply(
        &self,
        wanted: Spec,
        input_digest: Option<Digest>,
        decisions: &mut Decisions,
    ) -> Result<StackOutcome, PlanError> {
        let loaded = self.load(input_digest)?;
        if let Some(serial) = self.superseded_serial().await? {
            return Ok(unchanged_outcome(self.target, serial));
        }
        let planned = self.plan(wanted, loaded, decisions).await?;
        let mut approved = match self.approve(&planned).await {
            Ok(approved) => approved,
            Err(refusal) => return Ok(self.refuse(&planned.plan.public, refusal, decisions)),
        };
        decisions.extend(std::mem::take(&mut approved.decisions));
        if planned.plan.public.rotates_secret() {
            decisions.rotated.insert(self.target.id.clone());
        }
        Ok(self.carry_out(planned, input_digest, approved, decisions).await?)
    }

    fn load(&self, input_digest: Option<Digest>) -> Result<LoadedStack, UserError> {
        let Self { planning, target, .. } = *self;
        let recorded = self.lease.prior().map(|prior| prior.state.clone());
        let recorded = recorded.unwrap_or_else(|| target.empty_state());
        let mut prior = recorded.clone();
        let taken_up = planning.take_up_rescue(&mut prior)?;
        if taken_up {
            planning.run.notes.note(&format!(
                "loaded data of {} that an earlier run could not store",
                target.id
            ));
        }
        // While this run waited for the lease, another run may have applied the stack. Then the state to restore is out
        // of date, and a plan for an older commit would revert the newer one.
        if self.options.restore && prior.input_digest != input_digest {
            return Err(applied_meanwhile(&target.id));
        }
        Ok(LoadedStack {
            recorded,
            prior,
            taken_up,
        })
    }

    /// Plans the stack again under the lease, because the reviewed plan may be outdated. The approver compares both.
    async fn plan(
        &self,
        wanted: Spec,
        mut loaded: LoadedStack,
        decisions: &mut Decisions,
    ) -> Result<PlannedStack, PlanError> {
        let Self { planning, target, .. } = *self;
        let prior = &mut loaded.prior;
        // Kusion's releases are read before the plan, so that an operation of Kusion in progress stops the stack
        // untouched.
        let turn = kusion_releases::open_turn(&planning.run, &planning.config, prior).await?;
        let checked = |turn: ReleaseTurn| {
            turn.check(&wanted, prior)?;
            let wanted = wanted.clone();
            Ok::<_, UserError>(StackRelease { turn, wanted })
        };
        let release = turn.map(checked).transpose()?;
        let spec_digest = wanted.digest();
        let ends_delivery = delivery::ends(planning.is_delivered(target), &wanted, prior)?;
        let start = PlanStart {
            state: prior,
            serial: Some(self.serial()),
            secrets: self.secrets,
        };
        let plan = plan_live(planning, target, wanted, start).await?;
        decisions.waits_for.extend(plan.public.waits_for.iter().cloned());
        // Policies and freezes apply to all names of a stack. The names are recorded before any decision, so that a
        // later run knows them even if this one stops here.
        if !plan.public.known_as.is_within(&prior.guarded_as) {
            let names = plan.public.known_as.clone();
            let entry = JournalEntry::Names { names };
            prior.apply_entry(&entry);
            self.lease.journal(vec![entry]).await?;
        }
        Ok(PlannedStack {
            loaded,
            plan,
            release,
            spec_digest,
            ends_delivery,
        })
    }

    async fn approve(
        &self,
        PlannedStack { loaded, plan, .. }: &PlannedStack,
    ) -> Result<ApprovedPlan, Refusal> {
        let document = || plan_documents::for_rules(plan.truth());
        let proposed = ProposedPlan {
            plan: &plan.public,
            document: &document,
        };
        let past = prior_state(&loaded.prior, self.lease);
        self.options.approver.stack(&proposed, &past).await
    }

    /// Returns the outcome of a refused plan, and adds what was decided about it.
    fn refuse(&self, plan: &StackPlan, refusal: Refusal, decisions: &mut Decisions) -> StackOutcome {
        let is_unreviewed = !refusal.decisions.stopped.is_empty();
        decisions.extend(refusal.decisions);
        let outcome = StackOutcome {
            // A person can approve only the digest of this new plan, so the outcome shows it.
            digest: plan.digest,
            ..not_started(self.target, &refusal.error)
        };
        if outcome.result == StackResult::Stopped && !is_unreviewed {
            decisions.denied.insert(self.target.id.clone());
        }
        outcome
    }

    /// Applies an approved plan, and records the result.
    async fn carry_out(
        &self,
        planned: PlannedStack,
        input_digest: Option<Digest>,
        approved: ApprovedPlan,
        decisions: &mut Decisions,
    ) -> Result<StackOutcome, UserError> {
        let Self {
            planning,
            target,
            options,
            lease,
            secrets,
        } = *self;
        let PlannedStack {
            loaded:
                LoadedStack {
                    recorded,
                    mut prior,
                    taken_up,
                },
            plan,
            mut release,
            spec_digest,
            ends_delivery,
        } = planned;
        let public = plan.public.clone();
        // Before the first state is written, only the journal records the folder of the stack.
        let is_known = |prior: &Versioned| prior.state.folder.path().is_some();
        if !public.resources.is_empty()
            && !lease.prior().is_some_and(is_known)
            && let Some(folder) = target.stack_folder.path().cloned()
        {
            lease.journal(vec![JournalEntry::Folder { folder }]).await?;
        }
        let unstored = Unstored::new(planning.rescue(&target.id), recorded.runtime.clone(), taken_up);
        // The release stops Kusion before the first write. A plan without changes needs no release yet.
        let is_due = |release: &&mut StackRelease| release.turn.is_left() || !public.resources.is_empty();
        if let Some(StackRelease { turn, .. }) = release.as_mut().filter(is_due) {
            turn.begin(lease, &mut prior, target.head.is_none()).await?;
        }
        let journal = ApplyJournal::new(lease, prior.clone(), unstored);
        let late = LateReview::new(approved.late);
        let rounds = ApplyRounds {
            planning,
            target,
            options,
            journal: &journal,
            serial: self.serial(),
            secrets,
            late: &late,
            ends_delivery,
        };
        let workflows = WorkflowHooks {
            config: &planning.config,
            starter: options.workflows.as_deref(),
            journal: &journal,
            recorded: &prior.runtime,
            call: WorkflowCall {
                stack: &target.id,
                folder: target.folder(),
                known_as: &public.known_as,
                commit: options.commit.as_ref(),
                digest: spec_digest,
            },
        };
        let Applied {
            mut outcome,
            outputs: published,
            ..
        } = self
            .between_workflows(&workflows, rounds.run(*plan), decisions)
            .await;
        outcome.digest = public.digest;
        outcome.grounds = approved.authorization;
        let (mut state, unstored) = journal.into_parts();
        if target.head.is_none() && has_succeeded(outcome.result) {
            workflow_hooks::forget(&mut state);
        }
        if has_succeeded(outcome.result) && !planning.is_delivered(target) {
            delivery::forget(&mut state);
        }
        let ended = EndedApply {
            planning,
            target,
            options,
            lease,
            recorded,
            plan: public,
            published,
            input_digest,
            spec_digest,
        };
        Ok(self.record(release, ended, outcome, state, unstored).await)
    }

    /// Ends the release of Kusion, and writes the state and the apply record.
    async fn record(
        &self,
        release: Option<StackRelease>,
        ended: EndedApply<'_>,
        mut outcome: StackOutcome,
        mut state: StackState,
        mut unstored: Unstored,
    ) -> StackOutcome {
        if let Some(release) = release {
            let changed = state.resources != ended.recorded.resources;
            let result = self
                .end_release(release, changed, outcome.result, &mut state)
                .await;
            if let Err(error) = result {
                outcome.result = StackResult::Failed;
                outcome.error.get_or_insert_with(|| error.body());
            }
        }
        ended.record(state, &mut outcome, &mut unstored).await;
        if let (Some(error), Some(hint)) = (&mut outcome.error, unstored.hint()) {
            error.hints.push(hint);
        }
        outcome
    }

    /// Runs the apply between the workflows that the configuration has for this stack. A restore, a rollback and a
    /// removal bring no new version, so they run no workflow.
    async fn between_workflows(
        &self,
        workflows: &WorkflowHooks<'_>,
        rounds: impl Future<Output = Applied>,
        decisions: &mut Decisions,
    ) -> Applied {
        let Self { target, options, .. } = *self;
        if options.restore || options.rolled_back_to.is_some() || target.head.is_none() {
            return rounds.await;
        }
        // An interruption is no failure of a workflow: the next run waits for the workflow run that this one started.
        let mut note_failure = || {
            if !self.planning.run.cancel.is_cancelled() {
                decisions.failed_workflows.insert(target.id.clone());
            }
        };
        if let Err(failure) = workflows.run(WorkflowTime::Pre).await {
            note_failure();
            return nothing_applied(not_started(target, &failure));
        }
        let mut applied = rounds.await;
        let outcome = &mut applied.outcome;
        // After a failed apply, the workflow after it waits for an apply that succeeds.
        if has_succeeded(outcome.result)
            && let Err(failure) = workflows.run(WorkflowTime::Post).await
        {
            note_failure();
            outcome.result = StackResult::Failed;
            outcome.error = Some(failure.body());
        }
        applied
    }

    /// The serial of the recorded state; 0 if there is none.
    fn serial(&self) -> u64 {
        self.lease.prior().map_or(0, |prior| prior.serial)
    }

    /// Returns the serial of the recorded state if a run of a newer commit has applied the stack in the meantime.
    async fn superseded_serial(&self) -> Result<Option<u64>, UserError> {
        let (Some(newer), Some(there)) = (&self.options.newer, self.lease.prior()) else {
            return Ok(None);
        };
        let is_superseded = newer
            .has_newer(&self.target.id, there.serial, &there.commits())
            .await?;
        Ok(is_superseded.then_some(there.serial))
    }

    /// Ends the release in Kusion's format. If the apply changed recorded resources and no release was begun, it begins
    /// one first.
    async fn end_release(
        &self,
        StackRelease { mut turn, wanted }: StackRelease,
        changed: bool,
        result: StackResult,
        state: &mut StackState,
    ) -> Result<(), UserError> {
        if !turn.has_begun() && changed {
            turn.begin(self.lease, state, wanted.resources.is_empty()).await?;
        }
        turn.end(result, &wanted, state, self.planning.secrets()).await
    }
}

fn unchanged_outcome(target: &Target, serial: u64) -> StackOutcome {
    StackOutcome {
        stack: target.folder().clone(),
        id: target.id.clone(),
        result: StackResult::Unchanged,
        digest: Digest::of_set([]),
        serial: Some(serial),
        grounds: Authorization::default(),
        waiting: None,
        resources: Vec::new(),
        error: None,
    }
}

/// Extracts the part of the recorded state that an approver needs.
fn prior_state(prior: &StackState, lease: &Lease) -> PriorState {
    let there = lease.prior();
    let receipt = there.and_then(|there| there.receipt.as_ref());
    PriorState {
        used: there
            .map(|there| there.applied_reviews.clone())
            .unwrap_or_default(),
        is_new: prior.resources.is_empty() && prior.input_digest.is_none(),
        commit: prior.commit.clone(),
        commits: there.map(Versioned::commits).unwrap_or_default(),
        written: there.map(|there| there.written),
        last_writes: last_writes(prior),
        overridden: receipt
            .map(|receipt| receipt.grounds.overrides.clone())
            .unwrap_or_default(),
    }
}

fn last_writes(state: &StackState) -> LastWrites {
    let resources = state.resources.iter();
    resources
        .map(|recorded| (recorded.id.clone(), Arc::clone(&recorded.attributes)))
        .collect()
}

fn applied_meanwhile(stack: &StackId) -> UserError {
    let what = format!("{stack} was applied again in the meantime, so drift is not restored");
    UserError::new(ErrorKind::Policy, what)
        .hint("start the drift check again: it compares with what is applied now")
}
