//! Plans one target: compares its Spec with the live infrastructure, or with the Spec of the base.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    Planner, Target,
    cluster_selection::{self, Live},
    compiler::{CompileCounts, CompileError, Compiler},
    hook_file, infrastructure, kusion_releases,
    logins::{LoginUse, StackLoginChoice},
    other_names::NameLookup,
    other_stack_claims::{OwnershipLookup, PlanPurpose},
    plan_error::PlanError,
    rescue_file::Rescue,
    spec_source::SpecSource,
    stack_outputs::{self, FilledSpec, OutputUse},
    stack_secrets::StackSecrets,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::{
        Digest, StackId,
        hook::{HookPurpose, HookRules},
        plan::{Basis, StackPlan},
        spec::{RuntimeKind, Spec},
        stack::Stack,
        state::StackState,
    },
};
use konverge_config::{EffectiveStack, HookTool};
use konverge_delivery::{
    self as delivery, ChosenRuntimes, ControllerStatus, DeliveryChoice, DeliveryWarning, has_objects,
};
use konverge_engine::{
    self as engine, ComparedSpecs, EnginePlan, PlanRequest, PlanStep, RuntimeRegistry, SpecMask,
};
use konverge_kubernetes::Kubernetes;
use konverge_secrets::StackReferences;

/// The recorded state from which a plan starts.
#[derive(Clone, Copy)]
pub struct PlanStart<'a> {
    /// The recorded state.
    pub state: &'a StackState,
    /// The serial of the state, if the state comes from the store.
    pub serial: Option<u64>,
    /// The secrets of the stack, if the plan may read their values.
    pub secrets: Option<&'a StackSecrets>,
}

impl<'a> PlanStart<'a> {
    /// Creates a start without a serial and without values of secrets.
    pub(crate) fn from_state(state: &'a StackState) -> Self {
        Self {
            state,
            serial: None,
            secrets: None,
        }
    }
}

/// The plan of a target.
pub enum TargetPlan {
    /// A comparison with the live infrastructure, which can be applied.
    Live(Box<EnginePlan>),
    /// A comparison with the Spec of the base, which is only shown.
    Spec(Box<SpecPlan>),
}

/// A plan that compares a Spec with the Spec of the base.
pub struct SpecPlan {
    pub public: StackPlan,
    /// The Specs of the base and of the head, with secrets in clear text. Never print or store them.
    pub compared: (Spec, Spec),
}

impl TargetPlan {
    /// Returns the plan with masked secrets.
    pub fn public(&self) -> &StackPlan {
        match self {
            Self::Live(plan) => &plan.public,
            Self::Spec(plan) => &plan.public,
        }
    }
}

impl Planner {
    /// Returns the desired Spec of a target; empty if the stack was removed.
    ///
    /// # Errors
    /// The stack does not compile.
    pub async fn spec(&self, target: &Target) -> Result<Spec, CompileError> {
        if let Some(recorded) = &target.recorded {
            return Ok(recorded.spec.clone());
        }
        match &self.wanted {
            SpecSource::Compiled { compilers, head, .. } => {
                compile_stack(compilers.for_revision(head), target.head.as_ref()).await
            }
            SpecSource::File(spec) => Ok(spec.clone()),
        }
    }

    /// Returns the Spec of a target at the base; empty if the stack did not exist there.
    pub async fn spec_before(&self, target: &Target) -> Result<Spec, CompileError> {
        match &self.wanted {
            SpecSource::Compiled {
                compilers,
                base: Some(base),
                ..
            } => compile_stack(compilers.for_revision(base), target.base.as_ref()).await,
            _ => Ok(Spec::default()),
        }
    }

    /// Compiles the Spec of the base for a comparison. If it does not compile, an empty Spec is used with a note,
    /// because the change may repair the stack.
    async fn compared(&self, target: &Target) -> Result<(Spec, Option<String>), UserError> {
        let failure = match self.spec_before(target).await {
            Ok(before) => return Ok((before, None)),
            Err(error) if error.is_of_the_code => error.error,
            Err(error) => return Err(error.into()),
        };
        let place = failure.location.map(|place| format!(" ({place})"));
        let place = place.unwrap_or_default();
        let what = if target.head.is_some() {
            "everything is shown as new"
        } else {
            "removals are not shown"
        };
        let note = format!("the base does not compile{place}, so there is nothing to compare with: {what}");
        Ok((Spec::default(), Some(note)))
    }

