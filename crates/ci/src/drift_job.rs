//! The scheduled drift check: compares live resources with what was applied last. Each stack with drift has one issue,
//! which is closed when the drift is gone.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    drift_schedule::DriftSchedule,
    job::{Job, JobResult, marker},
    news, notifications,
    policy::{active_policies::CommitPolicy, policy_check::PolicyCheck},
    publisher::Publisher,
    reconcile::{self, Restored, restored_stacks},
    workflow_coverage,
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, RepoPath, StackId,
        apply_result::{StackOutcome, StackResult},
        comment_marker::{CommentMarker, MarkerKind},
        file_source::Source,
        plan::{Action, Plan, StackPlan},
        spec::RuntimeKind,
    },
    spans::Stages,
};
use konverge_config::{Config, Reconcile, Span};
use konverge_forge::ForgeKind;
use konverge_policy::Stage;
use konverge_report::{
    self as report, RunInfo, SUMMARY_BUDGET,
    markdown::{DriftKeeping, DriftRound, DriftSeen, ManualStart, drift_round},
};
use konverge_rollout_driver::overdue_rollouts;
use konverge_run::{
    KeyUse, OpenRevision, Planner, StateBackend, Target,
    drift::{self, DriftReport},
    renamed_stacks, stack_lookup,
};
use konverge_secrets::redact;
use konverge_state::{IndexedStates, Proven};

/// The file with the jobs of GitLab, which has no folder of workflows.
const PIPELINE: &str = ".gitlab-ci.yml";

/// Checks the applied stacks for drift, with the code of the default branch.
pub(super) async fn run(job: &Job, head: &CommitId) -> Result<JobResult, UserError> {
    let publisher = Publisher::new(job);
    let result = check_and_publish(job, head, &publisher).await;
    let result = result.map_err(|failure| redact::failure(&failure, &job.run.secrets));
    if let Err(failure) = &result {
        publisher.publish_failure(failure);
    }
    result
}

async fn check_and_publish(
    job: &Job,
    head: &CommitId,
    publisher: &Publisher<'_>,
) -> Result<JobResult, UserError> {
    let mut stages = Stages::start("open");
    job.repository.ensure(head, job.credentials.as_ref()).await?;
    let config = Config::load(job.repository.revision(head)?.as_ref())?;
    // Only a job that restores drift may create the hash key: a job that only checks may have no write permission.
    let key = match config.drift.reconcile {
        Reconcile::Leave => KeyUse::Look,
        Reconcile::Restore => KeyUse::Make,
    };
    let Some(backend) = job.backend(&config, key).await? else {
        // Without a store, no record says what was applied.
        return Ok(JobResult {
            code: 0,
            text: "there is nothing to compare with: konverge.yaml configures no store (`state.url`)\n"
                .to_owned(),
        });
    };
    let revision = job.open_merged(head, &config)?;
    let steps = DriftSteps {
        job,
        head,
        config: &config,
        backend: &backend,
    };
    let selected = steps.select(&revision).await?;
    stages.next("look");
    let ended = steps.check(&selected, revision, &mut stages).await?;
    Ok(steps.publish(selected, ended, publisher).await)
}

/// The input of all steps of a drift check.
struct DriftSteps<'a> {
    job: &'a Job,
    head: &'a CommitId,
    config: &'a Config,
    backend: &'a StateBackend,
}

/// The stacks that are due for a check, and what is known of them.
struct SelectedStacks<'a> {
    known: &'a Proven<IndexedStates>,
    rounds: DriftSchedule,
    /// All stacks that were applied.
    applied: Vec<StackId>,
    due: Vec<Target>,
    /// The stacks that a merge has changed since their apply.
    behind: Vec<StackId>,
    /// The age of the last successful check, if it is too old.
    overdue: Option<Duration>,
}

/// A drift check that has ended.
struct EndedCheck {
    planning: Planner,
    checked: DriftReport,
    restored: Restored,
}

