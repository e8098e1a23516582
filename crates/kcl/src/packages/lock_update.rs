//! [`LockUpdate`]: updates the `kcl.mod.lock` of a stack.

use super::{
    fetcher::PackageFetcher,
    lock_entry::{LockEntry, PathEntry},
    lock_file,
    resolver::Renewal,
    source,
};
use crate::KclError;
use konverge_base::model::{package_lock::PackageLock, stack::RemotePackage};

/// The new content of a `kcl.mod.lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockUpdate {
    /// The new text of the file.
    pub text: String,
    /// The packages with new entries, each with its new pin.
    pub changed: Vec<(String, String)>,
    /// The number of packages whose entries did not change.
    pub unchanged: usize,
}

impl PackageFetcher {
    /// Locks the packages of a stack and their dependencies.
    ///
    /// `text` is the stack's `kcl.mod.lock`; `lock` also contains the pins from the locks of packages in the
    /// repository. An entry keeps its bytes if it matches `kcl.mod` and its package is not in `renewed`. `by_path` are
    /// the packages in the repository, which the official tools list too.
    ///
    /// # Errors
    /// The errors of [`PackageFetcher::resolve`]; also if the file does not have the format of the official tools.
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
        // If there is a lock, the official tools look packages up only in it, so every package must be listed.
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
