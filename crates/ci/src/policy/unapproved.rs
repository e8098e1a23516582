//! The policy findings of a preview, for a change that nobody has approved yet.

use crate::policy::{active_policies::CommitPolicy, followed_guards};
use konverge_base::{
    error::UserError,
    model::{file_source::Source, plan::Plan, policy_finding::PolicyFinding},
};
use konverge_config::Config;
use konverge_policy::{self as policy, CodeOwners, PolicyFacts, Role, Stage, Teams};
use konverge_run::Target;

/// Returns the findings of the settings in `policy`, without those of the policy sets. Nobody counts as an approver or
/// as a team member, so the forge is not asked.
///
/// # Errors
/// A setting of `policy` is invalid.
pub fn unapproved_findings(
    config: &Config,
    source: &dyn Source,
    plan: &Plan,
    targets: &[Target],
) -> Result<Vec<PolicyFinding>, UserError> {
    let own = CommitPolicy::from_config(config, Some(source));
    let codeowners = own.codeowners.as_deref().map(CodeOwners::read);
    let facts = PolicyFacts {
        stage: Stage::Preview,
        now: jiff::Timestamp::now(),
        actor: "",
        role: Role::Write,
        approvals: &[],
        teams: &Teams::default(),
        protected_branch: true,
        codeowners: codeowners.as_ref(),
        consented: false,
    };
    let mut findings = followed_guards::findings(&own, plan, targets);
    for stack in &plan.stacks {
        for rules in own.rules(stack)? {
            findings.extend(policy::evaluate(&rules, stack, &facts));
        }
    }
    findings.sort();
    findings.dedup();
    Ok(findings)
}
