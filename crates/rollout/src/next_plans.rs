//! The plans of the next wave, which one approval covers. Each environment's job makes the plans of its own stacks.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use konverge_base::model::{Digest, StackId, digest::DigestBuilder, rollout::RolloutRecord};

/// The plans of the next wave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NextPlans {
    /// The digest of the plan of each stack.
    pub digests: BTreeMap<StackId, Digest>,
    /// The stacks that no job has planned yet.
    pub missing: BTreeSet<StackId>,
}

impl NextPlans {
    /// Collects the plans in a record. A plan that this run made replaces the recorded one.
    pub fn new(record: &RolloutRecord, own: Option<&BTreeMap<StackId, Digest>>) -> Self {
        let mut plans = Self::default();
        for (id, _) in record.waves.get(record.wave + 1).into_iter().flatten() {
            match own.and_then(|own| own.get(id)).or_else(|| record.planned.get(id)) {
                Some(digest) => drop(plans.digests.insert(id.clone(), *digest)),
                None => drop(plans.missing.insert(id.clone())),
            }
        }
        plans
    }

    /// Returns the digest that a person approves; `None` if a plan is missing.
    ///
    /// The digest covers the plans of the next wave, the gate, the wave, the rollout, the commit, and the time when
    /// the gate first asked. So an approval becomes invalid after a pause, a resume or a repeated phase.
    pub fn approval(&self, record: &RolloutRecord, gate: &str) -> Option<Digest> {
        if !self.missing.is_empty() {
            return None;
        }
        let mut digest = DigestBuilder::new("rollout-approval");
        for name in [&record.rollout, record.commit.as_str(), gate] {
            digest.part(name.as_bytes());
        }
        let began = [Some(record.since.local), record.since.server];
        let began = began.map(|clock| clock.map_or(i128::MIN, Timestamp::as_nanosecond).to_be_bytes());
        digest.part(began.as_flattened());
        digest.part(&(record.wave as u64).to_be_bytes());
        for (id, plan) in &self.digests {
            digest.part(id.as_str().as_bytes()).part(plan.as_bytes());
        }
        Some(digest.finish())
    }

    /// Returns the stacks whose plan differs from the recorded one.
    pub(super) fn changed<'a>(&'a self, record: &'a RolloutRecord) -> impl Iterator<Item = &'a StackId> {
        let is_other = |(id, digest): &(&StackId, &Digest)| {
            record.planned.get(*id).is_some_and(|planned| planned != *digest)
        };
        self.digests.iter().filter(is_other).map(|(id, _)| id)
    }
}
