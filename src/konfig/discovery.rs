//! [`LayoutReader`]: finds projects and stacks among the files of a revision. It reads each small file once,
//! however many stacks or revisions share it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    FileTreeView, Layout, LayoutError, LayoutRules, Project, Settings, SettingsOrder,
    changes::UnchangedLayout,
    compile_setup,
    exclusion::{self, Exclusion},
    kcl_mod::KclMod,
    manifests::{self, ProjectDocument, StackDocument},
};
use crate::{
    model::{
        RepoPath, StackId,
        file_source::{BlobId, FileKind, SourceError},
        stack::{NamedBy, SetupError, Stack},
    },
    yaml::YamlError,
};

/// Reads layouts. Parsed files are cached by content, so that a second revision costs only what changed.
#[derive(Default)]
pub struct LayoutReader {
    parsed: Mutex<HashMap<(BlobId, Class), Parsed>>,
}

/// How a file is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    Project,
    Stack,
    Settings,
    Module,
}

/// A parsed file.
#[derive(Clone)]
enum Parsed {
    Project(Result<Arc<ProjectDocument>, YamlError>),
    Stack(Result<Arc<StackDocument>, YamlError>),
    Settings(Result<Arc<Settings>, YamlError>),
    Module(Result<Arc<KclMod>, String>),
}

/// The number of threads that read and parse: as many as CI machines have cores.
const READERS: usize = 2;

impl LayoutReader {
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the layout of a revision by the rules of its configuration.
    ///
    /// # Errors
    /// As [`Layout::read`].
    pub fn layout(&self, tree: &FileTreeView, rules: &LayoutRules) -> Result<Layout, LayoutError> {
        tree.will_be_read_whole();
        self.layout_with(tree, rules, None)
    }

    /// As [`LayoutReader::layout`]; the valid parts of another revision's layout are not read again.
    pub(super) fn layout_with(
        &self,
        tree: &FileTreeView,
        rules: &LayoutRules,
        held: Option<&UnchangedLayout<'_>>,
    ) -> Result<Layout, LayoutError> {
        self.prefetch(tree, held)?;
        let mut layout = Layout {
            has_module: tree.has_module(),
            has_globs: held.is_some_and(UnchangedLayout::has_globs),
            ..Layout::default()
        };
        let (mut project_folders, mut stack_folders) = (Vec::new(), Vec::new());
        for (path, entry) in tree.source().files() {
            if entry.kind == FileKind::Submodule && tree.files_below(path).next().is_none() {
                layout.unseen.push(not_checked_out(path.clone()));
            }
            let folders = match path.file_name() {
                "project.yaml" => &mut project_folders,
                "stack.yaml" => &mut stack_folders,
                _ => continue,
            };
            if tree.is_file(path) {
                folders.extend(path.parent());
            }
        }
        layout.packages = match held {
            Some(held) => held.packages().to_vec(),
            None => exclusion::packages(self, tree)?,
        };
        let exclusion = Exclusion::new(&layout.packages, &rules.exclude);
        let stack_folders = layout.leave_out(&exclusion, &mut project_folders, stack_folders);
        let mut projects = BTreeMap::new();
        for folder in project_folders {
            let (project, broken) = match held.and_then(|held| held.project(&folder)) {
                Some(project) => (project.clone(), None),
                None => self.project(tree, folder, &mut layout)?,
            };
            projects.insert(project.folder.clone(), (project, broken));
        }
        let mut previous: Option<RepoPath> = None;
        for folder in stack_folders {
            let inside = previous.as_ref().filter(|above| folder.is_within(above)).cloned();
            let Some((project, broken)) = folder.ancestors().find_map(|above| projects.get(&above)) else {
                layout.problems.push(SetupError {
                    file: folder.child("stack.yaml"),
                    line: None,
                    column: None,
                    message:
                        "this stack belongs to no project: no folder at or above it holds a `project.yaml`"
                            .to_owned(),
                });
                continue;
            };
            let mut stack = match held.and_then(|held| held.stack(&folder, project)) {
                Some(stack) => stack.clone(),
                None => self.stack(tree, &folder, project, rules.order, &mut layout)?,
            };
            if let Some(error) = broken {
                stack.compile = Err(error.clone());
                layout.is_unseen_by(error);
            }
            match inside {
                Some(above) => {
                    let error = SetupError {
                        file: folder.child("stack.yaml"),
                        line: None,
                        column: None,
                        message: format!(
                            "this stack lies inside the stack `{above}`: stacks must not be nested"
                        ),
                    };
                    layout.problems.push(error.clone());
                    stack.compile = Err(error);
                }
                None => previous = Some(folder),
            }
            layout.stacks.push(stack);
        }
        layout.projects = projects.into_values().map(|(project, _)| project).collect();
        layout.stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
        layout.settle_identities(&rules.identities);
        let place = |problem: &SetupError| (problem.file.clone(), problem.message.clone());
        layout.problems.sort_by_key(place);
        Ok(layout)
    }

