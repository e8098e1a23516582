//! The repository that an editor has open, with its index in memory: a request needs no new analysis of files that were
//! not saved.

mod reached_stacks;
mod resource_lines;
mod saved_state;
mod shown_texts;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        file_source::{FileKind, WrittenPaths},
        lint::Diagnostic,
        stack::Stack,
    },
};
use konverge_lsp::{EditorView, EditorWorkspace, FileImpact, ResourceView, ShownText};
use konverge_repo::{git::Repository, konfig::Changes};
use konverge_run::{AnalysisCache, OpenRevision, RevisionSpec, RunContext, compiler::Compilers};

use super::{
    check::{self, CheckScope, FileScope},
    file_events::FileEvents,
    selected_stacks::SelectedStacks,
};
use reached_stacks::ReachedStacks;
use saved_state::SavedState;
use shown_texts::ShownFolder;

/// A session of an editor.
pub struct EditorSession {
    run: RunContext,
    folder: Mutex<PathBuf>,
    opened: Mutex<Option<OpenedRepository>>,
    shown: ShownFolder,
}

/// An opened repository, which stays open between two messages.
struct OpenedRepository {
    repository: Repository,
    /// Events of files in the working tree; `None` if the system has none, so that all files are read each time.
    files: Option<FileEvents<'static>>,
    view: SavedState,
    /// The reached stacks, by the edited file.
    reached: HashMap<RepoPath, Option<Arc<ReachedStacks>>>,
}

impl EditorSession {
    /// A session without a repository.
    #[must_use]
    pub fn new(run: RunContext) -> Self {
        Self {
            folder: Mutex::new(run.dir.clone()),
            run,
            opened: Mutex::default(),
            shown: ShownFolder::default(),
        }
    }

    fn opened(&self) -> MutexGuard<'_, Option<OpenedRepository>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> Result<SavedState, UserError> {
        let opened = self.opened();
        let opened = opened.as_ref().ok_or_else(|| {
            UserError::new(ErrorKind::Git, "no repository is open")
                .hint("open a folder of a Konfig repository")
        })?;
        Ok(opened.view.clone())
    }

    /// Returns the stacks that an edit of a file reaches; `None` if there is no such file.
    fn reached(&self, file: &RepoPath) -> Result<Option<Arc<ReachedStacks>>, UserError> {
        let (known, head) = match self.opened().as_ref() {
            None => return Ok(None),
            Some(opened) => match opened.reached.get(file) {
                Some(reached) => return Ok(reached.clone()),
                None => (Arc::clone(&opened.view.known), Arc::clone(&opened.view.head)),
            },
        };
        // Compute without holding the lock, so that a check of many files delays no lens.
        let affected = head.affected_by_edit(&known, file)?;
        let reached = affected.map(|affected| Arc::new(ReachedStacks::new(&head, file, affected)));
        if let Some(opened) = self
            .opened()
            .as_mut()
            .filter(|opened| Arc::ptr_eq(&opened.view.head, &head))
        {
            opened.reached.insert(file.clone(), reached.clone());
        }
        Ok(reached)
    }

    /// Returns the stacks that an edit of a file reaches, or an error if there are none.
    fn some_reached(&self, file: &RepoPath) -> Result<Arc<ReachedStacks>, UserError> {
        let reached = self.reached(file)?;
        reached
            .filter(|reached| !reached.nearest.is_empty())
            .ok_or_else(|| {
                UserError::new(ErrorKind::Usage, format!("no stack uses {file}"))
                    .hint("open a file of a stack, or one that a stack imports")
            })
    }
}

impl OpenedRepository {
    fn open(run: &RunContext, folder: &Path) -> Result<Self, UserError> {
        let run = RunContext {
            dir: folder.to_owned(),
            ..run.clone()
        };
        let repository = Repository::discover(folder)?;
        let ignores = repository.clone();
        let files = FileEvents::start(repository.root(), move |path| ignores.ignores(path));
        let known = AnalysisCache::open(&run, &repository);
        let head = OpenRevision::open_knowing(&known, &repository, &RevisionSpec::Worktree, None)?;
        head.layout.require_module()?;
        known.save(&head);
        Ok(Self {
            view: SavedState {
                compilers: Arc::new(Compilers::new(&run, &head.config)),
                root: repository.root().to_owned(),
                head: Arc::new(head),
                known: Arc::new(known),
                run,
            },
            repository,
            files: files.ok(),
            reached: HashMap::new(),
        })
    }

