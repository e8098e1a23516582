//! Overrides of policy findings by digest: who requested each one, and whether that person may.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{
    Digest,
    authorization::PolicyOverride,
    policy_finding::{Enforcement, PassedBy, PolicyFinding},
};
use konverge_policy::{Teams, sets::PolicySets};

/// The people who gave an override, with what each said about it.
pub(crate) type OverrideReasons = BTreeMap<String, String>;

/// The maximum length of a reason, in characters.
const LONGEST_REASON: usize = 200;

/// The finding digests that were given to the run or approved by a review. People who wrote or pushed a part of the
/// change are excluded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub given: BTreeMap<Digest, OverrideReasons>,
    /// The teams that sets name.
    pub teams: Teams,
    /// Why something that looks like an override is none.
    pub remarks: BTreeSet<String>,
}

impl Overrides {
    /// Takes out of the findings of some sets what is overridden, and returns the overrides.
    pub fn apply_overrides(&self, sets: &PolicySets, findings: &mut [PolicyFinding]) -> Vec<PolicyOverride> {
        let mut overrides = Vec::new();
        for finding in findings {
            let names = sets.overriders_of(finding);
            let Some(place) = finding.place.as_ref().filter(|_| !names.is_empty()) else {
                continue;
            };
            let nobody = OverrideReasons::new();
            let given = self.given.get(&place.digest);
            let people = given.unwrap_or(&nobody);
            let may = |login: &&String| names.iter().any(|name| self.teams.includes(name, login));
            let by: Vec<String> = people.keys().filter(may).cloned().collect();
            if by.is_empty() {
                let unreadable = self.teams.unreadable_among(names);
                let others = || {
                    format!(
                        "its override does not count: one of {} who took no part in the change must give it",
                        names.join(", ")
                    )
                };
                let why = given.map(|_| unreadable.unwrap_or_else(others));
                let said = self.remarks.iter().cloned().chain(why).chain(finding.hint.take());
                let said: Vec<_> = said.collect();
                finding.hint = (!said.is_empty()).then(|| said.join("; "));
                continue;
            }
            let given = PolicyOverride {
                finding: place.digest,
                rule: finding.rule.clone(),
                message: finding.message.clone(),
                why: reason(people, &by),
                by,
            };
            pass(finding, &given);
            overrides.push(given);
        }
        overrides
    }
}

/// Takes out of the findings of some sets what was overridden in an earlier apply of the same resources, and
/// returns those overrides.
pub(crate) fn keep(
    earlier: &[PolicyOverride],
    sets: &PolicySets,
    findings: &mut [PolicyFinding],
) -> Vec<PolicyOverride> {
    let mut kept = Vec::new();
    for finding in findings {
        let open = finding.place.as_ref().filter(|place| place.passed_by.is_none());
        let digest = open.map(|place| place.digest);
        let given = earlier.iter().find(|given| Some(given.finding) == digest);
        if let Some(given) = given.filter(|_| !sets.overriders_of(finding).is_empty()) {
            pass(finding, given);
            kept.push(given.clone());
        }
    }
    kept
}

/// What these people said, on one line. Somebody else's text: it is escaped where it is shown.
fn reason(people: &OverrideReasons, by: &[String]) -> Option<String> {
    let said = by.iter().filter_map(|login| {
        let words: Vec<_> = people.get(login)?.split_whitespace().collect();
        let text: String = words.join(" ").chars().take(LONGEST_REASON).collect();
        (!text.is_empty()).then_some((login, text))
    });
    let said: Vec<_> = said.collect();
    match (said.as_slice(), by.len()) {
        ([], _) => None,
        ([(_, only)], 1) => Some(only.clone()),
        (several, _) => {
            let each = several.iter().map(|(login, text)| format!("{login}: {text}"));
            Some(each.collect::<Vec<_>>().join("; "))
        }
    }
}

fn pass(finding: &mut PolicyFinding, given: &PolicyOverride) {
    if let Some(place) = &mut finding.place {
        place.passed_by = Some(PassedBy::Override(given.by.clone()));
    }
    finding.verdict = Enforcement::Pass;
    finding.message = format!("overridden by {}: {}", given.giver(), finding.message);
    finding.hint = None;
}
