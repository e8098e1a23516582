//! Plans one target: compares its Spec with the live infrastructure, or with the Spec of the base.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use crate::{
    RunContext, SecretReferences, StateBackend, Target,
    cluster_selection::{self, GivenCluster, Live},
    compiler::{self, CompileCounts, Compiler},
    hook_file, infrastructure, kusion_releases,
    logins::{LoginUse, Logins, StackLoginChoice},
    other_names::NameLookup,
    other_stack_claims::{OwnershipLookup, PlanPurpose, StackClaims},
    renamed_stacks::{self, Renamed},
    rescue_file::Rescue,
    spec_source::SpecSource,
    stack_outputs::{self, FilledSpec, OutputSources, OutputUse, RecordedStates},
    stack_runtimes::StackRuntimes,
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
use konverge_config::{Config, EffectiveStack, HookTool};
use konverge_delivery::{
    self as delivery, ChosenRuntimes, ControllerStatus, DeliveryChoice, DeliveryWarning, has_objects,
};
use konverge_engine::{
    self as engine, ComparedSpecs, EnginePlan, PlanRequest, PlanStep, RuntimeRegistry, SpecMask,
};
use konverge_kubernetes::Kubernetes;
use konverge_secrets::{Secrets, StackReferences};
use konverge_state::{IndexedStates, Proven, Versioned};

/// The recorded state from which a plan starts.
#[derive(Clone, Copy)]
pub struct PlanStart<'a> {
    /// The recorded state.
    pub state: &'a StackState,
    /// The serial of the state, if the state comes from the store.
    pub serial: Option<u64>,
    /// The secrets of the stack, if the plan may have their values.
    pub secrets: Option<&'a StackSecrets>,
}

impl<'a> PlanStart<'a> {
    /// A state whose serial does not matter, without values of secrets.
    fn from_state(state: &'a StackState) -> Self {
        Self {
            state,
            serial: None,
            secrets: None,
        }
    }
}

/// The common input of all plans of a run.
pub struct Planner {
    /// The run that the plans are made in.
    pub run: RunContext,
    /// The effective configuration.
    pub config: Config,
    /// The source of Specs.
    pub wanted: SpecSource,
    /// The prior states; `None` if there is no state (a pull request from a fork).
    pub backend: Option<StateBackend>,
    /// The live infrastructure.
    pub(crate) runtimes: StackRuntimes,
    /// The identities of the stacks at the live infrastructure.
    pub(crate) logins: Logins,
    /// The references to secrets.
    pub references: Arc<SecretReferences>,
    /// The choice whether the live infrastructure is queried.
    pub live: Live,
    /// A cluster from the command line.
    pub given: GivenCluster,
    /// The claims of the other stacks, loaded on demand.
    pub claims: StackClaims,
    /// The recorded identities that stacks continue, loaded on demand.
    pub renamed: Renamed,
    /// True if an earlier version is applied again.
    pub rolls_back: bool,
}

/// The plan of a target.
pub enum TargetPlan {
    /// Compared with the live infrastructure: it can be applied.
    Live(Box<EnginePlan>),
    /// Compared with the Spec of the base.
    Spec(Box<SpecPlan>),
}

/// A plan against the Spec of the base.
pub struct SpecPlan {
    pub public: StackPlan,
    /// The Specs of the base and of the head, in clear. Never print or store them.
    pub compared: (Spec, Spec),
}

impl TargetPlan {
    /// The plan that is shown.
    pub fn public(&self) -> &StackPlan {
        match self {
            Self::Live(plan) => &plan.public,
            Self::Spec(plan) => &plan.public,
        }
    }
}

impl Planner {
    /// The secrets of this run, for masking.
    pub fn secrets(&self) -> &Secrets {
        self.backend
            .as_ref()
            .map_or(&self.run.secrets, |backend| &backend.secrets)
    }

