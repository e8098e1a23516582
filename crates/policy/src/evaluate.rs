//! Evaluates the policy of a stack on its plan and on the facts about the run.

use super::codeowners::CodeOwners;
use super::rules::{Approval, EffectivePolicy, PolicyFacts, Role, Stage, Teams};
use konverge_base::model::{
    StackId,
    plan::StackPlan,
    policy_finding::{Enforcement, PolicyFinding},
};

/// Returns a path inside the folder of the stack, for which CODEOWNERS is evaluated: a pattern for a folder matches
/// only what is in it.
pub fn owned_file(rules: &EffectivePolicy, plan: &StackPlan) -> String {
    format!(
        "{}/stack.yaml",
        rules.owned_folder.as_ref().unwrap_or(&plan.stack)
    )
}

/// Returns true if the findings allow the stack to be applied.
pub fn may_apply(findings: &[PolicyFinding], stack: &StackId) -> bool {
    !findings
        .iter()
        .any(|f| f.verdict == Enforcement::Deny && f.stack.as_ref().is_none_or(|s| s == stack))
}

/// Returns the findings of the policy for the plan of one stack, the strictest first. An unchanged stack has none.
pub fn evaluate(rules: &EffectivePolicy, plan: &StackPlan, facts: &PolicyFacts<'_>) -> Vec<PolicyFinding> {
    if plan.summary.changed() == 0 {
        return Vec::new();
    }
    let mut findings: Vec<_> = [
        freeze(rules, facts),
        branch(facts),
        actor(rules, facts),
        approvals(rules, facts),
        reviewers(rules, plan, facts),
        blast_radius(rules, plan, facts),
    ]
    .into_iter()
    .flatten()
    .map(|finding| PolicyFinding {
        stack: Some(plan.id.clone()),
        ..finding
    })
    .collect();
    findings.sort();
    findings
}

fn finding(verdict: Enforcement, rule: &str, message: String, hint: Option<String>) -> PolicyFinding {
    PolicyFinding {
        verdict,
        rule: format!("policy.{rule}"),
        stack: None,
        message,
        hint: hint.filter(|_| verdict != Enforcement::Pass),
        place: None,
    }
}

fn freeze(rules: &EffectivePolicy, facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    let frozen = rules
        .freeze
        .iter()
        .find(|f| f.from <= facts.now && facts.now < f.until)?;
    let reason = if frozen.reason.is_empty() {
        String::new()
    } else {
        format!(": {}", frozen.reason)
    };
    // The merge may happen after the freeze, so a preview only warns.
    let verdict = if facts.stage == Stage::Apply {
        Enforcement::Deny
    } else {
        Enforcement::Warn
    };
    Some(finding(
        verdict,
        "freeze",
        format!(
            "nothing is applied from {} until {}{reason}",
            frozen.from, frozen.until
        ),
        Some(format!("the first run after {} applies the stack", frozen.until)),
    ))
}

fn branch(facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    if facts.stage == Stage::Preview {
        return None;
    }
    if facts.protected_branch {
        return None;
    }
    // Without a protection nobody has to review a change, so the other rules could be evaded.
    Some(finding(
        Enforcement::Deny,
        "branch",
        "the branch is not protected: anyone who may push could apply anything".to_owned(),
        Some(
            "protect the default branch in the repository's settings (a ruleset or a branch protection rule)"
                .to_owned(),
        ),
    ))
}

fn actor(rules: &EffectivePolicy, facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    // Nobody knows yet who will merge.
    if facts.stage == Stage::Preview {
        return None;
    }
    if facts.role < Role::Write {
        return Some(finding(
            Enforcement::Deny,
            "actors",
            format!(
                "{} may not push to this repository, so they may not apply",
                facts.actor
            ),
            Some("let somebody with write access run the job".to_owned()),
        ));
    }
    let is_allowed = |allowed: &String| facts.teams.includes(allowed, facts.actor);
    if rules.actors.is_empty() || rules.actors.iter().any(is_allowed) {
        return None;
    }
    let (message, hint) = match facts.teams.unreadable_among(&rules.actors) {
        Some(unreadable) => (
            format!(
                "{unreadable}; so it is not known whether {} may apply",
                facts.actor
            ),
            Teams::READABLE,
        ),
        None => (
            format!(
                "{} is not one of those who may apply: {}",
                facts.actor,
                rules.actors.join(", ")
            ),
            "let one of these people merge, or run the workflow by hand",
        ),
    };
    Some(finding(
        Enforcement::Deny,
        "actors",
        message,
        Some(hint.to_owned()),
    ))
}

