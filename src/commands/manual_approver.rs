//! The policies of a manual apply: `policy.max_destructive` and `policy.drift` apply if no person confirms the
//! plan at a terminal.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        plan::{Action, ChangeOrigin, ResourcePlan, StackPlan},
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_ci::policy_config;
use konverge_config::{Config, DriftPolicy, Rotation};
use konverge_engine::LatePlan;
use konverge_policy::{self as policy, EffectivePolicy, PolicyFacts, Role, Stage, Teams};
use konverge_run::apply::{ApprovedPlan, Approver, LateApprover, PriorState, ProposedPlan, Refusal};

/// Approves what the policies allow, without asking a person.
pub struct ManualApprover {
    /// The effective configuration.
    pub config: Config,
    /// True if the command line allows the apply to delete everything.
    pub deletes_all: bool,
}

#[async_trait]
impl Approver for ManualApprover {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let plan = proposed.plan;
        let mut findings = findings(&self.config, plan, past)?;
        if self.deletes_all {
            findings.retain(|finding| finding.rule != MAX_DESTRUCTIVE);
        }
        match refusal(&plan.id, " before anything was changed", &findings) {
            Some(refusal) => Err(refusal.into()),
            None => Ok(ApprovedPlan::by(LatePolicies {
                stack: plan.id.clone(),
                drift: self.config.policy.drift,
                rotation: self.config.secrets.rotation,
            })),
        }
    }
}

/// The policies for resources of an approved stack that are planned again during its apply.
struct LatePolicies {
    stack: StackId,
    drift: DriftPolicy,
    rotation: Rotation,
}

#[async_trait]
impl LateApprover for LatePolicies {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.check(late.shown, &PriorState::default())
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let plan = late.shown;
        let past = PriorState {
            last_writes: [(plan.id.clone(), Arc::default())].into(),
            ..PriorState::default()
        };
        self.check(plan, &past)
    }
}

impl LatePolicies {
    /// Checks a plan that became known during the apply.
    fn check(&self, plan: &ResourcePlan, past: &PriorState) -> Result<(), UserError> {
        let drift = drift(self.drift, &self.stack, [plan].into_iter(), past);
        let rotation = rotation(self.rotation, &self.stack, [plan].into_iter());
        let findings: Vec<_> = drift.into_iter().chain(rotation).collect();
        match refusal(&self.stack, "", &findings) {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

const MAX_DESTRUCTIVE: &str = "policy.max_destructive";

/// Returns the policy findings for a stack's plan.
///
/// # Errors
/// A setting of `policy` is invalid.
pub fn findings(
    config: &Config,
    plan: &StackPlan,
    past: &PriorState,
) -> Result<Vec<PolicyFinding>, UserError> {
    let rules = policy_config::effective_policies(config, &plan.id, &plan.stack, &plan.known_as)?;
    let rules = EffectivePolicy {
        max_destructive: rules.first().and_then(|rules| rules.max_destructive),
        ..EffectivePolicy::default()
    };
    let facts = PolicyFacts {
        stage: Stage::Apply,
        now: Timestamp::now(),
        actor: "",
        role: Role::Write,
        approvals: &[],
        teams: &Teams::default(),
        protected_branch: true,
        codeowners: None,
        consented: false,
    };
    let mut findings = policy::evaluate(&rules, plan, &facts);
    findings.retain(|finding| finding.verdict == Enforcement::Deny);
    for finding in &mut findings {
        finding.hint =
            Some("split the change, or raise `policy.max_destructive` in konverge.yaml".to_owned());
    }
    findings.extend(drift(config.policy.drift, &plan.id, plan.resources.iter(), past));
    findings.extend(rotation(config.secrets.rotation, &plan.id, plan.resources.iter()));
    Ok(findings)
}

/// Returns a finding with the resources that would get a new version of a secret, if that needs a review.
fn rotation<'p>(
    rotation: Rotation,
    stack: &StackId,
    resources: impl Iterator<Item = &'p ResourcePlan>,
) -> Option<PolicyFinding> {
    let is_moved = |resource: &&ResourcePlan| {
        resource
            .changes
            .iter()
            .any(|change| change.origin == ChangeOrigin::Rotation)
    };
    let moved: Vec<_> = resources
        .filter(is_moved)
        .map(|resource| format!("`{}`", resource.id))
        .collect();
    (rotation == Rotation::Stop && !moved.is_empty()).then(|| PolicyFinding {
        verdict: Enforcement::Deny,
        rule: "secrets.rotation".to_owned(),
        stack: Some(stack.clone()),
        message: format!(
            "a new version of a secret would be written into {}; `secrets.rotation` is `stop`",
            moved.join(", ")
        ),
        hint: Some("to write the new version, merge a pull request whose preview shows it".to_owned()),
        place: None,
    })
}

/// Returns a finding with the changes and deletions by others since the last apply, if they must not be reverted.
fn drift<'p>(
    drift: DriftPolicy,
    stack: &StackId,
    resources: impl Iterator<Item = &'p ResourcePlan>,
    past: &PriorState,
) -> Option<PolicyFinding> {
    if drift != DriftPolicy::Stop {
        return None;
    }
    let changed = |resource: &ResourcePlan| {
        let foreign =
            |origin: &ChangeOrigin| matches!(origin, ChangeOrigin::Drift | ChangeOrigin::Manager(_));
        resource.changes.iter().any(|change| foreign(&change.origin))
    };
    let deleted = |resource: &ResourcePlan| {
        resource.action == Action::Create && past.last_writes.contains_key(&resource.id)
    };
    let drifted: Vec<_> = resources
        .filter(|resource| changed(resource) || deleted(resource))
        .map(|resource| format!("`{}`", resource.id))
        .collect();
    (!drifted.is_empty()).then(|| PolicyFinding {
        verdict: Enforcement::Deny,
        rule: "policy.drift".to_owned(),
        stack: Some(stack.clone()),
        message: format!(
            "changed outside Konverge since the last apply: {}; `policy.drift` is `stop`",
            drifted.join(", ")
        ),
        hint: Some(format!(
            "`konverge drift {stack}` shows what differs: add it to the code, or restore it: `konverge apply {stack} --recorded`"
        )),
        place: None,
    })
}

fn refusal(stack: &StackId, when: &str, findings: &[PolicyFinding]) -> Option<UserError> {
    if findings.is_empty() {
        return None;
    }
    let said: Vec<_> = findings
        .iter()
        .map(|finding| format!("{}: {}", finding.rule, finding.message))
        .collect();
    let failure = UserError::new(
        ErrorKind::Policy,
        format!("`{stack}` was stopped{when}:\n{}", said.join("\n")),
    );
    let hints = findings.iter().filter_map(|finding| finding.hint.clone());
    Some(
        hints
            .fold(failure, UserError::hint)
            .hint("or run it in a terminal without `--yes` and confirm"),
    )
}
