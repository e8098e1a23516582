//! [`Snapshot`]: the analysis of one revision as a file, so that the next run only processes the differences.
//!
//! It contains the file list of a git tree and everything that the analysis derived from it. It is valid for
//! that tree only.
//! Another revision is derived with [`Analysis::after`]. It is safe to delete; the next run is slower.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Analysis, CoreRules, ScanCache, cache_file, codec, graph::ImportGraph, stack_inputs::StackInputs,
};
use crate::konfig::{FileTreeView, Layout, LayoutRules};
use konverge_base::model::{
    CommitId, Digest, RepoPath,
    file_source::{Listing, Source},
};

/// The header. Increase the number when the format changes, or when the same files would be analyzed
/// differently. The package version is part of it, so each release starts with new snapshots.
const HEADER: &[u8] = concat!("konverge revision 12 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// A revision as an earlier run analyzed it.
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
    /// The path of a repository's snapshot: beside its scan cache.
    pub fn location(caches: &Path, repository: &Path) -> Option<PathBuf> {
        ScanCache::location(caches, repository).map(|index| index.with_extension("revision"))
    }

    /// Loads a snapshot; `None` for a missing, damaged or incompatible file.
    pub fn load(path: &Path) -> Option<Self> {
        let bytes = cache_file::read(path, HEADER)?;
        codec::value_of::<Self>(&bytes).filter(Self::is_consistent)
    }

    /// The snapshot of an analysis, if its files are those of one git tree.
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

    /// Writes the snapshot; the last of two writers wins.
    ///
    /// # Errors
    /// The folder cannot be written. Results never depend on this.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        cache_file::write(path, HEADER, &codec::bytes_of(self))
    }

    /// The analyzed commit.
    pub fn commit(&self) -> &CommitId {
        &self.commit
    }

    /// The files of the commit.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The rules by which its layout was read.
    pub fn layout_rules(&self) -> &LayoutRules {
        &self.rules
    }

    /// Restores the analysis; `source` gives the contents of the commit's files.
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

/// Inputs of a stack besides its program: a part of a workspace, and encrypted files. Other parts of the file are no
/// input of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    /// The file of the workspace, if the stack has one, and the binaries of modules in the repository.
    pub files: Vec<RepoPath>,
    /// The encrypted files that the stack may refer to.
    pub secret_files: Vec<RepoPath>,
    /// The digest of the part, merged for the stack, and of those files.
    pub digest: Digest,
}
