//! The results of `konverge check`.

use serde::{Deserialize, Serialize};

use super::{RepoPath, ResourceId, StackId};

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintSeverity {
    /// The diagnostic fails the check.
    Error,
    /// The diagnostic does not fail the check.
    Warning,
}

/// The check that produced a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LintRule {
    /// Names, keys and files of the monorepo.
    Structure,
    /// The stack compiles to a valid Spec.
    Compile,
    /// Each file is formatted as `kcl fmt` formats it.
    Format,
    /// Imports are used, and none is repeated.
    Lint,
    /// The KCL tests and stack tests of the repository pass.
    Test,
    /// The Spec equals its golden file.
    Golden,
    /// A Kubernetes object matches the schema of its kind.
    Schema,
    /// No object belongs to two stacks.
    Ownership,
    /// The Spec depends only on the files of the repository.
    Irreproducible,
    /// The Spec satisfies the rules of `policy.sets`, and the tests of these rules pass.
    Policy,
    /// The stack may use each reference to a secret in its Spec.
    Secrets,
    /// A data file matches its schema (`checks.data`).
    Data,
    /// A generated model matches its source (`models.sources`).
    Models,
}

/// The location of a finding of a policy set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FindingPlace {
    /// The rule, as `SET/RULE`.
    pub rule: String,
    /// The resource, if the rule names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceId>,
    /// The path in the resource, if the rule names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// One finding of `konverge check`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Diagnostic {
    /// The file with the problem.
    pub file: RepoPath,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The rule that found it.
    pub rule: LintRule,
    /// The severity of the diagnostic.
    pub severity: LintSeverity,
    /// The message that describes the problem.
    pub message: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The location of the finding, if a rule of a policy set found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finding: Option<FindingPlace>,
    /// The stacks with this error, if it was found by compiling stacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<StackId>,
}

/// All diagnostics. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LintReport {
    /// Version of this format.
    pub version: u32,
    /// The number of checked stacks.
    pub stacks: usize,
    /// The diagnostics, sorted by file and line.
    pub remarks: Vec<Diagnostic>,
}

impl LintReport {
    /// Sorts the diagnostics and merges those that are the same in several stacks.
    pub fn new(stacks: usize, mut found: Vec<Diagnostic>) -> Self {
        found.sort();
        let mut remarks: Vec<Diagnostic> = Vec::with_capacity(found.len());
        for mut diagnostic in found {
            match remarks.last_mut().filter(|last| last.is_same(&diagnostic)) {
                Some(last) => last.stacks.append(&mut diagnostic.stacks),
                None => remarks.push(diagnostic),
            }
        }
        for remark in &mut remarks {
            remark.stacks.sort();
            remark.stacks.dedup();
        }
        Self {
            version: 1,
            stacks,
            remarks,
        }
    }

    /// Returns true if the check fails.
    pub fn failed(&self) -> bool {
        self.remarks
            .iter()
            .any(|remark| remark.severity == LintSeverity::Error)
    }
}

impl LintRule {
    /// Every rule, in the order of the reference.
    pub const ALL: [Self; 13] = [
        Self::Structure,
        Self::Compile,
        Self::Format,
        Self::Lint,
        Self::Test,
        Self::Golden,
        Self::Schema,
        Self::Ownership,
        Self::Irreproducible,
        Self::Policy,
        Self::Secrets,
        Self::Data,
        Self::Models,
    ];

    /// Returns the rule with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }

    /// Returns the name of the rule in every output.
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
            Self::Policy => "policy",
            Self::Secrets => "secrets",
            Self::Data => "data",
            Self::Models => "models",
        }
    }
}

impl Diagnostic {
    /// Creates a diagnostic that fails the check.
    pub fn new(file: &RepoPath, rule: LintRule, message: &str) -> Self {
        Self {
            file: file.clone(),
            line: None,
            column: None,
            rule,
            severity: LintSeverity::Error,
            message: message.to_owned(),
            hint: None,
            finding: None,
            stacks: Vec::new(),
        }
    }

    /// Returns the full name of the rule; for a rule of a policy set `SET/RULE`.
    pub fn rule_id(&self) -> &str {
        let finding = self.finding.as_ref();
        finding.map_or_else(|| self.rule.name(), |finding| &finding.rule)
    }

    /// Returns true if another diagnostic is the same, except for its stacks.
    fn is_same(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.file.clone(), one.line, one.column, one.rule, one.severity);
        key(self) == key(other)
            && self.message == other.message
            // The hint of a compile error is ignored: it may belong to another error of the same stack.
            && (self.hint == other.hint || self.rule == LintRule::Compile)
            && self.finding == other.finding
    }

    /// Sets the position in the file.
    #[must_use]
    pub fn at(mut self, line: Option<u32>, column: Option<u32>) -> Self {
        (self.line, self.column) = (line, column);
        self
    }

    /// Sets the next step.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the next step to the first of these hints, if there is any.
    #[must_use]
    pub fn first_hint(mut self, hints: &[String]) -> Self {
        self.hint = hints.first().cloned();
        self
    }

    /// Makes it a diagnostic that does not fail the check.
    #[must_use]
    pub fn warning(mut self) -> Self {
        self.severity = LintSeverity::Warning;
        self
    }

    /// Sets the stack with this error.
    #[must_use]
    pub fn of_stack(mut self, stack: &StackId) -> Self {
        self.stacks = vec![stack.clone()];
        self
    }
}
