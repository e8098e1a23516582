//! Converts between the editor's URIs and files of the repository.

use std::path::{Path, PathBuf};

use konverge_base::model::RepoPath;
use lsp_types::Url;

/// Returns the local path of a `file:` URI; `None` for other URIs.
pub(crate) fn path_of(uri: &Url) -> Option<PathBuf> {
    let path = (uri.scheme() == "file").then(|| uri.to_file_path().ok())??;
    (!path.as_os_str().as_encoded_bytes().contains(&0)).then_some(path)
}

/// Returns the repository file of a URI; `None` if it is outside the repository. Symbolic links to its folder are
/// resolved, because an editor may have opened the repository by another path.
pub(crate) fn file_of(uri: &Url, root: &Path) -> Option<RepoPath> {
    let path = path_of(uri)?;
    let folder = path.parent()?.canonicalize().ok();
    let real = folder
        .zip(path.file_name())
        .map(|(folder, name)| folder.join(name));
    // The folder of a deleted file may not exist any more, and then its path cannot be resolved.
    let real = real.unwrap_or(path);
    RepoPath::normalize(real.strip_prefix(root).ok()?.to_str()?).filter(|file| !file.is_root())
}

/// Returns the URI of a local path; `None` for a relative path.
pub(crate) fn uri_of(path: &Path) -> Option<Url> {
    Url::from_file_path(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_file_of_the_repository_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a b/ü")).unwrap();
        std::os::unix::fs::symlink(root.join("a b"), root.join("link")).unwrap();
        let uri = |rest: &str| format!("file://{}/{rest}", root.display());
        let file = |uri: &str| file_of(&Url::parse(uri).ok()?, &root).map(|path| path.to_string());
        for (given, expected) in [
            (uri("a%20b/main.k"), Some("a b/main.k")),
            (uri("a b/%C3%BC/x.k"), Some("a b/ü/x.k")),
            (uri("a%20b/../main.k"), Some("main.k")),
            (uri("a%20b/%2e%2e/main.k"), Some("main.k")),
            (uri("link/x.k"), Some("a b/x.k")),
            (uri("gone/deep/x.k"), Some("gone/deep/x.k")),
            (uri("../x.k"), None),
            (uri("gone%2F..%2F..%2Fx.k"), None),
            (uri("a%00b/x.k"), None),
            (uri("gone/%ff.k"), None),
            (uri(""), None),
            ("file:///etc/passwd".to_owned(), None),
            ("file://host/x.k".to_owned(), None),
            ("file:///C:/repo/main.k".to_owned(), None),
            ("C:\\repo\\main.k".to_owned(), None),
            ("untitled:Untitled-1".to_owned(), None),
            ("https://example.com/x.k".to_owned(), None),
            (root.join("x.k").display().to_string(), None),
            (String::new(), None),
            ("%".to_owned(), None),
        ] {
            assert_eq!(file(&given).as_deref(), expected, "{given}");
        }
    }

    #[test]
    fn a_path_survives_as_a_uri() {
        let path = Path::new("/a b/ü#?%/main.k");
        assert_eq!(path_of(&uri_of(path).unwrap()).as_deref(), Some(path));
        assert_eq!(uri_of(Path::new("a/b")), None);
    }
}
