//! The inputs of a stack that are not imported: settings, project and stack files, `kcl.mod`, CRDs.

use std::{collections::HashSet, sync::Arc};

use super::{
    core_compat::CoreRules,
    graph::{ImportGraph, NodeId},
    resolve::{ImportContext, ResolvedImport},
};
use crate::konfig::FileTreeView;
use konverge_base::model::{
    Digest, RepoPath,
    affected::InputKind,
    digest::DigestBuilder,
    file_source::BlobId,
    stack::{CompileSetup, Entry, EntryPackage, SetupError, Stack},
};
use serde::{Deserialize, Serialize};

/// The inputs of a stack's digest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StackInputs {
    /// The entries, in order.
    pub(super) entries: Vec<NodeId>,
    /// The files that are inputs, sorted.
    pub(super) files: Vec<(InputKind, RepoPath, BlobId)>,
    /// The digest of the settings without the options.
    pub(super) settings: Digest,
    /// The digest of the options and overrides.
    pub(super) options: Digest,
    /// The settings files with their blob ids, to report which one changed.
    pub(super) settings_files: Vec<(RepoPath, BlobId)>,
    /// The error if the stack's files cannot be resolved.
    pub(super) error: Option<SetupError>,
}

impl StackInputs {
    pub(super) fn collect(tree: &FileTreeView, graph: &mut ImportGraph, stack: &Stack) -> Self {
        let mut inputs = Self {
            entries: Vec::new(),
            files: Vec::new(),
            settings: Digest::of_bytes(b""),
            options: Digest::of_bytes(b""),
            settings_files: Vec::new(),
            error: None,
        };
        inputs.add(
            tree,
            InputKind::Project,
            &stack.project_folder.child("project.yaml"),
        );
        inputs.add(tree, InputKind::Stack, &stack.manifest);
        let read = |path: &RepoPath| {
            [".yaml", ".yml", ".json"]
                .iter()
                .any(|end| path.as_str().ends_with(end))
        };
        let crds = tree.resolve_files(&stack.project_folder.child("crd"), read);
        let files = crds.files.into_iter().map(|file| (file.real, file.blob));
        let all = files.chain(crds.links);
        inputs
            .files
            .extend(all.map(|(path, blob)| (InputKind::Crd, path, blob)));
        match &stack.compile {
            Ok(setup) => inputs.add_setup(tree, graph, setup),
            Err(error) => {
                // A file that may fix the error is an input, so that a change of it affects the stack.
                inputs.add(tree, InputKind::Unresolved, &error.file);
                for name in ["kcl.yaml", "ci-test/settings.yaml", "kcl.mod"] {
                    let file = stack
                        .folder
                        .join(name)
                        .expect("a fixed name inside the stack's folder");
                    inputs.add(tree, InputKind::Settings, &file);
                }
                inputs.error = Some(error.clone());
            }
        }
        inputs.files.sort();
        inputs.files.dedup();
        inputs
    }

    /// Returns true if `paths` contains one of the stack's own files. The imports of its entries are not
    /// considered.
    pub(super) fn contains_any(&self, paths: &HashSet<RepoPath>) -> bool {
        let own = self.files.iter().map(|(_, path, _)| path);
        let settings = self.settings_files.iter().map(|(path, _)| path);
        own.chain(settings).any(|path| paths.contains(path))
    }

    fn add(&mut self, tree: &FileTreeView, kind: InputKind, path: &RepoPath) {
        if let Some((_, entry)) = tree.file(path) {
            self.files.push((kind, path.clone(), entry.blob));
        }
    }

    fn add_setup(&mut self, tree: &FileTreeView, graph: &mut ImportGraph, setup: &CompileSetup) {
        let packages = Arc::new(setup.packages.clone());
        let mut roots: Vec<RepoPath> = setup.packages.iter().map(|(_, folder)| folder.clone()).collect();
        roots.extend(setup.module_root.clone());
        for entry in &setup.entries {
            let resolved = tree.resolve(&entry.path);
            for link in resolved.iter().flat_map(|resolved| &resolved.links) {
                if let Some(target) = tree.source().files().get(link) {
                    self.files.push((InputKind::Entry, link.clone(), target.blob));
                }
            }
            let real = resolved.map_or_else(|| entry.path.clone(), |resolved| resolved.path);
            let (folder, place) = match tree.file(&real) {
                Some((file, _)) => (file.parent().unwrap_or_default(), ResolvedImport::File(file)),
                None => (real.clone(), ResolvedImport::EntryFolder(real)),
            };
            let root = match &entry.package {
                EntryPackage::Root(root) => Some(root.clone()),
                EntryPackage::Main | EntryPackage::Dependency(_) => tree.module_root(&folder),
            };
            roots.extend(root.clone());
            let context = ImportContext {
                root: root.unwrap_or(folder),
                packages: Arc::clone(&packages),
            };
            self.entries.push(graph.node(&context, place));
        }
        // A `kcl.mod` decides how imports resolve, so that of each package root is an input.
        roots.sort();
        roots.dedup();
        for root in roots {
            self.add(tree, InputKind::Module, &root.child("kcl.mod"));
            self.add(tree, InputKind::Module, &root.child("kcl.mod.lock"));
        }
        for file in &setup.settings_files {
            if let Some((_, entry)) = tree.file(file) {
                self.settings_files.push((file.clone(), entry.blob));
            }
        }
        self.settings = settings_digest(setup);
        self.options = options_digest(setup);
    }

