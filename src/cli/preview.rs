//! `konverge preview`: shows planned changes.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use async_trait::async_trait;

use super::{
    CliContext,
    common_args::{OpenedTargets, exit_code},
};
use crate::commands::machine_key::MachineKey;
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        comment_marker::{CommentMarker, MarkerKind},
        model_change::ModelChange,
        permission_changes::PowerChange,
        plan::{Basis, Plan, StackPlan},
        plan_document::{PlanDocument, StackDocument},
        policy_finding::PolicyFinding,
    },
};
use konverge_config::{Config, DriftPolicy};
use konverge_model_sources::model_changes;
use konverge_report::{
    self as report, COMMENT_BUDGET, CommentInput, Merging, Mode, RunInfo, SUMMARY_BUDGET, terminal::Style,
};
use konverge_run::{
    OpenRevision, Session, SpecSource, adopted_stacks,
    cluster_selection::Live,
    manual_policy_sets::PromptFindings,
    plan_documents::{DocumentVisitor, PlannedDocument},
    stack_contexts,
    stack_order::StackOrder,
};
use konverge_secrets::redact;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  konverge preview                            the stacks that the change affects
  konverge preview storefront/dev             one stack
  konverge preview --pending                  what `konverge apply --pending` would do
  konverge preview --base main --head change --live never
  konverge preview --output markdown          the comment of a pull request")]
pub struct Args {
    #[command(flatten)]
    opened: OpenedTargets,
    /// The output format
    #[arg(long, short, value_name = "FORMAT", value_enum, default_value_t = PlanOutput::Text)]
    output: PlanOutput,
    /// Exit with 2 if anything would change
    #[arg(long)]
    exit_code: bool,
}

/// The output format of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum PlanOutput {
    /// For a terminal
    Text,
    /// JSON, as in the reference of JSON formats
    Json,
    /// The comment on the pull request
    Markdown,
    /// One self-contained page
    Html,
    /// The plan document, which policy sets get as their input
    Plan,
}

/// Runs the command.
///
/// # Errors
/// The stacks cannot be opened. A stack that cannot be planned is shown, and gives exit code 1.
pub(super) async fn run(args: &Args, context: &CliContext) -> Result<u8, UserError> {
    let live = args.opened.infrastructure.live.into();
    let run = context.run();
    let key = MachineKey::read(&run);
    let run = konverge_run::RunContext {
        secrets: key.secrets.clone(),
        ..run
    };
    let mut session = args.opened.open_preview(&run, live).await?;
    // Stacks that a changed konverge.adopt.yaml takes over are previewed, too.
    let adopts = if args.opened.names_stacks() || live == Live::Never {
        BTreeSet::new()
    } else {
        adopted_stacks::add_proposed(&mut session).await?
    };
    let documents = Documents::default();
    let found = PromptFindings::new(session.sets.clone(), session.planning.secrets());
    let visitor = match args.output {
        PlanOutput::Plan => Some(&documents as &dyn DocumentVisitor),
        PlanOutput::Markdown | PlanOutput::Html => Some(&found as &dyn DocumentVisitor),
        PlanOutput::Text | PlanOutput::Json => None,
    };
    let mut preview = konverge_run::preview::run(&session.planning, &session.targets, visitor).await?;
    if session.introduces {
        preview.count_every_failure();
    }
    adopted_stacks::refuse_changes(&mut preview, &adopts);
    let config = &session.planning.config;
    let (failed, shown): (Vec<_>, Vec<_>) = preview
        .plan
        .stacks
        .iter()
        .partition(|stack| konverge_run::preview::is_failure(stack, config));
    // A new key is stored only if its markers were shown, and not for a failed preview.
    if !shown.is_empty() {
        key.keep();
    }
    let changed = preview
        .plan
        .stacks
        .iter()
        .any(|stack| stack.summary.changed() > 0);
    let code = exit_code(!failed.is_empty(), args.exit_code && changed);
    remark(&preview.plan, &session, args.output);
    if let Some(skipped) = konverge_run::SkippedRemovals::in_targets(&session.planning, &session.targets) {
        let names: Vec<_> = skipped.stacks().map(StackId::as_str).collect();
        let run = &session.planning.run;
        run.warn(
            &format!("an apply will skip the removal of {}", names.join(", ")),
            skipped.reason,
        );
    }
    if args.output == PlanOutput::Plan {
        context.print(&report::json::document(&documents.into_document()));
        return Ok(code);
    }
    let mut effects = Effects {
        models: model_changes::find_in_session(&session),
        ..Effects::default()
    };
    if matches!(args.output, PlanOutput::Markdown | PlanOutput::Html) {
        effects.add_what_a_comment_says(&session, &preview.plan, found.into_findings())?;
    }
    context.print(&render(
        &preview.plan,
        &session,
        &effects,
        args.output,
        context.style(),
    )?);
    Ok(code)
}

/// The effects of a change besides its plan.
#[derive(Default)]
struct Effects {
    models: Vec<ModelChange>,
    /// Findings of the policies. Only the comment and the page show them.
    findings: Vec<PolicyFinding>,
    /// Changes of permissions. Only the comment and the page show them.
    permissions: Vec<PowerChange>,
}

