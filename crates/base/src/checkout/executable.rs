//! Finds programs that may be run: only programs outside the checkout.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::{Checkout, Untrusted, links::PathTarget};

/// A program outside the checkout, with a `PATH` for the programs that it starts itself. Only a [`Checkout`]
/// creates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executable {
    path: PathBuf,
    search_path: std::ffi::OsString,
}

impl Executable {
    /// Returns the absolute path of the program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the `PATH` without folders that are relative, in the checkout or below `/proc`.
    pub fn search_path(&self) -> &OsStr {
        &self.search_path
    }
}

impl Checkout {
    /// Returns the first of these programs on the `PATH`. Relative folders of the `PATH`, folders in the checkout,
    /// and programs that are links into it are skipped.
    ///
    /// # Errors
    /// No such program is on the `PATH`.
    pub fn find(&self, names: &[&str]) -> Result<Executable, Untrusted> {
        let mut passed_over = None;
        for name in names {
            for folder in std::env::split_paths(&self.search_path) {
                let path = folder.join(name);
                if !is_executable(&path) {
                    continue;
                }
                match self.leads(&path) {
                    PathTarget::Outside => return Ok(self.allowed(path)),
                    _ => passed_over = Some(path),
                }
            }
        }
        Err(Untrusted::NotFound {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            passed_over,
        })
    }

    /// Returns the program that a setting gives by name or absolute path.
    ///
    /// # Errors
    /// The path leads into the checkout or below `/proc`, or is relative; the name is not on the `PATH`.
    pub fn executable(&self, what: &str, given: &Path) -> Result<Executable, Untrusted> {
        match given.to_str() {
            Some(name) if !name.contains('/') && !name.is_empty() => self.find(&[name]),
            _ => {
                self.trust(what, given)?;
                Ok(self.allowed(given.to_owned()))
            }
        }
    }

    fn allowed(&self, path: PathBuf) -> Executable {
        Executable {
            path,
            search_path: self.search_path.clone(),
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn plant(folder: &Path, name: &str) -> PathBuf {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_program_is_searched_outside_of_the_checkout() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let (root, bin) = (real.join("checkout"), real.join("bin"));
        plant(&root.join("bin"), "git");
        let planted = plant(&root.join("bin"), "only");
        let good = plant(&bin, "git");
        let links = real.join("links");
        fs::create_dir_all(&links).unwrap();
        symlink(&planted, links.join("only")).unwrap();
        symlink(&planted, links.join("git")).unwrap();
        symlink(root.join("bin"), real.join("alias")).unwrap();
        let search_path = format!(
            ".::bin:{}:/proc/self/cwd/bin:{}:{}:{}",
            root.join("bin").display(),
            real.join("alias").display(),
            links.display(),
            bin.display()
        );
        let checkout = Checkout::new(Some(&root), Some(OsStr::new(&search_path)));
        let found = checkout.find(&["git"]).unwrap();
        assert_eq!(found.path(), good);
        let children = format!("{}:{}", links.display(), bin.display());
        assert_eq!(found.search_path(), OsStr::new(&children));
        let missing = checkout.find(&["only"]).unwrap_err();
        assert!(
            matches!(&missing, Untrusted::NotFound { passed_over: Some(path), .. } if *path == links.join("only")),
            "{missing}"
        );
        assert_eq!(checkout.executable("x", Path::new("git")).unwrap(), found);
        for refused in [
            planted.as_path(),
            Path::new("./git"),
            Path::new("bin/git"),
            Path::new(""),
        ] {
            assert!(checkout.executable("x", refused).is_err(), "{refused:?}");
        }
    }
}
