//! [`Analysis`]: one revision with the input digest of every stack.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    AffectedError, CoreRules, ScanCache, WorkspaceInput, data_files,
    graph::{ImportGraph, NodeId},
    merkle,
    stack_inputs::StackInputs,
};
use crate::konfig::{Changes, FileTreeView, Layout};
use konverge_base::model::{Digest, RepoPath, file_source::Source, stack::Stack};

/// An analyzed revision. Two analyses share the data that is equal in both.
pub struct Analysis {
    pub(super) tree: FileTreeView,
    pub(super) layout: Arc<Layout>,
    pub(super) rules: CoreRules,
    pub(super) graph: Arc<ImportGraph>,
    /// The digest of each node of the import graph.
    pub(super) nodes: Arc<Vec<Digest>>,
    /// The inputs of each stack, parallel to `layout.stacks`.
    pub(super) inputs: Vec<Arc<StackInputs>>,
    /// The digest of the settings in `konverge.yaml` that concern each stack, parallel to `layout.stacks`.
    pub(super) config: Vec<Option<Digest>>,
    /// The part of a workspace that concerns each stack, parallel to `layout.stacks`.
    pub(super) workspaces: Vec<Option<WorkspaceInput>>,
    /// The input digest of each stack, parallel to `layout.stacks`.
    pub(super) digests: Vec<Digest>,
}

impl Analysis {
    /// Determines the inputs of every stack of a revision. `core_version` is the version of the KCL core,
    /// such as `0.13.2`; it is part of every digest.
    ///
    /// # Errors
    /// An object is missing or damaged. A stack whose own files cannot be resolved is not an error here.
    pub fn new(
        source: Arc<dyn Source>,
        layout: impl Into<Arc<Layout>>,
        core_version: &str,
        index: &ScanCache,
    ) -> Result<Self, AffectedError> {
        Self::analyze(FileTreeView::new(source), layout, core_version, index)
    }

    /// Determines the inputs as [`Analysis::new`] does, for a file tree that is already loaded.
    ///
    /// # Errors
    /// See [`Analysis::new`].
    pub fn analyze(
        tree: FileTreeView,
        layout: impl Into<Arc<Layout>>,
        core_version: &str,
        index: &ScanCache,
    ) -> Result<Self, AffectedError> {
        let layout = layout.into();
        let rules = CoreRules::for_version(core_version);
        let mut graph = ImportGraph::new();
        let inputs: Vec<_> = layout
            .stacks
            .iter()
            .map(|stack| Arc::new(StackInputs::collect(&tree, &mut graph, stack)))
            .collect();
        graph.complete((0..graph.nodes.len()).collect(), &tree, &rules, index)?;
        let nodes = merkle::digests(&graph);
        let mut analysis = Self {
            config: vec![None; inputs.len()],
            workspaces: vec![None; inputs.len()],
            digests: Vec::new(),
            tree,
            layout,
            rules,
            graph: Arc::new(graph),
            nodes: Arc::new(nodes),
            inputs,
        };
        analysis.digests = (0..analysis.inputs.len()).map(|at| analysis.digest(at)).collect();
        Ok(analysis)
    }

    /// Determines the inputs as [`Analysis::analyze`] does, but reuses the analysis of another revision: only nodes
    /// that read a changed path are resolved again. The result is the same.
    ///
    /// # Errors
    /// See [`Analysis::new`].
    pub fn after(
        before: &Self,
        changes: &Changes,
        tree: FileTreeView,
        layout: Arc<Layout>,
        core_version: &str,
        index: &ScanCache,
    ) -> Result<Self, AffectedError> {
        let rules = CoreRules::for_version(core_version);
        // With other rules of the core, or if a path leads elsewhere now, every import may resolve differently.
        if rules != before.rules || !changes.shape_kept {
            return Self::analyze(tree, layout, core_version, index);
        }
        let mut graph = Arc::clone(&before.graph);
        let known: Vec<Option<usize>> = (0..layout.stacks.len())
            .map(|at| before.knows(&layout, at, changes))
            .collect();
        let inputs: Vec<_> = layout
            .stacks
            .iter()
            .zip(&known)
            .map(|(stack, known)| match known {
                Some(known) => Arc::clone(&before.inputs[*known]),
                None => Arc::new(StackInputs::collect(&tree, Arc::make_mut(&mut graph), stack)),
            })
            .collect();
        // Nodes keep their numbers, so that both graphs can be compared by number. Only changed nodes and those of new
        // stacks are resolved again.
        let mut empty = before.graph.changed_nodes(&changes.paths);
        empty.extend(before.graph.nodes.len()..graph.nodes.len());
        let mut nodes = Arc::clone(&before.nodes);
        if !empty.is_empty() {
            let graph = Arc::make_mut(&mut graph);
            empty.iter().for_each(|id| graph.forget(*id));
            graph.complete(empty, &tree, &rules, index)?;
            nodes = Arc::new(merkle::digests(graph));
        }
        let config: Vec<_> = known
            .iter()
            .map(|known| known.and_then(|known| before.config[known]))
            .collect();
        let workspaces = known
            .iter()
            .map(|known| known.and_then(|known| before.workspaces[known].clone()))
            .collect();
        let mut analysis = Self {
            tree,
            layout,
            rules,
            graph,
            nodes,
            inputs,
            config,
            workspaces,
            digests: Vec::new(),
        };
        // A stack whose own files and whose imports are the same has the same digest, so it is not computed again.
        let digests = known.iter().enumerate().map(|(at, known)| match known {
            Some(known) if analysis.compiles_as(at, before) => before.digests[*known],
            _ => analysis.digest(at),
        });
        analysis.digests = digests.collect();
        // Unreachable nodes stay in the graph. It is rebuilt before they become the larger part of it.
        let grown = analysis.graph.nodes.len() > before.graph.nodes.len();
        if grown && analysis.graph.nodes.len() > 2 * analysis.reachable_nodes().len() {
            let Self { tree, layout, .. } = analysis;
            return Self::analyze(tree, layout, core_version, index);
        }
        Ok(analysis)
    }

