//! Runs stack tests on the compiled Specs of a revision; [`konverge_stack_test_language`] is their language. Only the
//! tests of [`live`] query a cluster and write.

mod known_kinds;
pub mod live;
mod test_files;
mod variants;

use futures::{StreamExt as _, stream};

use known_kinds::KnownKinds;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        event::Step,
        spec::Spec,
        stack::Stack,
        stack_test::{StackTestFailure, StackTestOutcome, StackTestReport, StackTestResult},
    },
};
use konverge_run::{
    OpenRevision, RunContext, StepCounter,
    compiler::{CompileError, Compilers},
    spec_policies::SpecPolicies,
    stack_outputs::{self, GivenOutputs},
};
use konverge_secrets::redact;
use konverge_stack_test_language::{TestBody, TestedSpec, TestedStack, assertion};
use test_files::{FoundTest, TestFiles};
use variants::Variant;

/// The number of stacks that are compiled at once; the pool has fewer workers.
const AT_ONCE: usize = 8;

/// Runs the tests of some stacks of a revision. `is_named`: the stacks were named, or are all of the repository.
///
/// # Errors
/// The core is not available, an object cannot be read, the run is interrupted, or stacks were named and none has a
/// test.
pub async fn run(
    run: &RunContext,
    workspace: &OpenRevision,
    stacks: &[Stack],
    is_named: bool,
) -> Result<StackTestReport, UserError> {
    let compilers = Compilers::new(run, &workspace.config);
    let tests = run_in(run, &compilers, workspace, stacks).await?;
    if tests.is_empty() && is_named && !stacks.is_empty() {
        let what = match stacks {
            [stack] => format!("stack {} has no tests", stack.id),
            _ => "none of these stacks has tests".to_owned(),
        };
        let example = stacks
            .first()
            .map(|stack| stack.folder.to_string())
            .unwrap_or_default();
        return Err(UserError::new(ErrorKind::Layout, what).hint(format!(
            "a test is a file such as `{example}/test/replicas.test.yaml` with `name` and `assert`"
        )));
    }
    Ok(StackTestReport::new(stacks.len(), tests))
}

/// Runs the tests of some stacks with compilers whose workers may be started already. An invalid test file is a
/// failed test.
///
/// # Errors
/// The core is not available, an object cannot be read, or the run is interrupted.
pub async fn run_in(
    run: &RunContext,
    compilers: &Compilers,
    workspace: &OpenRevision,
    stacks: &[Stack],
) -> Result<Vec<StackTestResult>, UserError> {
    let mut files = TestFiles::find(workspace, stacks)?;
    let mut results = files.invalid;
    files
        .tests
        .retain(|found| matches!(found.test.body, TestBody::Offline(_)));
    if files.tests.is_empty() {
        return Ok(results);
    }
    let (rounds, unread) = variants::plan(workspace, files.tests)?;
    results.extend(unread);
    let counter = StepCounter::start(run, Step::Compile, rounds.iter().map(Vec::len).sum());
    let judge = TestJudge {
        run,
        policies: SpecPolicies::load(workspace, &run.secrets),
        kinds: KnownKinds::load(workspace)?,
    };
    for (round, variants) in rounds.iter().enumerate() {
        // Stacks are identified by folder, so the variants of one stack are compiled in different rounds.
        let with_options = match round {
            0 => None,
            _ => Some(workspace.with_stacks(variants.iter().map(|variant| variant.stack.clone()).collect())?),
        };
        let revision = with_options.as_ref().unwrap_or(workspace);
        let compiler = compilers.for_revision(revision);
        let compiles = variants.iter().map(|variant| compiler.spec(&variant.stack));
        let mut compiles = stream::iter(compiles).buffered(AT_ONCE);
        for variant in variants {
            let spec = compiles.next().await.expect("each variant is compiled");
            results.extend(judge.results(variant, spec).await?);
            counter.advance();
        }
    }
    Ok(results)
}

/// The run, policies and kinds that the assertions of a revision's tests need.
struct TestJudge<'a> {
    run: &'a RunContext,
    policies: SpecPolicies<'a>,
    kinds: KnownKinds,
}

