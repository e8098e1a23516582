//! [`LockUpdate`]: locks the packages of a stack in its `kcl.mod.lock`.

use super::{
    fetcher::PackageFetcher,
    lock_entry::{LockEntry, PathEntry},
    lock_file,
    resolver::Renewal,
    source,
};
use crate::KclError;
use konverge_base::model::{package_lock::PackageLock, stack::RemotePackage};

/// New content of `kcl.mod.lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockUpdate {
    /// The text of the file.
    pub text: String,
    /// The packages with new entries, with what was found.
    pub changed: Vec<(String, String)>,
    /// The number of packages whose entries are as before.
    pub unchanged: usize,
}

impl PackageFetcher {
    /// Locks the packages of a stack and their dependencies in `text`, its `kcl.mod.lock`; `lock` also has what the locks
    /// of the packages in the repository pin. Entries that pin what
    /// `kcl.mod` asks for keep their bytes, but for the packages in `renewed`. `by_path` are the packages in the
    /// repository: the official tools list them too.
    ///
    /// # Errors
    /// As [`PackageFetcher::resolve`]; the file is not in the form that the official tools write.
    pub async fn lock(
        &self,
        wanted: &[RemotePackage],
        lock: &PackageLock,
        text: &str,
        renewed: &[String],
        by_path: &[PathEntry],
    ) -> Result<LockUpdate, KclError> {
        let own = PackageLock::parse(text.as_bytes()).map_err(|error| KclError::Lock(error.into()))?;
        let found = self.resolve_each(wanted, lock, Renewal::Stale(renewed)).await?;
        let (mut entries, mut changed, mut unchanged) = (Vec::new(), Vec::new(), 0);
        for (package, resolved) in &found {
            let source = source::read(package, self.registry())?;
            let known = own.find(&package.name).is_some_and(|locked| locked.is_pinned());
            if known && resolved.unlocked.is_none() && !Renewal::Stale(renewed).is_of(package, &source) {
                unchanged += 1;
                continue;
            }
            let entry =
                LockEntry::new(package, &source, resolved).map_err(|error| KclError::Lock(error.into()))?;
            changed.push((package.declared.clone(), entry.to_string()));
            entries.push(entry);
        }
        // The official tools look packages up in the lock alone, if there is one.
        let is_listed = |entry: &PathEntry| own.find(&entry.declared.replace('-', "_")).is_some();
        if !entries.is_empty() {
            let missing = by_path.iter().filter(|entry| !is_listed(entry));
            entries.extend(missing.map(LockEntry::of_path));
        }
        Ok(LockUpdate {
            text: lock_file::update(text, &entries).map_err(|why| KclError::Lock(why.into()))?,
            changed,
            unchanged,
        })
    }
}
