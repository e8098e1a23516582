//! Handles paths that leave the repository: the error, and the path that was probably meant.

use super::FileTreeView;
use konverge_base::model::RepoPath;

/// Returns the reason why a path relative to a folder is refused.
pub(super) fn describe_refusal(tree: &FileTreeView, from: &RepoPath, text: &str) -> String {
    let exists = |path: &RepoPath| !path.is_root() && (tree.is_file(path) || tree.is_folder(path));
    refusal(text, from, suggested_path(text, exists))
}

/// Returns the reason why the path of a dependency is refused. `root` is the name of the package at the root of the
/// repository.
pub(super) fn dependency(
    tree: &FileTreeView,
    from: &RepoPath,
    name: &str,
    text: &str,
    root: Option<&str>,
) -> String {
    let named = |known: &str| known.replace('-', "_") == name;
    let package = suggested_path(text, |path| {
        if path.is_root() {
            root.is_some_and(named)
        } else {
            tree.is_file(&path.child("kcl.mod"))
        }
    });
    format!("the dependency `{name}`: {}", refusal(text, from, package))
}

/// Resolves a path that leaves the repository to the parent folder of the checkout and enters it again by the name of
/// the checkout's folder, as in kcl-lang's Konfig. Git does not record that name, so `root`, the name of the package at
/// the root, is used instead.
pub(super) fn by_checkout_name(from: &RepoPath, text: &str, root: Option<&str>) -> Option<RepoPath> {
    let mut depth = from.as_str().split('/').filter(|part| !part.is_empty()).count();
    let mut parts = text.split('/').filter(|part| !matches!(*part, "" | "."));
    while depth > 0 {
        if parts.next()? != ".." {
            return None;
        }
        depth -= 1;
    }
    let back = (parts.next()?, parts.next()?);
    (back.0 == ".." && Some(back.1) == root)
        .then(|| RepoPath::normalize(&parts.collect::<Vec<_>>().join("/")))
        .flatten()
}

fn refusal(text: &str, from: &RepoPath, meant: Option<RepoPath>) -> String {
    let what = format!("`{}` leads out of the repository", text.escape_debug());
    match meant {
        Some(path) => format!("{what}; write `{}`", path.path_from(from)),
        None => format!("{what}; only files of the repository are read"),
    }
}

/// Returns the path inside the repository that was probably meant. A path that leaves the checkout enters it again
/// through the name of the checkout's folder, which may be another one elsewhere. So the suggestion is the rest of the
/// path after that name, if it exists.
fn suggested_path(text: &str, exists: impl Fn(&RepoPath) -> bool) -> Option<RepoPath> {
    let parts: Vec<&str> = text
        .split('/')
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    (0..=parts.len())
        .filter_map(|start| RepoPath::normalize(&parts[start..].join("/")))
        .find(|path| exists(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_package_at_the_root_leads_back() {
        let from = RepoPath::normalize("examples/server/prod").unwrap();
        let meant = |text: &str, root| by_checkout_name(&from, text, root);
        let root = Some("konfig");
        assert_eq!(meant("../../../../konfig", root), Some(RepoPath::root()));
        assert_eq!(
            meant("../../../../konfig/a/b.k", root),
            RepoPath::normalize("a/b.k")
        );
        for other in [
            "../../../../other",
            "../../../../../konfig",
            "../../../..",
            "../../../konfig",
            "../../../../konfig/../other",
            "../../../../konfig/../../konfig",
            "/konfig",
            "x/../../../../../konfig",
        ] {
            assert_eq!(meant(other, root), None, "{other}");
        }
        assert_eq!(meant("../../../../konfig", None), None);
    }
}
