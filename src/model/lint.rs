//! The results of `konverge check`.

use serde::{Deserialize, Serialize};

use super::RepoPath;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintSeverity {
    /// The check fails.
    Error,
    /// The check does not fail.
    Warning,
}

/// The check that produced a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintRule {
    /// Names, keys and files of the monorepo.
    Structure,
    /// The stack compiles and gives a valid Spec.
    Compile,
    /// `kcl fmt` would change the file.
    Format,
    /// The linter of the KCL core.
    Lint,
    /// A KCL test of the repository.
    Test,
    /// The Spec equals its golden file.
    Golden,
    /// A Kubernetes object matches the schema of its kind.
    Schema,
    /// No object belongs to two stacks.
    Ownership,
    /// The Spec depends on more than the files of the repository.
    Irreproducible,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Diagnostic {
    pub file: RepoPath,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    pub rule: LintRule,
    pub severity: LintSeverity,
    /// What is wrong.
    pub message: String,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// All diagnostics. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LintReport {
    pub version: u32,
    /// The number of checked stacks.
    pub stacks: usize,
    /// Sorted by file and line.
    pub remarks: Vec<Diagnostic>,
}

impl LintReport {
    /// Returns true if the check fails.
    pub fn failed(&self) -> bool {
        self.remarks
            .iter()
            .any(|remark| remark.severity == LintSeverity::Error)
    }
}

impl LintRule {
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

    /// The rule of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// The name of the rule in every output.
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
    /// Sets the position in the file.
    #[must_use]
    pub fn at(mut self, line: Option<u32>, column: Option<u32>) -> Self {
        (self.line, self.column) = (line, column);
        self
    }
}