impl<'a> DriftSteps<'a> {
    async fn select(&self, revision: &OpenRevision) -> Result<SelectedStacks<'a>, UserError> {
        let (job, config, backend) = (self.job, self.config, self.backend);
        let known = backend.states.known().await?;
        let rounds = DriftSchedule::load(job, backend, config).await;
        let renamed = renamed_stacks(backend, &revision.layout, known).await?;
        let applied = applied(backend, known, revision, &renamed).await;
        let ids = applied.iter().map(|target| target.id.clone()).collect();
        let behind = revision.changed_stacks(known)?;
        let selected = SelectedStacks {
            known,
            applied: ids,
            due: rounds.select_due(applied, config.drift.stacks_per_run),
            behind: behind.into_iter().map(|stack| stack.id.clone()).collect(),
            overdue: rounds.overdue(),
            rounds,
        };
        warn(job, &selected.behind, selected.overdue);
        for line in overdue_rollouts(config, backend).await {
            job.run.notes.warning(&line);
        }
        workflow_coverage::warn(job, config, revision);
        Ok(selected)
    }

    /// Checks the selected stacks, and restores their drift if the configuration says so.
    async fn check(
        &self,
        SelectedStacks { due, behind, .. }: &SelectedStacks<'_>,
        revision: OpenRevision,
        stages: &mut Stages,
    ) -> Result<EndedCheck, UserError> {
        let (job, config, backend) = (self.job, self.config, self.backend);
        let policy = CommitPolicy::from_config(config, Some(revision.source.as_ref()));
        let policy_check = PolicyCheck {
            restoring: true,
            ..PolicyCheck::new(job, policy, Stage::Apply, &backend.secrets)
        };
        let planning = job
            .protected_planning(config.clone(), self.head, revision, backend.clone())
            .await?;
        let checked = drift::run(&planning, due, config.drift.budget.map(Span::duration)).await?;
        stages.next("restoring drift");
        // An apply does not help a stack whose objects are as applied but whose delivery controller is unhealthy.
        let ours = |target: &&Target| !checked.left_to_controller.contains(&target.id);
        let ours: Vec<_> = due.iter().filter(ours).cloned().collect();
        let restored = reconcile::run(&planning, policy_check, &ours, &checked.plan, behind).await?;
        Ok(EndedCheck {
            planning,
            checked,
            restored,
        })
    }

    /// Publishes a drift check. The history is recorded first, because the issues say since when a stack has drift.
    async fn publish(
        &self,
        selected: SelectedStacks<'_>,
        EndedCheck {
            planning,
            checked,
            restored: Restored { report, findings },
        }: EndedCheck,
        publisher: &Publisher<'_>,
    ) -> JobResult {
        let (job, config, backend) = (self.job, self.config, self.backend);
        let (mut rounds, applied) = (selected.rounds, selected.applied);
        let plan = &checked.plan;
        let restored = restored_stacks(&report);
        rounds.record_run(&checked, &restored, &job.run.url());
        let info = job.info(self.head);
        let round = DriftRound {
            plan,
            applied: applied.len(),
            waiting: rounds.least_recently_checked(&applied),
            known_for: &rounds.known_for(),
            behind: &selected.behind,
            overdue: selected.overdue,
            restored: &report,
        };
        publisher.summary(&drift_round(&round, &info, SUMMARY_BUDGET));
        let looked = DriftResult {
            checked: &checked,
            restored: &restored,
            rounds: &rounds,
            known: selected.known,
            head: planning.wanted.head(),
        };
        let result = report::json::with_findings(plan, &findings);
        publisher.plan_outputs(plan, |stack| stack.summary, &result);
        publish_what_is_left(publisher, &looked);
        publisher.annotate(plan, &[]);
        let issues = publish_issues(publisher, &looked, &info, config.drift.label()).await;
        rounds.note_issues(&issues);
        let news = news::of_drift(plan, &restored);
        notifications::send(job, config, &news).await;
        // The history contains the numbers of the issues, and the pages of the portal are built from the saved history.
        rounds
            .remember(job, backend, |stack| applied.contains(stack))
            .await;
        if let Some(url) = &config.portal.publish {
            publish_pages(job, backend, self.head, url).await;
        }
        let is_failed = |stack: &StackOutcome| stack.result == StackResult::Failed;
        let failed =
            plan.stacks.iter().any(|stack| stack.error.is_some()) || report.stacks.iter().any(is_failed);
        JobResult {
            code: u8::from(failed),
            text: report::terminal::plan(plan, report::terminal::Style::default()),
        }
    }
}

/// Writes the pages of the portal. A failure is only a warning: outdated pages must not fail a drift check.
async fn publish_pages(job: &Job, backend: &StateBackend, head: &CommitId, url: &str) {
    match konverge_portal_site::publish(&job.run, &job.repository, backend, head, url).await {
        Ok(report) => job.run.notes.note(&format!(
            "the portal has {}; {} written",
            report::plural(report.stacks, "stack"),
            report::plural(report.written, "file")
        )),
        Err(error) => job
            .run
            .warn("the portal could not be published (`portal.publish`)", error),
    }
}

