//! [`prepare`]: makes the edits of a request in memory, and shows how the Specs change.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use crate::code_editor::{CodeChange, CodeEditor, EditPlace, EditedFile, EditedLine};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath, StackId,
        plan::{Plan, StackPlan},
        spec::Spec,
        stack::Stack,
    },
};
use konverge_kcl::AttributePath;
use konverge_repo::git::Repository;
use konverge_run::{
    ComparedRevisions, EarlyCompiler, OpenRevision, RevisionSpec, RunContext, StackSelector,
    compiler::Compilers,
};

/// The maximum number of characters of a title.
const TITLE: usize = 120;

/// The target of an edit, with its new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditTarget {
    /// Sets an attribute to a literal of KCL.
    Attribute(AttributePath, String),
    /// Sets the image of this name to a reference.
    Image(String, String),
}

/// One wanted edit of some stacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedEdit {
    /// The stacks to edit.
    pub stacks: Vec<StackSelector>,
    /// The attribute or image that is set.
    pub target: EditTarget,
    /// The files in which the target is set.
    pub place: EditPlace,
}

/// The prepared edits of a run.
pub struct PreparedEdits {
    /// The edited targets without their values: each stack, or project of a base, with each attribute.
    pub targets: BTreeSet<String>,
    /// Summary of the edits in one line.
    pub title: String,
    /// The edits, one for each stack and target.
    pub lines: Vec<EditedLine>,
    /// The differences of the Specs, masked.
    pub plan: Plan,
    /// The files to write, golden files among them, sorted by path.
    pub files: Vec<EditedFile>,
}

impl PreparedEdits {
    /// Adds the line of the edit to an error that has no line, if the error is about the file of the edit.
    #[must_use]
    pub fn locate(&self, failure: UserError) -> UserError {
        let place = failure.location.as_ref();
        let is_of = |line: &&EditedLine| place.is_none_or(|at| at.file == line.file.as_str());
        match self.lines.iter().find(is_of) {
            Some(line) if place.is_none_or(|at| at.line.is_none()) => {
                failure.at(line.file.to_string(), Some(line.line), None)
            }
            _ => failure,
        }
    }
}

/// Request for edits.
#[derive(Debug, Clone, PartialEq)]
pub enum SetRequest {
    /// The given edits.
    Edits(Vec<WantedEdit>),
    /// The live values of a drifted stack, which the code should keep.
    Keep(Box<StackPlan>),
}

/// Returns the golden file of a stack of a checkout with the text for its Spec; `None` if there is nothing to write.
pub type UpdatedGolden =
    fn(&RunContext, &OpenRevision, &Path, &Stack, &Spec) -> Result<Option<(RepoPath, String)>, UserError>;

/// Edits the files of a revision in memory. With `goldens`, the golden files of the stacks follow.
///
/// # Errors
/// A stack is unknown, an edit is refused, a Spec does not compile, or the edits change other stacks.
pub async fn prepare(
    run: &RunContext,
    repository: &Repository,
    at: &RevisionSpec,
    request: &SetRequest,
    goldens: Option<UpdatedGolden>,
) -> Result<PreparedEdits, UserError> {
    // Start the workers now, so that they are ready when the revisions are open.
    let early = (*at == RevisionSpec::Worktree).then(|| EarlyCompiler::start(run, repository.root()));
    let revisions = ComparedRevisions::open(run, repository, at, None)?;
    revisions.save_head();
    let config = &revisions.head.config;
    let compilers = match early {
        Some(early) => early.into_compilers(run, config),
        None => Arc::new(Compilers::new(run, config)),
    };
    let mut editor = CodeEditor::new(run, &revisions, &compilers);
    let mut edited = match request {
        SetRequest::Edits(edits) => apply_edits(run, repository, &revisions.head, &mut editor, edits).await?,
        SetRequest::Keep(drift) => keep(&revisions.head, &mut editor, drift).await?,
    };
    let change = editor.finish(&edited.stacks).await?;
    let mut files = change.files.clone();
    if let Some(updated) = goldens {
        files.extend(golden_files(run, repository, &compilers, &change, updated).await?);
        files.sort_by(|a, b| a.path.cmp(&b.path));
    }
    // A title is one line, but a reference or a path may contain control characters.
    edited.title.retain(|letter| !letter.is_control());
    Ok(PreparedEdits {
        targets: edited.targets,
        title: edited.title.chars().take(TITLE).collect(),
        lines: edited.lines,
        plan: change.plan,
        files,
    })
}

