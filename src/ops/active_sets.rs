//! The policy sets in force for a stack: evaluated when its plan is approved, and again when a value becomes
//! known during the apply.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;

use crate::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        authorization::{PolicyOverride, RecordedFindings},
        plan::ResourcePlan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
    },
    policy::{self, sets::PolicySets},
};

/// The policy sets that were in force when a stack was approved, with its plan document.
pub(super) struct ActiveSets {
    versions: Vec<PolicySets>,
    document: StackDocument,
    findings: Vec<PolicyFinding>,
    overridden: Vec<PolicyOverride>,
}

impl ActiveSets {
    /// Evaluates the sets of these versions. `excuse` takes out of the findings of a version what is overridden.
    pub fn evaluate(
        versions: Vec<PolicySets>,
        document: &StackDocument,
        excuse: impl Fn(&PolicySets, &mut [PolicyFinding]) -> Vec<PolicyOverride>,
    ) -> Self {
        let mut all = BTreeSet::new();
        let mut overridden = BTreeSet::new();
        for sets in &versions {
            let mut findings = findings(std::slice::from_ref(sets), document);
            overridden.extend(excuse(sets, &mut findings));
            all.extend(findings);
        }
        Self {
            versions,
            document: document.clone(),
            findings: all.into_iter().collect(),
            overridden: overridden.into_iter().collect(),
        }
    }

    /// The findings when the plan was approved, the strictest first.
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.findings
    }

    /// What was overridden when the plan was approved.
    pub fn overridden(&self) -> &[PolicyOverride] {
        &self.overridden
    }

    /// The findings for the receipt.
    pub fn recorded(&self) -> RecordedFindings {
        RecordedFindings::of(&self.findings)
    }

    /// The error of the sets for the plan.
    pub fn plan_refusal(&self) -> Option<UserError> {
        let denied = self.findings.iter();
        let denied: Vec<_> = denied.filter(|f| f.verdict == Enforcement::Deny).collect();
        let stack = &self.document.stack.id;
        let refusal = refusal(
            format_args!("{stack} was stopped before anything of it was changed"),
            &denied,
        )?;
        let hints: BTreeSet<_> = denied.iter().filter_map(|finding| finding.hint.clone()).collect();
        Some(hints.into_iter().fold(refusal, UserError::hint).hint(
            "change what the rules find, or add an exception with an end date: `policy.exceptions` in konverge.yaml",
        ))
    }

    /// The error of the sets for a resource whose values are known now, before it is written. What was
    /// overridden stays so; a new finding is covered by no override, because the receipt does not have it.
    pub fn refusal(&mut self, plan: &ResourcePlan) -> Option<UserError> {
        if self.versions.iter().all(PolicySets::is_empty) {
            return None;
        }
        policy::update_document(&mut self.document, plan);
        let overridden: BTreeSet<Digest> = self.overridden.iter().map(|one| one.finding).collect();
        let is_overridden = |finding: &PolicyFinding| {
            let place = finding.place.as_ref();
            place.is_some_and(|place| overridden.contains(&place.digest))
        };
        let found = findings(&self.versions, &self.document);
        let denied = found
            .iter()
            .filter(|finding| finding.verdict == Enforcement::Deny && !is_overridden(finding));
        let refusal = refusal(
            format_args!(
                "{} was stopped before {} was written, where a value became known",
                self.document.stack.id, plan.id
            ),
            &denied.collect::<Vec<_>>(),
        )?;
        Some(
            refusal
                .hint("run it again: the value is then known from the start, and the plan shows the finding"),
        )
    }
}

fn refusal(what: fmt::Arguments<'_>, denied: &[&PolicyFinding]) -> Option<UserError> {
    if denied.is_empty() {
        return None;
    }
    let said = denied.iter().map(|f| format!("{}: {}", f.rule, f.message));
    let said: Vec<_> = said.collect();
    Some(UserError::new(
        ErrorKind::Policy,
        format!("{what}:\n{}", said.join("\n")),
    ))
}

/// The findings of several versions of the sets. An unchanged stack has none.
pub(super) fn findings(versions: &[PolicySets], document: &StackDocument) -> Vec<PolicyFinding> {
    if !document.has_changes() {
        return Vec::new();
    }
    let now = Timestamp::now();
    let findings: BTreeSet<_> = versions
        .iter()
        .flat_map(|sets| sets.findings(document, now))
        .collect();
    findings.into_iter().collect()
}
