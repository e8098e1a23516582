//! Live stack tests: the Spec of a stack in throw-away namespaces of a cluster that allows it.
//!
//! What may be written comes from the default branch alone: its store, its clusters with `tests: true`, its rules. No
//! rule of `stacks` holds for a test, so it has neither the login nor the secrets of its stack. Each test keeps its
//! state in a part of the store of its own, and deletes what that state names. A test that was killed is cleaned up by
//! a later run.

mod run_events;
mod sweep;
mod test_run;

use std::sync::Arc;

use futures::{StreamExt as _, stream};

use self::test_run::TestRun;
use super::{
    known_kinds::KnownKinds,
    test_files::{FoundTest, TestFiles},
    variants,
};
use crate::ops::{selected_stacks::SelectedStacks, spec_policies::SpecPolicies};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, RepoPath,
        event::Step,
        policy_finding::Enforcement,
        spec::Spec,
        stack::Stack,
        stack_test::{StackTestFailure, StackTestOutcome, StackTestReport, StackTestResult},
    },
};
use konverge_config::Config;
use konverge_repo::git::Repository;
use konverge_run::{
    ComparedRevisions, KeyUse, OpenRevision, RevisionSpec, RunContext, StepCounter, apply_freeze,
    compiler::{self, Compiler},
    state_backend,
};
use konverge_testing::{PlacedStep, TestBody, moving::MoveRefusal};

/// The number of tests that run at once.
const AT_ONCE: usize = 4;

/// What live tests need of the default branch.
struct TrustedSide {
    run: RunContext,
    repository: Repository,
    /// The revision of the default branch.
    revision: OpenRevision,
    /// Its configuration, with the clusters that allow tests, and without rules for stacks.
    config: Config,
}

impl TrustedSide {
    /// Opens the default branch.
    ///
    /// # Errors
    /// The event of this job may not run live tests, the branch cannot be read, or no cluster allows tests.
    fn open(run: &RunContext) -> Result<Self, UserError> {
        run_events::check(run)?;
        let repository = Repository::discover(&run.dir)?;
        let branch = repository.default_branch()?;
        let at = RevisionSpec::Commit(repository.resolve(&branch)?);
        let revision = ComparedRevisions::open(run, &repository, &at, None)?.head;
        let mut config = revision.config.clone();
        config.clusters.retain(|_, cluster| cluster.tests);
        config.stacks.clear();
        if config.clusters.is_empty() {
            let what = format!("no cluster in the konverge.yaml of `{branch}` allows live tests");
            return Err(UserError::new(ErrorKind::Config, what).hint(
                "set `tests: true` at a cluster that may have throw-away namespaces, and merge it first: \
                 `clusters: {testing: {tests: true}}`",
            ));
        }
        Ok(Self {
            run: run.clone(),
            repository,
            revision,
            config,
        })
    }

    /// The cluster of a stack's tests: its own if that allows them, or else the only one that does.
    fn cluster(&self, stack: &Stack) -> Result<ClusterName, String> {
        let rules = self.revision.config.for_place(&stack.id, &stack.folder);
        let own = stack.cluster.clone().or(rules.cluster);
        if let Some(own) = own.filter(|own| self.config.clusters.contains_key(own)) {
            return Ok(own);
        }
        let mut names = self.config.clusters.keys();
        match (names.next(), names.next()) {
            (Some(only), None) => Ok(only.clone()),
            _ => Err(
                "the cluster of the stack does not allow tests, and several others do: name one of them in `stacks`"
                    .to_owned(),
            ),
        }
    }
}

/// Runs the live tests of the selected stacks, and cleans up what earlier runs left.
///
/// # Errors
/// No cluster allows tests, the store or the core is not available, or the run is interrupted.
pub async fn run(run: &RunContext, selected: &SelectedStacks) -> Result<StackTestReport, UserError> {
    let trusted = TrustedSide::open(run)?;
    let files = TestFiles::find(&selected.workspace, &selected.stacks)?;
    let mut results = files.invalid;
    let mut tests = Vec::new();
    for found in files.tests {
        match &found.test.body {
            TestBody::Live(_) => tests.push(found),
            TestBody::Offline(_) => {}
        }
    }
    if tests.is_empty() {
        run.notes
            .note("note: no selected stack has a live test: a test file with `steps`");
    }
    let counter = StepCounter::start(run, Step::Apply, tests.len());
    let stage = Stage {
        trusted: &trusted,
        selected,
        compiler: Compiler::new(run, &selected.workspace.config),
        kinds: KnownKinds::load(&selected.workspace)?,
        policies: vec![
            SpecPolicies::load(&trusted.revision, &run.secrets),
            SpecPolicies::load(&selected.workspace, &run.secrets),
        ],
    };
    let each = tests.iter().map(|found| {
        let stage = &stage;
        let counter = &counter;
        async move {
            let result = stage.test(found).await;
            counter.advance();
            result
        }
    });
    let mut ended = stream::iter(each).buffer_unordered(AT_ONCE);
    while let Some(result) = ended.next().await {
        results.push(result);
    }
    run.check_interrupted()?;
    sweep::sweep(&trusted).await?;
    Ok(StackTestReport::new(selected.stacks.len(), results))
}

