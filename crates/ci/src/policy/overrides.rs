//! Overrides of policy findings by digest: who gave each override, and whether that person may give it.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{
    Digest,
    authorization::PolicyOverride,
    policy_finding::{Enforcement, PassedBy, PolicyFinding},
};
use konverge_policy::Teams;
use konverge_policy_sets::PolicySets;

/// The logins of people who gave an override, each with the reason.
pub(crate) type OverrideReasons = BTreeMap<String, String>;

/// The maximum length of a reason in characters.
const LONGEST_REASON: usize = 200;

/// The digests of findings that were given to the run or named in reviews. Digests from people who contributed to the
/// change are left out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Overrides {
    pub given: BTreeMap<Digest, OverrideReasons>,
    /// The members of the teams that policy sets name.
    pub teams: Teams,
    /// Explanations why an intended override does not count.
    pub remarks: BTreeSet<String>,
}

impl Overrides {
    /// Turns the overridden denials of some sets into passes, and returns the overrides.
    pub(crate) fn apply_overrides(
        &self,
        sets: &PolicySets,
        findings: &mut [PolicyFinding],
    ) -> Vec<PolicyOverride> {
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
                        "its override does not count: it must come from one of {} who is no author of the change",
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

/// Turns denials that an earlier apply of the same resources overrode into passes, and returns these overrides.
pub(crate) fn reapply(
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

/// Returns the reasons of some people on one line. The caller must escape the line, because other people wrote it.
pub(crate) fn reason(people: &OverrideReasons, by: &[String]) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::policy_finding::SetPlace;
    use konverge_config::Config;
    use konverge_policy_sets::{PolicyFile, PolicySet};

    /// The set `s`, with these settings.
    fn sets(settings: &str) -> PolicySets {
        let text = format!("version: 1\npolicy: {{sets: [{{name: s, path: p, {settings}}}]}}\n");
        let config = Config::parse(&text).unwrap().policy.sets.remove(0);
        let file = PolicyFile {
            path: "p/a.rego".to_owned(),
            text: "package main\ndeny contains \"m\" if true\n".to_owned(),
        };
        PolicySets::new(vec![PolicySet::load(&config, &[file], &[])], &[])
    }

    fn open_set() -> PolicySets {
        sets("enforce: override, override: {by: [acme/sre, bob]}")
    }

    fn digest() -> Digest {
        Digest::of_bytes(b"finding")
    }

    fn denial() -> PolicyFinding {
        PolicyFinding {
            verdict: Enforcement::Deny,
            rule: "s/deny".to_owned(),
            stack: None,
            message: "no".to_owned(),
            hint: None,
            place: Some(SetPlace {
                set: "s".to_owned(),
                resource: None,
                path: None,
                details: BTreeMap::new(),
                digest: digest(),
                passed_by: None,
            }),
        }
    }

    /// These people gave this digest.
    fn given_by(people: &[(&str, &str)], teams: Teams) -> Overrides {
        let people = people.iter();
        let people = people.map(|(login, said)| ((*login).to_owned(), (*said).to_owned()));
        Overrides {
            given: BTreeMap::from([(digest(), people.collect())]),
            teams,
            remarks: BTreeSet::new(),
        }
    }

    fn sre(members: &[&str]) -> Teams {
        let members = members.iter().map(|login| (*login).to_owned()).collect();
        Teams {
            members: BTreeMap::from([("acme/sre".to_owned(), members)]),
            unreadable: BTreeMap::new(),
        }
    }

    #[test]
    fn who_the_set_names_overrides_and_is_named() {
        let overrides = given_by(
            &[("ann", " the vendor\n fixes it "), ("bob", ""), ("eve", "me too")],
            sre(&["ann"]),
        );
        let mut findings = [denial()];
        let given = overrides.apply_overrides(&open_set(), &mut findings);
        assert_eq!(given.len(), 1);
        assert_eq!(given[0].by, ["ann", "bob"]);
        assert_eq!(given[0].why.as_deref(), Some("ann: the vendor fixes it"));
        assert_eq!((given[0].finding, given[0].rule.as_str()), (digest(), "s/deny"));
        let [finding] = findings;
        assert_eq!(finding.verdict, Enforcement::Pass);
        assert!(finding.message.starts_with("overridden by ann, bob") && finding.message.ends_with(": no"));
        let passed_by = finding.place.unwrap().passed_by;
        assert_eq!(
            passed_by,
            Some(PassedBy::Override(vec!["ann".to_owned(), "bob".to_owned()]))
        );
    }

    #[test]
    fn nobody_else_overrides_and_the_finding_says_why() {
        let unreadable = Teams {
            members: BTreeMap::new(),
            unreadable: BTreeMap::from([("acme/sre".to_owned(), "403".to_owned())]),
        };
        for (overrides, says) in [
            (
                given_by(&[("eve", "")], sre(&["ann"])),
                Some("does not count: it must come from one of acme/sre, bob"),
            ),
            (
                given_by(&[("ann", "")], unreadable),
                Some("membership of acme/sre could not be read: 403"),
            ),
            (Overrides::default(), None),
        ] {
            let mut findings = [denial()];
            assert!(overrides.apply_overrides(&open_set(), &mut findings).is_empty());
            let [finding] = findings;
            assert_eq!(
                (finding.verdict, finding.message.as_str()),
                (Enforcement::Deny, "no")
            );
            assert!(finding.place.unwrap().passed_by.is_none());
            match says {
                Some(says) => assert!(finding.hint.unwrap().contains(says), "{says}"),
                None => assert_eq!(finding.hint, None),
            }
        }
        // What looks like an override and is none comes before the rule's own hint.
        let overrides = Overrides {
            remarks: BTreeSet::from(["the comment was edited".to_owned()]),
            ..Overrides::default()
        };
        let mut findings = [PolicyFinding {
            hint: Some("its own".to_owned()),
            ..denial()
        }];
        overrides.apply_overrides(&open_set(), &mut findings);
        assert_eq!(
            findings[0].hint.as_deref(),
            Some("the comment was edited; its own")
        );
    }

    #[test]
    fn another_digest_and_a_set_that_nobody_may_override_stay_denied() {
        let overrides = given_by(&[("bob", "")], Teams::default());
        let mut other = denial();
        other.place.as_mut().unwrap().digest = Digest::of_bytes(b"another finding");
        let mut of_setting = denial();
        of_setting.place = None;
        let mut findings = [other, of_setting];
        assert!(overrides.apply_overrides(&open_set(), &mut findings).is_empty());
        assert!(
            findings
                .iter()
                .all(|finding| finding.verdict == Enforcement::Deny)
        );

        let mut findings = [denial()];
        assert!(
            overrides
                .apply_overrides(&sets("enforce: always"), &mut findings)
                .is_empty()
        );
        assert_eq!(findings[0].verdict, Enforcement::Deny);
    }

    #[test]
    fn an_earlier_override_holds_as_long_as_the_set_can_be_overridden() {
        let earlier = [PolicyOverride {
            finding: digest(),
            rule: "s/deny".to_owned(),
            message: "no".to_owned(),
            by: vec!["bob".to_owned()],
            why: None,
        }];
        let mut findings = [denial()];
        assert_eq!(reapply(&earlier, &open_set(), &mut findings), earlier);
        assert_eq!(findings[0].verdict, Enforcement::Pass);
        // It is passed already: it is not given twice.
        assert!(reapply(&earlier, &open_set(), &mut findings).is_empty());

        let mut findings = [denial()];
        assert!(reapply(&earlier, &sets("enforce: always"), &mut findings).is_empty());
        assert!(reapply(&[], &open_set(), &mut findings).is_empty());
        let mut other = denial();
        other.place.as_mut().unwrap().digest = Digest::of_bytes(b"another finding");
        assert!(reapply(&earlier, &open_set(), std::slice::from_mut(&mut other)).is_empty());
        assert_eq!(
            (findings[0].verdict, other.verdict),
            (Enforcement::Deny, Enforcement::Deny)
        );
    }

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        let people = |said: &[(&str, &str)]| -> (OverrideReasons, Vec<String>) {
            let people: OverrideReasons = said
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect();
            let by = people.keys().cloned().collect();
            (people, by)
        };
        let reason_of = |said: &[(&str, &str)]| {
            let (people, by) = people(said);
            reason(&people, &by)
        };
        assert_eq!(reason_of(&[("ann", " \n ")]), None);
        assert_eq!(reason_of(&[("ann", "a\nb  c")]).as_deref(), Some("a b c"));
        assert_eq!(
            reason_of(&[("ann", "x"), ("bob", "y")]).as_deref(),
            Some("ann: x; bob: y")
        );
        let long = "é".repeat(LONGEST_REASON + 1);
        assert_eq!(
            reason_of(&[("ann", &long)]).unwrap().chars().count(),
            LONGEST_REASON
        );
    }
}
