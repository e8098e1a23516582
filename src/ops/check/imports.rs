//! Imports that nothing uses, and imports that are written twice.
//!
//! The core's linter sees a file without its package and without other packages, and takes the imports from them for
//! unused. So the files of a package are looked at together, by their tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    CheckedFiles,
    checked_files::{is_kcl, is_test},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule, LintSeverity},
    },
};
use konverge_repo::affected::{self, Import};
use konverge_run::{OpenRevision, compiler::FileContents};

/// One warning for each import of a file that its package does not use.
pub(super) fn check(
    files: &FileContents,
    checked: &CheckedFiles<'_>,
    workspace: &OpenRevision,
) -> Result<Vec<Diagnostic>, UserError> {
    // The entries of a stack share names, whatever folders they are in.
    let entries: BTreeSet<&RepoPath> = workspace
        .layout
        .stacks
        .iter()
        .filter_map(|stack| stack.compile.as_ref().ok())
        .flat_map(|setup| setup.entries.iter().map(|entry| &entry.path))
        .collect();
    let is_entry = |path: &RepoPath| {
        entries.contains(path) || path.parent().is_some_and(|folder| entries.contains(&folder))
    };
    let mut packages = BTreeMap::new();
    let mut found = Vec::new();
    for (path, content) in files {
        if !is_kcl(path) || is_test(path) || is_entry(path) || !checked.is_edited(path) {
            continue;
        }
        let own = ImportUse::scan(content);
        if own.unused().next().is_none() && own.repeated().next().is_none() {
            continue;
        }
        let folder = path.parent().unwrap_or_else(RepoPath::root);
        if !packages.contains_key(&folder) {
            packages.insert(folder.clone(), uses_of_package(workspace, &folder)?);
        }
        let siblings = &packages[&folder];
        let needed = |import: &Import| {
            siblings
                .iter()
                .any(|(other, uses)| other != path && uses.needs(import))
        };
        let unused = own.unused().filter(|import| !needed(import));
        found.extend(unused.map(|import| warning(path, content, import, "is not used", 1)));
        let repeated = own.repeated();
        found.extend(repeated.map(|import| warning(path, content, import, "is written twice", 2)));
    }
    Ok(found)
}

/// The imports and uses of each file of a package, its tests included.
fn uses_of_package(
    workspace: &OpenRevision,
    folder: &RepoPath,
) -> Result<Vec<(RepoPath, ImportUse)>, UserError> {
    let source = &workspace.source;
    let inside = |path: &RepoPath| is_kcl(path) && path.parent().as_ref() == Some(folder);
    let files = source.files().iter().filter(|(path, _)| inside(path));
    files
        .map(|(path, entry)| {
            let content: Result<Arc<[u8]>, _> = source.read(entry.blob);
            let content = content.map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?;
            Ok((path.clone(), ImportUse::scan(&content)))
        })
        .collect()
}

/// What a file imports, and which names before a dot it has.
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

    /// The imports that the file itself does not use, each once.
    fn unused(&self) -> impl Iterator<Item = &Import> {
        let first = |at: usize| !self.imports[..at].contains(&self.imports[at]);
        let imports = self.imports.iter().enumerate();
        imports
            .filter(move |(at, import)| first(*at) && !self.names.contains(plain(import.used_as())))
            .map(|(_, import)| import)
    }

    /// The imports that stand in the file once more, each once.
    fn repeated(&self) -> impl Iterator<Item = &Import> {
        let imports = self.imports.iter().enumerate();
        imports
            .filter(|(at, import)| self.imports[..*at].iter().filter(|other| other == import).count() == 1)
            .map(|(_, import)| import)
    }

    /// Returns true if the file uses the name of an import that it does not import itself: the files of a package share
    /// their imports.
    fn needs(&self, import: &Import) -> bool {
        let name = plain(import.used_as());
        self.names.contains(name) && !self.imports.iter().any(|own| plain(own.used_as()) == name)
    }
}

/// A name without the sign that lets it be a keyword.
fn plain(name: &str) -> &str {
    name.strip_prefix('$').unwrap_or(name)
}

fn warning(path: &RepoPath, content: &[u8], import: &Import, what: &str, nth: usize) -> Diagnostic {
    let written = format!("{}{}", ".".repeat(import.dots as usize), import.path);
    let message = format!("the import `{written}` {what}");
    let mut warning = Diagnostic::new(path, LintRule::Lint, &message).at(line_of(import, content, nth), None);
    warning.severity = LintSeverity::Warning;
    warning.hint = Some("remove the line".to_owned());
    warning
}

/// The line of the nth import like this one.
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
    fn an_import_that_stands_twice_is_found_at_its_second_line() {
        let text = b"import a.b\nimport a.b as c\nimport a.b\nx = b.C {y = c.D}\n";
        let file = ImportUse::scan(text);
        let repeated: Vec<_> = file.repeated().collect();
        assert_eq!(repeated.len(), 1);
        assert_eq!(line_of(repeated[0], text, 2), Some(3));
        assert_eq!(unused("import a.b\nimport a.b\n"), ["a.b"]);
    }
}
