//! Recognizes the layout of kcl-lang's Konfig: packages with a program each, and no `stack.yaml`.

use std::{collections::BTreeSet, sync::Arc};

use super::answers::scalar;
use konverge_base::{
    error::UserError,
    model::{RepoPath, file_source::Source, stack::LayoutRules},
};
use konverge_repo::konfig::{Layout, Settings};

/// The maximum number of globs. With more of them the packages have no common layout.
const MOST_GLOBS: usize = 12;

/// The packages that are stacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PackageLayout {
    /// The globs of `include` that make the packages stacks; empty without such packages, or without a common layout.
    pub include: Vec<String>,
    /// True if the root has a program, but is no stack because other stacks lie below it.
    pub leaves_root_out: bool,
    /// The settings files at the root, if the root is the only stack. That stack reads none of them.
    pub settings: Vec<RootSettings>,
}

/// A settings file at the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RootSettings {
    pub file: RepoPath,
    /// True if the settings file names the files of the program.
    pub has_files: bool,
}

impl PackageLayout {
    /// Finds the programs among the packages of a repository.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn find(files: &Arc<dyn Source>) -> Result<Self, UserError> {
        let every = LayoutRules {
            include: vec!["**".to_owned()],
            ..LayoutRules::default()
        };
        let packages = Layout::read(files, every)?;
        let root = RepoPath::root();
        let root_is_program =
            files.files().contains_key(&root.child("kcl.mod")) && is_program(&root, files.as_ref());
        // The most common KCL repository: a single package, at the root.
        if packages.stacks.is_empty() && root_is_program {
            return Ok(Self {
                include: vec![".".to_owned()],
                settings: root_settings(files.as_ref()),
                ..Self::default()
            });
        }
        let packages: BTreeSet<RepoPath> = packages.stacks.into_iter().map(|stack| stack.folder).collect();
        let is_program = |folder: &&RepoPath| is_program(folder, files.as_ref());
        let programs: BTreeSet<RepoPath> = packages.iter().filter(is_program).cloned().collect();
        let mut include = globs(&programs, &packages);
        if include.len() > MOST_GLOBS {
            include.clear();
        }
        Ok(Self {
            leaves_root_out: root_is_program && !include.is_empty(),
            include,
            settings: Vec::new(),
        })
    }

    /// Describes in sentences what was found.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut found = Vec::new();
        if !self.include.is_empty() {
            let globs: Vec<_> = self.include.iter().map(|glob| format!("`{glob}`")).collect();
            found.push(format!(
                "no folder has a `stack.yaml`: packages with a program are the stacks (`include` in konverge.yaml: {}), and \
                 the folder above is the project",
                globs.join(", ")
            ));
        }
        if self.leaves_root_out {
            found.push(
                "the package at the root has a program too, and is no stack, because other stacks lie in it: `include: ['.']` \
                 makes it the only one"
                    .to_owned(),
            );
        }
        found
    }

    /// Returns the commands that create a stack for each settings file at the root.
    pub(super) fn hint(&self) -> Option<String> {
        if self.settings.is_empty() {
            return None;
        }
        let files: Vec<_> = self
            .settings
            .iter()
            .map(|one| format!("`{}`", one.file))
            .collect();
        let mut lines = vec![format!(
            "`root/default` reads no settings file. For one stack for each of {}: run these lines in the root, and take \
             `include` out of konverge.yaml",
            files.join(", ")
        )];
        lines.push("  echo 'name: root' > project.yaml".to_owned());
        for RootSettings { file, has_files } in &self.settings {
            let name = file
                .file_name()
                .rsplit_once('.')
                .map_or("default", |(stem, _)| stem);
            let (copy, after) = if *has_files {
                ("cat", "  # then put ../../ before its paths")
            } else {
                ("echo 'kcl_cli_configs: {files: [../../main.k]}' | cat -", "")
            };
            lines.push(format!(
                "  mkdir -p stacks/{name} && echo 'name: {}' > stacks/{name}/stack.yaml && {copy} {file} > stacks/{name}/kcl.yaml{after}",
                scalar(name),
            ));
        }
        Some(lines.join("\n"))
    }
}

/// Finds the settings files at the root: those with `kcl_options` or `kcl_cli_configs`. A name with characters that are
/// special to a shell is left out, because the name is printed in commands.
fn root_settings(files: &dyn Source) -> Vec<RootSettings> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_yaml = |path: &&RepoPath| {
        let name = path.as_str();
        name.chars().all(is_plain)
            && !name.starts_with('-')
            && [".yaml", ".yml"].iter().any(|end| name.ends_with(end))
    };
    let read = |path: &RepoPath| {
        let text = files.read_path(path).ok()??;
        let settings = Settings::parse(&text).ok()?;
        let has_files = !settings.files.is_empty();
        (has_files || !settings.options.is_empty()).then(|| RootSettings {
            file: path.clone(),
            has_files,
        })
    };
    files.files().keys().filter(is_yaml).filter_map(read).collect()
}

/// Returns true if a package is run by itself: its `kcl.mod` names entries, or it has a `main.k`.
fn is_program(folder: &RepoPath, files: &dyn Source) -> bool {
    let has_entries = || {
        let text = files.read_path(&folder.child("kcl.mod")).ok()??;
        let table: toml::Table = std::str::from_utf8(&text).ok()?.parse().ok()?;
        Some(table.get("profile")?.get("entries")?.as_array()?.is_empty())
    };
    files.files().contains_key(&folder.child("main.k")) || has_entries() == Some(false)
}

/// Returns one glob for all programs at the same depth below a folder at the root, if no other package matches it;
/// otherwise their folders.
fn globs(programs: &BTreeSet<RepoPath>, packages: &BTreeSet<RepoPath>) -> Vec<String> {
    let pattern = |folder: &RepoPath| {
        let mut parts = folder.as_str().split('/');
        let first = globset::escape(parts.next().unwrap_or_default());
        parts.fold(first, |glob, _| glob + "/*")
    };
    let others: BTreeSet<String> = packages.difference(programs).map(pattern).collect();
    let glob = |folder: &RepoPath| match pattern(folder) {
        shared if others.contains(&shared) => globset::escape(folder.as_str()),
        shared => shared,
    };
    let globs: BTreeSet<String> = programs.iter().map(glob).collect();
    globs.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(all: &[&str]) -> BTreeSet<RepoPath> {
        let folder = |path: &&str| RepoPath::normalize(path).unwrap();
        all.iter().map(folder).collect()
    }

    #[test]
    fn programs_of_one_depth_have_one_glob() {
        let programs = ["examples/appops/shop/dev", "examples/server/web/prod"];
        let packages = [&programs[..], &["examples/appops/shop", "models"]].concat();
        assert_eq!(
            globs(&folders(&programs), &folders(&packages)),
            ["examples/*/*/*"]
        );
        // The glob must not match another package of the same depth.
        let packages = [&packages[..], &["examples/lib/x/y"]].concat();
        assert_eq!(globs(&folders(&programs), &folders(&packages)), programs);
        assert_eq!(
            globs(&folders(&["dev", "a/*"]), &folders(&["dev", "a/*"])),
            ["a/*", "dev"]
        );
    }
}
