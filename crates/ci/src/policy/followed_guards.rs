//! Findings about guards of renamed stacks. A renamed stack keeps the guards of its earlier names, but a new stack may
//! lack the guards of a stack that is removed in the same change.

use std::collections::BTreeSet;

use crate::policy::active_policies::CommitPolicy;
use konverge_base::model::{
    plan::{Plan, StackPlan},
    policy_finding::{Enforcement, PolicyFinding},
    text::json_name,
};
use konverge_report::plural;
use konverge_run::Target;

/// The maximum number of removed stacks that a finding lists.
const NAMED: usize = 3;

/// Returns the findings for the stacks of a preview.
pub(crate) fn findings(policy: &CommitPolicy, plan: &Plan, targets: &[Target]) -> Vec<PolicyFinding> {
    let select = |is_meant: fn(&Target) -> bool| {
        let ids: BTreeSet<_> = targets
            .iter()
            .filter(|target| is_meant(target))
            .map(|t| &t.id)
            .collect();
        plan.stacks.iter().filter(move |stack| ids.contains(&stack.id))
    };
    let removed: Vec<_> = select(|target| target.head.is_none()).collect();
    let added = select(|target| target.head.is_some() && target.base.is_none());
    let unfollowed = added.filter_map(|stack| unfollowed(policy, stack, &removed));
    let followed = plan.stacks.iter().flat_map(|stack| followed(policy, stack));
    followed.chain(unfollowed).collect()
}

/// Returns a finding for each earlier name of a stack that policy rules match but do not match by a present name.
fn followed(policy: &CommitPolicy, stack: &StackPlan) -> Vec<PolicyFinding> {
    let names = policy.config.policy.standing_names(&stack.stack, &stack.known_as);
    if names.is_empty() {
        return Vec::new();
    }
    let present = Guards::of_names(policy, present_names(stack));
    let of_name = |name: &str| {
        let kept = Guards::of_names(policy, [name]).beyond(&present);
        (!kept.is_empty()).then(|| {
            finding(
                stack,
                format!(
                    "rules for `{name}`, an earlier name of this stack, still apply to it: {}",
                    kept.join(", ")
                ),
                format!(
                    "write `{folder}` into these rules. To end them for the earlier name, add to konverge.yaml on the default branch: `policy: {{ended_names: \
                     [{{stacks: '{folder}', was: '{name}', reason: TEXT}}]}}`",
                    folder = stack.stack
                ),
            )
        })
    };
    names.iter().filter_map(of_name).collect()
}

/// Returns the finding for a new stack that lacks guards of removed stacks and is no continuation of one of them.
fn unfollowed(policy: &CommitPolicy, added: &StackPlan, removed: &[&StackPlan]) -> Option<PolicyFinding> {
    let names = present_names(added).into_iter().chain(added.known_as.iter());
    let own = Guards::of_names(policy, names);
    let lost: Vec<_> = removed
        .iter()
        .filter(|removed| !added.known_as.ids.contains(&removed.id))
        .filter_map(|removed| {
            let names = present_names(removed).into_iter().chain(removed.known_as.iter());
            let lost = Guards::of_names(policy, names).beyond(&own);
            (!lost.is_empty()).then(|| format!("of `{}`: {}", removed.id, lost.join(", ")))
        })
        .collect();
    let more = match lost.len().checked_sub(NAMED) {
        Some(more @ 1..) => format!("; and of {}", plural(more, "other stack")),
        _ => String::new(),
    };
    let shown = lost.get(..NAMED.min(lost.len()))?.join("; ");
    (!shown.is_empty()).then(|| {
        finding(
            added,
            format!(
                "this stack is new, and rules for stacks that this change removes do not apply to it: {shown}{more}"
            ),
            format!(
                "if it is one of the removed stacks under a new name, move its files with `git mv` and change little in them: the rules follow \
                 what git shows as renamed. Otherwise write `{}` into the rules that should apply to it",
                added.stack
            ),
        )
    })
}

fn present_names(stack: &StackPlan) -> [&str; 2] {
    [stack.id.as_str(), stack.stack.as_str()]
}

fn finding(stack: &StackPlan, message: String, hint: String) -> PolicyFinding {
    PolicyFinding {
        verdict: Enforcement::Warn,
        rule: "policy.names".to_owned(),
        stack: Some(stack.id.clone()),
        message,
        hint: Some(hint),
        place: None,
    }
}

/// The guards that the rules have for some names of a stack.
#[derive(Default)]
struct Guards {
    sets: BTreeSet<String>,
    approvals: u32,
    people: BTreeSet<String>,
    freezes: BTreeSet<String>,
    limit: Option<u32>,
    workflows: BTreeSet<String>,
}

