//! [`CodeEditor`]: an attribute gets another value in the file of a stack that sets it. The files are edited in memory;
//! the Specs before and after decide whether the edit is what was asked for.

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
use konverge_run::{ComparedRevisions, OpenRevision, RunContext, compiler::Compilers, redact};

/// The files in which an attribute may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EditPlace {
    /// In the stack's own files. An attribute that only the base sets is added to them.
    #[default]
    Stack,
    /// In the files of the project that its stacks share.
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

/// One edit of one stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedLine {
    /// The stack.
    pub stack: StackId,
    /// The file.
    pub file: RepoPath,
    /// The line of the value, from 1.
    pub line: u32,
    /// The attribute.
    pub path: AttributePath,
    /// The files that the edit was to change.
    pub place: EditPlace,
    /// The kind of the edit.
    pub kind: EditKind,
}

/// A file with its content before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditedFile {
    /// The file.
    pub path: RepoPath,
    /// Its content in the revision.
    pub before: Arc<[u8]>,
    /// The content to write.
    pub after: Arc<[u8]>,
}

/// Edits with what they do to the Specs. Nothing is written yet.
pub struct CodeChange {
    /// The files, sorted by path.
    pub files: Vec<EditedFile>,
    /// The differences of the Specs, masked.
    pub plan: Plan,
    /// The stacks whose Specs differ.
    pub stacks: Vec<Stack>,
    /// The revision with the edits.
    pub revision: Arc<OpenRevision>,
}

/// Edits files of one revision, in memory.
#[derive(Clone)]
pub struct CodeEditor<'a> {
    run: &'a RunContext,
    revisions: &'a ComparedRevisions,
    compilers: &'a Compilers,
    /// The contents that were edited so far.
    contents: BTreeMap<RepoPath, Arc<[u8]>>,
    /// The files that were edited for one stack only, not for all stacks that share the base.
    own: BTreeSet<RepoPath>,
    /// The revision with these contents, once it is needed.
    opened: Option<Arc<OpenRevision>>,
}

impl<'a> CodeEditor<'a> {
    /// An editor of the head of these revisions.
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

    /// The content of a file that was edited.
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

    /// Gives a file another content.
    fn edit(&mut self, path: RepoPath, content: Arc<[u8]>, place: EditPlace) {
        if place == EditPlace::Stack {
            self.own.insert(path.clone());
        }
        self.contents.insert(path, content);
        self.opened = None;
    }

    /// The revision with the edits so far.
    fn revision(&mut self) -> Result<Arc<OpenRevision>, UserError> {
        if let Some(opened) = &self.opened {
            return Ok(Arc::clone(opened));
        }
        let opened = Arc::new(self.revisions.edited(&self.contents)?);
        self.opened = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// The Spec of a stack with the edits so far.
    async fn spec(&mut self, stack: &StackId) -> Result<Spec, UserError> {
        if self.contents.is_empty() {
            let head = &self.revisions.head;
            let compiler = self.compilers.for_revision(head);
            return compiler.spec(&find_stack(head, stack)?).await;
        }
        let revision = self.revision()?;
        let stack = find_stack(&revision, stack)?;
        self.compilers.for_revision(&revision).spec(&stack).await
    }

    /// Compiles what the edits affect. The Specs of stacks that are not in `named` may differ by edits of the base alone.
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
                // A stack that was not named is fine if the edits change nothing: it fails to compile both times, or
                // the Specs are equal.
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
                .hint("nothing was written; name these stacks too, or allow it with `--in base`"));
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

    /// The edits of the base alone.
    fn base_edits(&self) -> Self {
        let mut base = self.clone();
        base.contents.retain(|path, _| !self.own.contains(path));
        if base.contents.len() < self.contents.len() {
            base.opened = None;
        }
        base
    }

    /// Returns true if these edits alone give a stack the result that it has with all edits.
    async fn makes(&mut self, stack: &StackId, result: &Result<Spec, UserError>) -> bool {
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
