//! Warns about the first merge in a repository without a rule for approvals, because whoever merges then also applies.
//! An administrator chooses the rules, so the warning appears only once, before anything is applied.

use crate::{open_revisions::OpenedChange, policy::policy_config::effective_policies};
use konverge_base::{
    error::UserError,
    model::{
        plan::{Plan, StackPlan},
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_config::Config;
use konverge_policy::EffectivePolicy;
use konverge_report as report;

/// Returns the finding if the merge would be the first apply, and some of its stacks need no approval.
///
/// # Errors
/// A rule cannot be read; errors of the store.
pub(crate) async fn finding(opened: &OpenedChange, plan: &Plan) -> Result<Option<PolicyFinding>, UserError> {
    let (now, then) = (&opened.planning.config, &opened.proposed);
    if now.state.url.is_none() && then.state.url.is_none() {
        return Ok(None);
    }
    match &opened.planning.backend {
        Some(backend) => {
            let known = backend.states.known().await?;
            if known.entries.values().any(|entry| entry.is_known()) {
                return Ok(None);
            }
        }
        // Before the merge that adds the configuration there is no store, so nothing was applied. In any other preview
        // without a store, this is unknown.
        None if opened.introduces => {}
        None => return Ok(None),
    }
    let mut open = 0;
    for stack in plan.stacks.iter().filter(|stack| stack.summary.changed() > 0) {
        open += usize::from(!asks_somebody(now, stack)? && !asks_somebody(then, stack)?);
    }
    Ok((open > 0).then(|| PolicyFinding {
        verdict: Enforcement::Warn,
        rule: "policy.approvals".to_owned(),
        stack: None,
        message: format!(
            "nobody has to approve {} of this first apply: whoever merges it applies it, with up to {} deletions in each stack",
            report::plural(open, "stack"),
            EffectivePolicy::MAX_DESTRUCTIVE
        ),
        hint: Some(
            "set `policy.approvals: 1` and `policy.max_destructive` in konverge.yaml before the merge".to_owned(),
        ),
        place: None,
    }))
}

/// Returns true if a rule names who approves or applies a stack.
fn asks_somebody(config: &Config, stack: &StackPlan) -> Result<bool, UserError> {
    let rules = effective_policies(config, &stack.id, &stack.stack, &stack.known_as)?;
    let asks = |rules: &EffectivePolicy| {
        rules.approvals > 0 || !rules.reviewers.is_empty() || !rules.actors.is_empty()
    };
    Ok(rules.iter().any(asks))
}
