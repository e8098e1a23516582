//! Compares the Specs of stacks of two revisions, without a cluster, a state or a store.

use std::collections::HashMap;

use futures::{StreamExt as _, stream};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        plan::{Basis, Plan, StackPlan},
        spec::Spec,
        stack::Stack,
    },
};
use konverge_engine::{self as engine, ComparedSpecs, SpecMask};
use konverge_policy::{self as policy, SecretReader};
use konverge_run::{
    ComparedRevisions, OpenRevision, RunContext, Target,
    compiler::{CompileError, Compiler, Compilers},
};
use konverge_secrets::redact;

/// The number of stacks that are compiled at once; the pool has fewer workers.
const AT_ONCE: usize = 8;

/// The maximum number of Specs that are kept between two comparisons.
const MOST: usize = 4_096;

/// Compares Specs, and caches them: a stack whose inputs were compiled before is not compiled again.
#[derive(Default)]
pub struct SpecDifference {
    compiled: HashMap<Digest, Result<Spec, CompileError>>,
}

impl SpecDifference {
    /// Returns the differences of some stacks, masked. A stack that does not compile has an error.
    ///
    /// # Errors
    /// The run is interrupted.
    pub async fn plan(
        &mut self,
        run: &RunContext,
        compilers: &Compilers,
        revisions: &ComparedRevisions,
        targets: &[Target],
    ) -> Result<Plan, UserError> {
        if self.compiled.len() + 2 * targets.len() > MOST {
            self.compiled.clear();
        }
        let heads = targets.iter().filter_map(|target| target.head.as_ref());
        self.compile(compilers.for_revision(&revisions.head), heads).await;
        if let Some(base) = &revisions.base {
            let bases = targets.iter().filter_map(|target| target.base.as_ref());
            self.compile(compilers.for_revision(base), bases).await;
        }
        run.check_interrupted()?;
        let plans = targets.iter().map(|target| {
            let plan = self.plan_one(run, revisions, target);
            plan.unwrap_or_else(|failure| {
                StackPlan::failed(
                    target.folder().clone(),
                    target.id.clone(),
                    Basis::Spec,
                    failure.body(),
                )
            })
        });
        let mut stacks: Vec<_> = plans.collect();
        stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
        let mut plan = Plan { version: 1, stacks };
        redact::plan(&mut plan, &run.secrets);
        Ok(plan)
    }

    /// Compiles the stacks that are not in the cache. A failure is not cached, so it is tried again.
    async fn compile<'s>(&mut self, compiler: Compiler<'_>, stacks: impl Iterator<Item = &'s Stack>) {
        let wanted = stacks.filter_map(|stack| {
            let digest = compiler.revision().analysis.input_digest(stack).ok()?;
            let is_known = self.compiled.get(&digest).is_some_and(Result::is_ok);
            (!is_known).then_some((digest, stack))
        });
        let wanted: Vec<_> = wanted.collect();
        let compiles = wanted
            .into_iter()
            .map(async |(digest, stack)| (digest, compiler.spec(stack).await));
        let compiled: Vec<_> = stream::iter(compiles).buffer_unordered(AT_ONCE).collect().await;
        self.compiled.extend(compiled);
    }

    /// Returns a Spec from the cache; an empty one if there is no stack.
    fn spec(&self, revision: &OpenRevision, stack: Option<&Stack>) -> Result<Spec, CompileError> {
        let Some(stack) = stack else {
            return Ok(Spec::default());
        };
        let digest = revision.analysis.input_digest(stack).map_err(UserError::from)?;
        self.compiled.get(&digest).cloned().unwrap_or_else(|| {
            let what = format!("stack {} was not compiled", stack.id);
            Err(UserError::new(ErrorKind::Internal, what).into())
        })
    }

    fn plan_one(
        &self,
        run: &RunContext,
        revisions: &ComparedRevisions,
        target: &Target,
    ) -> Result<StackPlan, UserError> {
        let after = self.spec(&revisions.head, target.head.as_ref())?;
        let before = match &revisions.base {
            Some(base) => self.spec(base, target.base.as_ref()),
            None => Ok(Spec::default()),
        };
        let (before, note) = match before {
            Ok(before) => (before, None),
            Err(error) if error.is_of_the_code => {
                let note = "the base does not compile, so there is nothing to compare with".to_owned();
                (Spec::default(), Some(note))
            }
            Err(error) => return Err(error.into()),
        };
        let config = &revisions.head.config.secrets;
        let reader = SecretReader {
            stack: &target.id,
            folder: target.folder(),
        };
        let notes = after.notes.clone().into_iter().chain(note);
        let after = policy::admit(config, reader, after)?.spec;
        let before = policy::name_stores(config, before);
        let specs = ComparedSpecs {
            base: &before,
            head: &after,
        };
        let mask = SpecMask::for_readers(&run.secrets);
        let mut plan = engine::plan_against_spec(&target.id, target.folder(), specs, None, mask);
        plan.notes.splice(..0, notes);
        Ok(plan)
    }
}
