//! Writes into the checkout without following any symbolic link in it.

use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Write as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{MetadataExt as _, PermissionsExt as _},
    },
    path::{Component, Path},
};

use nix::{
    errno::Errno,
    fcntl::{AtFlags, OFlag, open, openat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, unlinkat},
};

/// The treatment of an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// The file is replaced atomically.
    Replace,
    /// An existing file is not changed.
    Keep,
}

/// Tells whether a file was created or already existed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrittenFile {
    /// The content was written.
    Created,
    /// The file existed and is unchanged.
    Kept,
}

/// Writes a file below a folder, and creates missing folders. No link below the root is followed or replaced.
/// New files get the owner of the root: a job that runs as root in a container must leave nothing that the
/// runner cannot remove.
///
/// # Errors
/// A link or a file is in place of a folder, the path itself is a link, the path leaves the root or
/// enters `.git`, or the system refuses the write.
pub fn write(root: &Path, path: &Path, content: &[u8], existing: Existing) -> io::Result<WrittenFile> {
    let owner = Owner::folder(root)?;
    let names = names(path)?;
    let (&name, folders) = names.split_last().ok_or_else(|| refusal(path, "names no file"))?;
    let mut folder = open(root, FOLDER, Mode::empty())?;
    for &name in folders {
        folder = enter(&folder, name, &owner).map_err(|error| match error {
            Errno::ELOOP | Errno::ENOTDIR => refusal(
                path,
                &format!("passes through `{}`, which is not a folder", name.display()),
            ),
            other => other.into(),
        })?;
    }
    match (stat(&folder, name)?, existing) {
        (Some(_), Existing::Keep) => Ok(WrittenFile::Kept),
        (Some(found), Existing::Replace) if !is_file(&found) => Err(refusal(
            path,
            "is a link or a folder, and would be replaced by a file",
        )),
        (found, Existing::Replace) => {
            let fresh = format!(".konverge-{}", uuid::Uuid::new_v4().simple());
            #[allow(clippy::useless_conversion, reason = "a mode has 16 bits on macOS")]
            let mode = found.map(|found| Permissions::from_mode(u32::from(found.st_mode) & 0o777));
            let replaced = create(&folder, OsStr::new(&fresh), content, &owner, mode)
                .and_then(|()| Ok(renameat(&folder, fresh.as_str(), &folder, name)?));
            if replaced.is_err() {
                // The result is ignored: the temporary file may never have been created.
                let _ = unlinkat(&folder, fresh.as_str(), UnlinkatFlags::NoRemoveDir);
            }
            replaced.map(|()| WrittenFile::Created)
        }
        (None, Existing::Keep) => match create(&folder, name, content, &owner, None) {
            // Another process created the file first, so it is kept like any existing file.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(WrittenFile::Kept),
            other => other.map(|()| WrittenFile::Created),
        },
    }
}

pub(super) const FOLDER: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

const FRESH: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Splits a relative path into components, and checks that the path stays below its root.
pub(super) fn names(path: &Path) -> io::Result<Vec<&OsStr>> {
    let name = |component| match component {
        Component::Normal(name) if name != ".git" => Ok(name),
        _ => Err(refusal(path, "leads out of the checkout or into `.git`")),
    };
    path.components().map(name).collect()
}

/// Opens a folder inside an open folder, and creates it if it does not exist.
fn enter(folder: &OwnedFd, name: &OsStr, owner: &Owner) -> Result<OwnedFd, Errno> {
    match openat(folder, name, FOLDER, Mode::empty()) {
        Err(Errno::ENOENT) => {}
        other => return other,
    }
    match mkdirat(folder, name, Mode::from_bits_truncate(0o777)) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error),
    }
    let made = openat(folder, name, FOLDER, Mode::empty())?;
    owner.give(&made);
    Ok(made)
}

fn create(
    folder: &OwnedFd,
    name: &OsStr,
    content: &[u8],
    owner: &Owner,
    mode: Option<Permissions>,
) -> io::Result<()> {
    let file = openat(folder, name, FRESH, Mode::from_bits_truncate(0o666))?;
    owner.give(&file);
    let mut file = File::from(file);
    if let Some(mode) = mode {
        file.set_permissions(mode)?;
    }
    file.write_all(content)
}

fn stat(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<FileStat>> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_file(found: &FileStat) -> bool {
    SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFREG
}

pub(super) fn refusal(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!(
        "`{}` {why}: Konverge does not write through links in the repository",
        path.display().to_string().escape_debug()
    ))
}

/// The owner of new files; `None` if they already belong to that owner.
struct Owner(Option<(Uid, Gid)>);

impl Owner {
    fn folder(root: &Path) -> io::Result<Self> {
        let found = fs::metadata(root)?;
        let ids = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
        Ok(Self(
            Some(ids).filter(|(owner, _)| geteuid().is_root() && !owner.is_root()),
        ))
    }

    fn give(&self, made: &impl AsFd) {
        if let Some((owner, group)) = self.0
            && let Err(error) = fchown(made, Some(owner), Some(group))
        {
            tracing::debug!(%error, "a new file stays with this user");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_made_with_their_folders_replaced_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = Path::new("a/b/c.yaml");
        let write = |content: &[u8], existing| write(root.path(), path, content, existing).unwrap();
        assert_eq!(write(b"one", Existing::Keep), WrittenFile::Created);
        assert_eq!(write(b"two", Existing::Keep), WrittenFile::Kept);
        let place = root.path().join(path);
        assert_eq!(fs::read(&place).unwrap(), b"one");
        fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(write(b"three", Existing::Replace), WrittenFile::Created);
        assert_eq!(fs::read(&place).unwrap(), b"three");
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn no_link_is_followed_and_nothing_outside_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let (root, elsewhere) = (folder.path().join("root"), folder.path().join("elsewhere"));
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("there"), "before").unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(&elsewhere, root.join("folder")).unwrap();
        symlink(elsewhere.join("there"), root.join("link")).unwrap();
        symlink(elsewhere.join("new"), root.join("dangling")).unwrap();
        symlink(".git/hooks", root.join("hooks")).unwrap();
        let hostile = [
            "folder/x",
            "folder/x/y",
            "link",
            "dangling",
            "hooks/pre-commit",
            "file/x",
            "../elsewhere/there",
            "a/../../elsewhere/there",
            ".git/hooks/pre-commit",
            "a/.git/config",
            "",
        ];
        for path in hostile {
            let refused = write(&root, Path::new(path), b"x", Existing::Replace);
            assert!(refused.is_err(), "{path}");
            let kept = write(&root, Path::new(path), b"x", Existing::Keep);
            assert!(!matches!(kept, Ok(WrittenFile::Created)), "{path}");
        }
        let absolute = elsewhere.join("there");
        assert!(write(&root, &absolute, b"x", Existing::Replace).is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&absolute).unwrap(), "before");
        assert_eq!(fs::read_dir(root.join(".git/hooks")).unwrap().count(), 0);
    }
}