    /// Adds the digest of the settings in `konverge.yaml` that concern each stack (its cluster, for example). `of`
    /// returns `None` if there are none.
    #[must_use]
    pub fn with_config(mut self, of: impl Fn(&Stack) -> Option<Digest>) -> Self {
        for at in 0..self.inputs.len() {
            let config = of(&self.layout.stacks[at]);
            if config != self.config[at] {
                self.config[at] = config;
                self.digests[at] = self.digest(at);
            }
        }
        self
    }

    /// Adds the part of a workspace that concerns each stack. `of` returns `None` for a stack without a workspace.
    #[must_use]
    pub fn with_workspaces(mut self, of: impl Fn(&Stack) -> Option<WorkspaceInput>) -> Self {
        for at in 0..self.inputs.len() {
            let workspace = of(&self.layout.stacks[at]);
            if workspace != self.workspaces[at] {
                self.workspaces[at] = workspace;
                self.digests[at] = self.digest(at);
            }
        }
        self
    }

    /// Returns the nodes that at least one stack reaches.
    pub(super) fn reachable_nodes(&self) -> BTreeSet<NodeId> {
        let entries = self.inputs.iter().flat_map(|inputs| &inputs.entries);
        self.graph.reachable(entries.copied())
    }

    /// Returns the layout of the revision.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// Returns the files of the revision.
    pub fn tree(&self) -> &FileTreeView {
        &self.tree
    }

    /// Returns the version of the KCL core that every digest is for.
    pub fn core(&self) -> &str {
        self.rules.version()
    }

    /// Returns the digest over everything that may influence a stack's Spec.
    ///
    /// # Errors
    /// The stack does not belong to this revision.
    pub fn input_digest(&self, stack: &Stack) -> Result<Digest, AffectedError> {
        Ok(self.digests[self.position(stack)?])
    }

    pub(super) fn position(&self, stack: &Stack) -> Result<usize, AffectedError> {
        self.stack_in_folder(&stack.folder)
            .ok_or_else(|| AffectedError::UnknownStack(stack.folder.clone()))
    }

    fn stack_in_folder(&self, folder: &RepoPath) -> Option<usize> {
        let stacks = &self.layout.stacks;
        stacks.binary_search_by(|stack| stack.folder.cmp(folder)).ok()
    }

    /// Returns the index of the stack `at` of `layout` in this analysis, if its definition is equal and none of its own
    /// files differs.
    fn knows(&self, layout: &Arc<Layout>, at: usize, changes: &Changes) -> Option<usize> {
        let found = if Arc::ptr_eq(layout, &self.layout) {
            at
        } else {
            let stack = &layout.stacks[at];
            self.stack_in_folder(&stack.folder)
                .filter(|found| self.layout.stacks[*found] == *stack)?
        };
        let same = !self.inputs[found].contains_any(&changes.paths);
        same.then_some(found)
    }

    /// Returns true if the entries of a stack compile to the same result as in another analysis.
    fn compiles_as(&self, at: usize, other: &Self) -> bool {
        let entries = &self.inputs[at].entries;
        let same = |entry: &usize| self.nodes[*entry] == other.nodes[*entry];
        entries.iter().all(same) && self.shared_reads(at).is_empty()
    }

    fn digest(&self, at: usize) -> Digest {
        let shared = self.shared_reads(at);
        let shared: Vec<_> = shared
            .iter()
            .map(|(readable, _)| data_files::digest(&self.tree, readable))
            .collect();
        let workspace = self.workspaces[at].as_ref().map(|workspace| workspace.digest);
        self.inputs[at].digest(&self.nodes, &self.rules, &shared, self.config[at], workspace)
    }
}
