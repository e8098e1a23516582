//! Recognizes the layout of kcl-lang's Konfig: packages with a program each, and no `stack.yaml`.

use std::{collections::BTreeSet, sync::Arc};

use konverge_base::{
    error::UserError,
    model::{RepoPath, file_source::Source, stack::LayoutRules},
};
use konverge_repo::konfig::Layout;

/// With more globs than this, the packages have no common layout.
const MOST_GLOBS: usize = 12;

/// The globs of `include` that make the programs among the packages of a repository stacks; empty if it has none, or if
/// they have no common layout.
///
/// # Errors
/// A file cannot be read.
pub(super) fn include(files: &Arc<dyn Source>) -> Result<Vec<String>, UserError> {
    let every = LayoutRules {
        include: vec!["**".to_owned()],
        ..LayoutRules::default()
    };
    let packages = Layout::read(files, every)?;
    // The commonest KCL repository of all: one package, which is the repository.
    let root = RepoPath::root();
    if packages.stacks.is_empty()
        && files.files().contains_key(&root.child("kcl.mod"))
        && is_program(&root, files.as_ref())
    {
        return Ok(vec![".".to_owned()]);
    }
    let packages: BTreeSet<RepoPath> = packages.stacks.into_iter().map(|stack| stack.folder).collect();
    let is_program = |folder: &&RepoPath| is_program(folder, files.as_ref());
    let programs: BTreeSet<RepoPath> = packages.iter().filter(is_program).cloned().collect();
    let globs = globs(&programs, &packages);
    Ok(if globs.len() > MOST_GLOBS {
        Vec::new()
    } else {
        globs
    })
}

/// Returns true if a package is run by itself: its `kcl.mod` names entries, or it has a `main.k`.
fn is_program(folder: &RepoPath, files: &dyn Source) -> bool {
    let has_entries = || {
        let text = files.read_path(&folder.child("kcl.mod")).ok()??;
        let table: toml::Table = std::str::from_utf8(&text).ok()?.parse().ok()?;
        Some(table.get("profile")?.get("entries")?.as_array()?.is_empty())
    };
    files.files().contains_key(&folder.child("main.k")) || has_entries() == Some(false)
}

/// One glob for all programs of a depth below a folder at the root, if no other package matches it; the folders
/// themselves otherwise.
fn globs(programs: &BTreeSet<RepoPath>, packages: &BTreeSet<RepoPath>) -> Vec<String> {
    let pattern = |folder: &RepoPath| {
        let mut parts = folder.as_str().split('/');
        let first = globset::escape(parts.next().unwrap_or_default());
        parts.fold(first, |glob, _| glob + "/*")
    };
    let others: BTreeSet<String> = packages.difference(programs).map(pattern).collect();
    let glob = |folder: &RepoPath| match pattern(folder) {
        shared if others.contains(&shared) => globset::escape(folder.as_str()),
        shared => shared,
    };
    let globs: BTreeSet<String> = programs.iter().map(glob).collect();
    globs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(all: &[&str]) -> BTreeSet<RepoPath> {
        let folder = |path: &&str| RepoPath::normalize(path).unwrap();
        all.iter().map(folder).collect()
    }

    #[test]
    fn programs_of_one_depth_have_one_glob() {
        let programs = ["examples/appops/shop/dev", "examples/server/web/prod"];
        let packages = [&programs[..], &["examples/appops/shop", "models"]].concat();
        assert_eq!(
            globs(&folders(&programs), &folders(&packages)),
            ["examples/*/*/*"]
        );
        // Another package of the same depth is not taken in.
        let packages = [&packages[..], &["examples/lib/x/y"]].concat();
        assert_eq!(globs(&folders(&programs), &folders(&packages)), programs);
        assert_eq!(
            globs(&folders(&["dev", "a/*"]), &folders(&["dev", "a/*"])),
            ["a/*", "dev"]
        );
    }
}
