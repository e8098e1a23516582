//! The paths whose changes can affect a stack, as the value of Argo CD's annotation
//! `argocd.argoproj.io/manifest-generate-paths`: files, folders and patterns, from the root of the repository,
//! separated by `;`.

use std::collections::BTreeSet;

use super::{AffectedError, Analysis, resolve::ResolvedImport};
use konverge_base::model::{RepoPath, stack::Stack};

/// The files in a stack's folder that become inputs when somebody adds them.
const OWN_FILES: [&str; 4] = ["stack.yaml", "kcl.yaml", "kcl.mod", "kcl.mod.lock"];

impl Analysis {
    /// Returns the value of the annotation. Changes of files that it does not match cannot affect the stack.
    ///
    /// # Errors
    /// The stack does not belong to this revision.
    pub fn argocd_paths(&self, stack: &Stack) -> Result<String, AffectedError> {
        let at = self.position(stack)?;
        let inputs = &self.inputs[at];
        let mut paths = BTreeSet::new();
        let mut add = |path: &RepoPath| {
            paths.insert(plain(path));
        };
        inputs.files.iter().for_each(|(_, path, _)| add(path));
        inputs.settings_files.iter().for_each(|(path, _)| add(path));
        OWN_FILES.iter().for_each(|name| add(&stack.folder.child(name)));
        add(&stack.folder.child("ci-test").child("settings.yaml"));
        add(&stack.project_folder.child("project.yaml"));
        // A path to a folder stands for every file below it.
        add(&stack.project_folder.child("crd"));
        add(&RepoPath::root().child("konverge.yaml"));
        let workspace = self.workspaces[at].iter();
        workspace.for_each(|workspace| {
            workspace
                .files
                .iter()
                .chain(&workspace.secret_files)
                .for_each(&mut add)
        });
        self.shared_reads(at)
            .iter()
            .for_each(|(readable, _)| add(readable));
        let mut packages = BTreeSet::new();
        for id in self.graph.reachable(inputs.entries.iter().copied()) {
            let node = &self.graph.nodes[id];
            node.files.iter().for_each(|file| add(&file.path));
            node.links.iter().for_each(&mut add);
            node.data.iter().for_each(|(readable, _)| add(readable));
            if let ResolvedImport::Package(folder) | ResolvedImport::EntryFolder(folder) = &node.place {
                packages.insert(folder);
            }
        }
        // The pattern covers the whole package, because a new file of the package is an input too.
        paths.extend(packages.into_iter().map(code_of));
        if paths.contains("/") {
            return Ok("/".to_owned());
        }
        // A path inside a folder that is listed already needs no entry of its own.
        let within = |path: &&String| {
            let mut folders = path.match_indices('/').skip(1).map(|(at, _)| &path[..at]);
            !folders.any(|folder| paths.contains(folder))
        };
        let kept: Vec<_> = paths.iter().filter(within).map(String::as_str).collect();
        Ok(kept.join(";"))
    }
}

/// Returns the pattern for the `.k` files of a package; `*` does not match a slash.
fn code_of(folder: &RepoPath) -> String {
    if folder.as_str().contains(['*', '?', '[', '\\', ';']) {
        // A pattern cannot contain such a folder name, so the whole folder is listed.
        plain(folder)
    } else {
        format!("{}/*.k", plain(folder).trim_end_matches('/'))
    }
}

/// Returns a path from the root. A path with a `;` cannot be in the annotation, so the folder above that component is
/// returned instead.
fn plain(path: &RepoPath) -> String {
    let text = format!("/{}", path.as_str());
    match text.split_once(';') {
        None => text,
        Some((before, _)) => {
            let folder = before.rsplit_once('/').map_or("", |(folder, _)| folder);
            format!("{folder}/")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::analysis;
    use super::*;

    fn paths(texts: &[(&str, &str)]) -> String {
        let analysis = analysis(texts);
        let stack = analysis.layout().stacks[0].clone();
        analysis.argocd_paths(&stack).unwrap()
    }

    #[test]
    fn the_stack_its_packages_and_what_could_join_them_are_watched() {
        let found = paths(&[
            (
                "shop/dev/main.k",
                "import base.pkg.app\nimport base.one\na = app.x + one.y\n",
            ),
            ("base/pkg/app/app.k", "x = 1\n"),
            ("base/one.k", "y = 1\n"),
            ("base/other/other.k", "z = 1\n"),
        ]);
        assert_eq!(
            found.split(';').collect::<Vec<_>>(),
            [
                "/base/one.k",
                "/base/pkg/app/*.k",
                "/base/pkg/app/app.k",
                "/kcl.mod",
                "/konverge.yaml",
                "/shop/crd",
                "/shop/dev/ci-test/settings.yaml",
                "/shop/dev/kcl.mod",
                "/shop/dev/kcl.mod.lock",
                "/shop/dev/kcl.yaml",
                "/shop/dev/main.k",
                "/shop/dev/stack.yaml",
                "/shop/project.yaml",
            ]
        );
    }

    #[test]
    fn a_folder_that_is_read_as_a_whole_counts_as_a_whole() {
        let main = "import file\nname = \"x\"\na = file.read(name + \".txt\")\n";
        let found = paths(&[("shop/dev/main.k", main), ("data/a.txt", "a")]);
        assert!(
            found == "/" || found.split(';').any(|path| path == "/shop/dev"),
            "{found}"
        );
        assert!(found == "/" || !found.contains("/shop/dev/main.k"), "{found}");
    }

    #[test]
    fn a_path_that_the_annotation_cannot_hold_is_its_folder() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        assert_eq!(plain(&path("a/b;c/d.k")), "/a/");
        assert_eq!(plain(&path("a;b")), "/");
        assert_eq!(code_of(&path("a/[b]")), "/a/[b]");
        assert_eq!(code_of(&path("a/b")), "/a/b/*.k");
        assert_eq!(code_of(&RepoPath::root()), "/*.k");
    }
}
