//! Real git repositories in a temporary folder, made by the `git` binary with a fixed identity and fixed dates, so
//! that the same steps give the same commits.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// A repository. Its folder is removed on drop.
pub struct Repository {
    folder: TempDir,
    commits: AtomicU32,
}

impl Repository {
    /// Creates an empty repository on the branch `main`.
    pub fn init() -> Self {
        let repository = Self::in_new_folder();
        repository.git(["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    /// Copies `konfig-example/` into a repository with one commit on `main`.
    pub fn konfig_example() -> Self {
        let repository = Self::init();
        copy(&super::root().join("konfig-example"), repository.path());
        repository.commit("The example");
        repository
    }

    /// Clones this repository, with arguments of `git clone` such as `--depth=1` or `--bare`.
    pub fn clone_with(&self, arguments: &[&str]) -> Self {
        let clone = Self::in_new_folder();
        let url = format!("file://{}", self.path().display());
        let mut all = vec!["clone", "--quiet"];
        all.extend(arguments);
        all.extend([url.as_str(), "."]);
        clone.git(all);
        clone
            .commits
            .store(self.commits.load(Ordering::Relaxed), Ordering::Relaxed);
        clone
    }

    /// Returns the path of the working tree.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file, and creates its folders.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a path inside")).expect("the folder can be made");
        std::fs::write(path, text).expect("the file can be written");
        self
    }

    /// Returns the text of a file in the working tree.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Replaces a text that must occur exactly once in a file.
    pub fn replace(&self, path: &str, from: &str, to: &str) -> &Self {
        let text = self.read(path);
        assert_eq!(text.matches(from).count(), 1, "{path} should have `{from}` once");
        self.write(path, text.replace(from, to))
    }

    /// Removes a file or a folder.
    pub fn remove(&self, path: &str) -> &Self {
        self.git(["rm", "-r", "--quiet", "--", path]);
        self
    }

    /// Moves a file or a folder.
    pub fn rename(&self, from: &str, to: &str) -> &Self {
        if let Some(parent) = Path::new(to).parent() {
            std::fs::create_dir_all(self.path().join(parent)).expect("the folder can be made");
        }
        self.git(["mv", "--", from, to]);
        self
    }

    /// Commits everything in the working tree, and returns the commit's id.
    pub fn commit(&self, message: &str) -> String {
        self.git(["add", "--all"]);
        self.git(["commit", "--quiet", "--allow-empty", "-m", message]);
        self.rev("HEAD")
    }

    /// Creates a branch at HEAD, and checks it out.
    pub fn branch(&self, name: &str) -> &Self {
        self.git(["checkout", "--quiet", "-b", name]);
        self
    }

    /// Checks out a branch or a commit.
    pub fn checkout(&self, revision: &str) -> &Self {
        self.git(["checkout", "--quiet", revision]);
        self
    }

    /// Merges a branch with a merge commit, as GitHub's button does, and returns the commit's id.
    pub fn merge(&self, branch: &str) -> String {
        self.git([
            "merge",
            "--quiet",
            "--no-ff",
            "-m",
            &format!("Merge {branch}"),
            branch,
        ]);
        self.rev("HEAD")
    }

    /// Returns the full id of a revision.
    pub fn rev(&self, revision: &str) -> String {
        self.git(["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
    }

    /// Runs git in the working tree, and returns its trimmed output.
    ///
    /// # Panics
    /// git fails. The message has its output.
    pub fn git<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> String {
        let arguments: Vec<_> = arguments.into_iter().collect();
        // Each step is a second later, so that the order of commits is also the order of their dates.
        let date = format!(
            "{} +0000",
            1_767_225_600 + self.commits.fetch_add(1, Ordering::Relaxed)
        );
        let output = Command::new("git")
            .args([
                "-c",
                "core.autocrlf=false",
                "-c",
                "commit.gpgsign=false",
                "-c",
                "gc.auto=0",
            ])
            .args(&arguments)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("LC_ALL", "C")
            .envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")])
            .envs([
                ("GIT_AUTHOR_NAME", "Ada"),
                ("GIT_AUTHOR_EMAIL", "ada@example.com"),
                ("GIT_AUTHOR_DATE", &date),
            ])
            .envs([
                ("GIT_COMMITTER_NAME", "Ada"),
                ("GIT_COMMITTER_EMAIL", "ada@example.com"),
            ])
            .env("GIT_COMMITTER_DATE", &date)
            .output()
            .expect("git can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {arguments:?}: {error}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    fn in_new_folder() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("konverge-git-")
            .tempdir()
            .expect("a temporary folder");
        Self {
            folder,
            commits: AtomicU32::new(0),
        }
    }
}

/// Copies the files of a folder, without files that runs leave behind in the example.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("an entry");
        let target: PathBuf = to.join(entry.file_name());
        if entry.file_name() == ".konverge" {
            continue;
        }
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("the file can be copied");
        }
    }
}
