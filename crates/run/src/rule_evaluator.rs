//! Evaluates policy sets in worker processes, and masks the messages of their rules. The workers also run Lua scripts
//! of readiness rules.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    sync::Arc,
};

use jiff::Timestamp;

use konverge_base::model::{plan_document::StackDocument, policy_finding::PolicyFinding};
use konverge_kubernetes::health;
use konverge_policy_sets::{
    FailedTest, PolicySet, PolicySets,
    workers::{self, RuleLimits, RuleWorkers, ServeError},
};
use konverge_secrets::Secrets;

/// Evaluates rules. Cheap to clone; all clones share the workers.
#[derive(Debug, Clone)]
pub struct RuleEvaluator {
    workers: Workers,
    /// The registry of secrets. Rules see true values, so their messages must be masked.
    secrets: Secrets,
}

#[derive(Debug, Clone)]
enum Workers {
    Processes(RuleWorkers),
    /// The rules run in this process, because it is not a `konverge` binary that could be started again.
    #[cfg(test)]
    Here,
}

impl RuleEvaluator {
    /// Creates an evaluator with one worker per processor.
    pub fn new(secrets: &Secrets) -> Self {
        Self {
            workers: Workers::Processes(RuleWorkers::new(None, RuleLimits::default())),
            secrets: secrets.clone(),
        }
    }

    /// Creates an evaluator without worker processes.
    #[cfg(test)]
    pub fn here(secrets: &Secrets) -> Self {
        Self {
            workers: Workers::Here,
            secrets: secrets.clone(),
        }
    }

    /// Returns the findings of several versions of the sets. A stack without changes has none.
    pub async fn findings(
        &self,
        versions: &[PolicySets],
        document: &Arc<StackDocument>,
    ) -> Vec<PolicyFinding> {
        if document.has_changes() {
            self.judge(versions, document).await
        } else {
            Vec::new()
        }
    }

    /// Evaluates the sets as [`Self::findings`] does, but also for a stack without changes.
    pub async fn judge(&self, versions: &[PolicySets], document: &Arc<StackDocument>) -> Vec<PolicyFinding> {
        let now = Timestamp::now();
        let mut findings = BTreeSet::new();
        for sets in versions {
            let about: Vec<_> = sets.about(document).collect();
            if about.is_empty() {
                continue;
            }
            let outcomes = match &self.workers {
                Workers::Processes(workers) => workers.outcomes(&about, document).await,
                #[cfg(test)]
                Workers::Here => about
                    .into_iter()
                    .map(|set| Ok(here(set).outcomes(document)))
                    .collect(),
            };
            findings.extend(sets.findings_from(document, now, &self.secrets, outcomes));
        }
        findings.into_iter().collect()
    }

    /// Returns the failed tests of a set. A set that cannot be read counts as one failed test of `path`.
    pub async fn failed_tests(&self, set: &PolicySet, path: &str) -> Vec<FailedTest> {
        match &self.workers {
            Workers::Processes(workers) => workers.failed_tests(set, path).await,
            #[cfg(test)]
            Workers::Here => unreachable!("{}: its tests run in a worker", set.name()),
        }
    }
}

#[cfg(test)]
fn here(set: &PolicySet) -> konverge_policy_sets::SetRules {
    set.source().unwrap().parse().unwrap()
}

/// Runs as a worker until the input ends. `limits` is JSON.
///
/// # Errors
/// The limits cannot be read or set, or the pipes fail.
pub fn serve(limits: &str, input: &mut dyn Read, output: &mut dyn Write) -> Result<(), ServeError> {
    workers::serve(limits, health::run_lua, input, output)
}
