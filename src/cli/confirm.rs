//! Asks the person at the terminal to confirm exactly the plan that was shown.

use std::{collections::BTreeMap, io::IsTerminal, sync::Arc};

use async_trait::async_trait;

use super::{CliContext, common_args::TextOrJson};
use crate::commands::{
    apply_scope::{self, ApplyScope},
    manual_approver::{self, ManualApprover},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId,
        note::Note,
        plan::{Action, Plan, StackPlan},
        policy_finding::{Enforcement, PolicyFinding},
    },
};
use konverge_report as report;
use konverge_run::{
    Planner, Session, Target,
    apply::{
        self, ApprovedPlan, Approver, AutoApprove, EndedRun, LateApprover, LatePlan, PriorState,
        ProposedPlan, Refusal,
    },
    manual_policy_sets::{PromptFindings, WithPolicySets},
};
use konverge_secrets::redact;

/// The action that the person confirms. It decides what `--yes` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfirmedAction {
    /// An apply. The policies for manual applies decide, and a person at a terminal may override them. With
    /// `deletes_all`, a Spec that has become empty may delete everything.
    Apply { deletes_all: bool },
    /// Destroying the named stacks. Naming a stack already approves the number of deletions.
    Destroy,
}

/// Returns the approver of an apply. With `--yes` it approves what the policies allow; otherwise it is the
/// person who is shown the plan and asked. Nobody is asked if nothing would change, or nothing could be planned.
///
/// # Errors
/// The person did not confirm, nobody can answer, or the run was interrupted.
pub(super) async fn confirm_apply(
    yes: bool,
    what: ConfirmedAction,
    session: &Session,
    targets: &[Target],
    context: &CliContext,
) -> Result<Arc<dyn Approver>, UserError> {
    let planning = &session.planning;
    let with_sets = |approver: Arc<dyn Approver>| -> Arc<dyn Approver> {
        let sets = session.sets.clone();
        Arc::new(WithPolicySets::new(approver, sets, planning.secrets()))
    };
    if yes {
        return Ok(with_sets(match what {
            ConfirmedAction::Destroy => Arc::new(AutoApprove),
            ConfirmedAction::Apply { deletes_all } => Arc::new(ManualApprover {
                config: planning.config.clone(),
                deletes_all,
            }),
        }));
    }
    let found = PromptFindings::new(session.sets.clone(), planning.secrets());
    let plan = konverge_run::preview::run(planning, targets, Some(&found))
        .await?
        .plan;
    context.show_plan(&plan);
    if matches!(what, ConfirmedAction::Apply { .. }) {
        for stack in &plan.stacks {
            for finding in manual_approver::findings(&planning.config, stack, &PriorState::default())? {
                let said = format_args!("{}: {}", finding.rule, finding.message);
                context.say(&Note::warning(said).of(&stack.id));
            }
        }
    }
    let mut findings = found.into_findings();
    redact::findings(&mut findings, planning.secrets());
    for finding in findings {
        if let Some(line) = said(&finding) {
            context.note(&line);
        }
    }
    // Without changes there is nothing to confirm: the apply records the result, and a resource that could not be
    // planned fails again with its reason.
    let calm = plan.stacks.iter().all(|stack| stack.summary.changed() == 0);
    if !calm {
        check_terminal()?;
        let scope = apply_scope::find_scope(planning, targets, &plan).await?;
        let declined = match what {
            ConfirmedAction::Apply { .. } => "nothing was applied",
            ConfirmedAction::Destroy => "nothing was destroyed",
        };
        confirm(&question(what, &scope), declined, context).await?;
    }
    Ok(with_sets(Arc::new(ConfirmShownPlan::new(plan))))
}

/// Prints an apply, in JSON with the findings of the policy sets, and returns the exit code.
pub(super) fn print_ended(
    EndedRun { report, decisions }: &EndedRun,
    planning: &Planner,
    output: TextOrJson,
    context: &CliContext,
) -> u8 {
    context.print(&match output {
        TextOrJson::Text => report::outcome::text(report, context.style()),
        TextOrJson::Json => {
            let mut findings = decisions.findings_by_stack();
            redact::findings(&mut findings, planning.secrets());
            report::json::with_findings(report, &findings)
        }
    });
    apply::exit_code(report, &planning.run)
}

