//! A folder of this machine as a store. The first write creates it, so that a run that only reads leaves
//! nothing behind. Only the owner can read the files (mode 0600, folders 0700).

use std::{
    fs::{self, DirBuilder, Permissions, set_permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::{Created, Key, Store, StoreError, StoreOptions, cloud};

struct FolderStore {
    url: String,
    path: PathBuf,
    options: StoreOptions,
    there: OnceCell<Arc<dyn Store>>,
}

/// Opens a store in a folder.
///
/// # Errors
/// The folder can never be created, because a parent is not a folder.
pub(super) fn folder(path: PathBuf, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let url = format!("file://{}", path.display().to_string().escape_debug());
    if let Some(above) = path
        .ancestors()
        .find(|above| above.exists())
        .filter(|above| !above.is_dir())
    {
        let why = format!("{} is not a folder", above.display().to_string().escape_debug());
        return Err(StoreError::config(url, why));
    }
    Ok(Arc::new(FolderStore {
        url,
        path,
        options: options.clone(),
        there: OnceCell::new(),
    }))
}

/// The mode of folders.
const FOLDER: u32 = 0o700;
const FILE: u32 = 0o600;
/// The mode bits of everybody but the owner.
const OTHERS: u32 = 0o077;

fn make_private_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder)
}

impl FolderStore {
    /// Returns the store if the folder exists.
    async fn opened_store(&self) -> Result<Option<&Arc<dyn Store>>, StoreError> {
        if self.there.get().is_none() && !self.path.exists() {
            return Ok(None);
        }
        self.create_store().await.map(Some)
    }

    async fn create_store(&self) -> Result<&Arc<dyn Store>, StoreError> {
        self.there
            .get_or_try_init(|| async {
                make_private_folder(&self.path).map_err(|error| StoreError::config(&self.url, error))?;
                cloud::folder(&self.path, &self.options)
            })
            .await
    }

    fn denied(&self, key: &Key, error: io::Error) -> StoreError {
        StoreError::Denied {
            url: self.url.clone(),
            key: key.to_string(),
            why: error.into(),
        }
    }