/// Returns the users whose approval counts: they approved the last head, did not write the change, and may push.
fn approvers<'a>(facts: &'a PolicyFacts<'_>) -> Vec<&'a str> {
    matching_approvers(facts, |approval| approval.role >= Role::Write && !approval.own)
}

/// Returns the users who approved the last head and match a condition, sorted.
fn matching_approvers<'a>(facts: &'a PolicyFacts<'_>, is_meant: impl Fn(&Approval) -> bool) -> Vec<&'a str> {
    let mut logins: Vec<_> = facts
        .approvals
        .iter()
        .filter(|approval| approval.on_last_head && is_meant(approval))
        .map(|a| a.reviewer.as_str())
        .collect();
    logins.sort_unstable();
    logins.dedup();
    logins
}

/// Returns the end of a message: the users whose approval does not count, and the reasons.
fn idle(facts: &PolicyFacts<'_>) -> String {
    let said = |people: Vec<&str>, why: &str| {
        if people.is_empty() {
            String::new()
        } else {
            format!("; {} {why}, so their approval does not count", people.join(", "))
        }
    };
    let own = matching_approvers(facts, |approval| approval.own);
    let powerless = matching_approvers(facts, |approval| !approval.own && approval.role < Role::Write);
    said(own, "wrote or pushed a commit of the change") + &said(powerless, "may not push")
}

fn approvals(rules: &EffectivePolicy, facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    if rules.approvals == 0 {
        return None;
    }
    let given = approvers(facts).len();
    let enough = given as u64 >= u64::from(rules.approvals);
    let idle = if enough { String::new() } else { idle(facts) };
    Some(finding(
        if enough {
            Enforcement::Pass
        } else {
            Enforcement::Deny
        },
        "approvals",
        format!(
            "{} of {} required approvals of the last head are given{idle}",
            given, rules.approvals
        ),
        Some("approvals of older heads do not count: ask again after the last push".to_owned()),
    ))
}

fn reviewers(rules: &EffectivePolicy, plan: &StackPlan, facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    if rules.reviewers.is_empty() {
        return None;
    }
    let mut wanted: Vec<String> = Vec::new();
    for name in &rules.reviewers {
        if name == CodeOwners::NAME {
            let file = owned_file(rules, plan);
            let owners = facts.codeowners.map_or(&[][..], |c| c.owners(&file));
            wanted.extend(owners.iter().cloned());
        } else {
            wanted.push(name.trim_start_matches('@').to_owned());
        }
    }
    // A stack that moved also needs the owners of its earlier folder, but only as long as that folder has any.
    if wanted.is_empty() && rules.owned_folder.is_some() {
        return None;
    }
    if wanted.is_empty() {
        return Some(finding(
            Enforcement::Deny,
            "reviewers",
            format!(
                "the code owners of {} have to approve, and CODEOWNERS names none",
                plan.stack
            ),
            Some(format!(
                "add a line for `/{}/` to CODEOWNERS on the default branch",
                plan.stack
            )),
        ));
    }
    let approvers = approvers(facts);
    let good = approvers
        .iter()
        .find(|login| wanted.iter().any(|name| facts.teams.includes(name, login)));
    if let Some(login) = good {
        return Some(finding(
            Enforcement::Pass,
            "reviewers",
            format!("approved by {login}"),
            None,
        ));
    }
    let (unreadable, hint) = match facts.teams.unreadable_among(&wanted) {
        Some(unreadable) => (format!("; {unreadable}"), Teams::READABLE),
        None => (
            String::new(),
            "ask one of these reviewers to approve the last head",
        ),
    };
    Some(finding(
        Enforcement::Deny,
        "reviewers",
        format!(
            "one of {} has to approve the last head{}{unreadable}",
            wanted.join(", "),
            idle(facts)
        ),
        Some(hint.to_owned()),
    ))
}