    /// A project, and the error in its file. With an error the identities of its stacks are unknown, if it
    /// has any: other tools also have files of this name.
    fn project(
        &self,
        tree: &FileTreeView,
        folder: RepoPath,
        layout: &mut Layout,
    ) -> Result<(Project, Option<SetupError>), SourceError> {
        let file = folder.child("project.yaml");
        let document = match self.parse_cached(tree, &file, Class::Project)? {
            Some(Parsed::Project(document)) => document,
            _ => Ok(Arc::default()),
        };
        let mut broken = None;
        let document = document.unwrap_or_else(|error| {
            broken = Some(layout.problem(file.clone(), Some(&error), &error.message));
            Arc::default()
        });
        if document.name.is_none() && broken.is_none() {
            broken = Some(layout.problem(file, None, "a project needs a `name`"));
        }
        let name = document
            .name
            .clone()
            .unwrap_or_else(|| folder.file_name().to_owned());
        let tenant = document.tenant.clone();
        Ok((Project { folder, name, tenant }, broken))
    }

    fn stack(
        &self,
        tree: &FileTreeView,
        folder: &RepoPath,
        project: &Project,
        order: SettingsOrder,
        layout: &mut Layout,
    ) -> Result<Stack, SourceError> {
        let file = folder.child("stack.yaml");
        let document = match self.parse_cached(tree, &file, Class::Stack)? {
            Some(Parsed::Stack(document)) => document,
            _ => Ok(Arc::default()),
        };
        let mut broken: Option<SetupError> = None;
        let document = document.unwrap_or_else(|error| {
            broken = Some(layout.unreadable(file.clone(), &error));
            Arc::default()
        });
        let name = match &document.name {
            Some(name) => name.as_str(),
            None => {
                if broken.is_none() {
                    broken = Some(layout.unnamed(file.clone(), "a stack needs a `name`"));
                }
                folder.file_name()
            }
        };
        let id = StackId::new(project.tenant.as_deref(), &project.name, name).unwrap_or_else(|error| {
            broken = Some(layout.unnamed(file.clone(), &error.to_string()));
            guessed_identity(folder)
        });
        let cluster = match document.cluster.as_deref().map(str::parse).transpose() {
            Ok(cluster) => cluster,
            Err(error) => {
                broken = Some(layout.problem(file, None, &format!("{error}")));
                None
            }
        };
        let compile = match broken {
            Some(error) => Err(error),
            None => {
                let setup = compile_setup::build_setup(self, tree, order, folder, &project.folder)?;
                layout.has_globs |= setup.globs;
                setup.compile
            }
        };
        if let Err(error) = &compile
            && !layout.problems.contains(error)
        {
            layout.problems.push(error.clone());
        }
        Ok(Stack {
            names: id.clone(),
            id,
            named_by: NamedBy::Names,
            folder: folder.clone(),
            project_folder: project.folder.clone(),
            compile,
            cluster,
            kubeconfig: document.kubeconfig.clone(),
        })
    }

    pub(super) fn settings(
        &self,
        tree: &FileTreeView,
        file: &RepoPath,
    ) -> Result<Option<Result<Arc<Settings>, YamlError>>, SourceError> {
        Ok(match self.parse_cached(tree, file, Class::Settings)? {
            Some(Parsed::Settings(settings)) => Some(settings),
            _ => None,
        })
    }

    pub(super) fn module(
        &self,
        tree: &FileTreeView,
        file: &RepoPath,
    ) -> Result<Option<Result<Arc<KclMod>, String>>, SourceError> {
        Ok(match self.parse_cached(tree, file, Class::Module)? {
            Some(Parsed::Module(module)) => Some(module),
            _ => None,
        })
    }