/// Describes a finding of a policy set for the person at the terminal; `None` if the rule is satisfied.
fn said(finding: &PolicyFinding) -> Option<String> {
    let what = match finding.verdict {
        Enforcement::Deny => "denied, so this stack will not be applied",
        Enforcement::Undecided => "undecided",
        Enforcement::Warn => "warning",
        Enforcement::Pass => return None,
    };
    let stack = finding.stack.as_ref().map_or("", StackId::as_str);
    let resource = finding.place.as_ref().and_then(|place| place.resource.as_ref());
    let resource = resource.map_or(String::new(), |id| format!(" {id}:"));
    Some(format!(
        "{what}: {stack}: {}:{resource} {}",
        finding.rule, finding.message
    ))
}

/// Builds the question, such as ``Apply 3 updates, 1 delete to storefront/dev on cluster `dev`? Type `yes`: ``.
fn question(what: ConfirmedAction, scope: &ApplyScope) -> String {
    let stacks = match scope.stacks.as_slice() {
        [stack] => stack.to_string(),
        many => report::plural(many.len(), "stack"),
    };
    let changes = report::changes(&scope.changes);
    let terraform = match (scope.terraform, scope.clusters.is_empty()) {
        (false, _) => "",
        (true, true) => " by Terraform",
        (true, false) => " and by Terraform",
    };
    let clusters = match scope.clusters.as_slice() {
        [] => String::new(),
        named => format!(" on {}", named.join(", ")),
    };
    match what {
        ConfirmedAction::Apply { .. } => {
            format!("Apply {changes} to {stacks}{clusters}{terraform}? Type `yes`: ")
        }
        ConfirmedAction::Destroy => {
            format!("Destroy {stacks}{clusters}{terraform} ({changes})? Type `yes`: ")
        }
    }
}

/// Shows the plan of a rollback and returns its approver.
///
/// # Errors
/// The person did not confirm, nobody can answer, or the run was interrupted.
pub(super) async fn confirm_rollback(
    plan: &StackPlan,
    serial: u64,
    context: &CliContext,
) -> Result<Arc<dyn Approver>, UserError> {
    let shown = Plan {
        version: 1,
        stacks: vec![plan.clone()],
    };
    context.show_plan(&shown);
    if plan.summary.changed() > 0 {
        check_terminal()?;
        confirm(&rollback_question(plan, serial), "nothing was applied", context).await?;
    }
    Ok(Arc::new(ConfirmShownPlan::new(shown)))
}

fn rollback_question(plan: &StackPlan, serial: u64) -> String {
    let changes = report::changes(&plan.summary);
    format!(
        "Roll {} back to serial {serial} ({changes})? Type `yes`: ",
        plan.id
    )
}

fn check_terminal() -> Result<(), UserError> {
    if std::io::stdin().is_terminal() {
        Ok(())
    } else {
        Err(UserError::new(
            ErrorKind::Usage,
            "confirmation required but stdin is not a terminal",
        )
        .hint("if this is intended, add `--yes`"))
    }
}

/// Asks the person at the terminal; anything but `yes` declines.
///
/// # Errors
/// The person declined, or the run was interrupted. The message begins with `nothing`, which says what was not done.
async fn confirm(question: &str, nothing: &str, context: &CliContext) -> Result<(), UserError> {
    let answer = context
        .ask(question)
        .await
        .map_err(|failure| failure.context(nothing))?;
    let why = match answer.as_str() {
        "yes" => return Ok(()),
        "" => "the plan was not confirmed".to_owned(),
        other => format!("`{}` is not `yes`", report::escape::log(other)),
    };
    Err(UserError::new(ErrorKind::Declined, format!("{nothing}: {why}")))
}

/// Approves the plans that were shown. The apply plans again under the lease, and is refused if a plan differs by then.
struct ConfirmShownPlan(BTreeMap<StackId, StackPlan>);

impl ConfirmShownPlan {
    fn new(plan: Plan) -> Self {
        let stacks = plan.stacks.into_iter();
        Self(stacks.map(|stack| (stack.id.clone(), stack)).collect())
    }
}

fn plan_changed_error(what: impl std::fmt::Display) -> UserError {
    UserError::new(
        ErrorKind::Unreviewed,
        format!("{what} changed after you confirmed it"),
    )
    .hint("run the command again to see what would happen now")
}

#[async_trait]
impl Approver for ConfirmShownPlan {
    async fn stack(&self, proposed: &ProposedPlan<'_>, _: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let plan = proposed.plan;
        let shown = self.0.get(&plan.id);
        if plan.summary.changed() == 0 || shown.is_some_and(|shown| shown.digest == plan.digest) {
            let resources = shown.into_iter().flat_map(|shown| &shown.resources);
            let actions = resources.map(|resource| (resource.id.clone(), resource.action));
            return Ok(ApprovedPlan::by(ShownActions(actions.collect())));
        }
        Err(plan_changed_error(format_args!("the plan of `{}`", plan.id)).into())
    }
}