impl Effects {
    /// Adds the findings of the policies to those of the policy sets, and the permissions that a merge changes.
    fn add_what_a_comment_says(
        &mut self,
        session: &Session,
        plan: &Plan,
        of_sets: Vec<PolicyFinding>,
    ) -> Result<(), UserError> {
        let Session {
            planning, targets, ..
        } = session;
        self.findings = of_sets;
        if let SpecSource::Compiled { head, base, .. } = &planning.wanted {
            let config = &planning.config;
            let unapproved = |config: &Config, revision: &OpenRevision| {
                konverge_ci::unapproved_findings(config, revision.source.as_ref(), plan, targets)
            };
            self.findings.extend(unapproved(config, head)?);
            if let Some(base) = base.as_deref() {
                // The rules of the base apply, too, because a change may weaken its own. A base that cannot be read has
                // no rules.
                let before = Config::load(base.source.as_ref()).unwrap_or_default();
                self.findings.extend(unapproved(&before, base)?);
                self.permissions = konverge_ci::permission_changes(config, Some(base), head);
            }
        }
        redact::findings(&mut self.findings, planning.secrets());
        self.findings.sort();
        self.findings.dedup();
        Ok(())
    }
}

/// The plan documents of a preview.
#[derive(Default)]
struct Documents(Mutex<Vec<StackDocument>>);

impl Documents {
    fn into_document(self) -> PlanDocument {
        PlanDocument::new(self.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl DocumentVisitor for Documents {
    async fn visit(&self, planned: PlannedDocument<'_>) {
        let mut documents = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        documents.push(planned.masked());
    }
}

/// Prints a note if a plan was compared with less than expected, such as without a cluster.
fn remark(plan: &Plan, session: &Session, output: PlanOutput) {
    let compares_specs = |stack: &StackPlan| stack.basis == Basis::Spec && stack.error.is_none();
    let is_offline = output == PlanOutput::Text && plan.stacks.iter().any(compares_specs);
    // The secrets in a pull request's comment are marked by the store's key, so these marks differ.
    let own_marks = session.planning.backend.is_none() && session.planning.config.state.url.is_some();
    let note = match (is_offline, own_marks) {
        (true, true) => {
            "neither a cluster nor the store was queried: this compares the compiled Specs of both revisions, and marks \
             secrets by a key of this machine"
        }
        (true, false) => {
            "no cluster was queried: this compares the compiled Specs of both revisions (`clusters` in konverge.yaml)"
        }
        (false, true) => "the store was not queried: secrets are marked by a key of this machine",
        (false, false) => return,
    };
    session.planning.run.notes.note(note);
}

/// Renders a plan as text. The session adds what the plan lacks: the number of stacks and of compiled Specs.
fn render(
    plan: &Plan,
    session: &Session,
    effects: &Effects,
    output: PlanOutput,
    style: Style,
) -> Result<String, UserError> {
    let config = &session.planning.config;
    let stacks = session.targets.iter().map(|target| (&target.id, target.folder()));
    let contexts = stack_contexts(config, stacks.clone());
    let waves = StackOrder::build(config, &session.targets)?.waves();
    let rollouts = konverge_rollout::preview_sentences(config, stacks);
    let affected = &session.affected;
    let run = RunInfo {
        head: affected.head.clone(),
        base: affected.base.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        stacks_in_repository: session.planning.stacks_in_repository(),
        compiled: session.planning.counts().compiled,
        cached: session.planning.counts().cached,
        ..RunInfo::default()
    };
    let marker = CommentMarker::new(MarkerKind::Preview, "");
    let input = CommentInput {
        run: &run,
        affected,
        plan,
        power: &effects.permissions,
        settings: &session.settings,
        models: &effects.models,
        last_push: None,
        findings: &effects.findings,
        contexts: &contexts,
        waves: &waves,
        rollouts: &rollouts,
        links: &std::collections::BTreeMap::new(),
        marker: &marker,
        mode: Mode {
            merging: match config.state.url {
                Some(_) => Merging::Applies,
                None => Merging::NoStore,
            },
            stops_at_drift: config.policy.drift == DriftPolicy::Stop,
            introduces: session.introduces,
            ..Mode::default()
        },
        // Markdown is the text of the comment, so it has the same size limit.
        budget: if output == PlanOutput::Markdown {
            COMMENT_BUDGET
        } else {
            SUMMARY_BUDGET
        },
    };
    Ok(match output {
        PlanOutput::Text => {
            report::terminal::plan(plan, style)
                + &report::setting_changes::terminal(&session.settings, style)
                + &report::model_changes::terminal(&effects.models, style)
        }
        PlanOutput::Json | PlanOutput::Plan => {
            report::json::preview(plan, &[], &effects.models, &session.settings)
        }
        PlanOutput::Markdown => report::markdown::comment(&input).body,
        PlanOutput::Html => report::html::report(&input),
    })
}
