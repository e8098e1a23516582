//! The `demo` use case: a small monorepo in a scratch folder, and the change of a pull request in it. The example is
//! part of the binary.

mod live;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::toolchains;
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};
use konverge_repo::git::ScratchRepository;
use konverge_run::RunContext;
pub use live::{DemoKind, apply_pending, destroy, drift, status};

/// The branch with the monorepo as it is.
pub const BASE: &str = "main";
/// The branch with the change.
pub const HEAD: &str = "change";

/// The files of the monorepo.
const FILES: [(&str, &str); 19] = [
    ("kcl.mod", include_str!("example/kcl.mod")),
    ("base/model/web.k", include_str!("example/base/model/web.k")),
    ("base/render.k", include_str!("example/base/render.k")),
    (
        "appops/orders/project.yaml",
        include_str!("example/appops/orders/project.yaml"),
    ),
    (
        "appops/orders/base/base.k",
        include_str!("example/appops/orders/base/base.k"),
    ),
    (
        "appops/orders/dev/stack.yaml",
        include_str!("example/appops/orders/dev/stack.yaml"),
    ),
    (
        "appops/orders/dev/kcl.yaml",
        include_str!("example/appops/orders/dev/kcl.yaml"),
    ),
    (
        "appops/orders/dev/main.k",
        include_str!("example/appops/orders/dev/main.k"),
    ),
    (
        "appops/orders/prod/stack.yaml",
        include_str!("example/appops/orders/prod/stack.yaml"),
    ),
    (
        "appops/orders/prod/kcl.yaml",
        include_str!("example/appops/orders/prod/kcl.yaml"),
    ),
    (
        "appops/orders/prod/main.k",
        include_str!("example/appops/orders/prod/main.k"),
    ),
    (
        "appops/storefront/project.yaml",
        include_str!("example/appops/storefront/project.yaml"),
    ),
    (
        "appops/storefront/base/base.k",
        include_str!("example/appops/storefront/base/base.k"),
    ),
    (
        "appops/storefront/dev/stack.yaml",
        include_str!("example/appops/storefront/dev/stack.yaml"),
    ),
    (
        "appops/storefront/dev/kcl.yaml",
        include_str!("example/appops/storefront/dev/kcl.yaml"),
    ),
    (
        "appops/storefront/dev/main.k",
        include_str!("example/appops/storefront/dev/main.k"),
    ),
    (
        "appops/storefront/prod/stack.yaml",
        include_str!("example/appops/storefront/prod/stack.yaml"),
    ),
    (
        "appops/storefront/prod/kcl.yaml",
        include_str!("example/appops/storefront/prod/kcl.yaml"),
    ),
    (
        "appops/storefront/prod/main.k",
        include_str!("example/appops/storefront/prod/main.k"),
    ),
];

/// One line of a file that the change replaces.
#[derive(Debug, Clone, Copy)]
pub struct LineEdit {
    /// The file, from the root.
    pub file: &'static str,
    /// The text that is replaced. It occurs once in the file.
    pub from: &'static str,
    /// The text that replaces the line.
    pub to: &'static str,
}

/// The change: one line of the shared model, and one of a single stack.
pub const EDITS: [LineEdit; 2] = [
    LineEdit {
        file: "base/model/web.k",
        from: "    cpu: str = \"100m\"",
        to: "    cpu: str = \"200m\"",
    },
    LineEdit {
        file: "appops/storefront/prod/main.k",
        from: "    image = \"registry.example/storefront:2.3.1\"",
        to: "    image = \"registry.example/storefront:2.4.0\"",
    },
];

/// The monorepo in a scratch folder, which is removed on drop.
pub struct DemoRepository {
    folder: TempDir,
}

impl DemoRepository {
    /// Writes the monorepo and the change, each as a commit.
    ///
    /// # Errors
    /// The core is not installed (the hint says how to install it), or the scratch folder cannot be written.
    pub async fn create(run: &RunContext) -> Result<Self, UserError> {
        toolchains::find(run, toolchains::DEFAULT_VERSION).await?;
        let failed = scratch_failure;
        let folder = tempfile::Builder::new()
            .prefix("konverge-demo-")
            .tempdir()
            .map_err(failed)?;
        let demo = Self { folder };
        for (path, text) in FILES {
            demo.write(path, text).map_err(failed)?;
        }
        let git = ScratchRepository::init(&demo.root(), BASE)?;
        git.commit_all("The monorepo as it is")?;
        git.switch_to_new(HEAD)?;
        for (path, text) in FILES {
            let edits = EDITS.iter().filter(|edit| edit.file == path);
            let edited = edits.fold(text.to_owned(), |text, edit| text.replace(edit.from, edit.to));
            if edited != text {
                demo.write(path, &edited).map_err(failed)?;
            }
        }
        git.commit_all("Storefront 2.4.0; more CPU for all")?;
        Ok(demo)
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("monorepo")
    }

    fn write(&self, path: &str, text: &str) -> std::io::Result<()> {
        write_below(&self.root(), path, text)
    }

    /// Returns the context of runs in a repository with the stacks of the second half, as after a merge. It has its own
    /// state.
    ///
    /// # Errors
    /// The scratch folder cannot be written.
    pub fn merge(&self, kind: &DemoKind, run: &RunContext) -> Result<RunContext, UserError> {
        let name = match kind {
            DemoKind::Terraform => "terraform",
            DemoKind::Kubernetes { .. } => "kubernetes",
        };
        let root = self.folder.path().join(name);
        let mut files = live::files(kind);
        files.push(("kcl.mod".to_owned(), FILES[0].1.to_owned()));
        for (path, text) in files {
            write_below(&root, &path, &text).map_err(scratch_failure)?;
        }
        ScratchRepository::init(&root, BASE)?.commit_all("What is applied")?;
        let mut run = self.run(run);
        run.dir = root;
        let state = self.folder.path().join(format!("{name}-state"));
        run.env
            .insert(variables::XDG_STATE_HOME.to_owned(), state.display().to_string());
        Ok(run)
    }

    /// Returns the context of a run in this monorepo. It uses no state, cluster or job of the person.
    pub fn run(&self, run: &RunContext) -> RunContext {
        let mut run = run.clone();
        run.dir = self.root();
        run.env
            .retain(|name, _| !name.starts_with("GITHUB_") && !name.starts_with("INPUT_"));
        let state = self.folder.path().join("state");
        run.env
            .insert(variables::XDG_STATE_HOME.to_owned(), state.display().to_string());
        run
    }
}

fn write_below(root: &Path, path: &str, text: &str) -> std::io::Result<()> {
    let path = root.join(path);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

fn scratch_failure(error: std::io::Error) -> UserError {
    UserError::new(
        ErrorKind::Internal,
        format!("the scratch folder of the demo: {error}"),
    )
    .hint("set TMPDIR to a folder that can be written to")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example is in each binary: it stays small.
    #[test]
    fn the_example_is_small_and_has_the_lines_that_the_change_replaces() {
        let size: usize = FILES.iter().map(|(path, text)| path.len() + text.len()).sum();
        assert!(size < 8 * 1024, "{size}");
        for edit in EDITS {
            let text = FILES
                .iter()
                .find(|(path, _)| *path == edit.file)
                .map(|(_, text)| *text);
            assert_eq!(
                text.map(|text| text.matches(edit.from).count()),
                Some(1),
                "{edit:?}"
            );
        }
    }
}
