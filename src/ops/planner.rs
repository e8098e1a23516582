//! Plans one target: its Spec against the real infrastructure, or against the Spec of the base revision.

use super::{
    OpenRevision, RunContext, StateBackend, Target,
    cluster_selection::{self, GivenCluster, Live},
    compiler::{CompileCounts, Compiler},
    identities::Renamed,
    ownership::StackClaims,
    rescue::Rescue,
};
use crate::{
    config::Config,
    engine::{self, EnginePlan, PlanRequest, RuntimeRegistry},
    error::UserError,
    model::{
        Digest, StackId,
        plan::{Basis, StackPlan},
        spec::{RuntimeKind, Spec},
        stack::Stack,
        state::StackState,
    },
    secrets::Secrets,
};

/// Everything that plans have in common in one run.
pub struct Planner {
    /// The run.
    pub run: RunContext,
    /// The configuration in force.
    pub config: Config,
    /// Where Specs come from.
    pub wanted: SpecSource,
    /// Prior states; `None` where nothing is remembered (a fork's pull request).
    pub memory: Option<StateBackend>,
    /// The real infrastructure.
    pub runtimes: RuntimeRegistry,
    /// Whether it is asked.
    pub live: Live,
    /// A cluster given on the command line.
    pub given: GivenCluster,
    /// What the other stacks claim, once it is asked for.
    pub claims: StackClaims,
    /// Recorded identities that stacks go on from, once it is asked for.
    pub renamed: Renamed,
}

/// Where Specs come from.
pub enum SpecSource {
    /// Compiled from revisions of a monorepo.
    Compiled {
        /// The compiler.
        compiler: Box<Compiler>,
        /// What is wanted.
        head: Box<OpenRevision>,
        /// What it is compared with where no cluster is asked.
        base: Option<Box<OpenRevision>>,
    },
    /// Read from a file.
    File(Spec),
}

/// A target's plan.
pub enum TargetPlan {
    /// Against the real infrastructure: it can be applied.
    Live(Box<EnginePlan>),
    /// Against the base's Spec.
    Spec(Box<StackPlan>),
}

impl TargetPlan {
    /// What is shown.
    pub fn public(&self) -> &StackPlan {
        match self {
            Self::Live(plan) => &plan.public,
            Self::Spec(plan) => plan,
        }
    }
}

impl Planner {
    /// What masks this run's output.
    pub fn secrets(&self) -> &Secrets {
        self.memory
            .as_ref()
            .map_or(&self.run.secrets, |memory| &memory.secrets)
    }

    /// The Spec that is wanted of a target; empty if it was removed.
    ///
    /// # Errors
    /// It cannot be compiled.
    pub async fn spec(&self, target: &Target) -> Result<Spec, UserError> {
        match &self.wanted {
            SpecSource::Compiled { compiler, head, .. } => {
                compile_side(compiler, head, target.head.as_ref()).await
            }
            SpecSource::File(spec) => Ok(spec.clone()),
        }
    }

    /// The Spec that a target had at base; empty if it was not there.
    async fn spec_before(&self, target: &Target) -> Result<Spec, UserError> {
        match &self.wanted {
            SpecSource::Compiled {
                compiler,
                base: Some(base),
                ..
            } => compile_side(compiler, base, target.base.as_ref()).await,
            _ => Ok(Spec::default()),
        }
    }

    /// Plans a target against its prior state and what is there, or against the base's Spec if no cluster is asked.
    ///
    /// # Errors
    /// Compiling, reading the state, or reaching the infrastructure failed.
    pub async fn plan(&self, target: &Target, wanted: Spec) -> Result<TargetPlan, UserError> {
        let state = self.prior(target).await?;
        let mut state = state.unwrap_or_else(|| StackState::empty(target.id.clone(), target.folder.clone()));
        self.take_up_rescue(&mut state)?;
        self.plan_from(target, wanted, &state).await
    }

    /// Where what a run of a stack could not store is kept; `None` where nothing is remembered or kept.
    pub(super) fn rescue(&self, stack: &StackId) -> Option<Rescue> {
        let memory = self.memory.as_ref()?;
        Rescue::of(&self.run, memory.states.repository().as_str(), stack)
    }

    /// Adds to a state what an earlier run on this machine could not store; whether there was such.
    pub(super) fn take_up_rescue(&self, state: &mut StackState) -> Result<bool, UserError> {
        match self.rescue(&state.stack) {
            Some(rescue) => rescue.take_up(state),
            None => Ok(false),
        }
    }