/// Returns the applied stacks, each with its code at the head if it still exists there.
pub(super) async fn applied(
    backend: &StateBackend,
    known: &Proven<IndexedStates>,
    revision: &OpenRevision,
    renamed: &BTreeMap<StackId, StackId>,
) -> Vec<Target> {
    let now = |id: &StackId| {
        renamed
            .iter()
            .find(|(_, earlier)| *earlier == id)
            .map(|(now, _)| now)
    };
    let mut applied = Vec::new();
    for (id, entry) in known.entries.iter().filter(|(_, entry)| entry.is_known()) {
        applied.push(match revision.layout.stack(now(id).unwrap_or(id)) {
            Some(stack) => Target::new(stack, None),
            None => {
                let prior = stack_lookup::recorded_state(backend, id).await;
                stack_lookup::forgotten(id, entry, prior.as_ref())
            }
        });
    }
    applied
}

fn warn(job: &Job, behind: &[StackId], overdue: Option<Duration>) {
    if !behind.is_empty() {
        let names: Vec<_> = behind.iter().map(StackId::as_str).collect();
        job.run.notes.warning(&format!(
            "the default branch is ahead of what is applied for {}: {}",
            report::plural(names.len(), "stack"),
            names.join(", ")
        ));
    }
    if let Some(since) = overdue {
        job.run
            .notes
            .warning(&format!("no successful drift check for {}", report::age(since)));
    }
}

fn drifted_stacks(plan: &Plan) -> impl Iterator<Item = &StackPlan> {
    plan.stacks.iter().filter(|stack| stack.summary.changed() > 0)
}

/// The results of a drift check.
pub(super) struct DriftResult<'a> {
    pub checked: &'a DriftReport,
    /// The stacks that were restored after the check.
    pub restored: &'a [StackId],
    pub rounds: &'a DriftSchedule,
    pub known: &'a Proven<IndexedStates>,
    /// The commit that has the code of the stacks.
    pub head: Option<&'a OpenRevision>,
}

impl DriftResult<'_> {
    /// Returns the way in which a reader can make the drift of a stack a part of the code. `konverge set` works only if
    /// the stack still has code, and if a live object with the value exists. `workflows` is the folder of workflows, if
    /// the forge has one.
    fn keeping(&self, stack: &StackPlan, workflows: Option<&str>) -> DriftKeeping {
        let has_code = |head: &&OpenRevision| head.layout.stack(&stack.id).is_some();
        let is_set = stack
            .resources
            .iter()
            .any(|resource| resource.runtime == RuntimeKind::Kubernetes && resource.action == Action::Update);
        match self.head.filter(has_code) {
            Some(head) if is_set && has_keep_workflow(head.source.as_ref(), workflows) => {
                DriftKeeping::ByWorkflow
            }
            Some(_) if is_set => DriftKeeping::BySet,
            _ => DriftKeeping::ByHand,
        }
    }

    fn left(&self) -> impl Iterator<Item = &StackPlan> {
        drifted_stacks(&self.checked.plan).filter(|stack| !self.restored.contains(&stack.id))
    }
}

/// Returns true if the repository has the workflow `konverge-keep`, under the file name from the guide. On a forge
/// without a folder of workflows, this is a job of the pipeline.
fn has_keep_workflow(source: &dyn Source, folder: Option<&str>) -> bool {
    let Some(folder) = folder else {
        return has_keep_job(source);
    };
    let names = ["yml", "yaml"].map(|ending| format!("{folder}/konverge-keep.{ending}"));
    let mut paths = names.iter().filter_map(|name| RepoPath::normalize(name));
    paths.any(|path| source.files().contains_key(&path))
}

/// Returns true if the pipeline has the job `konverge-keep`. The file is searched by lines, because it may have several
/// YAML documents and tags that only GitLab knows.
fn has_keep_job(source: &dyn Source) -> bool {
    let file = RepoPath::normalize(PIPELINE).and_then(|path| source.read_path(&path).ok().flatten());
    file.is_some_and(|bytes| {
        String::from_utf8_lossy(&bytes)
            .lines()
            .any(|line| line.trim_end() == "konverge-keep:")
    })
}