    /// Returns the input digest of the stack, over these inputs, the digests of its entries (`nodes`), the data that
    /// its entries read (`shared`), and settings from other files (`config` and `workspace`).
    pub(super) fn digest(
        &self,
        nodes: &[Digest],
        rules: &CoreRules,
        shared: &[Digest],
        config: Option<Digest>,
        workspace: Option<Digest>,
    ) -> Digest {
        let mut digest = DigestBuilder::new("konverge input 1");
        digest.part(rules.version().as_bytes());
        digest
            .part(self.settings.as_bytes())
            .part(self.options.as_bytes());
        for entry in &self.entries {
            digest.part(nodes[*entry].as_bytes());
        }
        for (kind, path, blob) in &self.files {
            digest
                .part(&[*kind as u8])
                .part(path.as_str().as_bytes())
                .part(&blob.0);
        }
        for data in shared {
            digest.part(b"data").part(data.as_bytes());
        }
        for (name, settings) in [(b"config".as_slice(), config), (b"workspace", workspace)] {
            if let Some(settings) = settings {
                digest.part(name).part(settings.as_bytes());
            }
        }
        if let Some(error) = &self.error {
            digest
                .part(b"error")
                .part(error.file.as_str().as_bytes())
                .part(error.message.as_bytes());
        }
        digest.finish()
    }
}

fn settings_digest(setup: &CompileSetup) -> Digest {
    let mut digest = DigestBuilder::new("konverge settings 1");
    digest.part(setup.work_dir.as_str().as_bytes());
    digest.part(
        setup
            .module_root
            .as_ref()
            .map_or(b"", |root| root.as_str().as_bytes()),
    );
    digest.part(&[
        u8::from(setup.module_root.is_some()),
        u8::from(setup.disable_none),
        u8::from(setup.strict_range_check),
    ]);
    list(&mut digest, setup.entries.iter().map(|entry| entry.path.as_str()));
    for entry in &setup.entries {
        package_of(&mut digest, entry);
    }
    list(&mut digest, setup.path_selector.iter().map(String::as_str));
    list(
        &mut digest,
        setup
            .packages
            .iter()
            .flat_map(|(name, folder)| [name.as_str(), folder.as_str()]),
    );
    for package in &setup.remote_packages {
        let checksum = package.locked.checksum.as_deref().unwrap_or_default();
        list(
            &mut digest,
            [package.name.as_str(), package.requirement.as_str(), checksum].into_iter(),
        );
        if let Some(commit) = &package.locked.commit {
            digest.part(b"commit").part(commit.as_bytes());
        }
    }
    digest.finish()
}

/// Adds the package of an entry. The main package adds nothing, so that digests from the time before other
/// packages were supported stay valid.
fn package_of(digest: &mut DigestBuilder, entry: &Entry) {
    match &entry.package {
        EntryPackage::Main => {}
        EntryPackage::Root(root) => {
            digest
                .part(b"entry of root")
                .part(entry.path.as_str().as_bytes())
                .part(root.as_str().as_bytes());
        }
        EntryPackage::Dependency(name) => {
            digest
                .part(b"entry of package")
                .part(entry.path.as_str().as_bytes())
                .part(name.as_bytes());
        }
    }
}

fn options_digest(setup: &CompileSetup) -> Digest {
    let mut digest = DigestBuilder::new("konverge options 1");
    for (key, value) in &setup.options {
        digest.part(key.as_bytes()).part(value.to_string().as_bytes());
    }
    digest.part(b"");
    list(&mut digest, setup.overrides.iter().map(String::as_str));
    digest.finish()
}

fn list<'a>(digest: &mut DigestBuilder, parts: impl Iterator<Item = &'a str>) {
    let mut count: u64 = 0;
    for part in parts {
        digest.part(part.as_bytes());
        count += 1;
    }
    digest.part(&count.to_le_bytes());
}