    fn parse_cached(
        &self,
        tree: &FileTreeView,
        file: &RepoPath,
        class: Class,
    ) -> Result<Option<Parsed>, SourceError> {
        let Some((_, entry)) = tree.file(file) else {
            return Ok(None);
        };
        let key = (entry.blob, class);
        if let Some(parsed) = self
            .parsed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&key)
        {
            return Ok(Some(parsed.clone()));
        }
        let parsed = class.parse(&tree.source().read(entry.blob)?);
        let mut memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(memo.entry(key).or_insert(parsed).clone()))
    }

    /// Reads every small file of the layout, on several threads, each content once.
    fn prefetch(&self, tree: &FileTreeView, held: Option<&UnchangedLayout<'_>>) -> Result<(), SourceError> {
        let mut wanted: Vec<(BlobId, Class)> = Vec::new();
        let files = tree.source().files().iter();
        for (path, entry) in files.filter(|(path, _)| held.is_none_or(|held| held.lacks(path))) {
            let class = match path.file_name() {
                "project.yaml" => Class::Project,
                "stack.yaml" => Class::Stack,
                "kcl.yaml" => Class::Settings,
                "settings.yaml" if path.as_str().ends_with("ci-test/settings.yaml") => Class::Settings,
                "kcl.mod" => Class::Module,
                _ => continue,
            };
            if entry.kind == FileKind::File {
                wanted.push((entry.blob, class));
            }
        }
        {
            // In the order of their paths: neighbours are often stored as deltas of one another.
            let memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
            let mut met = HashSet::new();
            wanted.retain(|key| !memo.contains_key(key) && met.insert(*key));
        }
        let read_some = |keys: &[(BlobId, Class)]| -> Result<Vec<_>, SourceError> {
            keys.iter()
                .map(|(blob, class)| Ok(((*blob, *class), class.parse(&tree.source().read(*blob)?))))
                .collect()
        };
        let parts: Vec<Result<Vec<_>, SourceError>> = if wanted.len() < 64 {
            vec![read_some(&wanted)]
        } else {
            std::thread::scope(|scope| {
                let readers: Vec<_> = wanted
                    .chunks(wanted.len().div_ceil(READERS))
                    .map(|chunk| scope.spawn(|| read_some(chunk)))
                    .collect();
                readers
                    .into_iter()
                    .map(|reader| reader.join().expect("a reader parses or returns its error"))
                    .collect()
            })
        };
        let mut memo = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            memo.extend(part?);
        }
        Ok(())
    }
}

impl Class {
    fn parse(self, bytes: &[u8]) -> Parsed {
        match self {
            Self::Project => Parsed::Project(manifests::parse(bytes).map(Arc::new)),
            Self::Stack => Parsed::Stack(manifests::parse(bytes).map(Arc::new)),
            Self::Settings => Parsed::Settings(Settings::parse(bytes).map(Arc::new)),
            Self::Module => Parsed::Module(KclMod::parse(bytes).map(Arc::new)),
        }
    }
}

impl Layout {
    /// Returns the folders that define stacks, sorted, and removes projects without stacks.
    fn leave_out(
        &mut self,
        exclusion: &Exclusion,
        projects: &mut Vec<RepoPath>,
        mut stacks: Vec<RepoPath>,
    ) -> Vec<RepoPath> {
        stacks.sort();
        let all: HashSet<RepoPath> = projects.iter().cloned().collect();
        let project = |folder: &RepoPath| folder.ancestors().find(|above| all.contains(above));
        stacks.retain(|folder| {
            let project = project(folder);
            let leaves_out = exclusion.leaves_out(folder, project.as_ref());
            if leaves_out {
                self.left_out.push(folder.clone());
                if let Some(package) = exclusion.used_package(folder, project.as_ref()) {
                    self.in_packages.push((folder.clone(), package.clone()));
                }
            }
            !leaves_out
        });
        if !self.left_out.is_empty() {
            let used: HashSet<RepoPath> = stacks.iter().filter_map(project).collect();
            let without: HashSet<RepoPath> = self.left_out.iter().filter_map(project).collect();
            projects.retain(|folder| used.contains(folder) || !without.contains(folder));
        }
        stacks
    }

    fn problem(&mut self, file: RepoPath, place: Option<&YamlError>, message: &str) -> SetupError {
        let error = SetupError {
            file,
            line: place.and_then(|error| error.line),
            column: place.and_then(|error| error.column),
            message: message.to_owned(),
        };
        self.problems.push(error.clone());
        error
    }

    fn unreadable(&mut self, file: RepoPath, error: &YamlError) -> SetupError {
        let error = self.problem(file, Some(error), &error.message);
        self.is_unseen_by(&error);
        error
    }

    fn unnamed(&mut self, file: RepoPath, message: &str) -> SetupError {
        let error = self.problem(file, None, message);
        self.is_unseen_by(&error);
        error
    }

    fn is_unseen_by(&mut self, error: &SetupError) {
        if !self.unseen.contains(error) {
            self.unseen.push(error.clone());
        }
    }
}

/// The error for a submodule without files: its stacks exist but are unknown.
fn not_checked_out(file: RepoPath) -> SetupError {
    SetupError {
        file,
        line: None,
        column: None,
        message: "this submodule is not checked out, so stacks in it cannot be seen; in the workflow, give actions/checkout `submodules: true`, elsewhere run `git submodule update --init`".to_owned(),
    }
}

/// A placeholder identity for a stack whose own is unknown. It is derived from the folder, so that it is
/// unique.
fn guessed_identity(folder: &RepoPath) -> StackId {
    let clean: String = folder
        .as_str()
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || "-_.".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(150)
        .collect();
    StackId::new(None, "unnamed", &format!("at-{clean}")).expect("made of allowed characters only")
}