fn blast_radius(rules: &EffectivePolicy, plan: &StackPlan, facts: &PolicyFacts<'_>) -> Option<PolicyFinding> {
    let allowed = rules.max_destructive.unwrap_or(EffectivePolicy::MAX_DESTRUCTIVE);
    let gone = plan.summary.delete + plan.summary.replace;
    if gone == 0 {
        return None;
    }
    // The person who approved exactly this plan saw all its deletions.
    let within = gone as u64 <= u64::from(allowed) || facts.consented;
    Some(finding(
        if within {
            Enforcement::Pass
        } else {
            Enforcement::Deny
        },
        "max_destructive",
        format!(
            "{gone} {} would be deleted or replaced; at most {allowed} {} allowed in one apply",
            if gone == 1 { "resource" } else { "resources" },
            if allowed == 1 { "is" } else { "are" }
        ),
        Some(format!(
            "split the change, raise `policy.max_destructive`, or approve exactly this plan: run the workflow manually with `approve: {}`",
            plan.digest
        )),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{CodeOwners, Freeze};
    use super::*;
    use konverge_base::model::{
        RepoPath,
        plan::{Action, Basis, ResourcePlan},
        spec::RuntimeKind,
    };

    fn plan(deletes: usize) -> StackPlan {
        let id: StackId = "shop/prod".parse().unwrap();
        let resources = (0..deletes)
            .map(|n| {
                ResourcePlan::new(
                    &id,
                    format!("v1:Service:shop:s{n}").parse().unwrap(),
                    RuntimeKind::Kubernetes,
                    Action::Delete,
                    vec![],
                )
            })
            .collect();
        StackPlan::new(
            RepoPath::normalize("appops/shop/prod").unwrap(),
            id,
            Basis::Live,
            resources,
        )
    }

    struct PolicyInput {
        approvals: Vec<Approval>,
        teams: Teams,
        owners: CodeOwners,
    }

    fn world(approvals: &[(&str, bool)]) -> PolicyInput {
        PolicyInput {
            approvals: approvals
                .iter()
                .map(|(r, last)| Approval {
                    reviewer: (*r).into(),
                    on_last_head: *last,
                    role: Role::Write,
                    own: *r == "EVE",
                })
                .collect(),
            teams: Teams {
                members: [("acme/infra".to_owned(), ["ada".to_owned()].into())].into(),
                unreadable: [("acme/unknown".to_owned(), "it is forbidden".to_owned())].into(),
            },
            owners: CodeOwners::read("/appops/shop/prod/ @acme/infra"),
        }
    }

    fn facts(world: &PolicyInput) -> PolicyFacts<'_> {
        PolicyFacts {
            stage: Stage::Apply,
            now: "2026-12-24T12:00:00Z".parse().unwrap(),
            actor: "bob",
            role: Role::Write,
            approvals: &world.approvals,
            teams: &world.teams,
            protected_branch: true,
            codeowners: Some(&world.owners),
            consented: false,
        }
    }

    fn denied(rules: &EffectivePolicy, plan: &StackPlan, facts: &PolicyFacts<'_>) -> Vec<String> {
        let findings = evaluate(rules, plan, facts);
        assert_eq!(
            may_apply(&findings, &plan.id),
            !findings.iter().any(|f| f.verdict == Enforcement::Deny)
        );
        findings
            .into_iter()
            .filter(|f| f.verdict == Enforcement::Deny)
            .map(|f| f.rule)
            .collect()
    }

    #[test]
    fn a_freeze_stops_an_apply_and_warns_in_a_preview() {
        let world = world(&[]);
        let rules = EffectivePolicy {
            freeze: vec![Freeze {
                from: "2026-12-23T00:00:00Z".parse().unwrap(),
                until: "2027-01-02T00:00:00Z".parse().unwrap(),
                reason: "holidays".into(),
            }],
            ..EffectivePolicy::default()
        };
        let mut facts = facts(&world);
        assert_eq!(denied(&rules, &plan(1), &facts), ["policy.freeze"]);
        facts.stage = Stage::Preview;
        assert!(denied(&rules, &plan(1), &facts).is_empty());
        let findings = evaluate(&rules, &plan(1), &facts);
        assert_eq!(findings[0].verdict, Enforcement::Warn);
        assert_eq!(findings[0].stack, Some(plan(1).id));
        facts.stage = Stage::Apply;
        facts.now = "2027-01-02T00:00:00Z".parse().unwrap();
        assert!(denied(&rules, &plan(1), &facts).is_empty());
    }

    #[test]
    fn only_the_last_heads_approvals_of_others_count() {
        let rules = EffectivePolicy {
            approvals: 1,
            ..EffectivePolicy::default()
        };
        for (approvals, stops) in [
            (vec![("ada", true)], false),
            (vec![("ada", false)], true),
            (vec![("EVE", true)], true),
            (vec![], true),
        ] {
            let world = world(&approvals);
            assert_eq!(
                !denied(&rules, &plan(1), &facts(&world)).is_empty(),
                stops,
                "{approvals:?}"
            );
        }
    }

    #[test]
    fn who_may_only_look_approves_nothing() {
        for role in [Role::None, Role::Read] {
            let mut world = world(&[("ada", true)]);
            world.approvals[0].role = role;
            for rules in [
                EffectivePolicy {
                    approvals: 1,
                    ..EffectivePolicy::default()
                },
                EffectivePolicy {
                    reviewers: vec!["acme/infra".into()],
                    ..EffectivePolicy::default()
                },
            ] {
                let findings = evaluate(&rules, &plan(1), &facts(&world));
                assert_eq!(findings[0].verdict, Enforcement::Deny, "{role:?}");
                assert!(
                    findings[0]
                        .message
                        .ends_with("ada may not push, so their approval does not count")
                );
            }
        }
    }

    #[test]
    fn a_team_or_the_code_owners_must_have_approved() {
        for reviewers in ["@acme/infra", "CODEOWNERS", "ada"] {
            let rules = EffectivePolicy {
                reviewers: vec![reviewers.into()],
                ..EffectivePolicy::default()
            };
            let good = world(&[("ada", true)]);
            assert!(denied(&rules, &plan(1), &facts(&good)).is_empty(), "{reviewers}");
            let bad = world(&[("bob", true)]);
            assert_eq!(
                denied(&rules, &plan(1), &facts(&bad)),
                ["policy.reviewers"],
                "{reviewers}"
            );
        }
        let rules = EffectivePolicy {
            reviewers: vec!["acme/unknown".into()],
            ..EffectivePolicy::default()
        };
        let world = world(&[("ada", true)]);
        let actors = EffectivePolicy {
            actors: vec!["@acme/unknown".into()],
            ..EffectivePolicy::default()
        };
        for rules in [rules, actors] {
            let findings = evaluate(&rules, &plan(1), &facts(&world));
            assert!(
                findings[0].hint.as_ref().unwrap().contains("members: read"),
                "{rules:?}"
            );
            let message = &findings[0].message;
            let said = "membership of acme/unknown could not be read: it is forbidden";
            assert!(message.contains(said), "{message}");
        }
    }

    #[test]
    fn who_may_and_where() {
        let world = world(&[]);
        let rules = EffectivePolicy {
            actors: vec!["acme/infra".into()],
            ..EffectivePolicy::default()
        };
        let mut facts = facts(&world);
        assert_eq!(denied(&rules, &plan(1), &facts), ["policy.actors"]);
        facts.actor = "Ada";
        assert!(denied(&rules, &plan(1), &facts).is_empty());
        facts.role = Role::Read;
        assert_eq!(denied(&rules, &plan(1), &facts), ["policy.actors"]);
        facts.role = Role::Admin;
        facts.protected_branch = false;
        assert_eq!(denied(&rules, &plan(1), &facts), ["policy.branch"]);
    }

    #[test]
    fn the_blast_radius_is_bounded_unless_agreed_to() {
        let world = world(&[]);
        let mut facts = facts(&world);
        let rules = EffectivePolicy {
            max_destructive: Some(3),
            ..EffectivePolicy::default()
        };
        assert!(denied(&rules, &plan(3), &facts).is_empty());
        assert_eq!(denied(&rules, &plan(4), &facts), ["policy.max_destructive"]);
        assert_eq!(
            denied(&EffectivePolicy::default(), &plan(11), &facts),
            ["policy.max_destructive"]
        );
        facts.consented = true;
        assert!(denied(&rules, &plan(4), &facts).is_empty());
        // The approval by digest counts as one approval, not as all of them.
        let approvals = EffectivePolicy {
            approvals: 1,
            ..EffectivePolicy::default()
        };
        assert_eq!(denied(&approvals, &plan(1), &facts), ["policy.approvals"]);
        assert!(evaluate(&rules, &plan(0), &facts).is_empty());
    }

    #[test]
    fn a_replacement_destroys_as_a_deletion_does() {
        let world = world(&[]);
        let rules = EffectivePolicy {
            max_destructive: Some(2),
            ..EffectivePolicy::default()
        };
        let mut plan = plan(3);
        for resource in &mut plan.resources[1..] {
            resource.action = Action::Replace;
        }
        let plan = StackPlan::new(plan.stack, plan.id, Basis::Live, plan.resources);
        assert_eq!(denied(&rules, &plan, &facts(&world)), ["policy.max_destructive"]);
    }

    #[test]
    fn those_whose_approval_does_not_count_are_named() {
        let message = |role: Role, reviewer: &str| {
            let mut world = world(&[(reviewer, true)]);
            world.approvals[0].role = role;
            let rules = EffectivePolicy {
                approvals: 2,
                ..EffectivePolicy::default()
            };
            evaluate(&rules, &plan(1), &facts(&world)).remove(0).message
        };
        let given = "of 2 required approvals of the last head are given";
        assert_eq!(message(Role::Write, "ada"), format!("1 {given}"));
        assert_eq!(
            message(Role::Read, "ada"),
            format!("0 {given}; ada may not push, so their approval does not count")
        );
        assert_eq!(
            message(Role::Write, "EVE"),
            format!(
                "0 {given}; EVE wrote or pushed a commit of the change, so their approval does not count"
            )
        );
    }
}
