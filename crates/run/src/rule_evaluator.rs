//! Evaluates policy sets in processes of their own, and masks the messages of their rules. Such a process runs scripts of
//! readiness, too.

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

/// Evaluates rules. Cheap to clone; the clones share the workers.
#[derive(Debug, Clone)]
pub struct RuleEvaluator {
    workers: Workers,
    /// The registry of secrets. Rules judge true values, so their messages are masked.
    secrets: Secrets,
}

#[derive(Debug, Clone)]
enum Workers {
    Processes(RuleWorkers),
    /// This process, which is not a `konverge` binary.
    #[cfg(test)]
    Here,
}

impl RuleEvaluator {
    /// An evaluator with workers on all processors.
    pub fn new(secrets: &Secrets) -> Self {
        Self {
            workers: Workers::Processes(RuleWorkers::new(None, RuleLimits::default())),
            secrets: secrets.clone(),
        }
    }

    /// An evaluator without processes.
    #[cfg(test)]
    pub fn here(secrets: &Secrets) -> Self {
        Self {
            workers: Workers::Here,
            secrets: secrets.clone(),
        }
    }

    /// Returns the findings of several versions of the sets. An unchanged stack has none.
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

    /// Evaluates the sets as [`Self::findings`] does, but for an unchanged stack, too.
    pub async fn judge(&self, versions: &[PolicySets], document: &Arc<StackDocument>) -> Vec<PolicyFinding> {
        let now = Timestamp::now();
        let mut findings = BTreeSet::new();
        for sets in versions {
            let about: Vec<_> = sets.about(document).collect();
            if about.is_empty() {
                continue;
            }
            match &self.workers {
                Workers::Processes(workers) => {
                    let outcomes = workers.outcomes(&about, document).await;
                    findings.extend(sets.findings_from(document, now, &self.secrets, outcomes));
                }
                #[cfg(test)]
                Workers::Here => findings.extend(sets.findings(document, now, &self.secrets)),
            }
        }
        findings.into_iter().collect()
    }

    /// The tests of a set that fail. A set that cannot be read fails as a whole, as a test of `path`.
    pub async fn failed_tests(&self, set: &PolicySet, path: &str) -> Vec<FailedTest> {
        match &self.workers {
            Workers::Processes(workers) => workers.failed_tests(set, path).await,
            #[cfg(test)]
            Workers::Here => set.failed_tests(path),
        }
    }
}

/// Runs as a worker, with limits as JSON, until the input ends.
///
/// # Errors
/// The limits cannot be read or set, or the pipes fail.
pub fn serve(limits: &str, input: &mut dyn Read, output: &mut dyn Write) -> Result<(), ServeError> {
    workers::serve(limits, health::run_lua, input, output)
}
