//! Reports imports that nothing uses, and imports that are written twice.
//!
//! The core's linter has the same checks, but reads a file without its package and without other packages, and so takes
//! the imports that these use for unused. Here the files of a package or a program are read together, by their tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    CheckedFiles,
    checked_files::{is_kcl, is_test},
};
use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule},
    },
};
use konverge_repo::affected::{self, Import};
use konverge_run::{OpenRevision, compiler::FileContents};

/// Returns one warning for each import that nothing uses, and for each module that a file imports again.
pub(super) fn check(
    files: &FileContents,
    checked: &CheckedFiles<'_>,
    workspace: &OpenRevision,
) -> Result<Vec<Diagnostic>, UserError> {
    let programs = Programs::new(workspace);
    let mut packages = BTreeMap::new();
    let mut found = Vec::new();
    for (path, content) in files {
        if !is_kcl(path) || is_test(path) || !checked.is_edited(path) {
            continue;
        }
        let own = ImportUse::scan(content);
        let folder = path.parent().unwrap_or_else(RepoPath::root);
        let module = |import: &Import| module_of(workspace, &folder, import);
        let repeated = own.repeated(module).into_iter();
        found.extend(repeated.map(|(import, nth)| warning(path, content, import, "is written twice", nth)));
        if own.unused().next().is_none() {
            continue;
        }
        let siblings = match programs.files_beside(path) {
            Some(files) => uses_of(workspace, |path| files.contains(path))?,
            None => match packages.get(&folder) {
                Some(uses) => Arc::clone(uses),
                None => {
                    let uses = uses_of(workspace, |path| path.parent().as_ref() == Some(&folder))?;
                    packages.insert(folder.clone(), Arc::clone(&uses));
                    uses
                }
            },
        };
        let needed = |import: &Import| {
            siblings
                .iter()
                .any(|(other, uses)| other != path && uses.needs(import))
        };
        let unused = own.unused().filter(|import| !needed(import));
        found.extend(unused.map(|import| warning(path, content, import, "is not used", 1)));
    }
    Ok(found)
}

/// The start files of the programs of stacks. Files of one program share names and imports, in whatever folders they
/// are.
struct Programs(Vec<BTreeSet<RepoPath>>);

impl Programs {
    fn new(workspace: &OpenRevision) -> Self {
        let tree = workspace.analysis.tree();
        let entry_files = |entry: &RepoPath| -> Vec<RepoPath> {
            if tree.is_file(entry) {
                return vec![entry.clone()];
            }
            let files = workspace.source.files().keys();
            let inside = |path: &&RepoPath| is_kcl(path) && path.parent().as_ref() == Some(entry);
            files.filter(inside).cloned().collect()
        };
        let stacks = workspace.layout.stacks.iter();
        let setups = stacks.filter_map(|stack| stack.compile.as_ref().ok());
        let files = setups.map(|setup| {
            let entries = setup.entries.iter();
            entries.flat_map(|entry| entry_files(&entry.path)).collect()
        });
        Self(files.collect())
    }

    /// Returns the start files of every program that starts in a file; `None` if no program does.
    fn files_beside(&self, path: &RepoPath) -> Option<BTreeSet<&RepoPath>> {
        let programs = self.0.iter().filter(|files| files.contains(path));
        let files: BTreeSet<&RepoPath> = programs.flatten().collect();
        (!files.is_empty()).then_some(files)
    }
}

/// Returns the path of the module that an import names, from the folder with the `kcl.mod`.
fn module_of(workspace: &OpenRevision, folder: &RepoPath, import: &Import) -> String {
    let path = plain_path(&import.path);
    if import.dots == 0 {
        return path;
    }
    let mut above = Some(folder.clone());
    for _ in 1..import.dots {
        above = above.and_then(|folder| folder.parent());
    }
    let root = workspace.analysis.tree().module_root(folder).unwrap_or_default();
    let above = above.unwrap_or_default();
    let above = above.relative_to(&root).unwrap_or_default().replace('/', ".");
    format!("{above}.{path}").trim_matches('.').to_owned()
}

/// Collects the imports and uses of KCL files.
fn uses_of(
    workspace: &OpenRevision,
    is_wanted: impl Fn(&RepoPath) -> bool,
) -> Result<Arc<Vec<(RepoPath, ImportUse)>>, UserError> {
    let source = &workspace.source;
    let files = source.files().iter();
    let files = files.filter(|(path, _)| is_kcl(path) && is_wanted(path));
    let uses = files.map(|(path, entry)| {
        let content: Result<Arc<[u8]>, _> = source.read(entry.blob);
        let content = content?;
        Ok((path.clone(), ImportUse::scan(&content)))
    });
    uses.collect::<Result<_, _>>().map(Arc::new)
}

/// The imports of a file, and the names before a dot in it.
struct ImportUse {
    imports: Vec<Import>,
    names: BTreeSet<String>,
}

