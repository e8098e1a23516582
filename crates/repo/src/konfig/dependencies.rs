//! `[dependencies]` of `kcl.mod`: packages in the repository with their folders, other packages with their pins.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{
    FileTreeView, kcl_mod::KclMod, outside_paths, parsed_files::ParsedFiles, setup_failure::SetupFailure,
};
use konverge_base::model::{
    RepoPath,
    digest::canonical_json,
    package_lock::{LOCK_FILE, LockedPackage, PackageLock},
    stack::{CompileSetup, RemotePackage, SetupError},
};

/// A package of the repository that a module depends on by path, directly or through another package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPackage {
    /// The name in `[dependencies]`.
    pub declared: String,
    /// The name in the package's own `kcl.mod`.
    pub name: Option<String>,
    /// The version in the package's own `kcl.mod`.
    pub version: Option<String>,
}

/// Returns the packages that the module in a folder depends on by path, the nearest first.
///
/// # Errors
/// A file is missing in the object database, or a file of the module is invalid.
pub fn path_packages(tree: &FileTreeView, root: &RepoPath) -> Result<Vec<PathPackage>, SetupFailure> {
    let reader = ParsedFiles::default();
    let mut setup = CompileSetup {
        module_root: Some(root.clone()),
        ..CompileSetup::default()
    };
    let mut found = Vec::new();
    add_each(&reader, tree, &mut setup, |declared, folder| {
        found.push((declared.to_owned(), folder.clone()));
    })?;
    let mut packages = Vec::new();
    for (declared, folder) in found {
        let module = reader
            .modules
            .get(tree, &folder.child("kcl.mod"))?
            .and_then(Result::ok);
        packages.push(PathPackage {
            declared,
            name: module.as_ref().and_then(|module| module.name.clone()),
            version: module.as_ref().and_then(|module| module.version.clone()),
        });
    }
    Ok(packages)
}

/// Adds the dependencies of the stack's module, and their dependencies. If a name is declared several times, the
/// declaration nearest to the stack counts.
pub(super) fn add(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    setup: &mut CompileSetup,
) -> Result<(), SetupFailure> {
    add_each(reader, tree, setup, |_, _| {})
}

fn add_each(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    setup: &mut CompileSetup,
    mut by_path: impl FnMut(&str, &RepoPath),
) -> Result<(), SetupFailure> {
    let Some(root) = setup.module_root.clone() else {
        return Ok(());
    };
    let mut locks = Locks::new(tree, &root);
    let mut seen = HashSet::from([root.clone()]);
    let mut queue = VecDeque::from([root]);
    while let Some(folder) = queue.pop_front() {
        let file = folder.child("kcl.mod");
        let module = match reader.modules.get(tree, &file)? {
            Some(Ok(module)) => module,
            Some(Err(message)) => return Err(SetupError::new(file, message).into()),
            None => continue,
        };
        add_of(
            reader,
            &mut locks,
            &folder,
            &module,
            setup,
            |declared, package| {
                if let Some(declared) = declared {
                    by_path(declared, &package);
                }
                if seen.insert(package.clone()) {
                    queue.push_back(package);
                }
            },
        )?;
    }
    Ok(())
}

fn add_of(
    reader: &ParsedFiles,
    locks: &mut Locks<'_>,
    folder: &RepoPath,
    module: &KclMod,
    setup: &mut CompileSetup,
    mut found: impl FnMut(Option<&str>, RepoPath),
) -> Result<(), SetupFailure> {
    let tree = locks.tree;
    for (name, dependency) in &module.dependencies {
        // Modules are visited breadth-first, so a name that is known already was declared nearer to the stack.
        let known = setup.packages.iter().any(|(known, _)| known == name)
            || setup.remote_packages.iter().any(|known| known.name == *name);
        if known {
            continue;
        }
        if let Some(path) = &dependency.path {
            let package = match folder.join(path) {
                Some(package) => package,
                None => outside(reader, tree, folder, name, path)?,
            };
            setup.packages.push((name.clone(), package.clone()));
            found(Some(&dependency.declared), package);
            continue;
        }
        // A copy in the `vendor` folder takes precedence over fetching the package.
        let vendored = dependency.store_names.iter().find_map(|stored| {
            let vendor = locks.root.join("vendor")?.join(stored)?;
            [vendor.join(stored)?, vendor]
                .into_iter()
                .find(|package| tree.is_file(&package.child("kcl.mod")))
        });
        if let Some(package) = vendored {
            setup.packages.push((name.clone(), package.clone()));
            found(None, package);
            continue;
        }
        let locked = locks.find(folder, name)?;
        setup.remote_packages.push(RemotePackage {
            name: name.clone(),
            declared: dependency.declared.clone(),
            requirement: canonical_json(&dependency.entry),
            locked,
        });
    }
    Ok(())
}

/// The locks of a module and of the packages that it depends on. Each lock is read once, when it is needed.
struct Locks<'a> {
    tree: &'a FileTreeView,
    root: RepoPath,
    read: HashMap<RepoPath, PackageLock>,
}

impl<'a> Locks<'a> {
    fn new(tree: &'a FileTreeView, root: &RepoPath) -> Self {
        Self {
            tree,
            root: root.clone(),
            read: HashMap::new(),
        }
    }

    /// Returns the lock entry of a dependency of the package in a folder. As in kpm, the lock of the module counts for
    /// all its dependencies. The package's own lock is used only for a dependency that the lock of the module does not
    /// pin.
    fn find(&mut self, folder: &RepoPath, name: &str) -> Result<LockedPackage, SetupFailure> {
        let mut found = None;
        for folder in [self.root.clone(), folder.clone()] {
            let entry = self.lock(&folder)?.find(name);
            if entry.as_ref().is_some_and(LockedPackage::is_pinned) {
                return Ok(entry.unwrap_or_default());
            }
            found = found.or(entry);
        }
        Ok(found.unwrap_or_default())
    }

    fn lock(&mut self, folder: &RepoPath) -> Result<&PackageLock, SetupFailure> {
        if !self.read.contains_key(folder) {
            let file = folder.child(LOCK_FILE);
            self.read.insert(folder.clone(), read_lock(self.tree, file)?);
        }
        Ok(&self.read[folder])
    }
}

fn read_lock(tree: &FileTreeView, file: RepoPath) -> Result<PackageLock, SetupFailure> {
    let content = tree.read(&file)?;
    let lock = PackageLock::parse(content.as_deref().unwrap_or_default());
    lock.map_err(|why| {
        let what =
            format!("it cannot be read: {why}; correct the file, or delete it and run `konverge kcl lock`");
        SetupError::new(file, what).into()
    })
}

/// Resolves a dependency whose path leaves the repository. It may be the repository's own root package, if the path
/// returns through the name of the checkout's folder.
fn outside(
    reader: &ParsedFiles,
    tree: &FileTreeView,
    folder: &RepoPath,
    name: &str,
    path: &str,
) -> Result<RepoPath, SetupFailure> {
    let module = reader.modules.get(tree, &RepoPath::root().child("kcl.mod"))?;
    let module = module.and_then(Result::ok);
    let root = module.as_ref().and_then(|module| module.name.as_deref());
    let own = root.filter(|root| root.replace('-', "_") == name);
    let package = outside_paths::by_checkout_name(folder, path, own).filter(RepoPath::is_root);
    package.ok_or_else(|| {
        let why = outside_paths::dependency(tree, folder, name, path, root);
        SetupError::new(folder.child("kcl.mod"), why).into()
    })
}
