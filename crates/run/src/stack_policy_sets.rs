//! The policy sets that are in force for a stack. They are evaluated when its plan is approved, and again when a value
//! becomes known during the apply.

use std::{collections::BTreeSet, fmt, sync::Arc};

use crate::rule_evaluator::RuleEvaluator;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        authorization::{PolicyOverride, RecordedFindings},
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_engine::LatePlan;
use konverge_policy_sets::{self as policy_sets, PolicySets};

/// The policy sets that were in force when a stack was approved, with the plan document of the stack.
pub struct ActiveSets {
    evaluator: RuleEvaluator,
    versions: Vec<Version>,
    /// The plan document; `None` if there are no policy sets.
    document: Option<Arc<StackDocument>>,
    findings: Vec<PolicyFinding>,
    overridden: Vec<PolicyOverride>,
}

/// One version of the policy sets, with the digests of the findings that were overridden for this version.
struct Version {
    sets: PolicySets,
    overridden: BTreeSet<Digest>,
}

impl ActiveSets {
    /// Evaluates versions of the policy sets. `excuse` removes the findings of a version that are overridden, and
    /// returns them.
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
        let mut evaluated = Vec::new();
        for sets in versions {
            let Some(document) = &document else { break };
            let mut findings = evaluator.findings(std::slice::from_ref(&sets), document).await;
            let excused = excuse(&sets, &mut findings);
            evaluated.push(Version {
                sets,
                overridden: excused.iter().map(|one| one.finding).collect(),
            });
            overridden.extend(excused);
            all.extend(findings);
        }
        Self {
            evaluator: evaluator.clone(),
            versions: evaluated,
            document,
            findings: all.into_iter().collect(),
            overridden: overridden.into_iter().collect(),
        }
    }

    /// Returns the findings at the time of the approval, the strictest first.
    pub fn findings(&self) -> &[PolicyFinding] {
        &self.findings
    }

    /// Returns the findings that were overridden at the time of the approval.
    pub fn overridden(&self) -> &[PolicyOverride] {
        &self.overridden
    }

    /// Returns the findings for the apply record.
    pub fn recorded(&self) -> RecordedFindings {
        RecordedFindings::from_findings(&self.findings)
    }

    /// Returns an error if a finding denies the plan.
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

    /// Checks a resource whose values are known now, before it is written. An override is valid only for the version of
    /// the sets that it was given for. A new finding is never overridden, because the apply record does not have it.
    ///
    /// # Errors
    /// A rule denies the resource.
    pub async fn check(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let Some(document) = self.document.as_mut() else {
            return Ok(());
        };
        let (plan, hidden) = late.judged();
        policy_sets::update_document(Arc::make_mut(document), &plan);
        Arc::make_mut(document).hidden.extend(hidden);
        let mut denied = BTreeSet::new();
        for version in &self.versions {
            let sets = std::slice::from_ref(&version.sets);
            let found = self.evaluator.findings(sets, document).await;
            let is_overridden = |finding: &PolicyFinding| {
                let place = finding.place.as_ref();
                place.is_some_and(|place| version.overridden.contains(&place.digest))
            };
            denied.extend(
                found
                    .into_iter()
                    .filter(|finding| finding.verdict == Enforcement::Deny && !is_overridden(finding)),
            );
        }
        let refusal = refusal(
            format_args!(
                "{} was stopped before {} was written, because a value that became known violates a rule",
                document.stack.id, plan.id
            ),
            &denied.iter().collect::<Vec<_>>(),
        );
        let hint =
            "run the apply again: the value is then known from the start, and the plan shows the finding";
        refusal.map_or(Ok(()), |refusal| Err(refusal.hint(hint)))
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
    use super::*;
    use konverge_base::{
        model::{
            StackId,
            other_names::OtherNames,
            plan::{Action, Basis, ResourcePlan},
            plan_document::DocumentStack,
            spec::RuntimeKind,
        },
        secrets::{HashKey, Secrets},
    };
    use konverge_config::Config;
    use konverge_policy_sets::{PolicyFile, PolicySet};

    fn secrets() -> Secrets {
        Secrets::new(HashKey::derive("k"))
    }

    #[tokio::test]
    async fn without_a_set_no_document_is_made() {
        let made = std::cell::Cell::new(0);
        let document = || {
            made.set(made.get() + 1);
            StackDocument {
                version: 1,
                stack: DocumentStack {
                    id: "shop/dev".parse().unwrap(),
                    folder: konverge_base::model::RepoPath::root(),
                },
                basis: Basis::Live,
                known_as: OtherNames::default(),
                hidden: std::collections::BTreeSet::new(),
                resources: Vec::new(),
            }
        };
        let (evaluator, none) = (RuleEvaluator::here(&secrets()), vec![PolicySets::default()]);
        let sets = ActiveSets::evaluate(&evaluator, none, document, |_, _| Vec::new()).await;
        assert_eq!(made.get(), 0);
        assert!(sets.plan_refusal().is_none() && sets.findings().is_empty());
    }

    /// What one version lets a team override, another may not let pass.
    #[tokio::test]
    async fn an_override_holds_for_the_sets_that_it_was_given_for() {
        let sets = |settings: &str| {
            let text = format!("policy: {{sets: [{{name: s, path: p, {settings}}}]}}\n");
            let config = Config::parse(&text).unwrap().policy.sets.remove(0);
            let file = PolicyFile {
                path: "p/a.rego".to_owned(),
                text: "package main\ndeny contains \"m\" if true\n".to_owned(),
            };
            PolicySets::new(vec![PolicySet::load(&config, &[file], &[])], &[])
        };
        let own = sets("enforce: override, override: {by: [acme/sre]}");
        let strict = sets("enforce: always");
        let stack: StackId = "shop/dev".parse().unwrap();
        let id = "v1:Pod:shop:web".parse().unwrap();
        let plan = ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, Action::Create, Vec::new());
        let document = || StackDocument {
            version: 1,
            stack: DocumentStack {
                id: stack.clone(),
                folder: konverge_base::model::RepoPath::root(),
            },
            basis: Basis::Live,
            known_as: OtherNames::default(),
            hidden: std::collections::BTreeSet::new(),
            resources: Vec::new(),
        };
        let refusal = async |versions: Vec<PolicySets>| {
            let evaluator = RuleEvaluator::here(&secrets());
            let mut document = document();
            policy_sets::update_document(&mut document, &plan);
            let excuse = |sets: &PolicySets, findings: &mut [PolicyFinding]| {
                let denied = findings.iter().filter(|_| *sets == own);
                let overrides = denied.map(|finding| PolicyOverride {
                    finding: finding.place.as_ref().unwrap().digest,
                    rule: finding.rule.clone(),
                    message: finding.message.clone(),
                    by: vec!["ann".to_owned()],
                    why: None,
                });
                overrides.collect()
            };
            let mut sets = ActiveSets::evaluate(&evaluator, versions, || document, excuse).await;
            let late = LatePlan {
                shown: &plan,
                truth: None,
                secrets: &secrets(),
            };
            sets.check(late).await.err()
        };
        assert!(refusal(vec![own.clone()]).await.is_none());
        assert!(refusal(vec![own.clone(), strict.clone()]).await.is_some());
        assert!(refusal(vec![strict, own.clone()]).await.is_some());
    }
}
