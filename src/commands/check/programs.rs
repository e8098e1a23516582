//! Programs of a repository that are not stacks (its tests, the schemas of its data), analyzed as stacks are.

use std::sync::Arc;

use konverge_base::{
    error::UserError,
    model::{
        RepoPath, StackId,
        stack::{Entry, NamedBy, Stack},
    },
};
use konverge_repo::{
    affected::Analysis,
    konfig::{Changes, FileTreeView, Layout, LayoutReader, SetupFailure},
};
use konverge_run::OpenRevision;

/// Analyzes programs, each given by its folder and entries. They are the stacks of the result, in this order. Results
/// of an earlier analysis are reused for files that did not change.
pub(super) fn analyze(
    workspace: &OpenRevision,
    programs: impl IntoIterator<Item = (RepoPath, Vec<Entry>)>,
    earlier: Option<&Analysis>,
) -> Result<Analysis, UserError> {
    let tree = FileTreeView::new(Arc::clone(&workspace.source));
    let reader = LayoutReader::new();
    let mut layout = Layout::default();
    for (folder, entries) in programs {
        let id = StackId::of_folder(&folder);
        layout.stacks.push(Stack {
            compile: match reader.folder_setup(&tree, &folder, entries) {
                Ok(setup) => Ok(setup),
                Err(SetupFailure::Setup(error)) => Err(error),
                Err(failure) => return Err(failure.into()),
            },
            named_by: NamedBy::Folder,
            ..Stack::new(id, folder)
        });
    }
    let (core, scans) = (workspace.config.kcl.core(), &workspace.scans);
    Ok(match earlier {
        Some(earlier) => {
            let changes = Changes::compute(earlier.tree(), &tree);
            Analysis::after(earlier, &changes, tree, Arc::new(layout), core, scans)?
        }
        None => Analysis::analyze(tree, layout, core, scans)?,
    })
}