    /// The desired Spec of a target; empty if it was removed.
    ///
    /// # Errors
    /// It does not compile.
    pub async fn spec(&self, target: &Target) -> Result<Spec, UserError> {
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

    /// The Spec of a target at the base; empty if it did not exist.
    pub async fn spec_before(&self, target: &Target) -> Result<Spec, UserError> {
        match &self.wanted {
            SpecSource::Compiled {
                compilers,
                base: Some(base),
                ..
            } => compile_stack(compilers.for_revision(base), target.base.as_ref()).await,
            _ => Ok(Spec::default()),
        }
    }

    /// Compiles the Spec of the base to compare with. One that does not compile counts as empty, with a note: the
    /// change may repair it.
    async fn compared(&self, target: &Target) -> Result<(Spec, Option<String>), UserError> {
        let failure = match self.spec_before(target).await {
            Ok(before) => return Ok((before, None)),
            Err(failure) if compiler::is_of_the_code(&failure) => failure,
            Err(failure) => return Err(failure),
        };
        let place = failure.location.map(|place| format!(" ({place})"));
        let place = place.unwrap_or_default();
        let what = if target.head.is_some() {
            "everything is shown as new"
        } else {
            "what is removed is not shown"
        };
        let note = format!("the base does not compile{place}, so there is nothing to compare with: {what}");
        Ok((Spec::default(), Some(note)))
    }

    /// Plans a target to show it: compares its Spec with its prior state and the live infrastructure, or with the base's
    /// Spec if no cluster is queried. `leaving` are the stacks that are destroyed together.
    ///
    /// # Errors
    /// Compiling, reading the state, or reaching the infrastructure failed.
    pub async fn plan(
        &self,
        target: &Target,
        wanted: Spec,
        leaving: &BTreeSet<StackId>,
    ) -> Result<TargetPlan, UserError> {
        let state = self.prior(target).await?;
        let mut state =
            state.unwrap_or_else(|| StackState::empty(target.id.clone(), target.stack_folder.clone()));
        self.take_up_rescue(&mut state)?;
        if let Err(refusal) = kusion_releases::open_turn(&self.run, &self.config, &state).await {
            let what = format!("an apply of {} would stop", target.id);
            self.run.warn(&what, refusal);
        }
        let purpose = PlanPurpose::Show { leaving };
        self.plan_for(purpose, target, wanted, PlanStart::from_state(&state))
            .await
    }

    /// The file for what a run could not store; `None` if there is no state or no place for it.
    pub fn rescue(&self, stack: &StackId) -> Option<Rescue> {
        let backend = self.backend.as_ref()?;
        Rescue::open_for(&self.run, backend.states.repository().as_str(), stack)
    }

    /// Adds to a state what an earlier run on this machine could not store. Returns true if there was
    /// something.
    pub fn take_up_rescue(&self, state: &mut StackState) -> Result<bool, UserError> {
        match self.rescue(&state.stack) {
            Some(rescue) => rescue.take_up(state),
            None => Ok(false),
        }
    }

    /// The state of a target, recorded under its identity or under the one it continues.
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

    /// Returns the sources of the outputs that a Spec reads.
    fn outputs(&self) -> OutputSources<'_> {
        OutputSources {
            config: &self.config,
            secrets: self.secrets(),
            specs: &self.wanted,
            states: self,
        }
    }

    /// Plans a target from a given state, to apply the plan.
    ///
    /// # Errors
    /// See [`Planner::plan`].
    pub async fn plan_from(
        &self,
        target: &Target,
        wanted: Spec,
        start: PlanStart<'_>,
    ) -> Result<TargetPlan, UserError> {
        self.plan_for(PlanPurpose::Apply, target, wanted, start).await
    }

    /// Compares a target with the live infrastructure from a given state, with the identity of previews. The plan is
    /// never applied.
    ///
    /// # Errors
    /// See [`Planner::plan`]; also if the login of the stack has no identity for previews.
    pub async fn compare_with(
        &self,
        target: &Target,
        wanted: Spec,
        state: &StackState,
    ) -> Result<TargetPlan, UserError> {
        let start = PlanStart::from_state(state);
        self.plan_for(PlanPurpose::Drift, target, wanted, start).await
    }

    /// Returns the rules of a target. The folder decides about its login and its environment.
    fn rules(&self, target: &Target) -> EffectiveStack {
        self.config.for_place(&target.id, target.folder())
    }

    /// Returns true if a controller applies the objects of a target. A removed stack has none.
    pub(crate) fn is_delivered(&self, target: &Target) -> bool {
        target.head.is_some() && self.rules(target).deliver.is_some()
    }

    /// Returns the identity of a target.
    fn login(&self, target: &Target, usage: LoginUse) -> Result<StackLoginChoice, UserError> {
        match self.live {
            Live::Never => Ok(StackLoginChoice::Job),
            Live::Auto | Live::Required => self.logins.choose(&self.rules(target), usage),
        }
    }

    /// The runtimes of a target and its clusters, to read its live objects.
    ///
    /// # Errors
    /// A cloud refuses the login of the stack, or it has none for this.
    pub(crate) async fn runtimes_to_read(
        &self,
        target: &Target,
    ) -> Result<(RuntimeRegistry, Option<Kubernetes>), UserError> {
        match self.login(target, LoginUse::Preview)? {
            StackLoginChoice::NoPreview(why) => Err(no_identity(target, &why)),
            login => self.runtimes_as(target, &login).await,
        }
    }

