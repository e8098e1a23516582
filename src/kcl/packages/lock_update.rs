//! [`LockUpdate`]: locks the packages of a stack in its `kcl.mod.lock`.

use super::{
    fetcher::PackageFetcher,
    lock_entry::{LockEntry, PathEntry},
    lock_file,
    request::PackageRequest,
    resolver::Renewal,
    source,
};
use crate::{kcl::KclError, model::package_lock::PackageLock};

/// What `kcl.mod.lock` becomes.
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
    /// Locks the packages of a stack and their dependencies in `text`, a `kcl.mod.lock`. Entries that pin what
    /// `kcl.mod` asks for keep their bytes, but for the packages in `renewed`. `by_path` are the packages in the
    /// repository: the official tools list them too.
    ///
    /// # Errors
    /// As [`PackageFetcher::resolve`]; the file is not in the form that the official tools write.
    pub async fn lock(
        &self,
        request: &PackageRequest<'_>,
        text: &str,
        renewed: &[String],
        by_path: &[PathEntry],
    ) -> Result<LockUpdate, KclError> {
        let failed = |why: String| KclError::Lock {
            file: request.place.file.clone(),
            why,
        };
        let lock = PackageLock::parse(text.as_bytes()).map_err(failed)?;
        let found = self.resolve_each(request, Renewal::Stale(renewed)).await?;
        let (mut entries, mut changed, mut unchanged) = (Vec::new(), Vec::new(), 0);
        for (package, resolved) in &found {
            let known = lock.find(&package.name).is_some_and(|locked| locked.is_pinned());
            if known && resolved.unlocked.is_none() {
                unchanged += 1;
                continue;
            }
            let registry = self.registry();
            let source = source::read(package, registry)?;
            let entry =
                LockEntry::new(package, &source, resolved).map_err(|error| failed(error.to_string()))?;
            changed.push((package.declared.clone(), entry.to_string()));
            entries.push(entry);
        }
        // The official tools look packages up in the lock alone, if there is one.
        let is_listed = |entry: &PathEntry| lock.find(&entry.declared.replace('-', "_")).is_some();
        if !entries.is_empty() {
            let missing = by_path.iter().filter(|entry| !is_listed(entry));
            entries.extend(missing.map(LockEntry::of_path));
        }
        Ok(LockUpdate {
            text: lock_file::update(text, &entries).map_err(failed)?,
            changed,
            unchanged,
        })
    }
}