    /// What is recorded of a target, under its identity or the one that it goes on from.
    ///
    /// # Errors
    /// The store's.
    pub async fn prior(&self, target: &Target) -> Result<Option<StackState>, UserError> {
        let Some(memory) = &self.memory else {
            return Ok(None);
        };
        let own = memory.states.load(&target.id).await?.map(|prior| prior.state);
        if own.as_ref().is_some_and(|state| !state.is_blank()) {
            return Ok(own);
        }
        let Some(earlier) = self.earlier_identity(&target.id).await? else {
            return Ok(own);
        };
        let earlier = memory.states.load(&earlier).await?;
        Ok(earlier
            .map(|prior| prior.state.renamed(target.id.clone()))
            .or(own))
    }

    /// As [`Planner::plan`], from a state at hand.
    ///
    /// # Errors
    /// As [`Planner::plan`].
    pub async fn plan_from(
        &self,
        target: &Target,
        wanted: Spec,
        state: &StackState,
    ) -> Result<TargetPlan, UserError> {
        let mut on_clusters = has_objects(&wanted)
            || state
                .resources
                .iter()
                .any(|r| r.runtime == RuntimeKind::Kubernetes);
        if !on_clusters && self.live == Live::Auto && state.resources.is_empty() {
            // Neither the head nor a state names an object: what the base had goes.
            on_clusters = has_objects(&self.spec_before(target).await?);
        }
        // A stack without Kubernetes resources needs no cluster to be looked at for real.
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
        let real = self.live != Live::Never && (cluster.is_some() || !on_clusters);
        if !real {
            let before = self.spec_before(target).await?;
            let plan =
                engine::plan_against_spec(&target.id, &target.folder, &before, &wanted, None, self.secrets());
            return Ok(TargetPlan::Spec(Box::new(plan)));
        }
        let ignore = target.rules().map(|stack| self.config.for_stack(stack).ignore);
        let plan = engine::plan(PlanRequest {
            stack: target.id.clone(),
            folder: target.folder.clone(),
            spec: wanted,
            state,
            runtimes: &self.runtimes,
            ignore: &ignore.unwrap_or_default(),
            cluster,
            neighbours: self,
            events: self.run.events.as_ref(),
            secrets: self.secrets(),
        })
        .await?;
        Ok(TargetPlan::Live(Box::new(plan)))
    }

    /// What a target is compared with, as far as its Spec says.
    pub fn basis(&self, target: &Target, wanted: &Spec) -> Basis {
        let stack = target.rules().filter(|_| has_objects(wanted));
        let cluster =
            stack.map(|stack| cluster_selection::cluster_of(&self.config, stack, &self.given, self.live));
        match (self.live, cluster) {
            (Live::Never, _) | (_, Some(Ok(None))) => Basis::Spec,
            // A cluster that cannot be told is one that should have been asked.
            _ => Basis::Live,
        }
    }

    /// The input digest of a target at head; `None` if it was removed. A Spec from a file is its own input.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn input_digest(&self, target: &Target) -> Result<Option<Digest>, UserError> {
        match (&self.wanted, &target.head) {
            (_, None) => Ok(None),
            (SpecSource::File(spec), _) => Ok(Some(spec.digest())),
            (SpecSource::Compiled { head, .. }, Some(stack)) => Ok(Some(head.analysis.input_digest(stack)?)),
        }
    }

    /// Where the Specs came from so far.
    pub fn counts(&self) -> CompileCounts {
        match &self.wanted {
            SpecSource::Compiled { compiler, .. } => compiler.counts(),
            SpecSource::File(_) => CompileCounts::default(),
        }
    }

    /// How many stacks there are at head, asked for or not; 0 for a Spec from a file.
    pub fn stacks_in_repository(&self) -> usize {
        match &self.wanted {
            SpecSource::Compiled { head, .. } => head.layout.stacks.len(),
            SpecSource::File(_) => 0,
        }
    }

    /// The version of the core that Specs are compiled with.
    pub fn core(&self) -> Option<&str> {
        match &self.wanted {
            SpecSource::Compiled { .. } => Some(self.config.kcl.core()),
            SpecSource::File(_) => None,
        }
    }
}

fn has_objects(spec: &Spec) -> bool {
    let mut kinds = spec.resources.iter().map(|resource| resource.runtime);
    kinds.any(|kind| kind == RuntimeKind::Kubernetes)
}

async fn compile_side(
    compiler: &Compiler,
    side: &OpenRevision,
    stack: Option<&Stack>,
) -> Result<Spec, UserError> {
    match stack {
        Some(stack) => compiler.spec(side, stack).await,
        None => Ok(Spec::default()),
    }
}
