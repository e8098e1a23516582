//! [`JobTester`]: stack tests for a job of GitHub Actions.

use async_trait::async_trait;

use super::{live, run_in, test_files::TestFiles};
use konverge_base::{
    error::UserError,
    model::{CommitId, stack_test::StackTestResult},
};
use konverge_ci::{StackTester, TestedChange};
use konverge_run::RunContext;
use konverge_testing::TestBody;

/// Runs the stack tests of a job.
pub struct JobTester;

#[async_trait(?Send)]
impl StackTester for JobTester {
    fn live_tests(&self, change: &TestedChange) -> Result<usize, UserError> {
        let files = TestFiles::find(&change.revision, &change.stacks)?;
        let is_live = |test: &&super::FoundTest<'_>| matches!(test.test.body, TestBody::Live(_));
        Ok(files.tests.iter().filter(is_live).count())
    }

    async fn offline(
        &self,
        run: &RunContext,
        change: &TestedChange,
    ) -> Result<Vec<StackTestResult>, UserError> {
        run_in(run, &change.compilers, &change.revision, &change.stacks).await
    }

    async fn live(
        &self,
        run: &RunContext,
        change: &TestedChange,
        trusted_commit: &CommitId,
    ) -> Result<Vec<StackTestResult>, UserError> {
        // Ignore invalid files here: the offline tests report them.
        let tests = TestFiles::find(&change.revision, &change.stacks)?.tests;
        live::run_at(
            run,
            &change.revision,
            tests,
            &change.compilers,
            Some(trusted_commit),
        )
        .await
    }
}
