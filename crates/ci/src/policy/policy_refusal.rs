//! The error of a plan that the policies deny.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        plan::StackPlan,
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_policy as policy;

/// The error of the findings, if they deny the plan.
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
