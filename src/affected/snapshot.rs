//! [`Snapshot`]: one revision's analysis as a file, so that the next run only follows what differs from it.
//!
//! Kept are the files of a git tree and all that was concluded from them. What is read back stands for that tree alone:
//! another revision is reached by [`Analysis::after`]. Deleting the file is safe: the next run is slower.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Analysis, CoreRules, ScanCache, cache_file, codec, graph::ImportGraph, stack_inputs::StackInputs,
};
use crate::{
    konfig::{FileTreeView, Layout, LayoutRules},
    model::{
        CommitId, Digest,
        file_source::{Listing, Source},
    },
};

/// The first bytes; the number changes with the form, or with what is concluded from the same files, at the latest with
/// the next version.
const HEADER: &[u8] = concat!("konverge revision 4 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// A revision as it was analysed by an earlier run.
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
    pub(super) digests: Vec<Digest>,
}

impl Snapshot {
    /// Where the revision of a repository is kept: beside its index.
    pub fn location(caches: &Path, repository: &Path) -> Option<PathBuf> {
        ScanCache::location(caches, repository).map(|index| index.with_extension("revision"))
    }

    /// Loads one; what is missing, damaged or of another version is none.
    pub fn load(path: &Path) -> Option<Self> {
        let bytes = cache_file::read(path, HEADER)?;
        codec::value_of::<Self>(&bytes).filter(Self::holds_together)
    }

    /// An analysis of a commit, if its files are those of one tree, in the form in which it is kept.
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
            digests: analysis.digests.clone(),
        })
    }

    /// Writes it; of two writers the last wins.
    ///
    /// # Errors
    /// The folder cannot be written. The answer never depends on this.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        cache_file::write(path, HEADER, &codec::bytes_of(self))
    }

    /// The commit that was looked at.
    pub fn commit(&self) -> &CommitId {
        &self.commit
    }

    /// Its files.
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The rules by which its layout was read.
    pub fn layout_rules(&self) -> &LayoutRules {
        &self.rules
    }

    /// The analysis again; `source` gives the contents of the kept commit's files.
    pub fn revive(self, source: Arc<dyn Source>) -> Analysis {
        Analysis {
            tree: FileTreeView::new(source),
            layout: self.layout,
            rules: CoreRules::for_version(&self.core),
            graph: self.graph,
            nodes: self.nodes,
            inputs: self.inputs,
            config: self.config,
            digests: self.digests,
        }
    }

    /// Every number in it means something in it.
    fn holds_together(&self) -> bool {
        let (stacks, nodes) = (self.layout.stacks.len(), self.graph.nodes.len());
        let entries = self.inputs.iter().flat_map(|inputs| &inputs.entries);
        self.inputs.len() == stacks
            && self.config.len() == stacks
            && self.digests.len() == stacks
            && self.nodes.len() == nodes
            && entries.into_iter().all(|entry| *entry < nodes)
            && self.graph.holds_together()
    }
}