/// The actions of an approved stack, as they were shown.
struct ShownActions(BTreeMap<ResourceId, Action>);

#[async_trait]
impl LateApprover for ShownActions {
    /// Accepts values that became known. A deletion or replacement must have been shown.
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let plan = late.shown;
        let takes_away = matches!(plan.action, Action::Replace | Action::Delete);
        if takes_away && self.0.get(&plan.id) != Some(&plan.action) {
            let what = format_args!("what happens to `{}`", plan.id);
            return Err(plan_changed_error(what).with_resource(&plan.id));
        }
        Ok(())
    }

    /// Accepts the recreation: the person confirmed a plan in which the object exists.
    async fn recreate(&mut self, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        Digest, RepoPath,
        other_names::OtherNames,
        plan::{Basis, ResourcePlan, Summary},
        plan_document::{DocumentStack, StackDocument},
        spec::RuntimeKind,
    };

    fn stack(digest: &str, action: Action) -> StackPlan {
        let mut summary = Summary::default();
        let id: StackId = "a/dev".parse().unwrap();
        let resource = ResourcePlan::new(
            &id,
            "v1:A:x".parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            Vec::new(),
        );
        summary.count_resource(&id, &resource);
        StackPlan {
            stack: RepoPath::root(),
            id,
            basis: Basis::Live,
            digest: Digest::of_bytes(digest.as_bytes()),
            summary,
            resources: vec![resource],
            known_as: OtherNames::default(),
            waits_for: std::collections::BTreeSet::new(),
            read: Vec::new(),
            filled: std::collections::BTreeMap::new(),
            error: None,
            fails_as_before: false,
            notes: Vec::new(),
            held_back: Vec::new(),
        }
    }

    #[test]
    fn a_rollback_asks_as_an_apply_does() {
        assert_eq!(
            rollback_question(&stack("x", Action::Delete), 7),
            "Roll a/dev back to serial 7 (1 delete)? Type `yes`: "
        );
    }

    #[test]
    fn the_question_says_what_will_happen_where() {
        let mut scope = ApplyScope {
            changes: Summary {
                update: 3,
                delete: 1,
                ..Summary::default()
            },
            stacks: vec!["shop/dev".parse().unwrap()],
            clusters: vec!["cluster `dev`".to_owned()],
            terraform: false,
        };
        let apply = ConfirmedAction::Apply { deletes_all: false };
        assert_eq!(
            question(apply, &scope),
            "Apply 3 updates, 1 delete to shop/dev on cluster `dev`? Type `yes`: "
        );
        scope.stacks.push("shop/prod".parse().unwrap());
        scope.terraform = true;
        assert_eq!(
            question(ConfirmedAction::Destroy, &scope),
            "Destroy 2 stacks on cluster `dev` and by Terraform (3 updates, 1 delete)? Type `yes`: "
        );
        scope.clusters.clear();
        assert!(question(apply, &scope).ends_with("to 2 stacks by Terraform? Type `yes`: "));
    }

    #[tokio::test]
    async fn only_what_was_shown_is_agreed_to() {
        let plan = Plan {
            version: 1,
            stacks: vec![stack("shown", Action::Unknown)],
        };
        let consent = ConfirmShownPlan::new(plan);
        let past = PriorState::default();
        let agrees = async |digest: &str, action| {
            let plan = stack(digest, action);
            let document = || StackDocument {
                version: 1,
                stack: DocumentStack {
                    id: plan.id.clone(),
                    folder: plan.stack.clone(),
                },
                basis: plan.basis,
                known_as: OtherNames::default(),
                hidden: std::collections::BTreeSet::new(),
                resources: Vec::new(),
            };
            let proposed = ProposedPlan {
                plan: &plan,
                document: &document,
            };
            consent.stack(&proposed, &past).await
        };
        let mut approved = agrees("shown", Action::Unknown).await.ok().unwrap();
        assert!(agrees("another", Action::Unchanged).await.is_ok());
        let refusal = agrees("another", Action::Delete).await.err().unwrap();
        assert_eq!(refusal.error.kind, ErrorKind::Unreviewed);

        let later = |action| stack("", action).resources.remove(0);
        let secrets = konverge_secrets::Secrets::new(konverge_secrets::HashKey::derive("k"));
        let mut agrees = async |action| {
            let late = LatePlan {
                shown: &later(action),
                truth: None,
                secrets: &secrets,
            };
            approved.late.resource(late).await
        };
        assert!(agrees(Action::Update).await.is_ok());
        assert!(agrees(Action::Replace).await.is_err());
    }
}
