//! The error of a plan that the policies deny.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        plan::StackPlan,
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_policy as policy;

/// Returns the error for the findings that deny a plan; `None` if no finding denies it.
pub(crate) fn refusal(plan: &StackPlan, findings: &[PolicyFinding]) -> Option<UserError> {
    if policy::may_apply(findings, &plan.id) {
        return None;
    }
    let denied = || findings.iter().filter(|f| f.verdict == Enforcement::Deny);
    let said: Vec<_> = denied().map(|f| format!("{}: {}", f.rule, f.message)).collect();
    let failure = UserError::new(
        ErrorKind::Policy,
        format!(
            "{} was stopped before anything was changed:\n{}",
            plan.id,
            said.join("\n")
        ),
    );
    Some(
        denied()
            .filter_map(|f| f.hint.clone())
            .fold(failure, UserError::hint),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{RepoPath, plan::Basis};

    #[test]
    fn only_a_denial_of_this_stack_stops_it_and_says_everything_that_denies() {
        let plan = StackPlan::new(
            RepoPath::root(),
            "shop/prod".parse().unwrap(),
            Basis::Live,
            Vec::new(),
        );
        let finding = |verdict, stack: Option<&str>, rule: &str| PolicyFinding {
            verdict,
            rule: rule.to_owned(),
            stack: stack.map(|stack| stack.parse().unwrap()),
            message: format!("{rule} says no"),
            hint: Some(format!("satisfy {rule}")),
            place: None,
        };
        for verdict in [Enforcement::Pass, Enforcement::Warn, Enforcement::Undecided] {
            assert!(
                refusal(&plan, &[finding(verdict, Some("shop/prod"), "a")]).is_none(),
                "{verdict:?}"
            );
        }
        let of_another = finding(Enforcement::Deny, Some("shop/dev"), "a");
        assert!(refusal(&plan, &[of_another]).is_none());
        // Of the whole run, or of this stack.
        for stack in [None, Some("shop/prod")] {
            let findings = [
                finding(Enforcement::Deny, stack, "a"),
                finding(Enforcement::Warn, stack, "b"),
                finding(Enforcement::Deny, stack, "c"),
            ];
            let refusal = refusal(&plan, &findings).unwrap();
            assert_eq!(refusal.kind, ErrorKind::Policy);
            assert!(refusal.message.contains("shop/prod was stopped"), "{refusal}");
            assert!(
                refusal.message.contains("a: a says no\nc: c says no"),
                "{refusal}"
            );
            assert!(!refusal.message.contains("b says no"), "{refusal}");
            assert_eq!(refusal.hints, ["satisfy a", "satisfy c"]);
        }
    }
}
