//! Programs of a repository that are not stacks (its tests, the schemas of its data), analyzed as stacks are.

use std::sync::Arc;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath, StackId,
        stack::{Entry, NamedBy, Stack},
    },
};
use konverge_repo::{
    affected::Analysis,
    konfig::{Layout, LayoutReader},
};
use konverge_run::OpenRevision;

/// Analyzes programs: the folder and the entries of each. They are the stacks of the result, in this order.
pub(super) fn analyze(
    workspace: &OpenRevision,
    programs: impl IntoIterator<Item = (RepoPath, Vec<Entry>)>,
) -> Result<Analysis, UserError> {
    let tree = workspace.analysis.tree();
    let reader = LayoutReader::new();
    let mut layout = Layout::default();
    for (folder, entries) in programs {
        let id = StackId::of_folder(&folder);
        layout.stacks.push(Stack {
            compile: reader
                .folder_setup(tree, &folder, entries)
                .map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?,
            names: id.clone(),
            id,
            named_by: NamedBy::Folder,
            project_folder: folder.clone(),
            manifest: folder.child("stack.yaml"),
            folder,
            cluster: None,
            kubeconfig: None,
        });
    }
    let source = Arc::clone(&workspace.source);
    let core = workspace.config.kcl.core();
    Ok(Analysis::new(source, layout, core, &workspace.scans)?)
}
