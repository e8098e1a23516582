//! Reads the test files of stacks, and gives each test a name.

use std::collections::BTreeMap;

use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        stack::Stack,
        stack_test::{StackTestFailure, StackTestOutcome, StackTestResult},
    },
};
use konverge_repo::affected::find_stack_tests;
use konverge_run::OpenRevision;
use konverge_testing::StackTest;

/// A test of a stack.
pub(super) struct FoundTest<'a> {
    pub(super) stack: &'a Stack,
    pub(super) file: RepoPath,
    pub(super) test: StackTest,
}

/// The tests of some stacks.
#[derive(Default)]
pub(super) struct TestFiles<'a> {
    pub(super) tests: Vec<FoundTest<'a>>,
    /// The results of files that are not valid tests.
    pub(super) invalid: Vec<StackTestResult>,
}

impl<'a> TestFiles<'a> {
    /// Finds and reads the tests.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn find(workspace: &OpenRevision, stacks: &'a [Stack]) -> Result<Self, UserError> {
        let mut found = Self::default();
        for stack in stacks {
            let files = find_stack_tests(workspace.analysis.tree(), stack);
            let mut names: BTreeMap<String, RepoPath> = BTreeMap::new();
            for link in files.nowhere {
                let why = StackTestFailure::new(None, "this link leads to no file of this revision");
                found.invalid.push(invalid(stack, &link, why));
            }
            for file in files.files {
                let content = workspace.source.read(file.blob);
                let content = content?;
                match parse(&file.path, &content) {
                    Err(why) => found.invalid.push(invalid(stack, &file.path, why)),
                    Ok(test) => match names.insert(test.name.clone(), file.path.clone()) {
                        Some(other) => {
                            let why =
                                format!("the name `{}` is also the name of the test in {other}", test.name);
                            let why = StackTestFailure::new(test.line, why);
                            found.invalid.push(invalid(stack, &file.path, why));
                        }
                        None => found.tests.push(FoundTest {
                            stack,
                            file: file.path,
                            test,
                        }),
                    },
                }
            }
        }
        Ok(found)
    }
}

impl FoundTest<'_> {
    /// Returns a result of this test.
    pub(super) fn result(&self, result: StackTestOutcome) -> StackTestResult {
        StackTestResult {
            stack: self.stack.folder.clone(),
            id: self.stack.id.clone(),
            file: self.file.clone(),
            name: self.test.name.clone(),
            result,
            failures: Vec::new(),
        }
    }

    /// Returns the result of this test if it cannot be run.
    pub(super) fn error(&self, why: StackTestFailure) -> StackTestResult {
        StackTestResult {
            failures: vec![why],
            ..self.result(StackTestOutcome::Error)
        }
    }
}

fn parse(path: &RepoPath, content: &[u8]) -> Result<StackTest, StackTestFailure> {
    if path.as_str().ends_with(".yml") {
        let why = "not run: rename it so that it ends in `.test.yaml`";
        return Err(StackTestFailure::new(None, why));
    }
    let text = str::from_utf8(content).map_err(|_| StackTestFailure::new(None, "the file is not UTF-8"))?;
    StackTest::parse(text).map_err(|error| StackTestFailure::new(error.line, error.message))
}

fn invalid(stack: &Stack, file: &RepoPath, why: StackTestFailure) -> StackTestResult {
    StackTestResult {
        stack: stack.folder.clone(),
        id: stack.id.clone(),
        file: file.clone(),
        name: file.file_name().to_owned(),
        result: StackTestOutcome::Error,
        failures: vec![why],
    }
}