impl TestJudge<'_> {
    /// Returns the results of the tests of one variant of a stack.
    async fn results(
        &self,
        variant: &Variant<'_>,
        spec: Result<Spec, CompileError>,
    ) -> Result<Vec<StackTestResult>, UserError> {
        let spec = match spec {
            Ok(spec) => spec,
            Err(failure) => return self.results_of_failure(variant, failure),
        };
        let reads_nothing = variant.stack.reads.is_empty();
        if reads_nothing && variant.tests.iter().all(|found| found.test.outputs.is_empty()) {
            return Ok(self.of_spec(&variant.stack, &spec, &variant.tests).await);
        }
        let mut results = Vec::new();
        for found in &variant.tests {
            let given = &found.test.outputs;
            let filled = stack_outputs::fill_given(&self.run.secrets, &variant.stack, &spec, given);
            let unused = |filled: GivenOutputs| match filled.unused.first() {
                Some(unused) => Err(format!(
                    "`with.outputs`: the stack reads no `{}`; an output is `ALIAS.NAME`, with an alias of `reads`",
                    unused.escape_debug()
                )),
                None => Ok(filled.spec),
            };
            match filled.map_err(|failure| failure.message).and_then(unused) {
                Ok(spec) => {
                    let tests = std::slice::from_ref(found);
                    results.extend(self.of_spec(&variant.stack, &spec, tests).await);
                }
                Err(why) => results.push(found.error(StackTestFailure::new(found.test.line, why))),
            }
        }
        Ok(results)
    }

    /// Returns the results of the tests of one Spec.
    async fn of_spec(&self, stack: &Stack, spec: &Spec, tests: &[FoundTest<'_>]) -> Vec<StackTestResult> {
        let shown = redact::resources(&spec.resources, &self.run.secrets);
        let findings = if tests.iter().any(|found| found.test.expects_refusal()) {
            self.policies.findings(stack, spec).await
        } else {
            Vec::new()
        };
        let is_known_kind = |api_version: Option<&str>, kind: &str| self.kinds.has(spec, api_version, kind);
        let tested = TestedStack::Compiled(TestedSpec {
            resources: &spec.resources,
            shown: &shown,
            findings: &findings,
            is_known_kind: &is_known_kind,
        });
        tests.iter().map(|found| self.result(found, &tested)).collect()
    }

    /// Returns the results of tests whose stack does not compile. A test may expect an error of KCL. Any other failure
    /// is one of the run, and lets no test pass.
    fn results_of_failure(
        &self,
        variant: &Variant<'_>,
        error: CompileError,
    ) -> Result<Vec<StackTestResult>, UserError> {
        if self.run.cancel.is_cancelled() || error.is_of_the_core() {
            return Err(error.into());
        }
        let is_of_the_code = error.is_of_the_code;
        let failure = error.error;
        let place = failure
            .location
            .as_ref()
            .map(|place| format!(" ({place})"))
            .unwrap_or_default();
        let message = failure
            .message
            .strip_prefix(&format!("stack {}: ", variant.stack.id));
        let message = format!("{}{place}", message.unwrap_or(&failure.message));
        let refused = TestedStack::Refused(&message);
        let results = variant.tests.iter().map(|found| {
            if is_of_the_code && found.test.expects_refusal() {
                self.result(found, &refused)
            } else {
                let shown =
                    redact::failure(&UserError::new(failure.kind, &message), &self.run.secrets).message;
                let why = format!("not run: the stack does not compile: {shown}");
                found.error(StackTestFailure::new(found.test.line, why))
            }
        });
        Ok(results.collect())
    }

    fn result(&self, found: &FoundTest<'_>, tested: &TestedStack<'_>) -> StackTestResult {
        let failures = match &found.test.body {
            TestBody::Offline(assertions) => assertion::failures(assertions, tested, &self.run.secrets),
            TestBody::Live(_) => Vec::new(),
        };
        let result = if failures.is_empty() {
            StackTestOutcome::Passed
        } else {
            StackTestOutcome::Failed
        };
        StackTestResult {
            failures,
            ..found.result(result)
        }
    }
}
