//! [`LayoutReader`]: finds the projects and stacks among the files of a revision. Each small file is parsed once, even
//! if several stacks or revisions share it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use super::{
    Changes, EarlierNames, FileTreeView, Layout, LayoutError, LayoutRules, Project, SettingsOrder,
    compile_setup, dependencies,
    exclusion::{self, Exclusion},
    manifests::{StackManifest, WrittenName},
    package_stacks::{self, PackageStacks},
    parsed_files::ParsedFiles,
    setup_failure::SetupFailure,
    unchanged_layout::UnchangedLayout,
};
use konverge_base::{
    model::{
        RepoPath, StackId,
        file_source::{FileKind, Source, SourceError},
        stack::{CompileSetup, Entry, NamedBy, SetupError, Stack},
        stack_output::StackReads,
    },
    yaml::YamlError,
};

/// Reads layouts. Parsed files are cached by content, so that only the differences of a second revision are read.
#[derive(Default)]
pub struct LayoutReader {
    files: ParsedFiles,
}

impl LayoutReader {
    /// Creates a reader with an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the layout of a revision by the rules of its configuration.
    ///
    /// # Errors
    /// See [`Layout::read`].
    pub fn layout(&self, tree: &FileTreeView, rules: &LayoutRules) -> Result<Layout, LayoutError> {
        tree.will_be_read_whole();
        self.layout_with(tree, rules, None)
    }

    /// Reads the layout as [`LayoutReader::layout`] does, but takes over the valid parts of another revision's layout.
    fn layout_with(
        &self,
        tree: &FileTreeView,
        rules: &LayoutRules,
        held: Option<&UnchangedLayout<'_>>,
    ) -> Result<Layout, LayoutError> {
        self.files
            .prefetch(tree, |path| held.is_none_or(|held| held.must_read(path)))?;
        let mut layout = Layout {
            has_module: tree.has_module(),
            has_globs: held.is_some_and(UnchangedLayout::has_globs),
            ..Layout::default()
        };
        let (mut project_folders, mut stack_folders) = (Vec::new(), Vec::new());
        for (path, entry) in tree.source().files() {
            // A submodule that is not checked out may contain stacks, so a missing identity proves nothing any more.
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
            None => exclusion::packages(&self.files, tree)?,
        };
        // Excluded folders are removed first, so that a broken file in an example is not reported.
        let exclusion = Exclusion::new(&layout.packages, &rules.exclude);
        let included = PackageStacks::find(tree, &rules.include, &layout.packages, &project_folders);
        project_folders.extend(included.projects.iter().cloned());
        stack_folders.extend(included.folders.iter().cloned());
        let stack_folders = layout.leave_out(&exclusion, &mut project_folders, stack_folders);
        let mut projects = BTreeMap::new();
        for folder in project_folders {
            let known = held.and_then(|held| held.project(&folder)).cloned();
            let (project, broken) = match known.or_else(|| included.project(&folder)) {
                Some(project) => (project, None),
                None => self.project(tree, folder, &mut layout)?,
            };
            projects.insert(project.folder.clone(), (project, broken));
        }
        // The folders are sorted, so a stack that contains this one was handled just before.
        let mut previous: Option<RepoPath> = None;
        for folder in stack_folders {
            let inside = previous.as_ref().filter(|above| folder.is_within(above)).cloned();
            let Some((project, broken)) = folder.ancestors().find_map(|above| projects.get(&above)) else {
                layout.problems.push(SetupError::new(
                    folder.child("stack.yaml"),
                    "this stack belongs to no project: no folder at or above it holds a `project.yaml`",
                ));
                continue;
            };
            let mut stack = match held.and_then(|held| held.stack(&folder, project)) {
                Some(stack) => stack.clone(),
                None => {
                    let is_package = included.folders.binary_search(&folder).is_ok();
                    let manifest = folder.child(if is_package { "kcl.mod" } else { "stack.yaml" });
                    self.stack(tree, &folder, manifest, project, rules.order, &mut layout)?
                }
            };
            // The names of a broken project decide the identities of its stacks, so none of them may be compiled or
            // compared.
            if let Some(error) = broken {
                stack.compile = Err(error.clone());
                layout.is_unseen_by(error);
            }
            match inside {
                Some(above) => {
                    let error = SetupError::new(
                        stack.manifest.clone(),
                        format!("this stack lies inside the stack `{above}`: stacks must not be nested"),
                    );
                    layout.problems.push(error.clone());
                    stack.compile = Err(error);
                }
                None => previous = Some(folder),
            }
            layout.stacks.push(stack);
        }
        // Identities can be assigned only now, because they depend on the names of all stacks.
        layout.projects = projects.into_values().map(|(project, _)| project).collect();
        layout.stacks.sort_by(|a, b| a.folder.cmp(&b.folder));
        layout.assign_identities(&rules.identities);
        let place = |problem: &SetupError| (problem.file.clone(), problem.message.clone());
        layout.problems.sort_by_key(place);
        Ok(layout)
    }

    /// Reads the layout as [`LayoutReader::layout`] does, but reuses the layout of another revision: only differences
    /// are read.
    ///
    /// # Errors
    /// See [`Layout::read`].
    pub fn layout_after(
        &self,
        before: &Arc<Layout>,
        changes: &Changes,
        tree: &FileTreeView,
        rules: &LayoutRules,
    ) -> Result<Arc<Layout>, LayoutError> {
        match UnchangedLayout::from_layout(before, changes) {
            Some(held) if held.is_whole() => Ok(Arc::clone(before)),
            held => self.layout_with(tree, rules, held.as_ref()).map(Arc::new),
        }
    }

