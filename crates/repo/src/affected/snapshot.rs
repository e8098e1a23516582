//! [`Snapshot`]: the analysis of one revision as a file, so that the next run only processes the differences.
//!
//! A snapshot contains the file list of a git tree and everything that the analysis derived from it. It is valid for
//! that tree only; the analysis of another revision is derived with [`Analysis::after`]. Deleting the file is safe; the
//! next run is slower.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Analysis, CoreRules, ScanCache, cache_file, graph::ImportGraph, stack_inputs::StackInputs};
use crate::konfig::{FileTreeView, Layout, LayoutRules};
use konverge_base::model::{
    CommitId, Digest, RepoPath,
    file_source::{Listing, Source},
};
use serde::{Deserialize, Serialize};

/// The header. Increase the number when the format changes (the order of the fields and variants of every type in it), or
/// when the same files would be analyzed differently. The package version is part of it, so each release starts with new snapshots.
const HEADER: &[u8] = concat!("konverge revision 13 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// A revision as an earlier run analyzed it.
#[derive(Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) commit: CommitId,
    pub(super) listing: Listing,
    pub(super) core: String,
    pub(super) rules: LayoutRules,
    pub(super) layout: Arc<Layout>,
    pub(super) graph: Arc<ImportGraph>,
    pub(super) nodes: Arc<Vec<Digest>>,
    pub(super) inputs: Vec<Arc<StackInputs>>,
    pub(super) config: Vec<Option<Digest>>,
    pub(super) workspaces: Vec<Option<WorkspaceInput>>,
    pub(super) digests: Vec<Digest>,
}

impl Snapshot {
    /// Returns the path of a repository's snapshot, which is beside its scan cache.
    pub fn location(caches: &Path, repository: &Path) -> Option<PathBuf> {
        ScanCache::location(caches, repository).map(|index| index.with_extension("revision"))
    }

    /// Loads a snapshot; `None` for a missing, damaged or incompatible file.
    pub fn load(path: &Path) -> Option<Self> {
        cache_file::read::<Self>(path, HEADER).filter(Self::is_consistent)
    }

    /// Creates a snapshot of an analysis; `None` unless all its files are in one git tree.
    pub fn take(analysis: &Analysis, rules: impl Into<LayoutRules>) -> Option<Self> {
        let source = analysis.tree.source();
        Some(Self {
            commit: source.commit()?.clone(),
            listing: source.listing()?,
            core: analysis.rules.version().to_owned(),
            rules: rules.into(),
            layout: Arc::clone(&analysis.layout),
            graph: Arc::clone(&analysis.graph),
            nodes: Arc::clone(&analysis.nodes),
            inputs: analysis.inputs.clone(),
            config: analysis.config.clone(),
            workspaces: analysis.workspaces.clone(),
            digests: analysis.digests.clone(),
        })
    }

    /// Writes the snapshot. If two processes write, the last one wins.
    ///
    /// # Errors
    /// The folder cannot be written. The results of the analysis do not depend on the snapshot.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        cache_file::write(path, HEADER, self)
    }

    /// Returns the analyzed commit.
    pub fn commit(&self) -> &CommitId {
        &self.commit
    }

    /// Returns the files of the commit.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// Returns the rules by which the layout was read.
    pub fn layout_rules(&self) -> &LayoutRules {
        &self.rules
    }

    /// Restores the analysis. `source` provides the contents of the commit's files.
    pub fn into_analysis(self, source: Arc<dyn Source>) -> Analysis {
        Analysis {
            tree: FileTreeView::new(source),
            layout: self.layout,
            rules: CoreRules::for_version(&self.core),
            graph: self.graph,
            nodes: self.nodes,
            inputs: self.inputs,
            config: self.config,
            workspaces: self.workspaces,
            digests: self.digests,
        }
    }

    /// Returns true if all indices in the snapshot are within bounds.
    fn is_consistent(&self) -> bool {
        let (stacks, nodes) = (self.layout.stacks.len(), self.graph.nodes.len());
        let entries = self.inputs.iter().flat_map(|inputs| &inputs.entries);
        self.inputs.len() == stacks
            && self.config.len() == stacks
            && self.workspaces.len() == stacks
            && self.digests.len() == stacks
            && self.nodes.len() == nodes
            && entries.into_iter().all(|entry| *entry < nodes)
            && self.graph.is_consistent()
    }
}

/// The inputs of a stack that are parts of other files: a part of a workspace, and encrypted files. A change elsewhere
/// in the workspace file does not affect the stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceInput {
    /// The workspace file, if the stack has one, and the binaries of modules in the repository.
    pub files: Vec<RepoPath>,
    /// The encrypted files that secret references of the stack may name.
    pub secret_files: Vec<RepoPath>,
    /// The digest of the workspace part, merged for the stack, and of the encrypted files.
    pub digest: Digest,
}