    /// Reads the working tree again if something was written in it.
    fn read_written(&mut self) -> Result<Option<OpenRevision>, UserError> {
        let written = self.files.as_mut().and_then(|files| files.take_written().ok());
        let written = written.unwrap_or(WrittenPaths::Unknown);
        if matches!(&written, WrittenPaths::Known(paths) if paths.is_empty()) {
            return Ok(None);
        }
        let SavedState { head, known, .. } = &self.view;
        let read = head.after_writes(known, &self.repository, &written);
        known.forget_earlier();
        let read = read.and_then(|head| {
            head.layout.require_module()?;
            Ok(Some(head))
        });
        if let (Err(_), Some(files)) = (&read, &mut self.files) {
            files.lose_track();
        }
        read
    }

    fn refresh(&mut self) -> Result<bool, UserError> {
        let Some(head) = self.read_written()? else {
            return Ok(false);
        };
        let before = &self.view.head;
        let changes = Changes::compute(before.analysis.tree(), head.analysis.tree());
        if changes.paths.is_empty() {
            return Ok(false);
        }
        if before.config != head.config {
            self.view.compilers = Arc::new(Compilers::new(&self.view.run, &head.config));
        }
        self.reached.clear();
        // If only one program was saved, its affected stacks are computed here already: keep them for the lens.
        let mut changed = changes.paths.into_iter();
        if let (Some(file), None) = (changed.next(), changed.next())
            && is_program(before, &file)
            && is_program(&head, &file)
        {
            let affected = head.analysis.compare(&before.analysis);
            let reached = ReachedStacks::new(&head, &file, affected);
            self.reached.insert(file, Some(Arc::new(reached)));
        }
        self.view.head = Arc::new(head);
        Ok(true)
    }
}

/// Returns true for a KCL file. A change of another file, such as a `stack.yaml`, may change which stacks there are.
fn is_program(revision: &OpenRevision, file: &RepoPath) -> bool {
    let entry = revision.source.files().get(file);
    file.file_name().ends_with(".k") && entry.is_some_and(|entry| entry.kind == FileKind::File)
}

#[async_trait(?Send)]
impl EditorWorkspace for EditorSession {
    fn open(&self, folder: &Path) -> Result<(), UserError> {
        *self.folder.lock().unwrap_or_else(PoisonError::into_inner) = folder.to_owned();
        *self.opened() = Some(OpenedRepository::open(&self.run, folder)?);
        Ok(())
    }

    fn root(&self) -> Option<PathBuf> {
        Some(self.opened().as_ref()?.view.root.clone())
    }

    fn refresh(&self) -> Result<bool, UserError> {
        if let Some(opened) = self.opened().as_mut() {
            return opened.refresh();
        }
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.open(&folder).map(|()| true)
    }

    fn impact(&self, file: &RepoPath) -> Result<Option<FileImpact>, UserError> {
        Ok(self.reached(file)?.map(|reached| reached.impact()))
    }

    fn saved_text(&self, file: &RepoPath) -> Option<String> {
        let head = self.view().ok()?.head;
        let entry = head
            .source
            .files()
            .get(file)
            .filter(|entry| entry.kind == FileKind::File)?;
        let content = head.source.read(entry.blob).ok()?;
        Some(String::from_utf8_lossy(&content).into_owned())
    }

    async fn check(&self, files: &[RepoPath]) -> Result<Vec<Diagnostic>, UserError> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let mut stacks: Vec<Stack> = Vec::new();
        for file in files {
            let reached = self.reached(file)?;
            stacks.extend(reached.iter().flat_map(|reached| reached.nearest.iter().cloned()));
        }
        stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
        stacks.dedup_by(|a, b| a.folder == b.folder);
        let view = self.view()?;
        let selected = SelectedStacks {
            workspace: Arc::clone(&view.head),
            stacks,
            base: None,
            known: view.known,
        };
        let scope = CheckScope {
            files: FileScope::Stacks,
            also: files,
            ..CheckScope::default()
        };
        let report = check::run_with(&view.run, &view.compilers, &selected, &view.root, scope).await?;
        let mut found = report.remarks;
        for finding in &mut found {
            finding.message = view.run.secrets.mask(&finding.message);
            finding.hint = finding.hint.as_deref().map(|hint| view.run.secrets.mask(hint));
        }
        Ok(found)
    }

    async fn show(&self, view: EditorView, file: &RepoPath) -> Result<ShownText, UserError> {
        let (saved, reached) = (self.view()?, self.some_reached(file)?);
        let text = match view {
            EditorView::Chain => shown_texts::chain(file, &reached),
            EditorView::Spec => shown_texts::specs(&saved, &reached).await?,
            EditorView::Preview => shown_texts::preview(&saved, &reached).await?,
        };
        self.shown
            .write(view, file, saved.run.secrets.mask_finished(&text))
    }

    async fn resource(&self, file: &RepoPath, mention: &str) -> Result<Option<ResourceView>, UserError> {
        let view = self.view()?;
        let Some(reached) = self.reached(file)? else {
            return Ok(None);
        };
        resource_lines::find(&view, &reached, mention).await
    }
}