    /// Returns the compiler setup for the files in a folder that is not a stack, such as tests.
    ///
    /// # Errors
    /// A file is missing in the object database, or a file of the folder is invalid.
    pub fn folder_setup(
        &self,
        tree: &FileTreeView,
        folder: &RepoPath,
        entries: Vec<Entry>,
    ) -> Result<CompileSetup, SetupFailure> {
        let mut setup = CompileSetup {
            work_dir: folder.clone(),
            module_root: tree.module_root(folder),
            entries,
            ..CompileSetup::default()
        };
        dependencies::add(&self.files, tree, &mut setup)?;
        Ok(setup)
    }

    /// Returns a project, and the error in its file. With an error the identities of its stacks are unknown. There may
    /// be no stacks, because other tools also use a file of this name.
    fn project(
        &self,
        tree: &FileTreeView,
        folder: RepoPath,
        layout: &mut Layout,
    ) -> Result<(Project, Option<SetupError>), SourceError> {
        let file = folder.child("project.yaml");
        let document = self.files.projects.get(tree, &file)?;
        let document = document.unwrap_or_else(|| Ok(Arc::default()));
        let mut broken = None;
        let document = document.unwrap_or_else(|error| {
            broken = Some(layout.problem(file.clone(), Some(&error), &error.message));
            Arc::default()
        });
        if document.name.is_none() && broken.is_none() {
            broken = Some(layout.problem(file, None, "a project needs a `name`"));
        }
        let (name, tenant) = (document.name.as_ref(), document.tenant.as_ref());
        let folder_name = || folder.file_name().to_owned();
        let earlier = EarlierNames {
            tenant: tenant.map(|tenant| tenant.earlier().to_owned()),
            name: name.map_or_else(folder_name, |name| name.earlier().to_owned()),
        };
        let project = Project {
            name: name.map_or_else(folder_name, |name| name.text.clone()),
            tenant: tenant.map(|tenant| tenant.text.clone()),
            earlier: [name, tenant]
                .into_iter()
                .flatten()
                .any(|name| name.earlier.is_some())
                .then_some(earlier),
            folder,
        };
        Ok((project, broken))
    }

    fn stack(
        &self,
        tree: &FileTreeView,
        folder: &RepoPath,
        file: RepoPath,
        project: &Project,
        order: SettingsOrder,
        layout: &mut Layout,
    ) -> Result<Stack, SourceError> {
        let document = match file.file_name() {
            "kcl.mod" => Some(Ok(Arc::new(StackManifest {
                name: Some(WrittenName {
                    text: package_stacks::name(folder, &project.folder).to_owned(),
                    earlier: None,
                }),
                ..StackManifest::default()
            }))),
            _ => self.files.stacks.get(tree, &file)?,
        };
        let document = document.unwrap_or_else(|| Ok(Arc::default()));
        let mut broken: Option<SetupError> = None;
        // From here on errors do not return: the stack must stay in the layout, or it would look like a removed one.
        let document = document.unwrap_or_else(|error| {
            broken = Some(layout.unreadable(file.clone(), &error));
            Arc::default()
        });
        let name = match &document.name {
            Some(name) => name.text.as_str(),
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
                broken = Some(layout.problem(file.clone(), None, &format!("{error}")));
                None
            }
        };
        let reads = read_stacks(&document.reads).unwrap_or_else(|why| {
            broken = Some(layout.problem(file.clone(), None, &why));
            StackReads::new()
        });
        let compile = match broken {
            Some(error) => Err(error),
            None => {
                let setup = compile_setup::build_setup(&self.files, tree, order, folder, &project.folder)?;
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
            earlier_names: earlier_names(project, &document, name).filter(|earlier| *earlier != id),
            names: id.clone(),
            id,
            named_by: NamedBy::Names,
            folder: folder.clone(),
            project_folder: project.folder.clone(),
            manifest: file,
            compile,
            cluster,
            kubeconfig: document.kubeconfig.clone(),
            reads,
        })
    }
}

/// Parses the stacks under `reads`, by alias.
fn read_stacks(declared: &BTreeMap<String, String>) -> Result<StackReads, String> {
    let stacks = declared.iter().map(|(alias, stack)| {
        let alias = alias.parse().map_err(|error| format!("`reads`: {error}"))?;
        let stack = stack
            .parse()
            .map_err(|error| format!("`reads.{alias}`: {error}"))?;
        Ok((alias, stack))
    });
    stacks.collect()
}

impl Layout {
    /// Reads the layout of a revision.
    ///
    /// # Errors
    /// A file is missing in the object database. Errors *in* files are in [`Layout::problems`] and
    /// [`Stack::compile`] instead.
    pub fn read(source: &Arc<dyn Source>, rules: impl Into<LayoutRules>) -> Result<Self, LayoutError> {
        LayoutReader::new().layout(&FileTreeView::new(Arc::clone(source)), &rules.into())
    }

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

/// Returns the identity that earlier versions of Konverge read from the files of a stack, if it differs.
fn earlier_names(project: &Project, stack: &StackManifest, name: &str) -> Option<StackId> {
    let name = stack.name.as_ref().map_or(name, WrittenName::earlier);
    let (tenant, project) = match &project.earlier {
        Some(earlier) => (&earlier.tenant, &earlier.name),
        None => (&project.tenant, &project.name),
    };
    StackId::new(tenant.as_deref(), project, name).ok()
}

/// Creates the error for a submodule that is not checked out: the stacks in it are unknown.
fn not_checked_out(file: RepoPath) -> SetupError {
    SetupError::new(
        file,
        "this submodule is not checked out, so stacks in it cannot be seen; in the workflow, give actions/checkout `submodules: true`, elsewhere run `git submodule update --init`",
    )
}

/// Returns a placeholder identity for a stack whose identity is unknown. It is derived from the folder, so that it is
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