/// Deletes what killed tests left; returns the number of tests that were cleaned up.
///
/// # Errors
/// No cluster allows tests, or the store is not available.
pub async fn sweep(run: &RunContext) -> Result<usize, UserError> {
    sweep::sweep(&TrustedSide::open(run)?).await
}

/// What all tests of a run need.
struct Stage<'a> {
    trusted: &'a TrustedSide,
    selected: &'a SelectedStacks,
    compiler: Compiler,
    kinds: KnownKinds,
    /// The policy sets of the default branch, and of the revision at hand.
    policies: Vec<SpecPolicies<'a>>,
}

impl Stage<'_> {
    async fn test(&self, found: &FoundTest<'_>) -> StackTestResult {
        let TestBody::Live(steps) = &found.test.body else {
            return found.result(StackTestOutcome::Passed);
        };
        match self.run_steps(found, steps).await {
            Ok(failures) if failures.is_empty() => found.result(StackTestOutcome::Passed),
            Ok(failures) => StackTestResult {
                failures,
                ..found.result(StackTestOutcome::Failed)
            },
            Err(error) => {
                let shown = konverge_run::redact::failure(&error, &self.trusted.run.secrets).message;
                found.error(StackTestFailure::new(
                    found.test.line,
                    format!("not run: {shown}"),
                ))
            }
        }
    }

    /// Runs the steps of a test until one fails, and deletes everything.
    async fn run_steps(
        &self,
        found: &FoundTest<'_>,
        steps: &[PlacedStep],
    ) -> Result<Vec<StackTestFailure>, UserError> {
        let trusted = self.trusted;
        let config = |message: String| UserError::new(ErrorKind::Config, message);
        let cluster = trusted.cluster(found.stack).map_err(config)?;
        let whole = state_backend::open(
            &trusted.run,
            &trusted.config,
            Some(&trusted.repository),
            KeyUse::Look,
        );
        apply_freeze::check(&whole.await?).await?;
        // Nothing is made before the Spec is known to be movable and allowed.
        let first = self.spec(found, &[]).await?;
        let name = TestRun::new_name();
        let moved = self.moved(&first, &name)?;
        let mut test = TestRun::begin(trusted, found.stack, &name, &cluster).await?;
        let mut options = Vec::new();
        let ended = test_run::run_steps(&mut test, moved, steps, self, found, &mut options).await;
        let cleaned = test.end().await;
        let mut failures = ended?;
        if let Err(error) = cleaned {
            let shown = konverge_run::redact::failure(&error, &trusted.run.secrets).message;
            failures.push(StackTestFailure::new(
                None,
                format!(
                    "what the test made could not be deleted: {shown}; `konverge test --sweep` tries again"
                ),
            ));
        }
        Ok(failures)
    }

    /// The Spec of a stack with the options of its test and those of the changes so far. No policy set denies it.
    async fn spec(
        &self,
        found: &FoundTest<'_>,
        changes: &[serde_json::Map<String, serde_json::Value>],
    ) -> Result<Spec, UserError> {
        let mut options = found.test.options.clone();
        options.extend(
            changes
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        let workspace = &self.selected.workspace;
        let stack = variants::with_options(found.stack, &options);
        let revision = match options.is_empty() {
            true => None,
            false => Some(workspace.with_stacks(vec![stack.clone()])?),
        };
        let spec = self
            .compiler
            .spec(revision.as_ref().unwrap_or(workspace), &stack)
            .await?;
        for policies in &self.policies {
            let findings = policies.findings(&stack, &spec).await;
            if let Some(denied) = findings
                .iter()
                .find(|finding| finding.verdict == Enforcement::Deny)
            {
                let what = format!("policy `{}` denies the stack: {}", denied.rule, denied.message);
                return Err(UserError::new(ErrorKind::Policy, what));
            }
        }
        Ok(spec)
    }

    fn moved(&self, spec: &Spec, name: &str) -> Result<konverge_testing::moving::MovedSpec, UserError> {
        konverge_testing::moving::move_spec(spec, name).map_err(|refusals| refused(&refusals))
    }
}

/// Why a Spec cannot be moved.
fn refused(refusals: &[MoveRefusal]) -> UserError {
    let said: Vec<String> = refusals
        .iter()
        .map(|refusal| format!("`{}`: {}", refusal.id, refusal.why))
        .collect();
    UserError::new(
        ErrorKind::Policy,
        format!(
            "the Spec cannot be moved to throw-away namespaces: {}",
            said.join("; ")
        ),
    )
}

/// The folder of a test that no rule of a repository should mean.
fn test_folder(name: &str) -> RepoPath {
    RepoPath::root().child(".konverge-test").child(name)
}

/// The sources of the rules of readiness: those of the default branch.
fn rule_files(trusted: &TrustedSide) -> Arc<dyn konverge_base::model::file_source::Source> {
    Arc::clone(&trusted.revision.source)
}

/// True for an error of the code of the stack, which a test may meet.
fn is_of_the_test(error: &UserError) -> bool {
    compiler::is_of_the_code(error) || matches!(error.kind, ErrorKind::Policy)
}
