//! [`CodeEditor`]: gives an attribute another value in the file of a stack that sets it. Files are edited in memory;
//! the Specs before and after show whether the edit did exactly what the user requested.

mod attribute_edit;
mod hotfix;
mod program_files;
mod spec_fields;
mod value_search;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath, StackId,
        plan::{Plan, StackPlan},
        spec::Spec,
        stack::Stack,
    },
};
use konverge_engine::{self as engine, ComparedSpecs, SpecMask};
use konverge_kcl::AttributePath;
use konverge_run::{
    ComparedRevisions, OpenRevision, RunContext,
    compiler::{CompileError, Compilers},
};
use konverge_secrets::redact;
use serde::Deserialize;

/// The files in which an attribute may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EditPlace {
    /// The stack's own files. An attribute that only a base file sets is added to an own file.
    #[default]
    Stack,
    /// The base files: files of the project that its stacks share.
    Base,
}

/// The kind of an edit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditKind {
    /// The value was replaced.
    Replaced,
    /// The attribute was added.
    Added,
    /// The file sets the value already.
    Unchanged,
}

/// An edit of one attribute of one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedLine {
    /// The edited stack.
    pub stack: StackId,
    /// The edited file.
    pub file: RepoPath,
    /// The line of the value, from 1.
    pub line: u32,
    /// The edited attribute.
    pub path: AttributePath,
    /// The files that the user allowed to edit.
    pub place: EditPlace,
    /// Tells whether the edit replaces a value, or adds one.
    pub kind: EditKind,
}

/// A file with its content before and after the edits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedFile {
    /// The path of the file.
    pub path: RepoPath,
    /// The content in the revision, before the edits.
    pub before: Arc<[u8]>,
    /// The content after the edits.
    pub after: Arc<[u8]>,
}

/// The edits, and their effect on the Specs. No file is written yet.
pub struct CodeChange {
    /// The edited files, sorted by path.
    pub files: Vec<EditedFile>,
    /// The differences of the Specs, masked.
    pub plan: Plan,
    /// The stacks whose Specs differ.
    pub stacks: Vec<Stack>,
    /// The revision with the edits.
    pub revision: Arc<OpenRevision>,
}

/// Edits files of one revision in memory.
#[derive(Clone)]
pub struct CodeEditor<'a> {
    run: &'a RunContext,
    revisions: &'a ComparedRevisions,
    compilers: &'a Compilers,
    /// The new content of each edited file.
    contents: BTreeMap<RepoPath, Arc<[u8]>>,
    /// The files that were edited for one stack only, in contrast to base files that stacks share.
    own: BTreeSet<RepoPath>,
    /// The revision with the edits, opened on demand.
    opened: Option<Arc<OpenRevision>>,
}

impl<'a> CodeEditor<'a> {
    /// Creates an editor for the head of these revisions.
    pub fn new(run: &'a RunContext, revisions: &'a ComparedRevisions, compilers: &'a Compilers) -> Self {
        Self {
            run,
            revisions,
            compilers,
            contents: BTreeMap::new(),
            own: BTreeSet::new(),
            opened: None,
        }
    }

    /// Returns the new content of a file; `None` if the file was not edited.
    pub fn edited(&self, path: &RepoPath) -> Option<Arc<[u8]>> {
        self.contents.get(path).map(Arc::clone)
    }

    fn content(&self, path: &RepoPath) -> Result<Option<Arc<[u8]>>, UserError> {
        match self.contents.get(path) {
            Some(edited) => Ok(Some(Arc::clone(edited))),
            None => self.content_before(path),
        }
    }

    fn content_before(&self, path: &RepoPath) -> Result<Option<Arc<[u8]>>, UserError> {
        Ok(self.revisions.head.source.read_path(path)?)
    }

    /// Replaces the content of a file.
    fn edit(&mut self, path: RepoPath, content: Arc<[u8]>, place: EditPlace) {
        if place == EditPlace::Stack {
            self.own.insert(path.clone());
        }
        self.contents.insert(path, content);
        self.opened = None;
    }

