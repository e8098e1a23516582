//! The stack tests of a stack: `<stack>/test/**/*.test.yaml`. A test does not change the Spec, so it is not part of the
//! input digest. A stack whose tests differ still counts as affected, so that its tests are run.

use std::collections::BTreeMap;

use crate::konfig::{FileTreeView, ResolvedFiles};
use konverge_base::model::{
    RepoPath,
    affected::{InputKind, InputReason},
    stack::Stack,
};

/// The ending of a test file's name, and a common mistake.
const ENDS: [&str; 2] = [".test.yaml", ".test.yml"];

/// Returns the test files of a stack, with links followed, sorted by path. A file that ends in `.test.yml` is included,
/// so that the mistake is reported.
pub fn find_stack_tests(tree: &FileTreeView, stack: &Stack) -> ResolvedFiles {
    let is_test = |path: &RepoPath| ENDS.iter().any(|end| path.as_str().ends_with(end));
    tree.resolve_files(&stack.folder.child("test"), is_test)
}

/// Returns the tests of a stack that differ between two revisions. If the stack moved, nothing is compared.
pub(super) fn changed(
    before: &FileTreeView,
    old: &Stack,
    after: &FileTreeView,
    new: &Stack,
) -> Vec<InputReason> {
    if old.folder != new.folder {
        return Vec::new();
    }
    let mut blobs: BTreeMap<RepoPath, Vec<_>> = BTreeMap::new();
    for (tree, stack) in [(before, old), (after, new)] {
        for file in find_stack_tests(tree, stack).files {
            blobs.entry(file.path).or_default().push(file.blob);
        }
    }
    let is_changed = |found: &[_]| found.len() == 1 || found[0] != found[1];
    let changed = blobs.into_iter().filter(|(_, found)| is_changed(found));
    changed
        .map(|(path, _)| InputReason {
            chain: vec![path.clone(), new.folder.clone()],
            path,
            kind: InputKind::Test,
        })
        .collect()
}
