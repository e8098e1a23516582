//! The `watch` use case: shows after each save which stacks it affects, and how their Specs differ from the base. It
//! writes nothing, and queries no cluster unless a live plan is requested.

use std::{collections::BTreeSet, slice};

use super::{file_events::FileEvents, spec_difference::SpecDifference};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, RepoPath, StackId,
        affected::Affected,
        file_source::WrittenPaths,
        plan::{Basis, Plan, StackPlan},
        watch_event::{WatchEvent, WatchEventKind},
    },
};
use konverge_repo::{git::Repository, konfig::Changes};
use konverge_run::{
    ComparedRevisions, KeyUse, OpenRequest, RevisionSpec, RunContext, Selection, Target, compiler::Compilers,
    preview, session,
};
use konverge_secrets::redact;

/// A working tree that is watched.
pub struct Watch<'a> {
    run: RunContext,
    repository: &'a Repository,
    request: OpenRequest,
    /// Also plan against the live infrastructure.
    live: bool,
    files: FileEvents<'a>,
    opened: Opened,
    /// The last event was an error.
    has_failed: bool,
}

/// Opened revisions, which stay open between two events.
struct Opened {
    revisions: ComparedRevisions,
    /// The commit that was checked out.
    head: Option<CommitId>,
    compilers: Compilers,
    specs: SpecDifference,
}

impl<'a> Watch<'a> {
    /// Opens the working tree and begins to watch it.
    ///
    /// # Errors
    /// Errors of the repository, revisions, configuration or names; the system refuses to watch it.
    pub async fn open(
        run: &RunContext,
        repository: &'a Repository,
        request: &OpenRequest,
        live: bool,
    ) -> Result<Self, UserError> {
        // Start the watch first: a file that is saved while the revisions are opened must give an event.
        let files = FileEvents::start(repository.root(), |path: &RepoPath| repository.ignores(path))?;
        let opened = Opened::open(run, repository, request).await?;
        let watch = Self {
            run: run.clone(),
            repository,
            request: request.clone(),
            live,
            files,
            opened,
            has_failed: false,
        };
        // At the start a name that matches nothing is an error. Later its stack may come and go.
        if let Selection::Named(names) = &request.selection {
            watch
                .opened
                .revisions
                .head
                .find_stacks(run, repository.root(), names)?;
        }
        Ok(watch)
    }

    /// Returns the first event: the differences from the base that exist already.
    ///
    /// # Errors
    /// The run is interrupted, or the core is not available.
    pub async fn first_event(&mut self) -> Result<WatchEvent, UserError> {
        let affected = self.opened.revisions.affected();
        self.event(WatchEventKind::Start, Vec::new(), affected).await
    }

    /// Waits for the next save that changes a file. A repository that cannot be read is an event, too.
    ///
    /// # Errors
    /// The same as for [`Watch::first_event`]; the folder was removed.
    pub async fn next_event(&mut self) -> Result<WatchEvent, UserError> {
        loop {
            let written = self.files.wait().await?;
            let (files, affected) = match self.read_again(&written).await {
                Ok(Some(changed)) => changed,
                // A mistake was undone, so no file differs. Send an event all the same, because the last one was an
                // error.
                Ok(None) if self.has_failed => (Vec::new(), self.opened.revisions.affected()),
                Ok(None) => continue,
                Err(failure) => {
                    self.run.check_interrupted()?;
                    self.has_failed = true;
                    self.files.lose_track();
                    let base = self.opened.base();
                    return Ok(WatchEvent {
                        error: Some(redact::failure(&failure, &self.run.secrets).body()),
                        ..WatchEvent::new(WatchEventKind::Change, base)
                    });
                }
            };
            self.has_failed = false;
            return self.event(WatchEventKind::Change, files, affected).await;
        }
    }

