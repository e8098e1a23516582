//! Live stack tests: apply the Spec of a stack to throw-away namespaces of a cluster that allows tests.
//!
//! Only the default branch decides where tests may write: it has the store, the clusters with `tests: true`, and the
//! rules. No rule of `stacks` applies to a test, so a test has neither the login nor the secrets of its stack. Each
//! test keeps its state in its own part of the store, and deletes what that state names. A later run cleans up after a
//! test that was killed.

mod run_events;
mod stage;
mod sweep;
mod test_run;
mod trusted_side;

use futures::{StreamExt as _, stream};

use self::{
    stage::TestStage,
    trusted_side::{AT_ONCE, TrustedSide},
};
use super::{
    known_kinds::KnownKinds,
    test_files::{FoundTest, TestFiles},
};
use crate::ops::{selected_stacks::SelectedStacks, spec_policies::SpecPolicies};
use konverge_base::{
    error::UserError,
    model::{
        CommitId,
        event::Step,
        stack_test::{StackTestReport, StackTestResult},
    },
};
use konverge_run::{OpenRevision, RunContext, StepCounter, compiler::Compilers};
use konverge_testing::TestBody;

/// Runs the live tests of the selected stacks, and cleans up what earlier runs left.
///
/// # Errors
/// No cluster allows tests, the store or the core is not available, or the run is interrupted.
pub async fn run(run: &RunContext, selected: &SelectedStacks) -> Result<StackTestReport, UserError> {
    let compilers = Compilers::new(run, &selected.workspace.config);
    let files = TestFiles::find(&selected.workspace, &selected.stacks)?;
    let mut results = files.invalid;
    results.extend(run_at(run, &selected.workspace, files.tests, &compilers, None).await?);
    Ok(StackTestReport::new(selected.stacks.len(), results))
}

/// Runs the live tests among some tests of a revision. `trusted_commit` is the commit of the default branch with the
/// store, clusters and rules; `None` for the commit in this clone.
///
/// # Errors
/// The same as for [`run`].
pub(super) async fn run_at(
    run: &RunContext,
    workspace: &OpenRevision,
    mut tests: Vec<FoundTest<'_>>,
    compilers: &Compilers,
    trusted_commit: Option<&CommitId>,
) -> Result<Vec<StackTestResult>, UserError> {
    let trusted = TrustedSide::open(run, trusted_commit).await?;
    tests.retain(|found| matches!(found.test.body, TestBody::Live(_)));
    if tests.is_empty() {
        run.notes
            .note("no selected stack has a live test: a test file with `steps`");
    }
    let counter = StepCounter::start(run, Step::Apply, tests.len());
    let stage = TestStage {
        trusted: &trusted,
        workspace,
        compilers,
        kinds: KnownKinds::load(workspace)?,
        policies: vec![
            SpecPolicies::load(&trusted.revision, &run.secrets),
            SpecPolicies::load(workspace, &run.secrets),
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
    let results = stream::iter(each).buffer_unordered(AT_ONCE).collect().await;
    run.check_interrupted()?;
    sweep::sweep(&trusted).await?;
    Ok(results)
}

/// Deletes what killed tests left; returns the number of tests that were cleaned up.
///
/// # Errors
/// No cluster allows tests, or the store is not available.
pub async fn sweep(run: &RunContext) -> Result<usize, UserError> {
    sweep::sweep(&TrustedSide::open(run, None).await?).await
}
