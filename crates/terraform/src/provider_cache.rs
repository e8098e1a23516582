//! The sources of provider packages, and the cache that concurrent runs share.
//!
//! Terraform writes to its own plugin cache in place, which disturbs runs that execute a provider from there.
//! Here a package appears complete, by one rename, and is never changed again; Terraform reads the folder as
//! a mirror.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{binary::Binary, providers::ProviderRef};

/// The folder of the packages, with the layout of a filesystem mirror with unpacked packages.
pub(super) struct ProviderCache<'a> {
    pub(super) folder: &'a Path,
}

impl ProviderCache<'_> {
    /// Returns the sources of the providers whose packages are cached.
    pub(super) fn sources<'p>(
        &self,
        wanted: impl IntoIterator<Item = &'p ProviderRef>,
        binary: &Binary,
    ) -> Vec<String> {
        let here = |provider: &&ProviderRef| self.place(provider, binary).is_dir();
        let wanted = wanted.into_iter().filter(here);
        wanted
            .map(|provider| binary.source_of(&provider.source))
            .collect()
    }

    /// Adds the packages that `init` installed in a data folder. Links to a mirror are skipped.
    pub(super) fn keep<'p>(
        &self,
        data: &Path,
        wanted: impl IntoIterator<Item = &'p ProviderRef>,
        binary: &Binary,
    ) -> io::Result<()> {
        for provider in wanted {
            let place = self.place(provider, binary);
            if place.exists() {
                continue;
            }
            fs::create_dir_all(self.folder)?;
            let new = tempfile::Builder::new().prefix(".new-").tempdir_in(self.folder)?;
            let installed = data.join("providers").join(binary.source_of(&provider.source));
            if !copy(&installed.join(&provider.version), new.path())? {
                continue;
            }
            fs::create_dir_all(place.parent().unwrap_or(self.folder))?;
            // Another run may have added the same package first, which is fine.
            if let Err(error) = fs::rename(new.path(), &place)
                && !place.is_dir()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn place(&self, provider: &ProviderRef, binary: &Binary) -> PathBuf {
        self.folder
            .join(binary.source_of(&provider.source))
            .join(&provider.version)
    }
}

/// Hard-links or copies the files of a folder into another one. Returns true if the folder has any.
fn copy(from: &Path, to: &Path) -> io::Result<bool> {
    let mut any = false;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            fs::create_dir(&target)?;
            any |= copy(&source, &target)?;
        } else if kind.is_file() {
            fs::hard_link(&source, &target).or_else(|_| fs::copy(&source, &target).map(drop))?;
            any = true;
        }
    }
    Ok(any)
}

/// The places from which `init` takes packages.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProviderSource<'a> {
    /// A filesystem mirror; `None` for the registries.
    pub(super) mirror: Option<&'a Path>,
    /// A cache folder with the layout of a mirror, and the sources to take from it.
    pub(super) kept: Option<(&'a Path, &'a [String])>,
}

impl ProviderSource<'_> {
    /// Returns the CLI configuration that names these places. It replaces the user's own.
    pub(super) fn configuration(&self) -> String {
        let quoted = |text: &str| Value::String(text.replace("${", "$${")).to_string();
        let place = |path: &Path| format!("    path = {}\n", quoted(&path.to_string_lossy()));
        let (mut first, mut excluded) = (String::new(), String::new());
        if let Some((folder, sources)) = self.kept
            && !sources.is_empty()
        {
            let sources: Vec<_> = sources.iter().map(|source| quoted(source)).collect();
            let sources = sources.join(", ");
            first = format!(
                "  filesystem_mirror {{\n{}    include = [{sources}]\n  }}\n",
                place(folder)
            );
            excluded = format!("    exclude = [{sources}]\n");
        }
        let rest = match self.mirror {
            Some(mirror) => format!("  filesystem_mirror {{\n{}{excluded}  }}\n", place(mirror)),
            None => format!("  direct {{\n{excluded}  }}\n"),
        };
        format!("{BASE_CONFIGURATION}provider_installation {{\n{first}{rest}}}\n")
    }
}

/// The CLI configuration of commands that install nothing.
pub(super) const BASE_CONFIGURATION: &str = "disable_checkpoint = true\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_not_asked_for_elsewhere() {
        let sources = ["registry.terraform.io/hashicorp/local".to_owned()];
        let kept = Some((Path::new("/cache/a\"${b}"), &sources[..]));
        let text = ProviderSource { mirror: None, kept }.configuration();
        assert!(text.contains(r#"path = "/cache/a\"$${b}""#), "{text}");
        assert!(
            text.contains("direct {\n    exclude = [\"registry.terraform.io/hashicorp/local\"]"),
            "{text}"
        );
        let mirror = Some(Path::new("/mirror"));
        let text = ProviderSource {
            mirror,
            kept: Some((Path::new("/cache"), &[])),
        }
        .configuration();
        assert!(!text.contains("/cache") && !text.contains("direct"), "{text}");
    }
}