    /// Returns the files that differ from the last event, with the stacks that they affect; `None` if no file differs.
    async fn read_again(
        &mut self,
        written: &WrittenPaths,
    ) -> Result<Option<(Vec<RepoPath>, Affected)>, UserError> {
        let (run, repository) = (&self.run, self.repository);
        let before = self.opened.revisions.reopen_head(repository, written)?;
        let head = &self.opened.revisions.head;
        let changes = Changes::compute(before.analysis.tree(), head.analysis.tree());
        let mut files: Vec<_> = changes.paths.into_iter().collect();
        files.sort();
        let affected = head.analysis.compare(&before.analysis);
        let is_moved = self.opened.head != checked_out(repository);
        if before.config != head.config || is_moved {
            // The base and the compilers depend on the configuration and on the commit that is checked out, so both are
            // opened again.
            self.opened = Opened::open(run, repository, &self.request).await?;
        }
        Ok((!files.is_empty()).then_some((files, affected)))
    }

    async fn event(
        &mut self,
        kind: WatchEventKind,
        files: Vec<RepoPath>,
        mut affected: Affected,
    ) -> Result<WatchEvent, UserError> {
        if let Some(named) = self.named() {
            affected.stacks.retain(|stack| named.contains(&stack.id));
        }
        let targets = self.opened.revisions.targets(&affected);
        let plan = if self.live && !targets.is_empty() {
            self.live_plan(&targets).await?
        } else {
            self.opened.plan(&self.run, &targets).await?
        };
        Ok(WatchEvent {
            files,
            stacks: affected.stacks,
            plan: plan.stacks,
            ..WatchEvent::new(kind, self.opened.base())
        })
    }

    /// Returns the stacks that the names match, here or at the base, because each may come and go; `None` for all.
    fn named(&self) -> Option<BTreeSet<StackId>> {
        let Selection::Named(names) = &self.request.selection else {
            return None;
        };
        let revisions = &self.opened.revisions;
        let mut named = BTreeSet::new();
        for (revision, name) in [Some(&revisions.head), revisions.base.as_ref()]
            .into_iter()
            .flatten()
            .flat_map(|revision| names.iter().map(move |name| (revision, name)))
        {
            let found = revision.find_stacks(&self.run, self.repository.root(), slice::from_ref(name));
            named.extend(found.into_iter().flatten().map(|stack| stack.id));
        }
        Some(named)
    }

    /// Returns the plan of `konverge preview` for these stacks.
    async fn live_plan(&self, targets: &[Target]) -> Result<Plan, UserError> {
        let names = targets
            .iter()
            .filter_map(|target| target.id.as_str().parse().ok());
        let request = OpenRequest {
            selection: Selection::Named(names.collect()),
            ..self.request.clone()
        };
        let planned = async {
            let session = session::open(&self.run, &request, KeyUse::Look).await?;
            Ok::<_, UserError>(
                preview::run(&session.planning, &session.targets, None)
                    .await?
                    .plan,
            )
        };
        match planned.await {
            Ok(plan) => Ok(plan),
            Err(failure) => {
                self.run.check_interrupted()?;
                let failed = |target: &Target| {
                    StackPlan::failed(
                        target.folder().clone(),
                        target.id.clone(),
                        Basis::Live,
                        failure.body(),
                    )
                };
                let mut plan = Plan {
                    version: 1,
                    stacks: targets.iter().map(failed).collect(),
                };
                redact::plan(&mut plan, &self.run.secrets);
                Ok(plan)
            }
        }
    }
}

impl Opened {
    async fn open(
        run: &RunContext,
        repository: &Repository,
        request: &OpenRequest,
    ) -> Result<Self, UserError> {
        let at = RevisionSpec::Worktree;
        let mut revisions = ComparedRevisions::open(run, repository, &at, None)?;
        match session::base_commit(run, repository, request, &at).await? {
            Some(commit) => revisions = revisions.with_base(repository, commit)?,
            None => revisions.save_head(),
        }
        Ok(Self {
            compilers: Compilers::new(run, &revisions.head.config),
            head: checked_out(repository),
            specs: SpecDifference::default(),
            revisions,
        })
    }

    fn base(&self) -> Option<CommitId> {
        self.revisions.base.as_ref()?.commit().cloned()
    }

    async fn plan(&mut self, run: &RunContext, targets: &[Target]) -> Result<Plan, UserError> {
        let revisions = &self.revisions;
        self.specs.plan(run, &self.compilers, revisions, targets).await
    }
}

fn checked_out(repository: &Repository) -> Option<CommitId> {
    // A repository without commits has no HEAD.
    repository.resolve("HEAD").ok()
}
