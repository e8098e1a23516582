//! Resolves a path, one symbolic link after the other.

use std::{
    collections::VecDeque,
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

use crate::kernel::is_process_file_system;

/// The maximum number of links, as in the kernel.
const MOST_LINKS: usize = 40;

/// The location that a path leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathTarget {
    /// The path leads outside the checkout, and not below `/proc`.
    Outside,
    /// The path leads to, or through, this path in the checkout.
    Inside(PathBuf),
    /// The path leads below `/proc`, where a name means something else for each process that opens it.
    Process,
    /// The path is not absolute.
    Nowhere,
    /// The path has too many links.
    TooFar,
}

/// Resolves all symbolic links of a path. The links in `root`, the root of the checkout, must be resolved already.
///
/// The result is [`PathTarget::Inside`] even if the path leaves the checkout again, because the branch decides where a
/// link in the checkout leads. The folder `.git` at the root does not count, because no revision can contain it.
pub(super) fn follow(path: &Path, root: Option<&Path>) -> PathTarget {
    if !path.is_absolute() {
        return PathTarget::Nowhere;
    }
    let mut rest = components(path);
    let mut here = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        if let Some(root) = root
            && next.starts_with(root)
            && next != root
            && !next.starts_with(root.join(".git"))
        {
            return PathTarget::Inside(next);
        }
        if is_of_processes(&next) {
            return PathTarget::Process;
        }
        // There is no link here, perhaps no file at all: the path continues as written.
        let Ok(target) = fs::read_link(&next) else {
            here = next;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return PathTarget::TooFar;
        }
        if target.is_absolute() {
            here = PathBuf::from("/");
        }
        for name in components(&target).into_iter().rev() {
            rest.push_front(name);
        }
    }
    match root {
        Some(root) if here == root => PathTarget::Inside(here),
        _ => PathTarget::Outside,
    }
}

fn components(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

/// Returns true if a folder is `/proc`, or the same file system mounted elsewhere.
fn is_of_processes(path: &Path) -> bool {
    let is_folder = || fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    path == Path::new("/proc") || is_folder() && is_process_file_system(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place {
        _folder: tempfile::TempDir,
        root: PathBuf,
        elsewhere: PathBuf,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let (root, elsewhere) = (real.join("checkout"), real.join("elsewhere"));
        fs::create_dir_all(root.join("tools")).unwrap();
        fs::create_dir_all(root.join(".git/cache")).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        for folder in [&root.join("tools"), &elsewhere] {
            fs::write(folder.join("tool"), "").unwrap();
        }
        Place {
            _folder: folder,
            root,
            elsewhere,
        }
    }

    #[test]
    fn every_way_into_the_checkout_is_seen() {
        let Place { root, elsewhere, .. } = &place();
        symlink(root, elsewhere.join("alias")).unwrap();
        symlink("alias/tools", elsewhere.join("second")).unwrap();
        symlink("../checkout/tools/tool", elsewhere.join("linked")).unwrap();
        // A link in the branch that leads out again is still chosen by the branch.
        symlink(elsewhere, root.join("out")).unwrap();
        let inside = [
            root.clone(),
            root.join("tools/tool"),
            root.join("not/there"),
            root.join("out/tool"),
            root.join("tools/../../elsewhere/tool"),
            elsewhere.join("../checkout/tools/tool"),
            elsewhere.join("alias/tools/tool"),
            elsewhere.join("second/tool"),
            elsewhere.join("linked"),
            elsewhere.join("missing/../../checkout/tools/tool"),
            elsewhere.join("alias"),
        ];
        for path in inside {
            let leads = follow(&path, Some(root));
            assert!(matches!(leads, PathTarget::Inside(_)), "{path:?}: {leads:?}");
        }
        let outside = [
            elsewhere.join("tool"),
            elsewhere.join("not/there"),
            root.join("../elsewhere/tool"),
            root.join(".git/cache"),
            // A sibling with the same name prefix.
            PathBuf::from(format!("{}-tools/tool", root.display())),
        ];
        for path in outside {
            assert_eq!(follow(&path, Some(root)), PathTarget::Outside, "{path:?}");
        }
    }

    #[test]
    fn what_a_process_decides_is_seen() {
        let Place { root, elsewhere, .. } = &place();
        symlink("/proc/self/cwd", elsewhere.join("cwd")).unwrap();
        for path in [
            Path::new("/proc/self/cwd/tool"),
            Path::new("/usr/../proc/1/root/bin/tool"),
            Path::new("/dev/fd/3"),
            Path::new("/dev/stdin"),
            &elsewhere.join("cwd/tool"),
        ] {
            assert_eq!(follow(path, Some(root)), PathTarget::Process, "{path:?}");
        }
    }

    #[test]
    fn relative_and_endless_paths_are_no_paths() {
        let Place { elsewhere, .. } = &place();
        symlink("round", elsewhere.join("round")).unwrap();
        assert_eq!(follow(&elsewhere.join("round/x"), None), PathTarget::TooFar);
        for path in ["tool", "./tool", "../tool", ""] {
            assert_eq!(follow(Path::new(path), None), PathTarget::Nowhere, "{path:?}");
        }
    }
}