    /// Creates the parent folders of a file, and removes the permissions of others from folders that an older
    /// version created. The root folder of the store keeps its permissions if it already exists.
    fn close_folders(&self, file: &Path) -> io::Result<()> {
        let folder = file.parent().unwrap_or(&self.path);
        make_private_folder(folder)?;
        let inside = folder.ancestors().take_while(|above| *above != self.path);
        for folder in inside {
            if folder.metadata()?.permissions().mode() & OTHERS != 0 {
                set_permissions(folder, Permissions::from_mode(FOLDER))?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Store for FolderStore {
    fn url(&self) -> &str {
        &self.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        match self.opened_store().await? {
            Some(store) => store.get(key).await,
            None => Ok(None),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        match self.opened_store().await? {
            Some(store) => store.list(prefix).await,
            None => Ok(Vec::new()),
        }
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let store = self.create_store().await?;
        // The key is the name of the file.
        let file = self.path.join(key.as_str());
        let denied = |error: io::Error| self.denied(key, error);
        self.close_folders(&file).map_err(denied)?;
        let created = store.create(key, content).await?;
        if created == Created::Created {
            set_permissions(&file, Permissions::from_mode(FILE)).map_err(denied)?;
        }
        Ok(created)
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        match self.opened_store().await? {
            Some(store) => store.delete(key).await,
            None => Ok(()),
        }
    }

    async fn remove_unfinished(&self, folder: &Key) -> Result<(), StoreError> {
        remove_unfinished(&self.path.join(folder.as_str())).map_err(|error| self.denied(folder, error))
    }
}

/// Removes the files of unfinished writes (`KEY#1`), and folders without files. Other processes may write or
/// remove at the same time.
fn remove_unfinished(folder: &Path) -> io::Result<()> {
    let entries = match folder.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    let mut is_empty = true;
    for entry in entries {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        let kind = match entry {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            kind => kind?,
        };
        if kind.is_dir() {
            remove_unfinished(&path)?;
            is_empty &= !path.exists();
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let number = name.rsplit_once('#').map_or("", |(_, number)| number);
        if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
            unless_overtaken(fs::remove_file(&path))?
        } else {
            is_empty = false
        }
    }
    if is_empty {
        unless_overtaken(fs::remove_dir(folder))
    } else {
        Ok(())
    }
}

/// Ignores the error of a removal if another process removed the path first, or wrote into the folder.
fn unless_overtaken(removal: io::Result<()>) -> io::Result<()> {
    match removal {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
            ) =>
        {
            Ok(())
        }
        removal => removal,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[tokio::test]
    async fn looking_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("states");
        let store = folder(path.clone(), &StoreOptions::default()).unwrap();
        let key = Key::from_components(&["a", "b"]);
        assert_eq!(store.get(&key).await.unwrap(), None);
        assert!(
            store
                .list(&Key::from_components(&["a"]))
                .await
                .unwrap()
                .is_empty()
        );
        assert!(!path.exists());
        assert_eq!(
            store.create(&key, Bytes::from_static(b"x")).await.unwrap(),
            Created::Created
        );
        assert_eq!(store.list(&Key::from_components(&["a"])).await.unwrap(), [key]);
    }

    /// A writer that was killed between the file and its name leaves a file that no list shows.
    #[tokio::test]
    async fn unfinished_writes_are_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let store = folder(place.path().to_owned(), &StoreOptions::default()).unwrap();
        let kept = Key::from_components(&["tests", "a", "stacks", "x#1y"]);
        let gone = Key::from_components(&["tests", "b", "lease", "1"]);
        for key in [&kept, &gone] {
            store.create(key, Bytes::from_static(b"x")).await.unwrap();
        }
        store.delete(&gone).await.unwrap();
        std::fs::write(place.path().join("tests/a/stacks/2#1"), "half").unwrap();
        std::fs::write(place.path().join("tests/b/lease/2#12"), "half").unwrap();
        for part in ["a", "b", "c"] {
            let part = Key::from_components(&["tests", part]);
            store.remove_unfinished(&part).await.unwrap();
        }
        let all = Key::from_components(&["tests"]);
        assert_eq!(store.list(&all).await.unwrap(), std::slice::from_ref(&kept));
        assert!(!place.path().join("tests/a/stacks/2#1").exists());
        assert!(!place.path().join("tests/b").exists());
    }

    #[test]
    fn clean_ups_at_the_same_time_both_succeed() {
        let place = tempfile::tempdir().unwrap();
        let part = place.path().join("tests/a");
        for folder in 0..50 {
            let folder = part.join(folder.to_string());
            fs::create_dir_all(&folder).unwrap();
            for file in 0..10 {
                fs::write(folder.join(format!("1#{file}")), "half").unwrap();
            }
        }
        let start = Barrier::new(4);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    start.wait();
                    remove_unfinished(&part).unwrap();
                });
            }
        });
        assert!(!part.exists());
    }

    #[test]
    fn what_a_writer_put_into_a_folder_stays() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), "").unwrap();
        unless_overtaken(fs::remove_dir(place.path())).unwrap();
        unless_overtaken(fs::remove_file(place.path().join("gone"))).unwrap();
        assert!(place.path().join("file").exists());
        unless_overtaken(fs::remove_dir(place.path().join("file"))).unwrap_err();
    }

    #[tokio::test]
    async fn nobody_else_can_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/states");
        // Created by an older version.
        std::fs::create_dir_all(path.join("stacks/old")).unwrap();
        set_permissions(path.join("stacks"), Permissions::from_mode(0o755)).unwrap();
        let store = folder(path.clone(), &StoreOptions::default()).unwrap();
        let keys = [
            Key::from_components(&["stacks", "shop/dev", "1"]),
            Key::from_components(&["stacks", "old", "a.b=c@d+e"]),
        ];
        for key in &keys {
            store.create(key, Bytes::from_static(b"x")).await.unwrap();
        }
        let fresh = folder(place.path().join("fresh"), &StoreOptions::default()).unwrap();
        fresh.create(&keys[0], Bytes::from_static(b"x")).await.unwrap();
        let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
        for key in &keys {
            let file = path.join(key.as_str());
            assert_eq!(mode(file.clone()), 0o600, "{key}");
            assert_eq!(mode(file.parent().unwrap().to_owned()), 0o700, "{key}");
        }
        assert_eq!(mode(path.join("stacks")), 0o700);
        assert_eq!(mode(place.path().join("fresh")), 0o700);
    }
}
