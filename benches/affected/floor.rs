//! The floor: what any method without an index must do at least, as a plain libgit2 program.

use std::{collections::HashSet, path::Path};

use git2::{ObjectType, Repository, TreeWalkMode, TreeWalkResult};

/// Walks both trees and inflates every blob of interest once.
pub fn run(repository: &Path, base: &str, head: &str) {
    let git = Repository::open(repository).unwrap();
    let mut blobs = HashSet::new();
    let mut files = 0_usize;
    for name in [base, head] {
        let tree = git.revparse_single(name).unwrap().peel_to_tree().unwrap();
        tree.walk(TreeWalkMode::PreOrder, |_, entry| {
            if entry.kind() == Some(ObjectType::Blob) {
                files += 1;
                let name = entry.name().unwrap_or_default();
                let wanted = [
                    "kcl.mod",
                    "kcl.yaml",
                    "settings.yaml",
                    "project.yaml",
                    "stack.yaml",
                ]
                .contains(&name);
                if wanted || name.ends_with(".k") {
                    blobs.insert(entry.id());
                }
            }
            TreeWalkResult::Ok
        })
        .unwrap();
    }
    let mut bytes = 0_usize;
    for blob in &blobs {
        bytes += git.find_blob(*blob).unwrap().content().len();
    }
    println!("{files} files, {} blobs, {bytes} bytes", blobs.len());
}