impl ImportUse {
    fn scan(content: &[u8]) -> Self {
        let members = affected::members(content).into_iter();
        Self {
            imports: affected::scan(content),
            names: members.map(|member| plain(&member.of).to_owned()).collect(),
        }
    }

    /// Returns the imports that the file itself does not use, each once.
    fn unused(&self) -> impl Iterator<Item = &Import> {
        let first = |at: usize| !self.imports[..at].contains(&self.imports[at]);
        let imports = self.imports.iter().enumerate();
        imports
            .filter(move |(at, import)| first(*at) && !self.names.contains(plain(import.used_as())))
            .map(|(_, import)| import)
    }

    /// Returns the repeated imports of modules, each module once, with the number of the import among equal ones.
    fn repeated(&self, module: impl Fn(&Import) -> String) -> Vec<(&Import, usize)> {
        let modules: Vec<String> = self.imports.iter().map(module).collect();
        let imports = self.imports.iter().enumerate();
        let again = imports.filter(|(at, _)| {
            let before = modules[..*at].iter();
            before.filter(|other| **other == modules[*at]).count() == 1
        });
        again
            .map(|(at, import)| {
                let equal = self.imports[..=at].iter().filter(|other| *other == import);
                (import, equal.count())
            })
            .collect()
    }

    /// Returns true if the file uses the name of an import without importing it: the files of a package share their
    /// imports.
    fn needs(&self, import: &Import) -> bool {
        let name = plain(import.used_as());
        self.names.contains(name) && !self.imports.iter().any(|own| plain(own.used_as()) == name)
    }
}

/// Returns a name without the `$` that allows a keyword as a name.
fn plain(name: &str) -> &str {
    name.strip_prefix('$').unwrap_or(name)
}

/// Returns the path of an import without such `$` signs.
fn plain_path(path: &str) -> String {
    path.split('.').map(plain).collect::<Vec<_>>().join(".")
}

fn warning(path: &RepoPath, content: &[u8], import: &Import, what: &str, nth: usize) -> Diagnostic {
    let written = format!("{}{}", ".".repeat(import.dots as usize), import.path);
    let message = format!("the import `{written}` {what}");
    let found = Diagnostic::new(path, LintRule::Lint, &message).at(line_of(import, content, nth), None);
    found.warning().hint("remove the line")
}

/// Returns the line of the nth import that equals this one.
fn line_of(import: &Import, content: &[u8], nth: usize) -> Option<u32> {
    let lines = content.split(|byte| *byte == b'\n').enumerate();
    let (at, _) = lines
        .filter(|(_, line)| affected::scan(line).contains(import))
        .nth(nth - 1)?;
    u32::try_from(at + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(text: &str) -> Vec<String> {
        let file = ImportUse::scan(text.as_bytes());
        file.unused().map(|import| import.path.clone()).collect()
    }

    #[test]
    fn a_name_before_a_dot_is_a_use() {
        for used in [
            "import a.b\nx = b.C {}\n",
            "import a.b as c\nx: c.D = None\n",
            "import a.b as c\nschema S(c.D):\n    mixin [c.M]\n",
            "import a.b as c\nx = \"${c.name}-x\"\n",
            "import a.$type\nx = type.A {}\n",
            "import .sibling\nx = sibling.a\n",
        ] {
            assert_eq!(unused(used), Vec::<String>::new(), "{used}");
        }
        for left in [
            "import a.b\nx = \"b.C\"\n",
            "import a.b\n# b.C\nb = 1\n",
            "import a.b\nx = c.b.D\n",
        ] {
            assert_eq!(unused(left), ["a.b"], "{left}");
        }
    }

    #[test]
    fn a_file_needs_an_import_of_another_unless_it_has_its_own() {
        let import = affected::scan(b"import a.b\n").remove(0);
        let needs = |text: &str| ImportUse::scan(text.as_bytes()).needs(&import);
        assert!(needs("x = b.C {}\n"));
        assert!(!needs("import a.b\nx = b.C {}\n"));
        assert!(!needs("x = 1\n"));
    }

    #[test]
    fn a_module_that_is_imported_again_is_found_at_its_line() {
        let again = |text: &str| {
            let file = ImportUse::scan(text.as_bytes());
            let found = file.repeated(|import| import.path.clone());
            let lines = found
                .iter()
                .map(|(import, nth)| line_of(import, text.as_bytes(), *nth));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(again("import a.b\nimport c\nimport a.b\nx = b.C {}\n"), [Some(3)]);
        // As for the core's linter, no other name silences the warning.
        assert_eq!(
            again("import a.b\nimport a.b as c\nx = b.C {y = c.D}\n"),
            [Some(2)]
        );
        assert_eq!(again("import a.b\nimport a.b\nimport a.b\n"), [Some(2)]);
        assert!(again("import a.b\nimport a\n").is_empty());
        assert_eq!(unused("import a.b\nimport a.b\n"), ["a.b"]);
    }
}