    /// Plans a target to show the plan: compares its Spec with its recorded state and the live infrastructure, or with
    /// the base's Spec if no cluster is queried. `leaving` has the stacks that are destroyed together.
    ///
    /// # Errors
    /// Compiling, reading the state, or reaching the infrastructure failed.
    pub async fn plan(
        &self,
        target: &Target,
        wanted: Spec,
        leaving: &BTreeSet<StackId>,
    ) -> Result<TargetPlan, PlanError> {
        let state = self.prior(target).await?;
        let mut state = state.unwrap_or_else(|| target.empty_state());
        self.take_up_rescue(&mut state)?;
        if let Err(refusal) = kusion_releases::open_turn(&self.run, &self.config, &state).await {
            let what = format!("an apply of {} would stop", target.id);
            self.run.warn(&what, refusal);
        }
        let purpose = PlanPurpose::Show { leaving };
        self.plan_for(purpose, target, wanted, PlanStart::from_state(&state))
            .await
    }

    /// Returns the rescue file of a stack; `None` if there is no state or no folder for the file.
    pub fn rescue(&self, stack: &StackId) -> Option<Rescue> {
        let backend = self.backend.as_ref()?;
        Rescue::open_for(&self.run, backend.states.repository().as_str(), stack)
    }

    /// Adds data that an earlier run on this machine could not store to a state. Returns true if there was such data.
    pub fn take_up_rescue(&self, state: &mut StackState) -> Result<bool, UserError> {
        match self.rescue(&state.stack) {
            Some(rescue) => rescue.take_up(state),
            None => Ok(false),
        }
    }