/// Sets the outputs of the step about drift that was not restored, with the digests that restore it.
pub(super) fn publish_what_is_left(publisher: &Publisher<'_>, looked: &DriftResult<'_>) {
    let unrestorable = &looked.checked.unrestorable;
    let restorable = looked
        .left()
        .filter(|stack| !unrestorable.contains_key(&stack.id));
    let digests: Vec<_> = restorable.map(|stack| stack.digest.to_string()).collect();
    let has_drift = looked.left().next().is_some();
    publisher.outputs(&[
        ("has-drift", has_drift.to_string()),
        ("drift-digests", digests.join(",")),
    ]);
}

/// Keeps one issue for each checked stack with drift, and closes the issues of the other checked stacks. Returns the
/// number of each stack's issue.
pub(super) async fn publish_issues(
    publisher: &Publisher<'_>,
    looked: &DriftResult<'_>,
    info: &RunInfo,
    label: &str,
) -> BTreeMap<String, u64> {
    let DriftResult {
        checked,
        restored,
        rounds,
        known,
        ..
    } = looked;
    let runner = publisher.job.runner.as_ref();
    let start = match runner.kind() {
        ForgeKind::Github => ManualStart::Command,
        ForgeKind::Gitea => ManualStart::Workflow,
        ForgeKind::Gitlab => ManualStart::Pipeline,
    };
    let workflows = runner.workflow_folder().ok();
    let plan = &checked.plan;
    let issue = |stack: &StackPlan| {
        let marker = CommentMarker {
            head: info.head.as_ref().map(CommitId::to_string).unwrap_or_default(),
            digest: stack.digest.to_string(),
            ..marker(runner, MarkerKind::Drift, stack.id.as_str())
        };
        let since = rounds.since(&stack.id).strftime("%Y-%m-%d %H:%M UTC").to_string();
        let seen = DriftSeen {
            since: &since,
            unrestorable: checked.unrestorable.get(&stack.id),
            workflow: runner.info().workflow_file.as_deref().unwrap_or("konverge.yml"),
            start,
            keeping: looked.keeping(stack, workflows),
        };
        let body = report::markdown::drift_issue(stack, info, &marker, &seen, report::COMMENT_BUDGET);
        let title = format!("{} differs from what was applied", stack.id);
        (marker, title, body)
    };
    let issues = looked.left().map(issue).collect();
    // A stack that could not be compared may still have drift, so its issue stays open.
    let calm = |stack: &&StackPlan| stack.summary.changed() == 0 && stack.error.is_none();
    let gone = known.entries.iter().filter(|(_, entry)| !entry.is_known());
    let settled: Vec<_> = plan
        .stacks
        .iter()
        .filter(calm)
        .map(|stack| &stack.id)
        .chain(*restored)
        .chain(gone.map(|(id, _)| id))
        .cloned()
        .collect();
    let settled = |stack: &str| settled.iter().any(|id| id.as_str() == stack);
    publisher.issues(label, MarkerKind::Drift, settled, issues).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use konverge_base::model::file_source::{BlobId, FileEntry, FileKind, FileTree, SourceError};

    /// A revision of one file.
    struct OneFile(FileTree, &'static str);

    impl OneFile {
        fn new(path: &str, text: &'static str) -> Self {
            let entry = FileEntry {
                blob: BlobId([7; 20]),
                kind: FileKind::File,
            };
            Self(
                FileTree::from([(RepoPath::normalize(path).unwrap(), entry)]),
                text,
            )
        }
    }

    impl Source for OneFile {
        fn files(&self) -> &FileTree {
            &self.0
        }

        fn read(&self, _: BlobId) -> Result<Arc<[u8]>, SourceError> {
            Ok(self.1.as_bytes().into())
        }
    }

    #[test]
    fn the_workflow_that_keeps_is_looked_for_where_the_forge_has_it() {
        let github = OneFile::new(".github/workflows/konverge-keep.yml", "");
        let gitea = OneFile::new(".gitea/workflows/konverge-keep.yaml", "");
        let gitlab = OneFile::new(PIPELINE, "konverge-keep:\n  script: [konverge set]\n");
        for (source, folder) in [
            (&github, Some(".github/workflows")),
            (&gitea, Some(".gitea/workflows")),
            (&gitlab, None),
        ] {
            for other in [Some(".github/workflows"), Some(".gitea/workflows"), None] {
                assert_eq!(
                    has_keep_workflow(source, other),
                    other == folder,
                    "{folder:?} {other:?}"
                );
            }
        }
        let comment = OneFile::new(PIPELINE, "# konverge-keep:\nother: {needs: [konverge-keep]}\n");
        assert!(!has_keep_workflow(&comment, None));
    }
}
