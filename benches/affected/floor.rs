//! The floor: what any method without an index must do at least, as a plain libgit2 program.
//!
//! It is run in two ways. As libgit2 comes, it hashes every object that it reads a second time; `trusting` switches
//! that off, as Konverge does and as git itself never did for objects of a pack.

use std::{collections::HashSet, path::Path};

use git2::{ObjectType, Repository, TreeWalkMode, TreeWalkResult};

/// Walks both trees and inflates every blob of interest once.
pub fn run(repository: &Path, base: &str, head: &str, trusting: bool) {
    git2::opts::strict_hash_verification(!trusting);
    let git = Repository::open(repository).unwrap();
    // Read in the order of the walk: what lies close together in the tree is stored as differences from one another.
    let (mut blobs, mut met) = (Vec::new(), HashSet::new());
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
                if (wanted || name.ends_with(".k")) && met.insert(entry.id()) {
                    blobs.push(entry.id());
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