    /// Returns the state of a target, recorded under its identity or under the identity that it continues.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn prior(&self, target: &Target) -> Result<Option<StackState>, UserError> {
        let Some(recorded) = self.recorded(&target.id).await? else {
            return Ok(None);
        };
        let state = recorded.state;
        Ok(Some(if state.stack == target.id {
            state
        } else {
            state.renamed(target.id.clone())
        }))
    }

    /// Returns the rules for a target. Its folder decides about its login and its environment.
    fn rules(&self, target: &Target) -> EffectiveStack {
        self.config.for_place(&target.id, target.folder())
    }

    /// Returns true if Argo CD or Flux applies the objects of a target. A removed stack is never delivered.
    pub(crate) fn is_delivered(&self, target: &Target) -> bool {
        target.head.is_some() && self.rules(target).deliver.is_some()
    }

    /// Returns the identity for a target and a use.
    fn login(&self, target: &Target, usage: LoginUse) -> Result<StackLoginChoice, UserError> {
        match self.live {
            Live::Never => Ok(StackLoginChoice::Job),
            Live::Auto | Live::Required => self.logins.choose(&self.rules(target), usage),
        }
    }

    /// Returns the runtimes and the clusters of a target, for reading its live objects.
    ///
    /// # Errors
    /// A cloud refuses the login of the stack, or the login has no identity for previews.
    pub(crate) async fn runtimes_to_read(
        &self,
        target: &Target,
    ) -> Result<(RuntimeRegistry, Option<Kubernetes>), UserError> {
        match self.login(target, LoginUse::Preview)? {
            StackLoginChoice::NoPreview(why) => Err(no_identity(target, &why)),
            login => self.runtimes_as(target, &login).await,
        }
    }

    /// Returns the status of the delivery controller of a target; `None` if no controller delivers the target, or the
    /// last delivery has not ended.
    ///
    /// # Errors
    /// The cluster of the controller cannot be queried, a cloud refuses the login, or the record cannot be read.
    pub(crate) async fn controller_status(
        &self,
        target: &Target,
        state: &StackState,
    ) -> Result<Option<ControllerStatus>, UserError> {
        ControllerStatus::read(&target.id, state, self.clusters_of_delivery(target)).await
    }

    async fn clusters_of_delivery(&self, target: &Target) -> Result<Option<Kubernetes>, UserError> {
        if self.is_delivered(target) {
            Ok(self.runtimes_to_read(target).await?.1)
        } else {
            Ok(None)
        }
    }

    fn warn_of_delivery(&self, stack: &StackId, warning: DeliveryWarning) {
        match warning {
            DeliveryWarning::Stops(refusal) => {
                self.run.warn(&format!("an apply of {stack} would stop"), refusal);
            }
            DeliveryWarning::Unwell(says) => {
                let note = format!("{stack}: the last delivery is not healthy: {says}");
                self.run.notes.warning(&note);
            }
        }
    }

    /// Returns the clusters of a target, with the login for applies.
    ///
    /// # Errors
    /// A cloud refuses the login of the stack.
    pub(crate) async fn clusters_to_apply(&self, target: &Target) -> Result<Option<Kubernetes>, UserError> {
        let login = self.login(target, LoginUse::Apply)?;
        Ok(self.runtimes_as(target, &login).await?.1)
    }

    /// Returns the runtimes of a target with a login. If the cloud refuses the login, no runtime sends a request.
    async fn runtimes_as(
        &self,
        target: &Target,
        login: &StackLoginChoice,
    ) -> Result<(RuntimeRegistry, Option<Kubernetes>), UserError> {
        let login = match login {
            StackLoginChoice::Login(login) => {
                login.log_in().await?;
                Some(login)
            }
            _ => None,
        };
        Ok(self.runtimes.with_clusters(login, &self.rules(target)).await)
    }

    /// Plans a target from a given state. A plan for a drift check has the identity of previews, and is never applied.
    ///
    /// # Errors
    /// See [`Planner::plan`]; for a drift check also if the login of the stack has no identity for previews.
    pub(crate) async fn plan_for(
        &self,
        purpose: PlanPurpose<'_>,
        target: &Target,
        wanted: Spec,
        start: PlanStart<'_>,
    ) -> Result<TargetPlan, PlanError> {
        let names = NameLookup {
            planner: self,
            target,
        };
        let known_as = names.find(&wanted, start.state).await?;
        let mut planned = self.plan_as(purpose, target, wanted, start).await?;
        match &mut planned {
            TargetPlan::Live(plan) => plan.public.known_as = known_as,
            TargetPlan::Spec(plan) => plan.public.known_as = known_as,
        }
        Ok(planned)
    }

    /// Converts an error of the engine. If it is about a hook, its file and line are added.
    fn located(&self, error: engine::PlanError, target: &Target) -> UserError {
        match (error, &self.wanted, &target.head) {
            (engine::PlanError::Hook(hook), SpecSource::Compiled { head, .. }, Some(stack)) => {
                hook_file::locate(*hook.error, &hook.object, head, stack)
            }
            (error, ..) => error.into(),
        }
    }

    async fn plan_as(
        &self,
        purpose: PlanPurpose<'_>,
        target: &Target,
        mut wanted: Spec,
        start: PlanStart<'_>,
    ) -> Result<TargetPlan, PlanError> {
        let PlanStart {
            state,
            serial,
            secrets,
        } = start;
        let mut stack_secrets = match secrets {
            Some(held) => held.clone(),
            None => StackSecrets::new(Arc::clone(&self.references), target),
        };
        check_folder(target, state)?;
        stack_outputs::check_removal(self, target, purpose).await?;
        // Checked before the login, so that a Spec cannot choose the identity or the address of the login.
        let login = self.login(target, purpose.login_use())?;
        let (rules, secrets) = (self.rules(target), self.secrets().clone());
        infrastructure::check_provider_settings(&self.config, &rules, secrets, &wanted)?;
        let hooks = self.hook_rules(target, serial);
        let left_out = engine::leave_out_hooks(&mut wanted, &hooks);
        let mut on_clusters = has_objects(&wanted)
            || state
                .resources
                .iter()
                .any(|r| r.runtime == RuntimeKind::Kubernetes);
        if !on_clusters && self.live == Live::Auto && state.resources.is_empty() {
            // Neither the head nor the state has Kubernetes objects. Objects of the base are shown as deletions.
            on_clusters = has_objects(&self.compared(target).await?.0);
        }
        // A stack without Kubernetes resources can be compared with live infrastructure without a configured cluster.
        let live = if on_clusters || self.live == Live::Never {
            self.live
        } else {
            Live::Auto
        };
        let cluster = match target.rules() {
            Some(stack) => cluster_selection::cluster_of(&self.config, stack, &self.given, live)?,
            None => state
                .resources
                .iter()
                .find_map(|resource| resource.cluster.clone()),
        };
        let lacking = match (&login, purpose) {
            (StackLoginChoice::NoPreview(why), PlanPurpose::Show { .. }) => Some(format!(
                "{why}, and a preview never gets the identity for applies, so only the compiled Specs are compared"
            )),
            (StackLoginChoice::NoPreview(why), PlanPurpose::Drift | PlanPurpose::Apply) => {
                return Err(no_identity(target, why).into());
            }
            _ => None,
        };
        let real = self.live != Live::Never && (cluster.is_some() || !on_clusters) && lacking.is_none();
        if !real {
            // Only texts are compared, so no secret is read. The check whether the stack may use its references runs
            // nevertheless.
            let (before, note) = self.compared(target).await?;
            let mut before =
                stack_outputs::without_values(target.base.as_ref().map(|stack| &stack.reads), before);
            let FilledSpec {
                spec: wanted,
                notes: reads,
                ..
            } = stack_outputs::fill(self, target, wanted, OutputUse::Names, &[]).await?;
            engine::leave_out_hooks(&mut before, &hooks);
            let before = self.references.name_stores(before);
            let wanted = stack_secrets.admit(wanted)?;
            let secrets = self.secrets();
            let (id, folder) = (&target.id, target.folder());
            let specs = ComparedSpecs {
                base: &before,
                head: &wanted,
            };
            let mask = SpecMask::for_readers(secrets);
            let public = engine::plan_against_spec(id, folder, specs, None, mask);
            let shown = engine::show_spec_hooks(public, specs, &hooks, None, secrets);
            let mut public = shown.map_err(|error| self.located(error, target))?;
            public.notes.extend(reads);
            public.notes.extend(note);
            public.notes.extend(left_out);
            public.notes.extend(lacking);
            let compared = (before, wanted);
            return Ok(TargetPlan::Spec(Box::new(SpecPlan { public, compared })));
        }
        // The login comes first, so that a refusal of the cloud stops the stack before any other request or write.
        let (runtimes, kubernetes) = self.runtimes_as(target, &login).await?;
        // If Argo CD or Flux delivers the stack, the delivery replaces the Kubernetes runtime.
        let delivery = DeliveryChoice {
            env: &self.run.env,
            interrupt: Interrupt::new(self.run.cancel.clone()),
            config: &self.config,
            secrets: self.secrets(),
            stack: &target.id,
            rule: self.rules(target).deliver,
            has_objects: has_objects(&wanted),
            is_apply: matches!(purpose, PlanPurpose::Apply),
            state,
            cluster: cluster.as_ref(),
            named: delivery::named_cluster(&wanted),
        };
        let ChosenRuntimes { runtimes, warning } = delivery.runtimes(runtimes, kubernetes).await?;
        if let Some(warning) = warning {
            self.warn_of_delivery(&target.id, warning);
        }
        // Done before the engine plans, so that runtimes, secrets and rules get final values.
        let FilledSpec {
            spec: wanted,
            outputs,
            read,
            filled,
            notes: reads,
        } = stack_outputs::fill(
            self,
            target,
            wanted,
            OutputUse::for_plan(purpose, target, self.rolls_back),
            &state.reads,
        )
        .await?;
        let wanted = stack_secrets.admit(wanted)?;
        // A secret version that cannot be read is reported later, at the resource that uses it.
        let _ = stack_secrets.ask_versions().await;
        let ignore = target.rules().map(|stack| self.config.for_stack(stack).ignore);
        let ignore = ignore.unwrap_or_default();
        let moved = self.identity_note(target).await?;
        let mut step = engine::plan(PlanRequest {
            stack: target.id.clone(),
            folder: target.folder().clone(),
            spec: wanted,
            outputs,
            state,
            runtimes: &runtimes,
            ignore: &ignore,
            cluster,
            events: self.run.events.as_ref(),
            hooks,
            references: StackReferences::new(Arc::new(stack_secrets)),
            secrets: self.secrets(),
            only_compares: matches!(purpose, PlanPurpose::Drift),
        })
        .await
        .map_err(|error| self.located(error, target))?;
        // The engine knows only one stack. Its questions about objects of other stacks are answered by `ownership`.
        let mut ownership = OwnershipLookup::new(self, purpose);
        loop {
            step = match step {
                PlanStep::Done(mut plan) => {
                    plan.public.notes.extend(moved);
                    plan.public.notes.extend(left_out);
                    plan.public.notes.extend(reads);
                    plan.public.read = read;
                    plan.public.filled = filled;
                    plan.public.waits_for = ownership.awaited;
                    return Ok(TargetPlan::Live(plan));
                }
                PlanStep::Asks(asking) => {
                    let claims = ownership.claims(&target.id, asking.questions()).await;
                    asking.answer(claims).await?
                }
            };
        }
    }

    /// Returns the note of a preview for a stack that is recorded under an earlier identity.
    async fn identity_note(&self, target: &Target) -> Result<Option<String>, UserError> {
        let earlier = self.earlier_identity(&target.id).await?;
        Ok(earlier.map(|earlier| {
            format!(
                "this stack is recorded as {earlier}; its next apply records it as {}, without deleting or creating anything",
                target.id
            )
        }))
    }

    /// Returns the rules for the hooks of a target.
    fn hook_rules(&self, target: &Target, serial: Option<u64>) -> HookRules {
        let hooks = &self.config.apply.hooks;
        HookRules {
            service_accounts: hooks.service_accounts.clone(),
            argocd: hooks.read.contains(&HookTool::Argocd),
            helm: hooks.read.contains(&HookTool::Helm),
            serial,
            purpose: match target.recorded {
                Some(_) => HookPurpose::Restore,
                None if self.rolls_back => HookPurpose::Rollback,
                None => HookPurpose::Change,
            },
        }
    }

    /// Returns the basis of the comparison that follows from the Spec.
    pub fn basis(&self, target: &Target, wanted: &Spec) -> Basis {
        let stack = target.rules().filter(|_| has_objects(wanted));
        let cluster = stack.map(|stack| self.cluster_of(stack));
        let login = self.login(target, LoginUse::Preview);
        match (self.live, cluster) {
            _ if matches!(login, Ok(StackLoginChoice::NoPreview(_))) => Basis::Spec,
            (Live::Never, _) | (_, Some(Ok(None))) => Basis::Spec,
            // If the cluster could not be determined, it should have been queried, so the basis is not a comparison of
            // Specs.
            _ => Basis::Live,
        }
    }

    /// Returns the input digest of a target at the head; `None` if the stack was removed. For a Spec from a file, this
    /// is the digest of the Spec.
    ///
    /// # Errors
    /// The files of the stack cannot be read.
    pub fn input_digest(&self, target: &Target) -> Result<Option<Digest>, UserError> {
        if let Some(recorded) = &target.recorded {
            return Ok(Some(recorded.input_digest));
        }
        match (&self.wanted, &target.head) {
            (_, None) => Ok(None),
            (SpecSource::File(spec), _) => Ok(Some(spec.digest())),
            (SpecSource::Compiled { head, .. }, Some(stack)) => Ok(Some(head.analysis.input_digest(stack)?)),
        }
    }

    /// Returns how many Specs were compiled or cached so far.
    pub fn counts(&self) -> CompileCounts {
        match &self.wanted {
            SpecSource::Compiled { compilers, .. } => compilers.counts(),
            SpecSource::File(_) => CompileCounts::default(),
        }
    }

    /// Returns the number of stacks at the head, selected or not; 0 for a Spec from a file.
    pub fn stacks_in_repository(&self) -> usize {
        self.wanted.head().map_or(0, |head| head.layout.stacks.len())
    }

    /// Returns the version of the KCL core that compiles the Specs; `None` for a Spec from a file.
    pub fn core(&self) -> Option<&str> {
        Some(self.wanted.head()?.analysis.core())
    }
}

/// Returns an error if only the state knows the stack and records another folder: logins, policies and approvals depend
/// on the folder.
fn check_folder(target: &Target, state: &StackState) -> Result<(), UserError> {
    if target.rules().is_some() || state.is_blank() || state.folder.or_root() == target.folder() {
        return Ok(());
    }
    let what = format!(
        "`{}` was applied from the folder `{}`, but the index has it in `{}`",
        target.id,
        state.folder,
        target.folder()
    );
    Err(UserError::new(ErrorKind::State, what)
        .hint("run `konverge state doctor --repair` to write the index again from the states"))
}

/// Returns the error for a stack whose login has no identity for the comparison with live infrastructure.
fn no_identity(target: &Target, why: &str) -> UserError {
    UserError::new(
        ErrorKind::Config,
        format!("cannot compare `{}` with the live infrastructure: {why}", target.id),
    )
    .hint("give the login an identity for previews, under `logins` in konverge.yaml: it only needs to read. `role` is for applies alone")
}

async fn compile_stack(compiler: Compiler<'_>, stack: Option<&Stack>) -> Result<Spec, CompileError> {
    match stack {
        Some(stack) => compiler.spec(stack).await,
        None => Ok(Spec::default()),
    }
}
