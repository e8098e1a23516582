//! The policy sets in force for a stack: evaluated when its plan is approved, and again when a value becomes
//! known during the apply.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::rule_evaluator::RuleEvaluator;
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
    evaluator: RuleEvaluator,
    versions: Vec<PolicySets>,
    /// `None` if there is no set.
    document: Option<Arc<StackDocument>>,
    findings: Vec<PolicyFinding>,
    overridden: Vec<PolicyOverride>,
}

impl ActiveSets {
    /// Evaluates the sets of these versions. `excuse` takes out of the findings of a version what is overridden.
    pub async fn evaluate(
        evaluator: &RuleEvaluator,
        versions: Vec<PolicySets>,
        document: impl FnOnce() -> StackDocument,
        excuse: impl Fn(&PolicySets, &mut [PolicyFinding]) -> Vec<PolicyOverride>,
    ) -> Self {
        let mut all = BTreeSet::new();
        let mut overridden = BTreeSet::new();
        let has_sets = versions.iter().any(|sets| !sets.is_empty());
        let document = has_sets.then(document).map(Arc::new);
        for sets in &versions {
            let Some(document) = &document else { break };
            let mut findings = evaluator.findings(std::slice::from_ref(sets), document).await;
            overridden.extend(excuse(sets, &mut findings));
            all.extend(findings);
        }
        Self {
            evaluator: evaluator.clone(),
            versions,
            document,
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

    /// The findings for the apply record.
    pub fn recorded(&self) -> RecordedFindings {
        RecordedFindings::from_findings(&self.findings)
    }

    /// The error of the sets for the plan.
    pub fn plan_refusal(&self) -> Option<UserError> {
        let denied = self.findings.iter();
        let denied: Vec<_> = denied.filter(|f| f.verdict == Enforcement::Deny).collect();
        let stack = &self.document.as_ref()?.stack.id;
        let refusal = refusal(
            format_args!("{stack} was stopped before anything was changed"),
            &denied,
        )?;
        let hints: BTreeSet<_> = denied.iter().filter_map(|finding| finding.hint.clone()).collect();
        Some(hints.into_iter().fold(refusal, UserError::hint).hint(
            "change what the rules find, or add an exception with an end date: `policy.exceptions` in konverge.yaml",
        ))
    }

    /// The error of the sets for a resource whose values are known now, before it is written. What was
    /// overridden stays so; a new finding is covered by no override, because the apply record does not have it.
    pub async fn refusal(&mut self, plan: &ResourcePlan) -> Option<UserError> {
        let document = self.document.as_mut()?;
        policy::update_document(Arc::make_mut(document), plan);
        let found = self.evaluator.findings(&self.versions, document).await;
        let overridden: BTreeSet<Digest> = self.overridden.iter().map(|one| one.finding).collect();
        let is_overridden = |finding: &PolicyFinding| {
            let place = finding.place.as_ref();
            place.is_some_and(|place| overridden.contains(&place.digest))
        };
        let denied = found
            .iter()
            .filter(|finding| finding.verdict == Enforcement::Deny && !is_overridden(finding));
        let refusal = refusal(
            format_args!(
                "{} was stopped before {} was written, because a value that became known violates a rule",
                document.stack.id, plan.id
            ),
            &denied.collect::<Vec<_>>(),
        )?;
        Some(
            refusal
                .hint("run it again: the value is known from the start then, and the plan shows the finding"),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::model::{
        plan::Basis,
        plan_document::{DocumentStack, OtherNames},
    };

    #[tokio::test]
    async fn without_a_set_no_document_is_made() {
        let made = std::cell::Cell::new(0);
        let document = || {
            made.set(made.get() + 1);
            StackDocument {
                version: 1,
                stack: DocumentStack {
                    id: "shop/dev".parse().unwrap(),
                    folder: crate::model::RepoPath::root(),
                },
                basis: Basis::Live,
                known_as: OtherNames::default(),
                resources: Vec::new(),
            }
        };
        let (evaluator, none) = (RuleEvaluator::default(), vec![PolicySets::default()]);
        let sets = ActiveSets::evaluate(&evaluator, none, document, |_, _| Vec::new()).await;
        assert_eq!(made.get(), 0);
        assert!(sets.plan_refusal().is_none() && sets.findings().is_empty());
    }
}
