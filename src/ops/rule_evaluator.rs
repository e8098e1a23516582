//! Evaluates policy sets on threads of their own, so that other stacks, answers and an interrupt are served
//! meanwhile. Not more stacks than cores at a time: the time of a rule is limited by the clock.

use std::{collections::BTreeSet, sync::Arc, thread};

use jiff::Timestamp;
use tokio::sync::Semaphore;

use crate::{
    model::{
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
    },
    policy::sets::PolicySets,
    secrets::Secrets,
};

/// Evaluates rules on threads of their own. Cheap to clone; the clones share the cores.
#[derive(Debug, Clone)]
pub struct RuleEvaluator {
    cores: Arc<Semaphore>,
    /// Rules judge true values: what they say of them is masked.
    secrets: Secrets,
}

impl RuleEvaluator {
    /// An evaluator for all cores.
    pub fn new(secrets: &Secrets) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            cores: Arc::new(Semaphore::new(cores)),
            secrets: secrets.clone(),
        }
    }

    /// The findings of several versions of the sets. An unchanged stack has none.
    pub async fn findings(
        &self,
        versions: &[PolicySets],
        document: &Arc<StackDocument>,
    ) -> Vec<PolicyFinding> {
        match document.has_changes() {
            true => self.judge(versions, document).await,
            false => Vec::new(),
        }
    }

    /// The same, for an unchanged stack too.
    pub async fn judge(&self, versions: &[PolicySets], document: &Arc<StackDocument>) -> Vec<PolicyFinding> {
        if versions.iter().all(PolicySets::is_empty) {
            return Vec::new();
        }
        let core = Arc::clone(&self.cores).acquire_owned().await;
        let (sets, of, secrets) = (versions.to_vec(), Arc::clone(document), self.secrets.clone());
        let judged = tokio::task::spawn_blocking(move || {
            let now = Timestamp::now();
            let found = sets.iter().flat_map(|sets| sets.findings(&of, now, &secrets));
            let findings: BTreeSet<_> = found.collect();
            drop(core);
            findings.into_iter().collect()
        });
        // What was not judged does not pass. The error may hold values, so it is not told.
        judged.await.unwrap_or_else(|_| {
            vec![PolicyFinding {
                verdict: Enforcement::Deny,
                rule: "policy.sets".to_owned(),
                stack: Some(document.stack.id.clone()),
                message: "the rules could not be evaluated: the evaluation ended without an answer"
                    .to_owned(),
                hint: Some(
                    "this is a defect of Konverge: please report it with the rules of the set".to_owned(),
                ),
                place: None,
            }]
        })
    }
}
