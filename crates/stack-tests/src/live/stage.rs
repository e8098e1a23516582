//! [`TestStage`]: runs the steps of live tests.

use std::time::{Duration, Instant};

use serde_json::{Map, Value};

use super::{test_run::TestRun, trusted_side::TrustedSide};
use crate::{known_kinds::KnownKinds, test_files::FoundTest, variants};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        policy_finding::Enforcement,
        spec::Spec,
        stack_test::{StackTestFailure, StackTestOutcome, StackTestResult},
    },
    yaml::Placed,
};
use konverge_run::{
    OpenRevision, apply_freeze,
    compiler::{CompileError, Compilers},
    spec_policies::SpecPolicies,
};
use konverge_secrets::redact;
use konverge_stack_test_language::{
    LiveStep, TestBody,
    moving::{MoveRefusal, MovedSpec, move_spec, replace_resources},
};

/// The pause between two checks of a `wait` step.
const PAUSE: Duration = Duration::from_millis(500);

/// Inputs that all tests of a run share.
pub(super) struct TestStage<'a> {
    pub(super) trusted: &'a TrustedSide,
    /// The revision with the tests.
    pub(super) workspace: &'a OpenRevision,
    pub(super) compilers: &'a Compilers,
    pub(super) kinds: KnownKinds,
    /// The policy sets of the default branch, and of the tested revision.
    pub(super) policies: Vec<SpecPolicies<'a>>,
}

impl TestStage<'_> {
    pub(super) async fn test(&self, found: &FoundTest<'_>) -> StackTestResult {
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
                let shown = redact::failure(&error, &self.trusted.run.secrets);
                let said: Vec<String> = [shown.message].into_iter().chain(shown.hints).collect();
                let what = format!("not run: {}", said.join("; "));
                found.error(StackTestFailure::new(found.test.line, what))
            }
        }
    }

    /// Runs the steps of a test until one fails, and deletes everything.
    async fn run_steps(
        &self,
        found: &FoundTest<'_>,
        steps: &[Placed<LiveStep>],
    ) -> Result<Vec<StackTestFailure>, UserError> {
        let trusted = self.trusted;
        let config = |message: String| UserError::new(ErrorKind::Config, message);
        let cluster = trusted.cluster(found.stack).map_err(config)?;
        apply_freeze::check(&trusted.backend).await?;
        // Check that the Spec can be moved and is allowed before anything is created.
        let first = self.spec(found, &[]).await?;
        let name = TestRun::new_name();
        let moved = moved_spec(&first, found, &name)?;
        let mut test = TestRun::begin(trusted, found.stack, &name, &cluster).await?;
        let ended = self.until_one_fails(&mut test, moved, steps, found).await;
        let left = test.end().await.err().map(|error| {
            let shown = redact::failure(&error, &trusted.run.secrets).message;
            format!("what the test made is not deleted: {shown}; `konverge test --sweep` tries again")
        });
        match (ended, left) {
            (Ok(mut failures), left) => {
                failures.extend(left.map(|what| StackTestFailure::new(None, what)));
                Ok(failures)
            }
            (Err(error), Some(left)) => Err(error.hint(left)),
            (Err(error), None) => Err(error),
        }
    }

    /// Compiles the Spec of a stack with the options of its test and of the changes so far. It is an error if a policy
    /// set denies the Spec.
    async fn spec(
        &self,
        found: &FoundTest<'_>,
        changes: &[Map<String, Value>],
    ) -> Result<Spec, CompileError> {
        let mut options = found.test.options.clone();
        options.extend(
            changes
                .iter()
                .flatten()
                .map(|(key, value)| (key.clone(), value.clone())),
        );
        let workspace = self.workspace;
        let stack = variants::with_options(found.stack, &options);
        let revision = if options.is_empty() {
            None
        } else {
            Some(workspace.with_stacks(vec![stack.clone()])?)
        };
        let spec = self
            .compilers
            .for_revision(revision.as_ref().unwrap_or(workspace))
            .spec(&stack)
            .await?;
        for policies in &self.policies {
            let findings = policies.findings(&stack, &spec).await;
            if let Some(denied) = findings
                .iter()
                .find(|finding| matches!(finding.verdict, Enforcement::Deny | Enforcement::Undecided))
            {
                let verb = match denied.verdict {
                    Enforcement::Undecided => "cannot judge",
                    _ => "denies",
                };
                let what = format!("policy `{}` {verb} the stack: {}", denied.rule, denied.message);
                return Err(UserError::new(ErrorKind::Policy, what).into());
            }
        }
        Ok(spec)
    }

    /// Runs the steps until one fails. Returns the failures of that step.
    async fn until_one_fails(
        &self,
        test: &mut TestRun,
        mut moved: MovedSpec,
        steps: &[Placed<LiveStep>],
        found: &FoundTest<'_>,
    ) -> Result<Vec<StackTestFailure>, UserError> {
        let mut changes = Vec::new();
        for step in steps {
            test.planner.run.check_interrupted()?;
            let failed = |what: String| vec![StackTestFailure::new(step.line, what)];
            let failures = match &step.value {
                LiveStep::Apply => {
                    let target = test.target.clone();
                    test.apply(moved.spec.clone(), target).await?.map(failed)
                }
                LiveStep::Change(options) => {
                    changes.push(options.clone());
                    match self
                        .spec(found, &changes)
                        .await
                        .and_then(|spec| Ok(moved_spec(&spec, found, &test.name)?))
                    {
                        Ok(changed) => {
                            moved = changed;
                            let target = test.target.clone();
                            test.apply(moved.spec.clone(), target).await?.map(failed)
                        }
                        // Code that KCL refuses fails this step. Any other error ends the run of the tests.
                        Err(error) if error.is_of_the_code => Some(failed(error.error.message)),
                        Err(error) => return Err(error.into()),
                    }
                }
                LiveStep::Delete => test.delete().await?.map(failed),
                LiveStep::Assert(assertions) => Some(test.failures(&moved, assertions, &self.kinds).await?),
                LiveStep::Wait { assertions, within } => {
                    let started = Instant::now();
                    loop {
                        let failures = test.failures(&moved, assertions, &self.kinds).await?;
                        if failures.is_empty() || started.elapsed() >= *within {
                            break Some(failures);
                        }
                        tokio::select! {
                            () = test.planner.run.cancel.cancelled() => test.planner.run.check_interrupted()?,
                            () = tokio::time::sleep(PAUSE) => {}
                        }
                    }
                }
            };
            if let Some(failures) = failures.filter(|failures| !failures.is_empty()) {
                return Ok(failures);
            }
        }
        Ok(Vec::new())
    }
}

/// Returns the Spec of a test: without the resources that the test replaces, and in namespaces of its own.
fn moved_spec(spec: &Spec, found: &FoundTest<'_>, name: &str) -> Result<MovedSpec, UserError> {
    let moved = if found.test.stand_ins.is_empty() {
        move_spec(spec, name)
    } else {
        replace_resources(spec, &found.test.stand_ins).and_then(|spec| move_spec(&spec, name))
    };
    moved.map_err(|refusals| refused(&refusals))
}

/// Makes the error for a Spec that cannot be moved.
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
