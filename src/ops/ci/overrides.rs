//! Overrides of policy findings by their digests: who gave them to the run, and whether they may.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    model::{
        Digest,
        authorization::PolicyOverride,
        policy_finding::{Enforcement, PolicyFinding},
    },
    policy::{self, sets::PolicySets},
};

/// The digests that were given to a run, and the people behind them. Nobody is among them who wrote or pushed
/// a part of the change.
#[derive(Debug, Clone, Default)]
pub(super) struct Overrides {
    pub digests: BTreeSet<Digest>,
    pub logins: Vec<String>,
    /// The members of the teams that sets name, among these people.
    pub teams: BTreeMap<String, BTreeSet<String>>,
}

impl Overrides {
    /// Takes out of the findings of some sets what is overridden, and returns the overrides.
    pub fn excuse(&self, sets: &PolicySets, findings: &mut [PolicyFinding]) -> Vec<PolicyOverride> {
        let mut overrides = Vec::new();
        for finding in findings {
            let Some(place) = &finding.place else { continue };
            let names = sets.overriders_of(finding);
            if names.is_empty() || !self.digests.contains(&place.digest) {
                continue;
            }
            let may = |login: &&String| {
                names
                    .iter()
                    .any(|name| policy::includes(name, login, &self.teams))
            };
            let by: Vec<String> = self.logins.iter().filter(may).cloned().collect();
            if by.is_empty() {
                finding.hint = Some(format!(
                    "its digest was given, but not by one of {} who took no part in the change",
                    names.join(", ")
                ));
                continue;
            }
            overrides.push(PolicyOverride {
                finding: place.digest,
                rule: finding.rule.clone(),
                message: finding.message.clone(),
                by: by.clone(),
            });
            finding.verdict = Enforcement::Pass;
            finding.message = format!("overridden by {}: {}", by.join(", "), finding.message);
            finding.hint = None;
        }
        overrides
    }
}
