//! A repository that Konverge creates in a temporary folder.

use std::path::Path;

use super::GitError;

/// A new repository. Its commits are created in process, without the user's git configuration.
pub struct ScratchRepository(git2::Repository);

impl ScratchRepository {
    /// Creates a repository whose first branch is `branch`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn init(folder: &Path, branch: &str) -> Result<Self, GitError> {
        let mut options = git2::RepositoryInitOptions::new();
        options.initial_head(branch).external_template(false);
        Ok(Self(git2::Repository::init_opts(folder, &options)?))
    }

    /// Commits all files of the folder to the checked-out branch.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn commit_all(&self, message: &str) -> Result<(), GitError> {
        let mut index = self.0.index()?;
        index.add_all(["*"], git2::IndexAddOption::DEFAULT, None)?;
        index.write()?;
        let tree = self.0.find_tree(index.write_tree()?)?;
        let parent = self.0.head().ok().map(|head| head.peel_to_commit()).transpose()?;
        let parents: Vec<_> = parent.iter().collect();
        let writer = git2::Signature::now("Konverge", "konverge@localhost")?;
        self.0
            .commit(Some("HEAD"), &writer, &writer, message, &tree, &parents)?;
        Ok(())
    }

    /// Creates a branch at the last commit and checks it out.
    ///
    /// # Errors
    /// The branch exists already.
    pub fn switch_to_new(&self, branch: &str) -> Result<(), GitError> {
        let tip = self.0.head()?.peel_to_commit()?;
        self.0.branch(branch, &tip, false)?;
        Ok(self.0.set_head(&format!("refs/heads/{branch}"))?)
    }
}