/// Edits of all stacks, collected before they are written.
#[derive(Default)]
struct Edited {
    stacks: BTreeSet<StackId>,
    targets: BTreeSet<String>,
    title: String,
    lines: Vec<EditedLine>,
}

impl Edited {
    /// Adds an edit. The same attribute has the same target, whichever request asked for it.
    fn add(&mut self, stack: &Stack, line: EditedLine) {
        let whose = match line.place {
            EditPlace::Stack => format!("stack {}", stack.id),
            EditPlace::Base => format!("base {}", stack.project_folder),
        };
        self.targets.insert(format!("{whose} path {}", line.path));
        self.lines.push(line);
    }
}

async fn apply_edits(
    run: &RunContext,
    repository: &Repository,
    head: &OpenRevision,
    editor: &mut CodeEditor<'_>,
    edits: &[WantedEdit],
) -> Result<Edited, UserError> {
    let mut edited = Edited::default();
    for edit in edits {
        for stack in head.find_stacks(run, repository.root(), &edit.stacks)? {
            run.check_interrupted()?;
            let done = match &edit.target {
                EditTarget::Attribute(path, value) => {
                    let set = editor.set_attribute(&stack, path, value, edit.place);
                    set.await.map(Some)
                }
                EditTarget::Image(name, reference) => {
                    editor.set_image(&stack, name, reference, edit.place).await
                }
            };
            let line = done.map_err(|failure| failure.context(format!("stack {}", stack.id)))?;
            if let Some(line) = line {
                edited.add(&stack, line);
            }
            edited.stacks.insert(stack.id);
        }
    }
    let what = match edits {
        [edit] => match &edit.target {
            EditTarget::Attribute(path, _) => format!("Set {path}"),
            EditTarget::Image(_, reference) => format!("Set the image {reference}"),
        },
        many => format!("Set {} attributes", many.len()),
    };
    let stacks: Vec<_> = edited.stacks.iter().collect();
    edited.title = match stacks.as_slice() {
        [stack] => format!("{what} of {stack}"),
        many => format!("{what} of {} stacks", many.len()),
    };
    Ok(edited)
}

async fn keep(
    head: &OpenRevision,
    editor: &mut CodeEditor<'_>,
    drift: &StackPlan,
) -> Result<Edited, UserError> {
    let id = &drift.id;
    let stack = head.layout.stack(id).cloned().ok_or_else(|| {
        UserError::new(
            ErrorKind::Layout,
            format!("the stack {id} is not in this revision"),
        )
        .hint("restore the difference: a removed stack has no code into which it could be written")
    })?;
    let mut edited = Edited {
        stacks: BTreeSet::from([id.clone()]),
        title: format!("Keep what was changed by hand in {id}"),
        ..Edited::default()
    };
    for line in editor.keep_hotfix(&stack, drift).await? {
        edited.add(&stack, line);
    }
    Ok(edited)
}

async fn golden_files(
    run: &RunContext,
    repository: &Repository,
    compilers: &Compilers,
    change: &CodeChange,
    updated: UpdatedGolden,
) -> Result<Vec<EditedFile>, UserError> {
    let mut files = Vec::new();
    for stack in &change.stacks {
        let spec = compilers.for_revision(&change.revision).spec(stack).await?;
        let golden = updated(run, &change.revision, repository.root(), stack, &spec)?;
        let Some((path, text)) = golden else { continue };
        let before = change.revision.source.read_path(&path);
        let before = before?;
        files.push(EditedFile {
            path,
            before: before.unwrap_or_default(),
            after: text.into_bytes().into(),
        });
    }
    Ok(files)
}