    /// Asks the controller of a target; `None` if no controller delivers it, or the last delivery has not ended.
    ///
    /// # Errors
    /// The cluster of the controller cannot be asked, a cloud refuses the login, or the record cannot be read.
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
                let note = format!("{stack}: the last delivery is not well: {says}");
                self.run.notes.warning(&note);
            }
        }
    }

    /// The clusters of a target, with the login of applies.
    ///
    /// # Errors
    /// A cloud refuses the login of the stack.
    pub(crate) async fn clusters_to_apply(&self, target: &Target) -> Result<Option<Kubernetes>, UserError> {
        let login = self.login(target, LoginUse::Apply)?;
        Ok(self.runtimes_as(target, &login).await?.1)
    }

    /// Returns the runtimes of a target with a login. If the cloud refuses the login, no request is sent.
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

    async fn plan_for(
        &self,
        purpose: PlanPurpose<'_>,
        target: &Target,
        wanted: Spec,
        start: PlanStart<'_>,
    ) -> Result<TargetPlan, UserError> {
        let cluster_of = |stack| cluster_selection::cluster_of(&self.config, stack, &self.given, self.live);
        let names = NameLookup {
            run: &self.run,
            wanted: &self.wanted,
            backend: self.backend.as_ref(),
            claims: &self.claims,
            cluster: target.rules().and_then(|stack| cluster_of(stack).ok().flatten()),
            rolls_back: self.rolls_back,
            target,
        };
        let known_as = names.find(&wanted, start.state).await?;
        let planned = self.plan_as(purpose, target, wanted, start).await;
        let mut planned = planned.map_err(|failure| match (&self.wanted, &target.head) {
            (SpecSource::Compiled { head, .. }, Some(stack)) => hook_file::locate(failure, head, stack),
            _ => failure,
        })?;
        match &mut planned {
            TargetPlan::Live(plan) => plan.public.known_as = known_as,
            TargetPlan::Spec(plan) => plan.public.known_as = known_as,
        }
        Ok(planned)
    }

    async fn plan_as(
        &self,
        purpose: PlanPurpose<'_>,
        target: &Target,
        mut wanted: Spec,
        start: PlanStart<'_>,
    ) -> Result<TargetPlan, UserError> {
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
        let (backend, specs) = (self.backend.as_ref(), &self.wanted);
        stack_outputs::check_removal(backend, specs, &self.claims, target, purpose).await?;
        // Checked before the login: a Spec must not choose the identity or the address.
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
            // Neither the head nor the state has objects. If the base has some, they are shown as deletions.
            on_clusters = has_objects(&self.compared(target).await?.0);
        }
        // A stack without Kubernetes resources can be compared with the live infrastructure without a cluster.
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
                "{why}, and a preview never gets the one of applies: this compares the compiled Specs"
            )),
            (StackLoginChoice::NoPreview(why), PlanPurpose::Drift | PlanPurpose::Apply) => {
                return Err(no_identity(target, why));
            }
            _ => None,
        };
        let real = self.live != Live::Never && (cluster.is_some() || !on_clusters) && lacking.is_none();
        if !real {
            // Nothing is resolved: only texts are compared. Whether the stack may use its references is judged nevertheless.
            let (before, note) = self.compared(target).await?;
            let mut before =
                stack_outputs::without_values(target.base.as_ref().map(|stack| &stack.reads), before);
            let FilledSpec {
                spec: wanted,
                notes: reads,
                ..
            } = stack_outputs::fill(self.outputs(), target, wanted, OutputUse::Names, &[]).await?;
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
            let mut public = engine::show_spec_hooks(public, specs, &hooks, None, secrets)?;
            public.notes.extend(reads);
            public.notes.extend(note);
            public.notes.extend(left_out);
            public.notes.extend(lacking);
            let compared = (before, wanted);
            return Ok(TargetPlan::Spec(Box::new(SpecPlan { public, compared })));
        }
        // The login comes first: a refusal of the cloud stops the stack before anything is asked or written.
        let (runtimes, kubernetes) = self.runtimes_as(target, &login).await?;
        // A controller is in the place of the Kubernetes runtime if one delivers the stack.
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
        // Done before the engine plans, so that runtimes, secrets and rules see plain values.
        let FilledSpec {
            spec: wanted,
            outputs,
            read,
            filled,
            notes: reads,
        } = stack_outputs::fill(
            self.outputs(),
            target,
            wanted,
            OutputUse::for_plan(purpose, target, self.rolls_back),
            &state.reads,
        )
        .await?;
        let wanted = stack_secrets.admit(wanted)?;
        // A version that cannot be read is reported at its resource.
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
        .await?;
        // The engine knows no other stacks: it stops with its questions about them.
        let mut ownership = self.ownership(purpose);
        loop {
            step = match step {
                PlanStep::Done(mut plan) => {
                    plan.public.notes.extend(moved);
                    plan.public.notes.extend(left_out);
                    plan.public.notes.extend(reads);
                    plan.public.read = read;
                    plan.public.filled = filled;
                    plan.public.waits_for = ownership.into_awaited();
                    return Ok(TargetPlan::Live(plan));
                }
                PlanStep::Asks(asking) => {
                    let claims = ownership.claims(&target.id, asking.questions()).await;
                    asking.answer(claims).await?
                }
            };
        }
    }

    /// Returns what a preview says of a stack that is recorded under an earlier identity.
    async fn identity_note(&self, target: &Target) -> Result<Option<String>, UserError> {
        let earlier = self.earlier_identity(&target.id).await?;
        Ok(earlier.map(|earlier| {
            format!(
                "this stack is recorded as {earlier}; its next apply records it as {}, and nothing is deleted or created for that",
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

    /// Creates the lookup of other stacks' claims for one plan.
    fn ownership<'a>(&'a self, purpose: PlanPurpose<'a>) -> OwnershipLookup<'a> {
        OwnershipLookup::new(
            &self.claims,
            &self.wanted,
            self.backend.as_ref(),
            Box::new(|stack| {
                let cluster = cluster_selection::cluster_of(&self.config, stack, &self.given, self.live);
                cluster.ok().flatten()
            }),
            purpose,
        )
    }

    /// Returns each stack of the head that continues another recorded identity, with that identity.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn renamed_stacks(
        &self,
        known: &Proven<IndexedStates>,
    ) -> Result<BTreeMap<StackId, StackId>, UserError> {
        match (&self.wanted, &self.backend) {
            (SpecSource::Compiled { head, .. }, Some(backend)) => {
                renamed_stacks::renamed_stacks(backend, &head.layout, known).await
            }
            _ => Ok(BTreeMap::new()),
        }
    }

    /// The recorded identity that a stack of the head continues, if it differs now.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn earlier_identity(&self, stack: &StackId) -> Result<Option<StackId>, UserError> {
        match (&self.wanted, &self.backend) {
            (SpecSource::Compiled { head, .. }, Some(backend)) => {
                self.renamed.earlier(backend, &head.layout, stack).await
            }
            _ => Ok(None),
        }
    }

    /// Returns the basis of the comparison, as far as the Spec determines it.
    pub fn basis(&self, target: &Target, wanted: &Spec) -> Basis {
        let stack = target.rules().filter(|_| has_objects(wanted));
        let cluster =
            stack.map(|stack| cluster_selection::cluster_of(&self.config, stack, &self.given, self.live));
        let login = self.login(target, LoginUse::Preview);
        match (self.live, cluster) {
            _ if matches!(login, Ok(StackLoginChoice::NoPreview(_))) => Basis::Spec,
            (Live::Never, _) | (_, Some(Ok(None))) => Basis::Spec,
            // A cluster that could not be determined should have been queried, so this is no comparison of Specs alone.
            _ => Basis::Live,
        }
    }

    /// The input digest of a target at the head; `None` if it was removed. A Spec from a file is its own
    /// input.
    ///
    /// # Errors
    /// Its files cannot be read.
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

    /// The number of stacks at the head, selected or not; 0 for a Spec from a file.
    pub fn stacks_in_repository(&self) -> usize {
        match &self.wanted {
            SpecSource::Compiled { head, .. } => head.layout.stacks.len(),
            SpecSource::File(_) => 0,
        }
    }

    /// The version of the core that compiles the Specs.
    pub fn core(&self) -> Option<&str> {
        match &self.wanted {
            SpecSource::Compiled { head, .. } => Some(head.analysis.core()),
            SpecSource::File(_) => None,
        }
    }
}

/// Refuses a stack that only its state knows under another folder than that of the state: logins, policies and
/// approvals depend on the folder.
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

/// The error for a stack that is only compared with the live infrastructure, and has no identity for that.
fn no_identity(target: &Target, why: &str) -> UserError {
    UserError::new(
        ErrorKind::Config,
        format!("cannot compare `{}` with the live infrastructure: {why}", target.id),
    )
    .hint("give the login an identity for previews, under `logins` in konverge.yaml: it only needs to read. `role` is for applies alone")
}

async fn compile_stack(compiler: Compiler<'_>, stack: Option<&Stack>) -> Result<Spec, UserError> {
    match stack {
        Some(stack) => compiler.spec(stack).await,
        None => Ok(Spec::default()),
    }
}

#[async_trait]
impl RecordedStates for Planner {
    async fn recorded(&self, stack: &StackId) -> Result<Option<Versioned>, UserError> {
        let Some(backend) = &self.backend else {
            return Ok(None);
        };
        let own = backend.states.load(stack).await?;
        if own.as_ref().is_some_and(|own| !own.state.is_blank()) {
            return Ok(own);
        }
        let Some(earlier) = self.earlier_identity(stack).await? else {
            return Ok(own);
        };
        Ok(backend.states.load(&earlier).await?.or(own))
    }
}
