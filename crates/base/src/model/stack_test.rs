//! The results of `konverge test`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FieldPath, RepoPath, ResourceId, StackId};

/// The results of all tests. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StackTestReport {
    /// Version of this format.
    pub version: u32,
    /// The number of stacks that were searched for tests.
    pub stacks: usize,
    /// The results, sorted by file.
    pub tests: Vec<StackTestResult>,
}

/// The result of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StackTestResult {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// The identity of the stack.
    pub id: StackId,
    /// The test file.
    pub file: RepoPath,
    /// The name in the test file; the file's name if the file cannot be read.
    pub name: String,
    /// The result.
    pub result: StackTestOutcome,
    /// The failed assertions, or the reason why the test was not run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<StackTestFailure>,
}

/// The result of a test of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StackTestOutcome {
    /// All assertions passed.
    Passed,
    /// An assertion failed.
    Failed,
    /// The test was not run: its file is invalid, or its stack does not compile.
    Error,
}

/// A failed assertion. Values are masked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StackTestFailure {
    /// The line of the assertion, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The reason, as a sentence.
    pub message: String,
    /// The resource that is most similar to the expected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<ResourceId>,
    /// The fields in which that resource differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<FieldMismatch>,
}

/// A field that is not as expected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldMismatch {
    /// The path as in RFC 6901; items of keyed lists as `name=web`.
    pub path: FieldPath,
    /// The value that the test expects; absent if the field must be absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Value>,
    /// The value in the resource; absent if the field does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<Value>,
}

impl StackTestReport {
    /// Sorts the results.
    pub fn new(stacks: usize, mut tests: Vec<StackTestResult>) -> Self {
        tests.sort_by(|a, b| (&a.file, &a.stack, &a.name).cmp(&(&b.file, &b.stack, &b.name)));
        Self {
            version: 1,
            stacks,
            tests,
        }
    }

    /// Returns the number of tests with this result.
    pub fn count(&self, result: StackTestOutcome) -> usize {
        self.tests.iter().filter(|test| test.result == result).count()
    }

    /// Returns true if any test did not pass.
    pub fn failed(&self) -> bool {
        self.count(StackTestOutcome::Passed) < self.tests.len()
    }
}

impl StackTestFailure {
    /// Creates a failure that names no resource.
    pub fn new(line: Option<u32>, message: impl Into<String>) -> Self {
        Self {
            line,
            message: message.into(),
            ..Self::default()
        }
    }
}
