//! [`ComparedRevisions`]: the head of a run and the base that the head is compared with. Both use one cache.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use crate::{
    AnalysisCache, OpenRevision, RevisionSpec, RunContext, SpecSource, Target, compiler::Compilers,
    revision::with_own_spec_keys,
};
use konverge_base::{
    error::UserError,
    model::{
        CommitId, RepoPath, StackId,
        affected::{Affected, AffectedStack, InputChange},
        file_source::WrittenPaths,
        stack::Stack,
    },
};
use konverge_config::{Config, FILE_NAME};
use konverge_repo::git::{EditedSource, Repository};

/// A head, and its base if there is one.
pub struct ComparedRevisions {
    /// The cache that both revisions are opened with.
    pub known: AnalysisCache,
    /// The revision with the change.
    pub head: OpenRevision,
    /// The revision that the head is compared with.
    pub base: Option<OpenRevision>,
}

impl ComparedRevisions {
    /// Opens the head with its own configuration, or with the given one.
    ///
    /// # Errors
    /// The revision cannot be read, its `konverge.yaml` is invalid, or there is no `kcl.mod`.
    pub fn open(
        run: &RunContext,
        repository: &Repository,
        at: &RevisionSpec,
        config: Option<&Config>,
    ) -> Result<Self, UserError> {
        let known = AnalysisCache::open(run, repository);
        let head = OpenRevision::open_knowing(&known, repository, at, config)?;
        head.layout.require_module()?;
        head.note_layout(run);
        Ok(Self {
            known,
            head,
            base: None,
        })
    }

    /// Opens the base with the configuration of the head. Its stacks, their identities and the keys that its Specs
    /// depend on come from its own configuration.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn with_base(mut self, repository: &Repository, commit: CommitId) -> Result<Self, UserError> {
        let at = RevisionSpec::Commit(commit);
        // If the configuration of the base is invalid, this change may repair it, so the configuration of the head is
        // used.
        let base = OpenRevision::open_choosing(&self.known, repository, &at, |source| {
            Ok(with_own_spec_keys(&self.head.config, source))
        })?;
        // If the head is a working tree, the base is the checked-out commit, which the cache has saved already.
        if self.head.commit().is_some() {
            self.known.save(&base);
        }
        self.base = Some(base);
        Ok(self)
    }

    /// Returns the head with other contents of some files. No file is written.
    ///
    /// # Errors
    /// The files cannot be analyzed.
    pub fn edited(&self, edits: &BTreeMap<RepoPath, Arc<[u8]>>) -> Result<OpenRevision, UserError> {
        let source = EditedSource::new(&self.head.source, edits)?;
        self.head.with_source(&self.known, Arc::new(source))
    }

    /// Reads the working tree again, reusing results of the earlier head, and makes it the head. Returns the earlier
    /// head.
    ///
    /// # Errors
    /// See [`ComparedRevisions::open`]. On an error the earlier head stays.
    pub fn reopen_head(
        &mut self,
        repository: &Repository,
        written: &WrittenPaths,
    ) -> Result<OpenRevision, UserError> {
        let head = self.head.after_writes(&self.known, repository, written)?;
        self.known.forget_earlier();
        head.layout.require_module()?;
        Ok(std::mem::replace(&mut self.head, head))
    }

    /// Saves the head for the next run, if the head is a commit. If there is a base, the base or the checked-out commit
    /// is saved already.
    pub fn save_head(&self) {
        self.known.save(&self.head);
    }

    /// Compares the stacks of both revisions. Without a base, no stack is affected.
    pub fn affected(&self) -> Affected {
        match &self.base {
            Some(base) => self.head.analysis.compare(&base.analysis),
            None => Affected::nothing(self.head.commit().cloned()),
        }
    }

    /// Returns the affected stacks as targets. Removed stacks are included.
    pub fn targets(&self, affected: &Affected) -> Vec<Target> {
        let target = |stack: &AffectedStack| match stack.change {
            InputChange::Removed => {
                let base = &self.base.as_ref()?.layout;
                base.stack_near(&stack.stack, &stack.id).map(Target::removed)
            }
            _ => {
                let there = self.head.layout.stack_near(&stack.stack, &stack.id);
                there.map(|there| self.target(there))
            }
        };
        affected.stacks.iter().filter_map(target).collect()
    }

    /// Returns true if only the head has a `konverge.yaml`. Without a base this is unknown, so it returns false.
    pub fn introduces_config(&self) -> bool {
        let base = self.base.as_ref();
        self.head.has_root_file(FILE_NAME) && base.is_some_and(|base| !base.has_root_file(FILE_NAME))
    }

    /// Adds all other stacks of the head to the targets, and sorts them by folder.
    pub fn with_every_stack(&self, mut targets: Vec<Target>) -> Vec<Target> {
        let known: HashSet<StackId> = targets.iter().map(|target| target.id.clone()).collect();
        let others = self.head.layout.stacks.iter();
        let others = others.filter(|stack| !known.contains(&stack.id));
        targets.extend(others.map(|stack| self.target(stack)));
        targets.sort_by(|a, b| (a.folder(), &a.id).cmp(&(b.folder(), &b.id)));
        targets
    }

    /// Returns the target of a stack of the head, with the stack of the base that it continues.
    pub fn target(&self, stack: &Stack) -> Target {
        let base = self.base.as_ref();
        let before = base.and_then(|base| self.head.layout.predecessor_of(&base.layout, stack));
        Target::new(stack, before)
    }

    /// Splits the revisions into the source of Specs, and the cache. The cache is written in the background, at the
    /// latest when it is dropped.
    pub fn into_source(self, compilers: Compilers) -> (SpecSource, AnalysisCache) {
        (SpecSource::compiled(compilers, self.head, self.base), self.known)
    }
}
