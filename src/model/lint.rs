//! What `konverge check` finds.

use serde::{Deserialize, Serialize};

use super::RepoPath;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintSeverity {
    /// The check fails.
    Error,
    /// Worth a look.
    Warning,
}

/// Which check found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintRule {
    /// Names, keys and files of the monorepo.
    Structure,
    /// The stack compiles, and to a Spec.
    Compile,
    /// `kcl fmt` would change the file.
    Format,
    /// The core's linter.
    Lint,
    /// A test of the repository's own.
    Test,
    /// The Spec is its golden file.
    Golden,
    /// A Kubernetes object fits the schema of its kind.
    Schema,
    /// No object is in two stacks.
    Ownership,
    /// The Spec depends on more than the repository.
    Irreproducible,
}

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The file.
    pub file: RepoPath,
    /// Line from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Which check.
    pub rule: LintRule,
    /// How bad.
    pub severity: LintSeverity,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// All remarks; `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LintReport {
    /// Always 1.
    pub version: u32,
    /// How many stacks were looked at.
    pub stacks: usize,
    /// Sorted by file and line.
    pub remarks: Vec<Diagnostic>,
}

impl LintReport {
    /// Whether the check fails.
    pub fn failed(&self) -> bool {
        self.remarks
            .iter()
            .any(|remark| remark.severity == LintSeverity::Error)
    }
}

impl LintRule {
    /// Every check.
    pub const ALL: [Self; 9] = [
        Self::Structure,
        Self::Compile,
        Self::Format,
        Self::Lint,
        Self::Test,
        Self::Golden,
        Self::Schema,
        Self::Ownership,
        Self::Irreproducible,
    ];

    /// The check of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// Its name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Structure => "structure",
            Self::Compile => "compile",
            Self::Format => "format",
            Self::Lint => "lint",
            Self::Test => "test",
            Self::Golden => "golden",
            Self::Schema => "schema",
            Self::Ownership => "ownership",
            Self::Irreproducible => "irreproducible",
        }
    }
}

impl Diagnostic {
    /// Sets the place in the file.
    #[must_use]
    pub fn at(mut self, line: Option<u32>, column: Option<u32>) -> Self {
        (self.line, self.column) = (line, column);
        self
    }
}
