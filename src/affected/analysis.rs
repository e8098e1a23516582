//! [`Analysis`]: one revision, with the input digest of every stack.

use std::{collections::HashMap, sync::Arc};

use super::{AffectedError, Closure, CoreRules, Index, closure, graph::Graph, inputs::StackInputs, merkle};
use crate::{
    konfig::{Layout, Tree},
    model::{Digest, RepoPath, source::Source, stack::Stack},
};

/// A revision whose stacks' inputs are known.
pub struct Analysis {
    pub(super) tree: Tree,
    pub(super) layout: Arc<Layout>,
    pub(super) rules: CoreRules,
    pub(super) graph: Graph,
    /// Digest of each node.
    pub(super) nodes: Vec<Digest>,
    /// As `layout.stacks`.
    pub(super) inputs: Vec<StackInputs>,
    /// As `layout.stacks`: what bears on the stack from `konverge.yaml`.
    pub(super) config: Vec<Option<Digest>>,
    /// As `layout.stacks`.
    pub(super) digests: Vec<Digest>,
    by_folder: HashMap<RepoPath, usize>,
}

impl Analysis {
    /// Follows the inputs of every stack of a revision. `core_version` is the KCL core that compiles it, such as
    /// `0.13.2`: part of every digest.
    ///
    /// # Errors
    /// An object is missing or damaged. A stack whose own files can not be resolved is no error here.
    pub fn new(
        source: Arc<dyn Source>,
        layout: impl Into<Arc<Layout>>,
        core_version: &str,
        index: &Index,
    ) -> Result<Self, AffectedError> {
        Self::of_tree(Tree::new(source), layout, core_version, index)
    }

    /// As [`Analysis::new`], of a tree that is at hand.
    ///
    /// # Errors
    /// As [`Analysis::new`].
    pub fn of_tree(
        tree: Tree,
        layout: impl Into<Arc<Layout>>,
        core_version: &str,
        index: &Index,
    ) -> Result<Self, AffectedError> {
        let layout = layout.into();
        let rules = CoreRules::of(core_version);
        let mut graph = Graph::new();
        let inputs: Vec<_> = layout
            .stacks
            .iter()
            .map(|stack| StackInputs::collect(&tree, &mut graph, stack))
            .collect();
        graph.complete(&tree, &rules, index)?;
        let nodes = merkle::digests(&graph);
        let by_folder = layout
            .stacks
            .iter()
            .enumerate()
            .map(|(at, stack)| (stack.folder.clone(), at))
            .collect();
        let mut analysis = Self {
            config: vec![None; inputs.len()],
            digests: Vec::new(),
            tree,
            layout,
            rules,
            graph,
            nodes,
            inputs,
            by_folder,
        };
        analysis.digest_stacks();
        Ok(analysis)
    }

    /// Takes in what `konverge.yaml` says that bears on each stack (its cluster, say); `None` if nothing does.
    #[must_use]
    pub fn with_config(mut self, of: impl Fn(&Stack) -> Option<Digest>) -> Self {
        self.config = self.layout.stacks.iter().map(of).collect();
        self.digest_stacks();
        self
    }

    /// The layout it was made from.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The revision's files.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The digest over all that may bear on a stack's Spec.
    ///
    /// # Errors
    /// The stack is not of this revision.
    pub fn input_digest(&self, stack: &Stack) -> Result<Digest, AffectedError> {
        Ok(self.digests[self.position(stack)?])
    }

    /// Every file that compiling a stack may read.
    ///
    /// # Errors
    /// The stack is not of this revision, or its files can not be resolved.
    pub fn closure(&self, stack: &Stack) -> Result<Closure, AffectedError> {
        closure::of(self, self.position(stack)?)
    }

    pub(super) fn position(&self, stack: &Stack) -> Result<usize, AffectedError> {
        self.by_folder
            .get(&stack.folder)
            .copied()
            .ok_or_else(|| AffectedError::UnknownStack(stack.folder.clone()))
    }

    fn digest_stacks(&mut self) {
        self.digests = self
            .inputs
            .iter()
            .zip(&self.config)
            .map(|(inputs, config)| inputs.digest(&self.nodes, &self.rules, *config))
            .collect();
    }
}