impl Guards {
    fn of_names<'n>(policy: &CommitPolicy, names: impl IntoIterator<Item = &'n str>) -> Self {
        let rules = policy.config.rules();
        let mut guards = Self::default();
        for name in names {
            let sets = policy.sets.iter().filter(|set| set.names(name));
            guards
                .sets
                .extend(sets.map(|set| format!("the set `{}`", set.name())));
            let of_time = policy.config.apply.hooks.workflows.iter();
            let workflows = of_time.filter(|hook| hook.is_for(name));
            guards.workflows.extend(
                workflows
                    .map(|hook| format!("the workflow `{}` (`{}`)", hook.workflow, json_name(hook.when))),
            );
            let Some(own) = rules.policy_of_name(name) else {
                continue;
            };
            guards.approvals = guards.approvals.max(own.approvals.unwrap_or(0));
            let people = [("a review by", &own.reviewers), ("applies by", &own.actors)];
            let people = people.into_iter().filter(|(_, names)| !names.is_empty());
            guards
                .people
                .extend(people.map(|(what, names)| format!("{what} {}", names.join(" or "))));
            let freezes = own.freeze.iter();
            guards
                .freezes
                .extend(freezes.map(|freeze| format!("the freeze until {}", freeze.until)));
            guards.limit = match (guards.limit, own.max_destructive) {
                (Some(limit), Some(own)) => Some(limit.min(own)),
                (limit, own) => limit.or(own),
            };
        }
        guards
    }

    /// Describes the guards of these names that `others` do not have.
    fn beyond(&self, others: &Self) -> Vec<String> {
        let mut said: Vec<String> = self.sets.difference(&others.sets).cloned().collect();
        if self.approvals > others.approvals {
            said.push(plural(self.approvals as usize, "approval"));
        }
        said.extend(self.people.difference(&others.people).cloned());
        said.extend(self.freezes.difference(&others.freezes).cloned());
        if let Some(limit) = self.limit
            && others.limit.is_none_or(|other| limit < other)
        {
            said.push(format!("`max_destructive: {limit}`"));
        }
        said.extend(self.workflows.difference(&others.workflows).cloned());
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::policy_fixture::{self, policy};
    use konverge_base::model::{RepoPath, plan::Action};

    const RULES: &str = "policy:
  approvals: 1
stacks:
- match: 'apps/shop/prod'
  policy: {approvals: 2, reviewers: [acme/pay], max_destructive: 0}
- match: 'apps/store/prod'
  policy: {approvals: 1}
apply: {hooks: {workflows: [{when: pre, stacks: 'shop/prod', workflow: backup.yml}]}}
";

    fn stack(id: &str, folder: &str) -> StackPlan {
        StackPlan {
            id: id.parse().unwrap(),
            stack: RepoPath::normalize(folder).unwrap(),
            ..policy_fixture::plan(&[Action::Create])
        }
    }

    #[test]
    fn each_other_name_says_what_only_its_rules_ask_for() {
        let mut renamed = stack("store/prod", "apps/store/prod");
        assert!(followed(&policy(RULES), &renamed).is_empty());
        renamed.known_as.ids = ["shop/prod".parse().unwrap(), "shop/dev".parse().unwrap()].into();
        renamed.known_as.folders = [RepoPath::normalize("apps/shop/prod").unwrap()].into();
        let said: Vec<_> = followed(&policy(RULES), &renamed)
            .into_iter()
            .map(|finding| finding.message)
            .collect();
        assert_eq!(
            said,
            [
                "rules for `shop/prod`, an earlier name of this stack, still apply to it: the workflow `backup.yml` (`pre`)",
                "rules for `apps/shop/prod`, an earlier name of this stack, still apply to it: 2 approvals, a review by acme/pay, `max_destructive: 0`"
            ]
        );
        let line = "ended_names: [{stacks: apps/store/prod, was: '**', reason: r}]";
        let ended = RULES.replace("approvals: 1\nstacks", &format!("approvals: 1\n  {line}\nstacks"));
        assert!(followed(&policy(&ended), &renamed).is_empty());
    }

    #[test]
    fn a_new_stack_beside_a_removed_one_lacks_its_guards_unless_it_is_the_same() {
        let removed = stack("shop/prod", "apps/shop/prod");
        let mut added = stack("store/prod", "apps/store/prod");
        let said = unfollowed(&policy(RULES), &added, &[&removed]).unwrap().message;
        assert!(said.ends_with("of `shop/prod`: 2 approvals, a review by acme/pay, `max_destructive: 0`, the workflow `backup.yml` (`pre`)"), "{said}");
        let many: Vec<_> = (0..5).map(|_| &removed).collect();
        let said = unfollowed(&policy(RULES), &added, &many).unwrap().message;
        assert!(said.ends_with("; and of 2 other stacks"), "{said}");
        assert!(unfollowed(&policy(""), &added, &[&removed]).is_none());
        added.known_as.ids = [removed.id.clone()].into();
        assert!(unfollowed(&policy(RULES), &added, &[&removed]).is_none());
    }
}
