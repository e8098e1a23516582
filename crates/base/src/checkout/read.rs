//! Reads a file of the checkout without following any symbolic link in it.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, open, openat},
    sys::stat::Mode,
};

use super::write::{FOLDER, names, refusal};

const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_CLOEXEC);

/// Reads a file below `root` without following links; `None` if the file does not exist.
///
/// # Errors
/// A component of the path is a link, the path names something other than a file, leaves the root or enters
/// `.git`, or the system refuses to read it.
pub fn read(root: &Path, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let names = names(path)?;
    let (&name, folders) = names.split_last().ok_or_else(|| refusal(path, "names no file"))?;
    let opened = (|| {
        let mut folder = open(root, FOLDER, Mode::empty())?;
        for &name in folders {
            folder = openat(&folder, name, FOLDER, Mode::empty())?;
        }
        openat(&folder, name, FILE, Mode::empty())
    })();
    let file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::ENOENT) => return Ok(None),
        Err(Errno::ELOOP | Errno::ENOTDIR) => return Err(refusal(path, "leads through a link or a file")),
        Err(error) => return Err(error.into()),
    };
    if !file.metadata()?.is_file() {
        return Err(refusal(path, "is not a file"));
    }
    let mut content = Vec::new();
    (&file).read_to_end(&mut content)?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_file_is_read_and_no_link_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "here").unwrap();
        fs::write(folder.path().join("secret"), "there").unwrap();
        symlink(folder.path(), root.join("folder")).unwrap();
        symlink("../secret", root.join("link")).unwrap();
        assert_eq!(
            read(&root, Path::new("a/b/file")).unwrap(),
            Some(b"here".to_vec())
        );
        for missing in ["a/b/none", "none/file"] {
            assert_eq!(read(&root, Path::new(missing)).unwrap(), None, "{missing}");
        }
        for refused in [
            "folder/secret",
            "link",
            "../secret",
            "a/b",
            "a/b/file/x",
            ".git/config",
        ] {
            assert!(read(&root, Path::new(refused)).is_err(), "{refused}");
        }
    }
}