    /// Returns the revision with the edits so far.
    fn revision(&mut self) -> Result<Arc<OpenRevision>, UserError> {
        if let Some(opened) = &self.opened {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(self.revisions.edited(&self.contents)?);
        self.opened = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Returns the Spec of a stack with the edits so far.
    async fn spec(&mut self, stack: &StackId) -> Result<Spec, UserError> {
        if self.contents.is_empty() {
            let head = &self.revisions.head;
            let compiler = self.compilers.for_revision(head);
            return Ok(compiler.spec(&find_stack(head, stack)?).await?);
        }
        let revision = self.revision()?;
        let stack = find_stack(&revision, stack)?;
        Ok(self.compilers.for_revision(&revision).spec(&stack).await?)
    }

    /// Compiles the stacks that the edits affect, and returns the whole change. Stacks outside of `named` may change
    /// only by edits of base files.
    ///
    /// # Errors
    /// A stack does not compile, or the edits change another stack.
    pub async fn finish(mut self, named: &BTreeSet<StackId>) -> Result<CodeChange, UserError> {
        let head = &self.revisions.head;
        let mut files = Vec::new();
        for (path, after) in &self.contents {
            let before = self.content_before(path)?.unwrap_or_default();
            if before != *after {
                files.push(EditedFile {
                    path: path.clone(),
                    before,
                    after: Arc::clone(after),
                });
            }
        }
        let revision = self.revision()?;
        let affected = revision.analysis.compare(&head.analysis);
        let ids = affected.stacks.into_iter().map(|stack| stack.id);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for id in ids {
            before.push(find_stack(head, &id)?);
            after.push(find_stack(&revision, &id)?);
        }
        let olds = self.compilers.for_revision(head).specs(&before).await;
        let news = self.compilers.for_revision(&revision).specs(&after).await;
        self.run.check_interrupted()?;
        let mut base = self.base_edits();
        let (mut plans, mut stacks, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for ((stack, old), new) in after.into_iter().zip(olds).zip(news) {
            if !named.contains(&stack.id) {
                // A stack outside of `named` is no problem if the edits do not change it: it fails to compile before
                // and after, or both Specs are equal.
                let is_same = match (&old, &new) {
                    (Ok(old), Ok(new)) => old.digest() == new.digest(),
                    (old, new) => old.is_err() && new.is_err(),
                };
                if is_same {
                    continue;
                }
                if old.is_err() || !base.makes(&stack.id, &new).await {
                    others.push(stack.id.to_string());
                    continue;
                }
            }
            let (old, new) = (old?, new?);
            if old.digest() != new.digest() {
                plans.push(self.difference(&stack, &old, &new));
                stacks.push(stack);
            }
        }
        if !others.is_empty() {
            let what = format!("the edit would change other stacks: {}", others.join(", "));
            return Err(UserError::new(ErrorKind::Layout, what)
                .hint("nothing was written; name these stacks too, or allow the edit with `--in base`"));
        }
        plans.sort_by(|a, b| a.stack.cmp(&b.stack));
        let mut plan = Plan {
            version: 1,
            stacks: plans,
        };
        redact::plan(&mut plan, &self.run.secrets);
        Ok(CodeChange {
            files,
            plan,
            stacks,
            revision,
        })
    }

    /// Returns a copy with only the edits of base files.
    fn base_edits(&self) -> Self {
        let mut base = self.clone();
        base.contents.retain(|path, _| !self.own.contains(path));
        if base.contents.len() < self.contents.len() {
            base.opened = None;
        }
        base
    }

    /// Returns true if the edits of this editor alone have the result `result` for a stack. `result` comes from all
    /// edits.
    async fn makes(&mut self, stack: &StackId, result: &Result<Spec, CompileError>) -> bool {
        !self.contents.is_empty()
            && match (self.spec(stack).await, result) {
                (Ok(made), Ok(result)) => made.digest() == result.digest(),
                (made, result) => made.is_err() && result.is_err(),
            }
    }

    fn difference(&self, stack: &Stack, old: &Spec, new: &Spec) -> StackPlan {
        let specs = ComparedSpecs { base: old, head: new };
        let mask = SpecMask::for_readers(&self.run.secrets);
        engine::plan_against_spec(&stack.id, &stack.folder, specs, None, mask)
    }
}

fn find_stack(revision: &OpenRevision, id: &StackId) -> Result<Stack, UserError> {
    let stack = revision.layout.stack(id).cloned();
    stack.ok_or_else(|| UserError::new(ErrorKind::Layout, format!("there is no stack {id} with the edit")))
}
